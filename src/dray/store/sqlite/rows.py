"""What stands in the file: tables, the numbering of rows, and the checksum of each.

Theory of operation: `history` has one row per write, numbered by revision and place within it, so that the
row number alone orders everything. A delete is a row without a value. `current` points from each living key
to its newest row. `head` has one row: the revision, the compacted revision, and the count and sum of the
checksums of all rows, changed in the same commit as the rows. A row that was altered fails its own checksum;
a row that was lost, or came back, fails the sum.

Rules for this file: no connection is opened and no transaction begun here.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from zlib import crc32

import msgspec

from dray.store.base import FIRST_REVISION, Batch, Entry, Event
from dray.store.errors import Damaged

APPLICATION = int.from_bytes(b"dray", "big")
FORMAT = 1
PLACES = 20
"""Bits of a row number that count within a revision."""
SUM_MASK = (1 << 62) - 1

TABLES = (
    "CREATE TABLE history (id INTEGER PRIMARY KEY, key BLOB NOT NULL, created INTEGER NOT NULL,"
    " version INTEGER NOT NULL, value BLOB, checksum INTEGER NOT NULL)",
    "CREATE UNIQUE INDEX history_by_key ON history (key, id)",
    "CREATE TABLE current (key BLOB PRIMARY KEY, id INTEGER NOT NULL) WITHOUT ROWID",
    "CREATE TABLE head (one INTEGER PRIMARY KEY CHECK (one = 1), revision INTEGER NOT NULL,"
    " compacted INTEGER NOT NULL, rows INTEGER NOT NULL, total INTEGER NOT NULL, checksum INTEGER NOT NULL)",
)
COLUMNS = "h.id, h.key, h.created, h.version, h.value, h.checksum"

Row = tuple[int, bytes, int, int, bytes | None, int]


class Head(msgspec.Struct, frozen=True, gc=False):
    """Where the store stands."""

    revision: int = FIRST_REVISION
    compacted: int = 0
    rows: int = 0
    total: int = 0

    def checksum(self) -> int:
        return crc32(b"%d %d %d %d" % (self.revision, self.compacted, self.rows, self.total))

    def with_rows(self, checksums: Iterable[int], sign: int = 1) -> Head:
        """After adding rows with these checksums (or removing, with sign -1)."""
        numbers = list(checksums)
        total = (self.total + sign * sum(numbers)) & SUM_MASK
        return msgspec.structs.replace(self, rows=self.rows + sign * len(numbers), total=total)


def row_id(revision: int, place: int = 0) -> int:
    return revision << PLACES | place


def checksum_of(number: int, key: bytes, created: int, version: int, value: bytes | None) -> int:
    kind = b"-" if value is None else b"+"
    return crc32(value or b"", crc32(b"%d %d %d %d %b%b" % (number, created, version, len(key), kind, key)))


def checked(row: Row) -> Row:
    """The row, if it is what was written."""
    number, key, created, version, value, checksum = row
    try:
        intact = checksum_of(number, key, created, version, value) == checksum
    except TypeError:
        intact = False
    if not intact:
        raise Damaged(
            f"a record of revision `{number >> PLACES}` fails its checksum; restore the latest backup"
        )
    return row


def entry_of(row: Row) -> Entry | None:
    """The entry a row stands for; None for a delete."""
    number, key, created, version, value, _ = checked(row)
    return None if value is None else Entry(key, value, created, number >> PLACES, version)


def batches_of(pairs: Iterable[tuple[Row, Row | None]]) -> Iterator[Batch]:
    """Rows in order, each with the row before it of the same key, as batches."""
    revision, events = 0, list[Event]()
    for row, before in pairs:
        if row[0] >> PLACES != revision:
            if events:
                yield Batch(revision, tuple(events))
            revision, events = row[0] >> PLACES, []
        previous = entry_of(before) if before is not None else None
        events.append(Event(row[1], revision, entry_of(row), previous))
    if events:
        yield Batch(revision, tuple(events))


def read_head(connection: sqlite3.Connection) -> Head:
    found = connection.execute("SELECT revision, compacted, rows, total, checksum FROM head").fetchall()
    if len(found) != 1 or Head(*found[0][:4]).checksum() != found[0][4]:
        raise Damaged("the head record fails its checksum; restore the latest backup")
    return Head(*found[0][:4])


def write_head(connection: sqlite3.Connection, head: Head) -> None:
    connection.execute(
        "REPLACE INTO head (one, revision, compacted, rows, total, checksum) VALUES (1, ?, ?, ?, ?, ?)",
        (head.revision, head.compacted, head.rows, head.total, head.checksum()),
    )


def agreeing(row: tuple[int, bytes, int, int, bytes | None, int, bytes]) -> Entry | None:
    """The entry of a row that was found by way of the index, whose key stands last."""
    if row[1] != row[6]:
        raise Damaged(f"the index leads from key `{row[6]!r}` to `{row[1]!r}`; restore the latest backup")
    return entry_of(row[:6])


def current_row(connection: sqlite3.Connection, key: bytes) -> Row | None:
    """The newest row of a living key."""
    found: Row | None = connection.execute(
        f"SELECT {COLUMNS} FROM current c JOIN history h ON h.id = c.id WHERE c.key = ?", (key,)
    ).fetchone()
    if found is not None and found[1] != key:
        raise Damaged(f"the index leads from key `{key!r}` to `{found[1]!r}`; restore the latest backup")
    return found
