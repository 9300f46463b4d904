"""A group of transactions, worked out in memory before the file hears of it.

Theory of operation: the writer looks up every key its group touches, in the entries it wrote or read lately
and else in the file with one question. From then on the transactions are run one after the other on a dict:
each gets its revision, its outcome and its rows. What is left for the file are a few statements of many rows
each. That matters because every statement gives the interpreter lock away and must get it back from a busy
server: statements are counted per group here, not per write.

Rules for this file: nothing is written here; a group that fails later leaves no trace but its own jobs.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from dray.store.base import (
    Batch,
    Committed,
    Compare,
    Conflict,
    Entry,
    Event,
    Mismatch,
    Put,
    Write,
    holds,
)
from dray.store.errors import StoreError
from dray.store.sqlite.rows import COLUMNS, PLACES, SUM_MASK, Head, Row, agreeing, checksum_of

REMEMBERED_BYTES = 32 << 20
"""How much of what was written or compared lately stays in memory."""
ENTRY_BYTES = 300
"""What an entry weighs beside its value."""
AT_ONCE = 32
"""How many rows or keys one statement takes; each number up to this is a statement of its own."""

Outcome = Committed | Conflict | StoreError | None
State = dict[bytes, Entry | None]
"""What stands under a key; None says that nothing does."""


@dataclass(slots=True, eq=False)
class Job:
    """A transaction on its way through the writer; `sender` is whoever waits for it."""

    sender: object
    compares: Sequence[Compare] = ()
    writes: Sequence[Write] = ()
    outcome: Outcome = None
    batch: Batch | None = None


@dataclass(slots=True, eq=False)
class Work:
    """What a group does to the file."""

    head: Head
    rows: list[Row] = field(default_factory=list)
    changed: set[bytes] = field(default_factory=set)
    weight: int = 0


class Recent:
    """Entries written or compared lately, in two generations: when the younger is full, the older goes."""

    def __init__(self, limit: int = REMEMBERED_BYTES) -> None:
        self._limit = limit // 2
        self._young: State = {}
        self._old: State = {}
        self._weight = 0

    def known(self, keys: Iterable[bytes]) -> tuple[State, list[bytes]]:
        """What is remembered about the keys, and the keys about which nothing is."""
        state: State = {}
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

    def learn(self, state: State) -> None:
        """Remember a state that is in the file now."""
        self._young.update(state)
        # What was there before is counted again; the bound is then kept early rather than late.
        for entry in state.values():
            self._weight += ENTRY_BYTES if entry is None else ENTRY_BYTES + len(entry.value)
        if self._weight > self._limit:
            self._old, self._young, self._weight = self._young, {}, 0


def touched(jobs: Iterable[Job]) -> set[bytes]:
    """Every key that a transaction compares or writes."""
    keys: set[bytes] = set()
    for job in jobs:
        for compare in job.compares:
            keys.add(compare.key)
        for write in job.writes:
            keys.add(write.key)
    return keys


def look_up(connection: sqlite3.Connection, keys: list[bytes]) -> State:
    """What the file has under the keys."""
    state: State = dict.fromkeys(keys)
    for start in range(0, len(keys), AT_ONCE):
        some = keys[start : start + AT_ONCE]
        for row in connection.execute(LOOK[len(some)], some).fetchall():
            state[row[6]] = agreeing(row)
    return state


def work_out(jobs: Iterable[Job], head: Head, state: State) -> Work:
    """Run the transactions on the state, which has every key they touch; each job gets its outcome."""
    work = Work(head)
    revision, added = head.revision, 0
    for job in jobs:
        if job.compares and (failed := _failed(job.compares, state)):
            job.outcome = Conflict(revision, failed)
            continue
        events = [
            event for write in job.writes if (event := _applied(write, revision + 1, state)) is not None
        ]
        if events:
            revision += 1
            job.batch = Batch(revision, tuple(events))
            added += _note(work, revision, events)
        job.outcome = Committed(revision)
    if work.rows:
        total = (head.total + added) & SUM_MASK
        work.head = Head(revision, head.compacted, head.rows + len(work.rows), total)
    return work


def carry_out(connection: sqlite3.Connection, work: Work, state: State) -> None:
    """Write the rows and what they make of the index of current keys, inside an open transaction."""
    rows = work.rows
    for start in range(0, len(rows), AT_ONCE):
        some = rows[start : start + AT_ONCE]
        connection.execute(INSERT[len(some)], [value for row in some for value in row])
    # Only the last state of a key matters, however often the group wrote it.
    newest = {row[1]: row[0] for row in rows}
    living = [(key, newest[key]) for key in work.changed if state[key] is not None]
    gone = [key for key in work.changed if state[key] is None]
    for start in range(0, len(living), AT_ONCE):
        pairs = living[start : start + AT_ONCE]
        connection.execute(POINT[len(pairs)], [value for pair in pairs for value in pair])
    for start in range(0, len(gone), AT_ONCE):
        keys = gone[start : start + AT_ONCE]
        connection.execute(FORGET[len(keys)], keys)


def _failed(compares: Sequence[Compare], state: State) -> tuple[Mismatch, ...]:
    return tuple(
        Mismatch(compare, state[compare.key])
        for compare in compares
        if not holds(compare, state[compare.key])
    )


def _applied(write: Write, revision: int, state: State) -> Event | None:
    key = write.key
    before = state[key]
    if type(write) is Put:
        if before is None:
            entry = Entry(key, write.value, revision, revision, 1)
        else:
            entry = Entry(key, write.value, before.create_revision, revision, before.version + 1)
        state[key] = entry
        return Event(key, revision, entry, before)
    if before is None:
        return None
    state[key] = None
    return Event(key, revision, None, before)


def _note(work: Work, revision: int, events: list[Event]) -> int:
    """Add the rows of one revision; returns the sum of their checksums."""
    number, added = revision << PLACES, 0
    for event in events:
        key, entry = event.key, event.entry or event.previous
        assert entry is not None
        value = None if event.entry is None else entry.value
        checksum = checksum_of(number, key, entry.create_revision, entry.version, value)
        work.rows.append((number, key, entry.create_revision, entry.version, value, checksum))
        work.changed.add(key)
        work.weight += len(value or b"")
        number += 1
        added += checksum
    return added


def _many(statement: str, item: str, end: str = "") -> tuple[str, ...]:
    """The statement for each number of items; position 0 is never used."""
    return tuple(f"{statement} {', '.join([item] * count)}{end}" for count in range(AT_ONCE + 1))


LOOK = _many(
    f"SELECT {COLUMNS}, c.key FROM current c JOIN history h ON h.id = c.id WHERE c.key IN (", "?", ")"
)
INSERT = _many(
    "INSERT INTO history (id, key, created, version, value, checksum) VALUES", "(?, ?, ?, ?, ?, ?)"
)
POINT = _many("REPLACE INTO current (key, id) VALUES", "(?, ?)")
FORGET = _many("DELETE FROM current WHERE key IN (", "?", ")")
