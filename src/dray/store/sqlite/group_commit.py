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
from dray.store.sqlite.rows import COLUMNS, PLACES, SUM_MASK, Head, Row, agreeing, checksum_of, entry_of

REMEMBERED_BYTES = 32 << 20
"""How much of what was written or compared lately stays in memory."""
ENTRY_BYTES = 300
"""What an entry weighs beside its value."""
AT_ONCE = 32
"""How many rows or keys one statement takes; each number up to this is a statement of its own."""

Outcome = Committed | Conflict | StoreError | None
Standing = tuple[int, Entry | None]
"""The newest row of a key and the entry it stands for: None for a delete; row 0 when there is none."""
NOTHING: Standing = (0, None)
State = dict[bytes, Standing]


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
        for _, entry in state.values():
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
    state: State = dict.fromkeys(keys, NOTHING)
    for start in range(0, len(keys), AT_ONCE):
        some = keys[start : start + AT_ONCE]
        for found in connection.execute(LOOK[len(some)], some).fetchall():
            row = agreeing(found)
            state[row[1]] = (row[0], entry_of(row))
    return state


def work_out(jobs: Iterable[Job], head: Head, state: State) -> Work:
    """Run the transactions on the state, which has every key they touch; each job gets its outcome."""
    work = Work(head)
    revision = head.revision
    for job in jobs:
        if job.compares and (failed := _failed(job.compares, state)):
            job.outcome = Conflict(revision, failed)
            continue
        if job.writes and (events := _applied(job.writes, revision + 1, state, work.rows)):
            revision += 1
            job.batch = Batch(revision, tuple(events))
        job.outcome = Committed(revision)
    if work.rows:
        total = (head.total + sum(row[6] for row in work.rows)) & SUM_MASK
        work.head = Head(revision, head.compacted, head.swept, head.rows + len(work.rows), total)
    return work


def carry_out(connection: sqlite3.Connection, work: Work) -> None:
    """Write the rows and where the index of current keys points now, inside an open transaction."""
    rows = work.rows
    for start in range(0, len(rows), AT_ONCE):
        some = rows[start : start + AT_ONCE]
        connection.execute(INSERT[len(some)], [value for row in some for value in row])
    # Only the last row of a key matters, however often the group wrote it.
    newest = list({row[1]: row[0] for row in rows}.items())
    for start in range(0, len(newest), AT_ONCE):
        pairs = newest[start : start + AT_ONCE]
        connection.execute(POINT[len(pairs)], [value for pair in pairs for value in pair])


def _failed(compares: Sequence[Compare], state: State) -> tuple[Mismatch, ...]:
    judged = [(compare, state[compare.key][1]) for compare in compares]
    return tuple(Mismatch(compare, found) for compare, found in judged if not holds(compare, found))


def _applied(writes: Sequence[Write], revision: int, state: State, rows: list[Row]) -> list[Event]:
    """Do the writes of one transaction to the state and add their rows; returns what changed."""
    number = revision << PLACES
    events: list[Event] = []
    for write in writes:
        key = write.key
        previous, before = state[key]
        if type(write) is Put:
            value: bytes | None = write.value
            created, version = (
                (revision, 1) if before is None else (before.create_revision, before.version + 1)
            )
            entry = Entry(key, write.value, created, revision, version)
        elif before is None:
            continue
        else:
            value, entry, created, version = None, None, before.create_revision, before.version
        fields = (number, key, created, version, previous)
        rows.append((*fields, value, checksum_of(fields, value)))
        state[key] = (number, entry)
        events.append(Event(key, revision, entry, before))
        number += 1
    return events


def _many(statement: str, item: str, end: str = "") -> tuple[str, ...]:
    """The statement for each number of items; position 0 is never used."""
    return tuple(f"{statement} {', '.join([item] * count)}{end}" for count in range(AT_ONCE + 1))


LOOK = _many(
    f"SELECT {COLUMNS}, c.key FROM current c JOIN history h ON h.id = c.id WHERE c.key IN (", "?", ")"
)
INSERT = _many(
    "INSERT INTO history (id, key, created, version, previous, value, checksum) VALUES",
    "(?, ?, ?, ?, ?, ?, ?)",
)
POINT = _many("REPLACE INTO current (key, id) VALUES", "(?, ?)")
