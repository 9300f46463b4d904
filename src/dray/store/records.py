"""Commit records: lines that a log must have before a transaction is committed.

Theory of operation: whoever must be able to prove what was changed (an audit log) gives the store a line with
the transaction. The store passes it to the log before it commits, together with the lines of all transactions
that share the commit. When the log cannot take it, the transaction is refused and nothing is changed. A crash
may leave a line without its change, never a change without its line. A transaction whose compares fail has
left its line as well; it is not written again when the same request tries once more.

Nothing here knows what a line says.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeGuard

from dray.store.base import (
    Committed,
    Compare,
    SequenceCommitted,
    SequenceConflict,
    SequenceStore,
    Store,
    TxnConflict,
    TxnStep,
    Write,
)
from dray.store.errors import RecordNotWrittenError


class CommitLog(Protocol):
    """A log that takes lines before transactions are committed."""

    def append_before_commit(self, lines: Sequence[bytes]) -> None:
        """Pass all lines to the operating system; raises `RecordNotWrittenError`, and has none then.

        A thread of the store calls this.
        """
        ...


class CommitRecord:
    """A line for a log, which the first transaction that carries it writes."""

    __slots__ = ("is_pending", "line", "log")

    def __init__(self, log: CommitLog, line: bytes) -> None:
        self.log, self.line = log, line
        self.is_pending = True
        """Whether nobody has passed the line to its log yet, whatever the outcome."""


class RecordingStore(Protocol):
    """A store that writes a line to a log before it commits."""

    async def txn_recorded(
        self, compares: Sequence[Compare], writes: Sequence[Write], record: CommitRecord
    ) -> Committed | TxnConflict:
        """Do what `txn` does, with the line in its log before anybody sees a change."""
        ...

    async def txn_sequence_recorded(
        self, steps: Sequence[TxnStep], record: CommitRecord
    ) -> SequenceCommitted | SequenceConflict:
        """Do what `txn_sequence` does, with one line for all steps in its log before that."""
        ...


def takes_records(store: Store) -> TypeGuard[RecordingStore]:
    """Whether a store writes records; quick, since it is asked for every write."""
    return hasattr(store, "txn_recorded")


def _commits_sequences(store: Store) -> TypeGuard[SequenceStore]:
    return hasattr(store, "txn_sequence")


async def commit_recorded(
    store: Store, compares: Sequence[Compare], writes: Sequence[Write], record: CommitRecord | None
) -> Committed | TxnConflict:
    """Do all writes if all compares hold; with the record, unless it is written or there is none."""
    if record is None or not record.is_pending:
        return await store.txn(compares, writes)
    assert takes_records(store)
    return await store.txn_recorded(compares, writes, record)


async def commit_sequence_recorded(
    store: Store, steps: Sequence[TxnStep], record: CommitRecord | None
) -> SequenceCommitted | SequenceConflict:
    """Do all steps or none; with the record, unless it is written or there is none."""
    if record is None or not record.is_pending:
        assert _commits_sequences(store)
        return await store.txn_sequence(steps)
    assert takes_records(store)
    return await store.txn_sequence_recorded(steps, record)


def append_records(records: Sequence[CommitRecord]) -> dict[CommitRecord, RecordNotWrittenError]:
    """Pass the lines that are pending to their logs, each log in one go; returns what was not taken."""
    pending: dict[CommitLog, list[CommitRecord]] = {}
    for record in records:
        if record.is_pending:
            record.is_pending = False
            pending.setdefault(record.log, []).append(record)
    refused: dict[CommitRecord, RecordNotWrittenError] = {}
    for log, waiting in pending.items():
        try:
            log.append_before_commit([record.line for record in waiting])
        except RecordNotWrittenError as error:
            refused |= dict.fromkeys(waiting, error)
        except Exception as error:
            # A fault of the log must not end the thread of the store.
            why = RecordNotWrittenError(f"the log failed: {error}")
            refused |= dict.fromkeys(waiting, why)
    return refused
