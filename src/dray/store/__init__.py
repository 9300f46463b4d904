"""Bytes under keys, with a history: revisions, transactions, watches; in memory, in one file, or in etcd.

Nothing here knows what the bytes mean, what an object is or who may see it; the three back ends keep one
protocol (`base`) and one contract suite. The server, the doors and their tools open a store; everybody else
meets its contents through the API.
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
    Store,
    StoreEntry,
    StoreEvent,
    TxnConflict,
    Write,
)

__all__ = [
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
    "Store",
    "StoreEntry",
    "StoreEvent",
    "TxnConflict",
    "Write",
    "open_store",
]
