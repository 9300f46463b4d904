"""Queries on the store file: each is one read transaction on a read-only connection.

They are plain functions of a connection and run in reader threads; every row is verified before it is
returned.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Sequence
from typing import TypeVar

from dray.store.base import EntryPage, EventBatch, StoreEntry, get_prefix_end, get_range_start
from dray.store.errors import CompactedError, FutureRevisionError, StoreError
from dray.store.sqlite.rows import (
    COLUMNS,
    INDEX_BITS,
    Row,
    StoreHead,
    decode_batches,
    decode_entry,
    encode_row_id,
    read_head,
    verify_indexed_row,
    verify_row,
)

MAX_HISTORY_ROWS = 500
"""How many rows of history a watcher that catches up reads at once."""

T = TypeVar("T")
GetRequest = tuple[bytes, int | None]
"""A key, and the revision at which to read it."""
GetResult = StoreEntry | StoreError | None
SELECT_INDEXED = f"SELECT {COLUMNS}, c.key FROM current c JOIN history h ON h.id = c.id WHERE"
SELECT_ROW = f"SELECT {COLUMNS} FROM history h WHERE h.id = ?"
SELECT_CHANGES = (
    f"SELECT {COLUMNS}, {COLUMNS.replace('h.', 'p.')} FROM history h LEFT JOIN history p ON p.id = h.previous"
    " WHERE h.id >= ? AND h.id < ?"
)
ROW_WIDTH = COLUMNS.count(",") + 1


def run_in_snapshot(connection: sqlite3.Connection, query: Callable[[sqlite3.Connection], T]) -> T:
    """Run a query on one unchanging state."""
    connection.execute("BEGIN")
    try:
        return query(connection)
    finally:
        connection.execute("COMMIT")


def resolve_revision(connection: sqlite3.Connection, revision: int | None) -> tuple[StoreHead, int]:
    """Return the head, and the revision to read at; raises when that one cannot be read."""
    head = read_head(connection)
    if revision is None:
        return head, head.revision
    refusal = _find_revision_error(head, revision)
    if refusal is not None:
        raise refusal
    return head, revision


def _find_revision_error(head: StoreHead, revision: int) -> StoreError | None:
    if revision < head.compacted:
        return CompactedError(revision, head.compacted)
    if revision > head.revision:
        return FutureRevisionError(revision, head.revision)
    return None


def get_entries(
    connection: sqlite3.Connection, requests: Sequence[GetRequest]
) -> tuple[int, list[GetResult]]:
    """Return the entries of some keys, all from one state, and its revision; an error concerns only its own
    key.
    """
    head = read_head(connection)
    return head.revision, [_get_entry(connection, head, key, revision) for key, revision in requests]


def _get_entry(
    connection: sqlite3.Connection, head: StoreHead, key: bytes, revision: int | None
) -> GetResult:
    refusal = None if revision is None else _find_revision_error(head, revision)
    if refusal is not None:
        return refusal
    found = connection.execute(f"{SELECT_INDEXED} c.key = ?", (key,)).fetchone()
    if found is None:
        return None
    row = _find_row_at(connection, verify_indexed_row(found), head.revision if revision is None else revision)
    return None if row is None else decode_entry(row)


def read_page(
    connection: sqlite3.Connection,
    prefix: bytes,
    start_after: bytes | None,
    limit: int | None,
    revision: int | None,
) -> EntryPage:
    _, at = resolve_revision(connection, revision)
    start, end = get_range_start(prefix, start_after), get_prefix_end(prefix)
    before, bounds = ("", (start,)) if end is None else ("AND c.key < ?", (start, end))
    entries: list[StoreEntry] = []
    with contextlib.closing(
        connection.execute(f"{SELECT_INDEXED} c.key >= ? {before} ORDER BY c.key", bounds)
    ) as rows:
        for found in rows:
            row = _find_row_at(connection, verify_indexed_row(found), at)
            entry = None if row is None else decode_entry(row)
            if entry is None:
                continue
            if len(entries) == limit:
                return EntryPage(tuple(entries), at, more=True)
            entries.append(entry)
    return EntryPage(tuple(entries), at)


def read_events(
    connection: sqlite3.Connection, prefix: bytes, after: int, up_to: int
) -> Sequence[EventBatch]:
    """Return the next batches after `after`, up to `up_to`; the last one has the revision they reach."""
    resolve_revision(connection, after)
    last = _find_last_row(connection, encode_row_id(after + 1), encode_row_id(up_to + 1))
    if last is None:
        return [EventBatch(up_to)]
    reached, end = last >> INDEX_BITS, get_prefix_end(prefix)
    before, bounds = ("", (prefix,)) if end is None else ("AND h.key < ?", (prefix, end))
    rows = connection.execute(
        f"{SELECT_CHANGES} AND h.key >= ? {before} ORDER BY h.id",
        (encode_row_id(after + 1), encode_row_id(reached + 1), *bounds),
    )
    pairs = [(row[:ROW_WIDTH], None if row[ROW_WIDTH] is None else row[ROW_WIDTH:]) for row in rows]
    return [*decode_batches(pairs), EventBatch(reached)]


def _find_last_row(connection: sqlite3.Connection, start: int, end: int) -> int | None:
    """Find the last row of a chunk, extended to the end of its revision."""
    found = connection.execute(
        "SELECT max(id) FROM (SELECT id FROM history WHERE id >= ? AND id < ? ORDER BY id LIMIT ?)",
        (start, end, MAX_HISTORY_ROWS),
    ).fetchone()
    number: int | None = found[0]
    return number


def _find_row_at(connection: sqlite3.Connection, row: Row | None, revision: int) -> Row | None:
    """Find the newest row of a key at a revision: follow the chain down from `row`, its newest."""
    while row is not None and row[0] >> INDEX_BITS > revision:
        row = connection.execute(SELECT_ROW, (verify_row(row)[4],)).fetchone()
    return row
