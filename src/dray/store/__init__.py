"""Revisioned key-value stores: transactions, history and watches over bytes, in memory, in SQLite, or in
etcd.

The three back ends implement one protocol (`base`) and pass one contract suite. Nothing here interprets the
values, or knows objects and users. The server, `cluster` and `cli` open stores; everything else reads and
writes through the API.
"""

from __future__ import annotations

from dray.store.address import open_store
from dray.store.base import (
    Committed,
    Compare,
    Delete,
    EntryPage,
    EventBatch,
    FailedCompare,
    KeyAbsent,
    KeyHasValue,
    KeyUnchanged,
    Put,
    SequenceCommitted,
    SequenceConflict,
    SequenceStore,
    Store,
    StoreEntry,
    StoreEvent,
    TxnConflict,
    TxnStep,
    Write,
    build_step_revision,
    resolve_step_revision,
)
from dray.store.records import CommitLog, CommitRecord, RecordingStore

__all__ = [
    "CommitLog",
    "CommitRecord",
    "Committed",
    "Compare",
    "Delete",
    "EntryPage",
    "EventBatch",
    "FailedCompare",
    "KeyAbsent",
    "KeyHasValue",
    "KeyUnchanged",
    "Put",
    "RecordingStore",
    "SequenceCommitted",
    "SequenceConflict",
    "SequenceStore",
    "Store",
    "StoreEntry",
    "StoreEvent",
    "TxnConflict",
    "TxnStep",
    "Write",
    "build_step_revision",
    "open_store",
    "resolve_step_revision",
]
