"""Format 1 of the store file, as far as a migration reads it.

Format 1 had an index of rows by key instead of the number of the previous row, listed only living keys as
current, and computed its checksums differently. Nothing writes it any more; the golden file in
`tests/golden/store-v1` is one.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from zlib import crc32

from dray.store.errors import CorruptStoreError
from dray.store.sqlite.rows import INDEX_BITS, SUM_MASK, Row, StoreHead, compute_row_checksum


def read_head(connection: sqlite3.Connection) -> StoreHead:
    """Read the head record; nothing counts as swept, so that the next compaction visits every row."""
    found = connection.execute("SELECT revision, compacted, rows, total, checksum FROM head").fetchall()
    if len(found) != 1 or crc32(b"%d %d %d %d" % found[0][:4]) != found[0][4]:
        raise CorruptStoreError("the head record fails its checksum")
    revision, compacted, rows, total, _ = found[0]
    return StoreHead(revision=revision, compacted=compacted, rows=rows, total=total)


def iter_rows(connection: sqlite3.Connection) -> Iterator[Row]:
    """Yield every row in its order and in the current format; raise unless all are present and intact."""
    head, count, total = read_head(connection), 0, 0
    newest: dict[bytes, int] = {}
    living: dict[bytes, int] = {}
    for number, key, created, version, value, checksum in connection.execute(
        "SELECT id, key, created, version, value, checksum FROM history ORDER BY id"
    ):
        if _compute_checksum(number, key, created, version, value) != checksum:
            raise CorruptStoreError(f"a record of revision `{number >> INDEX_BITS}` fails its checksum")
        if number >> INDEX_BITS > head.revision:
            raise CorruptStoreError(f"a record is newer than revision `{head.revision}`")
        count, total = count + 1, total + checksum
        fields = (number, key, created, version, newest.get(key, 0))
        newest[key] = number
        living.pop(key, None)
        if value is not None:
            living[key] = number
        yield (*fields, value, compute_row_checksum(fields, value))
    if (count, total & SUM_MASK) != (head.rows, head.total):
        raise CorruptStoreError(
            f"{count} records add up to something else than the {head.rows} that were written"
        )
    if dict(connection.execute("SELECT key, id FROM current")) != living:
        raise CorruptStoreError("the index of current keys differs from the history")


def _compute_checksum(number: int, key: bytes, created: int, version: int, value: bytes | None) -> int:
    kind = b"-" if value is None else b"+"
    return crc32(value or b"", crc32(b"%d %d %d %d %b%b" % (number, created, version, len(key), kind, key)))
