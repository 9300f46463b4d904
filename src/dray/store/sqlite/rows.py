"""The file format: tables, the numbering of rows, and the checksum of each.

Theory of operation: `history` has one row per write, numbered by revision and position within it, so that the
row number alone orders everything. A delete is a row without a value. Each row names the previous row of the
same key, and `current` points from each key to its newest row (a delete, too, until it is compacted): the
past of a key is a walk down that chain. (An index by key and number would make long walks short, and every
write half as fast again; measured.) `head` has one row: the revision, the compacted revision, how far
compaction has swept, and the count and sum of the checksums of all rows, changed in the same commit as the
rows. A row that was altered fails its own checksum; a row that was lost, or came back, fails the sum.
`origin` names the oldest dray that reads the format; the first files of format 2 have none.

This module opens no connection and begins no transaction.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from zlib import crc32

import msgspec

from dray.store.base import FIRST_REVISION, EventBatch, StoreEntry, StoreEvent
from dray.store.errors import CorruptStoreError

APPLICATION_ID = int.from_bytes(b"dray", "big")
FORMAT_VERSION = 2
"""The number of the format; `migration` reads the older ones."""
OLDEST_READER = "0.1.0"
"""The oldest dray that reads this format; every file names it, for older ones that do not."""
INDEX_BITS = 20
"""Bits of a row number that count within a revision."""
SUM_MASK = (1 << 62) - 1

TABLES = (
    "CREATE TABLE history (id INTEGER PRIMARY KEY, key BLOB NOT NULL, created INTEGER NOT NULL,"
    " version INTEGER NOT NULL, previous INTEGER NOT NULL, value BLOB, checksum INTEGER NOT NULL)",
    "CREATE TABLE current (key BLOB PRIMARY KEY, id INTEGER NOT NULL) WITHOUT ROWID",
    "CREATE TABLE head (one INTEGER PRIMARY KEY CHECK (one = 1), revision INTEGER NOT NULL,"
    " compacted INTEGER NOT NULL, swept INTEGER NOT NULL, rows INTEGER NOT NULL, total INTEGER NOT NULL,"
    " checksum INTEGER NOT NULL)",
    "CREATE TABLE origin (one INTEGER PRIMARY KEY CHECK (one = 1), dray TEXT NOT NULL)",
)
COLUMNS = "h.id, h.key, h.created, h.version, h.previous, h.value, h.checksum"

Row = tuple[int, bytes, int, int, int, bytes | None, int]
IndexedRow = tuple[int, bytes, int, int, int, bytes | None, int, bytes]
"""A row, and the key by which the index led to it."""


class StoreHead(msgspec.Struct, frozen=True, gc=False):
    """The head record of the store."""

    revision: int = FIRST_REVISION
    compacted: int = 0
    swept: int = 0
    """The first row that compaction has not visited."""
    rows: int = 0
    total: int = 0

    def compute_checksum(self) -> int:
        numbers = (self.revision, self.compacted, self.swept, self.rows, self.total)
        return crc32(b"%d %d %d %d %d" % numbers)

    def subtract_rows(self, checksums: Sequence[int]) -> StoreHead:
        """Return the head after removing rows with these checksums."""
        total = (self.total - sum(checksums)) & SUM_MASK
        return msgspec.structs.replace(self, rows=self.rows - len(checksums), total=total)


def encode_row_id(revision: int, index: int = 0) -> int:
    return revision << INDEX_BITS | index


def compute_row_checksum(fields: tuple[int, bytes, int, int, int], value: bytes | None) -> int:
    """Compute the checksum of a row."""
    start = crc32(b"%d %b %d %d %d " % fields, len(fields[1]))
    return start ^ 0xFFFF_FFFF if value is None else crc32(value, start)


def verify_row(row: Row) -> Row:
    """Return the row if it matches its checksum."""
    try:
        intact = compute_row_checksum(row[:5], row[5]) == row[6]
    except TypeError:
        intact = False
    if not intact:
        raise CorruptStoreError(
            f"a record of revision `{row[0] >> INDEX_BITS}` fails its checksum; restore the latest backup"
        )
    return row


def decode_entry(row: Row) -> StoreEntry | None:
    """Return the entry of a row; None for a delete."""
    number, key, created, version, _, value, _ = verify_row(row)
    return None if value is None else StoreEntry(key, value, created, number >> INDEX_BITS, version)


def decode_batches(pairs: Iterable[tuple[Row, Row | None]]) -> Iterator[EventBatch]:
    """Group rows, each with the previous row of its key, into batches by revision."""
    revision, events = 0, list[StoreEvent]()
    for row, before in pairs:
        if row[0] >> INDEX_BITS != revision:
            if events:
                yield EventBatch(revision, tuple(events))
            revision, events = row[0] >> INDEX_BITS, []
        previous = decode_entry(before) if before is not None else None
        events.append(StoreEvent(row[1], revision, decode_entry(row), previous))
    if events:
        yield EventBatch(revision, tuple(events))


def read_head(connection: sqlite3.Connection) -> StoreHead:
    found = connection.execute(
        "SELECT revision, compacted, swept, rows, total, checksum FROM head"
    ).fetchall()
    if len(found) != 1 or StoreHead(*found[0][:5]).compute_checksum() != found[0][5]:
        raise CorruptStoreError("the head record fails its checksum; restore the latest backup")
    return StoreHead(*found[0][:5])


def write_head(connection: sqlite3.Connection, head: StoreHead) -> None:
    connection.execute(
        "REPLACE INTO head (one, revision, compacted, swept, rows, total, checksum)"
        " VALUES (1, ?, ?, ?, ?, ?, ?)",
        (head.revision, head.compacted, head.swept, head.rows, head.total, head.compute_checksum()),
    )


def verify_indexed_row(found: IndexedRow) -> Row:
    """Return the row if it is the one the index points to."""
    if found[1] != found[7]:
        raise CorruptStoreError(
            f"the index leads from key `{found[7]!r}` to `{found[1]!r}`; restore the latest backup"
        )
    return found[:7]
