"""Group commit: executes a group of transactions in memory before the file is written.

Theory of operation: the writer looks up every key of its group, in a cache of recent entries or else in the
file with one query. From then on the transactions run one after the other on a dict: each gets its revision,
its outcome and its rows. What is left for the file are a few statements of many rows each. That matters
because every statement releases the interpreter lock and must get it back from a busy server: the number of
statements grows with groups, not with writes.

Nothing is written here; a group that fails later leaves no trace but its own jobs.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from dray.store.base import (
    Committed,
    Compare,
    EventBatch,
    Put,
    SequenceCommitted,
    SequenceConflict,
    StoreEntry,
    StoreEvent,
    TxnConflict,
    TxnStep,
    Write,
    find_failed_compares,
    resolve_compares,
)
from dray.store.errors import StoreError
from dray.store.records import CommitRecord, append_records
from dray.store.sqlite.rows import (
    COLUMNS,
    INDEX_BITS,
    SUM_MASK,
    Row,
    StoreHead,
    compute_row_checksum,
    decode_entry,
    verify_indexed_row,
)

RECENT_CACHE_BYTES = 32 << 20
"""How many bytes of entries that were written or compared recently stay in memory."""
ENTRY_OVERHEAD_BYTES = 300
"""Bytes that an entry takes besides its value."""
MAX_STATEMENT_ROWS = 32
"""How many rows or keys one statement takes; each number up to this is a statement of its own."""

JobOutcome = Committed | TxnConflict | SequenceCommitted | SequenceConflict | StoreError | None
KeyState = tuple[int, StoreEntry | None]
"""The newest row of a key and its entry: None for a delete; row 0 when there is none."""
ABSENT_KEY: KeyState = (0, None)
KeyStates = dict[bytes, KeyState]


@dataclass(slots=True, eq=False)
class WriterJob:
    """A transaction on its way through the writer; `waiter` gets its outcome."""

    waiter: object
    compares: Sequence[Compare] = ()
    writes: Sequence[Write] = ()
    outcome: JobOutcome = None
    batches: Sequence[EventBatch] = ()
    record: CommitRecord | None = None
    """What a log must have before this transaction is committed."""


@dataclass(slots=True, eq=False)
class SequenceJob(WriterJob):
    """A sequence of transactions on its way through the writer: all of its steps are done, or none."""

    steps: Sequence[TxnStep] = ()


@dataclass(slots=True, eq=False)
class GroupWrites:
    """The writes of a group to the file."""

    head: StoreHead
    rows: list[Row] = field(default_factory=list)


class RecentEntryCache:
    """Entries written or compared recently, in two generations: when the younger is full, the older is
    dropped.
    """

    def __init__(self, limit: int = RECENT_CACHE_BYTES) -> None:
        self._generation_limit = limit // 2
        self._young: KeyStates = {}
        self._old: KeyStates = {}
        self._young_bytes = 0

    def look_up(self, keys: Iterable[bytes]) -> tuple[KeyStates, list[bytes]]:
        """Return the cached states of the keys, and the keys that are not cached."""
        state: KeyStates = {}
        unknown: list[bytes] = []
        young, old = self._young, self._old
        for key in keys:
            if key in young:
                state[key] = young[key]
            elif key in old:
                state[key] = old[key]
            else:
                unknown.append(key)
        return state, unknown

    def remember(self, state: KeyStates) -> None:
        """Cache a state that is in the file now."""
        self._young.update(state)
        # A replaced entry is counted again; the limit then applies early rather than late.
        for _, entry in state.values():
            self._young_bytes += (
                ENTRY_OVERHEAD_BYTES if entry is None else ENTRY_OVERHEAD_BYTES + len(entry.value)
            )
        if self._young_bytes > self._generation_limit:
            self._old, self._young, self._young_bytes = self._young, {}, 0


def record_jobs(jobs: list[WriterJob]) -> list[WriterJob]:
    """Write the records of transactions; returns those that may be executed, the others get their outcome."""
    records = [job.record for job in jobs if job.record is not None]
    if not records or not (refused := append_records(records)):
        return jobs
    allowed: list[WriterJob] = []
    for job in jobs:
        if job.record is not None and job.record in refused:
            job.outcome = refused[job.record]
        else:
            allowed.append(job)
    return allowed


def collect_keys(jobs: Iterable[WriterJob]) -> set[bytes]:
    """Return every key that a transaction compares or writes."""
    keys: set[bytes] = set()
    for job in jobs:
        for part in job.steps if type(job) is SequenceJob else (job,):
            for compare in part.compares:
                keys.add(compare.key)
            for write in part.writes:
                keys.add(write.key)
    return keys


def read_key_states(connection: sqlite3.Connection, keys: list[bytes]) -> KeyStates:
    """Read the states of the keys from the file."""
    state: KeyStates = dict.fromkeys(keys, ABSENT_KEY)
    for start in range(0, len(keys), MAX_STATEMENT_ROWS):
        some = keys[start : start + MAX_STATEMENT_ROWS]
        for found in connection.execute(SELECT_CURRENT[len(some)], some).fetchall():
            row = verify_indexed_row(found)
            state[row[1]] = (row[0], decode_entry(row))
    return state


def execute_jobs(jobs: Iterable[WriterJob], head: StoreHead, state: KeyStates) -> GroupWrites:
    """Execute the transactions on the state, which has every key they touch; each job gets its outcome."""
    work = GroupWrites(head)
    revision = head.revision
    for job in jobs:
        if type(job) is SequenceJob:
            revision = _execute_sequence(job, revision, state, work.rows)
            continue
        if job.compares and (failed := find_failed_compares(job.compares, lambda key: state[key][1])):
            job.outcome = TxnConflict(revision, failed)
            continue
        if job.writes and (events := _apply_writes(job.writes, revision + 1, state, work.rows)):
            revision += 1
            job.batches = (EventBatch(revision, tuple(events)),)
        job.outcome = Committed(revision)
    if work.rows:
        total = (head.total + sum(row[6] for row in work.rows)) & SUM_MASK
        work.head = StoreHead(revision, head.compacted, head.swept, head.rows + len(work.rows), total)
    return work


def write_group(connection: sqlite3.Connection, writes: GroupWrites) -> None:
    """Write the rows and the index of current keys, inside an open transaction."""
    rows = writes.rows
    for start in range(0, len(rows), MAX_STATEMENT_ROWS):
        some = rows[start : start + MAX_STATEMENT_ROWS]
        connection.execute(INSERT_HISTORY[len(some)], [value for row in some for value in row])
    # Only the last row of a key matters, however often the group wrote it.
    newest = list({row[1]: row[0] for row in rows}.items())
    for start in range(0, len(newest), MAX_STATEMENT_ROWS):
        pairs = newest[start : start + MAX_STATEMENT_ROWS]
        connection.execute(REPLACE_CURRENT[len(pairs)], [value for pair in pairs for value in pair])


def _execute_sequence(job: SequenceJob, revision: int, state: KeyStates, rows: list[Row]) -> int:
    """Execute the steps of a sequence, or none of them; returns the revision afterwards."""
    begin, first_row = revision, len(rows)
    before = {write.key: state[write.key] for step in job.steps for write in step.writes}
    revisions: list[int] = []
    batches: list[EventBatch] = []
    for number, step in enumerate(job.steps):
        compares = resolve_compares(step.compares, revisions)
        if failed := find_failed_compares(compares, lambda key: state[key][1]):
            state.update(before)
            del rows[first_row:]
            job.outcome = SequenceConflict(begin, number, failed)
            return begin
        if events := _apply_writes(step.writes, revision + 1, state, rows):
            revision += 1
            batches.append(EventBatch(revision, tuple(events)))
        revisions.append(revision)
    job.batches, job.outcome = batches, SequenceCommitted(tuple(revisions))
    return revision


def _apply_writes(
    writes: Sequence[Write], revision: int, state: KeyStates, rows: list[Row]
) -> list[StoreEvent]:
    """Apply the writes of one transaction to the state and append their rows; returns what changed."""
    number = revision << INDEX_BITS
    events: list[StoreEvent] = []
    for write in writes:
        key = write.key
        previous, before = state[key]
        if type(write) is Put:
            value: bytes | None = write.value
            created, version = (
                (revision, 1) if before is None else (before.create_revision, before.version + 1)
            )
            entry = StoreEntry(key, write.value, created, revision, version)
        elif before is None:
            continue
        else:
            value, entry, created, version = None, None, before.create_revision, before.version
        fields = (number, key, created, version, previous)
        rows.append((*fields, value, compute_row_checksum(fields, value)))
        state[key] = (number, entry)
        events.append(StoreEvent(key, revision, entry, before))
        number += 1
    return events


def _build_statements(statement: str, item: str, end: str = "") -> tuple[str, ...]:
    """Build the statement for each number of items; position 0 is never used."""
    return tuple(f"{statement} {', '.join([item] * count)}{end}" for count in range(MAX_STATEMENT_ROWS + 1))


SELECT_CURRENT = _build_statements(
    f"SELECT {COLUMNS}, c.key FROM current c JOIN history h ON h.id = c.id WHERE c.key IN (", "?", ")"
)
INSERT_HISTORY = _build_statements(
    "INSERT INTO history (id, key, created, version, previous, value, checksum) VALUES",
    "(?, ?, ?, ?, ?, ?, ?)",
)
REPLACE_CURRENT = _build_statements("REPLACE INTO current (key, id) VALUES", "(?, ?)")
