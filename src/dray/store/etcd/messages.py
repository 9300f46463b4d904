"""The messages of etcd that we speak, as a table from which the classes are made at import.

Theory of operation: a protobuf message is a set of numbered, typed fields. The table below names those
we use; unknown ones are kept and ignored. Building the classes from a table, in a pool of their own,
ties us to no version of a code generator and cannot clash with other users of etcd's messages in the process.

Rules for this file: field numbers are facts of etcd's interface (package etcdserverpb and mvccpb, API v3).
"""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

PACKAGE = "etcdserverpb"

# Field: (name, number, type). A type in capitals is another message of the table; a leading `*` repeats; a
# leading `?` puts the field into the one oneof of its message.
MessageFields = tuple[tuple[str, int, str], ...]
MESSAGES: dict[str, MessageFields] = {
    "KeyValue": (
        ("key", 1, "bytes"),
        ("create_revision", 2, "int64"),
        ("mod_revision", 3, "int64"),
        ("version", 4, "int64"),
        ("value", 5, "bytes"),
    ),
    # `type`: 0 put, 1 delete.
    "Event": (("type", 1, "int32"), ("kv", 2, "KeyValue"), ("prev_kv", 3, "KeyValue")),
    "ResponseHeader": (("member_id", 2, "uint64"), ("revision", 3, "int64")),
    "RangeRequest": (
        ("key", 1, "bytes"),
        ("range_end", 2, "bytes"),
        ("limit", 3, "int64"),
        ("revision", 4, "int64"),
        ("count_only", 9, "bool"),
    ),
    "RangeResponse": (("header", 1, "ResponseHeader"), ("kvs", 2, "*KeyValue"), ("more", 3, "bool")),
    "PutRequest": (("key", 1, "bytes"), ("value", 2, "bytes")),
    "PutResponse": (("header", 1, "ResponseHeader"),),
    "DeleteRangeRequest": (("key", 1, "bytes"), ("range_end", 2, "bytes")),
    "DeleteRangeResponse": (("header", 1, "ResponseHeader"), ("deleted", 2, "int64")),
    "RequestOp": (
        ("request_range", 1, "?RangeRequest"),
        ("request_put", 2, "?PutRequest"),
        ("request_delete_range", 3, "?DeleteRangeRequest"),
    ),
    "ResponseOp": (
        ("response_range", 1, "?RangeResponse"),
        ("response_put", 2, "?PutResponse"),
        ("response_delete_range", 3, "?DeleteRangeResponse"),
    ),
    # `result`: 0 equal. `target`: 2 revision of the last change, 3 value.
    "Compare": (
        ("result", 1, "int32"),
        ("target", 2, "int32"),
        ("key", 3, "bytes"),
        ("mod_revision", 6, "?int64"),
        ("value", 7, "?bytes"),
    ),
    "TxnRequest": (("compare", 1, "*Compare"), ("success", 2, "*RequestOp"), ("failure", 3, "*RequestOp")),
    "TxnResponse": (
        ("header", 1, "ResponseHeader"),
        ("succeeded", 2, "bool"),
        ("responses", 3, "*ResponseOp"),
    ),
    "CompactionRequest": (("revision", 1, "int64"),),
    "CompactionResponse": (("header", 1, "ResponseHeader"),),
    "WatchCreateRequest": (
        ("key", 1, "bytes"),
        ("range_end", 2, "bytes"),
        ("start_revision", 3, "int64"),
        ("progress_notify", 4, "bool"),
        ("prev_kv", 6, "bool"),
    ),
    "WatchProgressRequest": (),
    "WatchRequest": (
        ("create_request", 1, "?WatchCreateRequest"),
        ("progress_request", 3, "?WatchProgressRequest"),
    ),
    "WatchResponse": (
        ("header", 1, "ResponseHeader"),
        ("watch_id", 2, "int64"),
        ("created", 3, "bool"),
        ("canceled", 4, "bool"),
        ("compact_revision", 5, "int64"),
        ("cancel_reason", 6, "string"),
        ("events", 11, "*Event"),
    ),
    "StatusRequest": (),
    "StatusResponse": (("header", 1, "ResponseHeader"), ("version", 2, "string"), ("leader", 4, "uint64")),
}

METHODS = {
    "Range": ("KV", "RangeRequest", "RangeResponse"),
    "Txn": ("KV", "TxnRequest", "TxnResponse"),
    "Compact": ("KV", "CompactionRequest", "CompactionResponse"),
    "Watch": ("Watch", "WatchRequest", "WatchResponse"),
    "Status": ("Maintenance", "StatusRequest", "StatusResponse"),
}
"""Method to service, request and response."""


def _build_classes() -> dict[str, Any]:
    file = descriptor_pb2.FileDescriptorProto(name="dray/etcd.proto", package=PACKAGE, syntax="proto3")
    for name, fields in MESSAGES.items():
        message = file.message_type.add(name=name)
        if any(kind.startswith("?") for _, _, kind in fields):
            message.oneof_decl.add(name="one")
        for field_name, number, kind in fields:
            _add_field(
                message.field.add(name=field_name, number=number), kind, descriptor_pb2.FieldDescriptorProto
            )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    make = message_factory.GetMessageClass
    return {name: make(pool.FindMessageTypeByName(f"{PACKAGE}.{name}")) for name in MESSAGES}


def _add_field(field: Any, kind: str, names: Any) -> None:
    bare = kind.lstrip("*?")
    field.label = names.LABEL_REPEATED if kind.startswith("*") else names.LABEL_OPTIONAL
    if kind.startswith("?"):
        field.oneof_index = 0
    if bare in MESSAGES:
        field.type, field.type_name = names.TYPE_MESSAGE, f".{PACKAGE}.{bare}"
    else:
        field.type = getattr(names, f"TYPE_{bare.upper()}")


CLASSES: dict[str, Any] = _build_classes()
"""Message name to class."""
