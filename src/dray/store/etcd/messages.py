"""Messages and methods of etcd's gRPC interface, as tables.

The tables name the fields that the client uses; others are kept and ignored. Field numbers are facts of
etcd's interface (packages etcdserverpb and mvccpb, API v3). In an `Event`, the type 0 is a put and 1 is a
delete. In a `Compare`, the result 0 is equality, and the target is 2 for the revision of the last change and
3 for the value.
"""

from __future__ import annotations

from typing import Any, Final

from dray.api.messages.field_tables import parse_message_table
from dray.wire.protobuf import build_message_classes

PACKAGE: Final = "etcdserverpb"

_MESSAGES: Final = """
KeyValue
  1 key bytes
  2 create_revision int64
  3 mod_revision int64
  4 version int64
  5 value bytes
Event
  1 type int32
  2 kv KeyValue
  3 prev_kv KeyValue
ResponseHeader
  2 member_id uint64
  3 revision int64
RangeRequest
  1 key bytes
  2 range_end bytes
  3 limit int64
  4 revision int64
  9 count_only bool
RangeResponse
  1 header ResponseHeader
  2 kvs []KeyValue
  3 more bool
PutRequest
  1 key bytes
  2 value bytes
PutResponse
  1 header ResponseHeader
DeleteRangeRequest
  1 key bytes
  2 range_end bytes
DeleteRangeResponse
  1 header ResponseHeader
  2 deleted int64
RequestOp
  1 request_range ?RangeRequest
  2 request_put ?PutRequest
  3 request_delete_range ?DeleteRangeRequest
ResponseOp
  1 response_range ?RangeResponse
  2 response_put ?PutResponse
  3 response_delete_range ?DeleteRangeResponse
Compare
  1 result int32
  2 target int32
  3 key bytes
  6 mod_revision ?int64
  7 value ?bytes
TxnRequest
  1 compare []Compare
  2 success []RequestOp
  3 failure []RequestOp
TxnResponse
  1 header ResponseHeader
  2 succeeded bool
  3 responses []ResponseOp
CompactionRequest
  1 revision int64
CompactionResponse
  1 header ResponseHeader
WatchCreateRequest
  1 key bytes
  2 range_end bytes
  3 start_revision int64
  4 progress_notify bool
  6 prev_kv bool
WatchProgressRequest
WatchRequest
  1 create_request ?WatchCreateRequest
  3 progress_request ?WatchProgressRequest
WatchResponse
  1 header ResponseHeader
  2 watch_id int64
  3 created bool
  4 canceled bool
  5 compact_revision int64
  6 cancel_reason string
  11 events []Event
StatusRequest
StatusResponse
  1 header ResponseHeader
  2 version string
  4 leader uint64
"""

METHODS: Final = {
    "Range": ("KV", "RangeRequest", "RangeResponse"),
    "Txn": ("KV", "TxnRequest", "TxnResponse"),
    "Compact": ("KV", "CompactionRequest", "CompactionResponse"),
    "Watch": ("Watch", "WatchRequest", "WatchResponse"),
    "Status": ("Maintenance", "StatusRequest", "StatusResponse"),
}
"""Service, request and response of each method."""


CLASSES: Final[dict[str, Any]] = build_message_classes(
    PACKAGE, parse_message_table(_MESSAGES), syntax="proto3"
)
"""The class of each message."""
