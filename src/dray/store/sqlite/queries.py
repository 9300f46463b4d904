"""Questions to the file: each is one read transaction on a connection that cannot write.

Rules for this file: plain functions of a connection, run in reader threads; every row is checked before it
leaves.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Sequence
from typing import TypeVar

from dray.store.base import Batch, Entry, Page, prefix_end, range_start
from dray.store.errors import Compacted, FutureRevision, StoreError
from dray.store.sqlite.rows import (
    COLUMNS,
    PLACES,
    Head,
    Row,
    agreeing,
    batches_of,
    checked,
    entry_of,
    read_head,
    row_id,
)

PAST_ROWS = 500
"""How many rows of history a watcher that catches up reads at once."""

T = TypeVar("T")
Wanted = tuple[bytes, int | None]
"""A key, and the revision at which it is wanted."""
Answer = Entry | StoreError | None
INDEXED = f"SELECT {COLUMNS}, c.key FROM current c JOIN history h ON h.id = c.id WHERE"
ROW = f"SELECT {COLUMNS} FROM history h WHERE h.id = ?"
CHANGES = (
    f"SELECT {COLUMNS}, {COLUMNS.replace('h.', 'p.')} FROM history h LEFT JOIN history p ON p.id = h.previous"
    " WHERE h.id >= ? AND h.id < ?"
)
WIDTH = COLUMNS.count(",") + 1


def in_snapshot(connection: sqlite3.Connection, question: Callable[[sqlite3.Connection], T]) -> T:
    """Answer the question from one unchanging state."""
    connection.execute("BEGIN")
    try:
        return question(connection)
    finally:
        connection.execute("COMMIT")


def readable(connection: sqlite3.Connection, revision: int | None) -> tuple[Head, int]:
    """The head, and the revision to read at; raises when that one cannot be read."""
    head = read_head(connection)
    if revision is None:
        return head, head.revision
    refusal = _refusal(head, revision)
    if refusal is not None:
        raise refusal
    return head, revision


def _refusal(head: Head, revision: int) -> StoreError | None:
    if revision < head.compacted:
        return Compacted(revision, head.compacted)
    if revision > head.revision:
        return FutureRevision(revision, head.revision)
    return None


def gets(connection: sqlite3.Connection, asked: Sequence[Wanted]) -> tuple[int, list[Answer]]:
    """The entries under some keys, all from one state, and its revision; a refusal answers only its own."""
    head = read_head(connection)
    return head.revision, [_get(connection, head, key, revision) for key, revision in asked]


def _get(connection: sqlite3.Connection, head: Head, key: bytes, revision: int | None) -> Answer:
    refusal = None if revision is None else _refusal(head, revision)
    if refusal is not None:
        return refusal
    found = connection.execute(f"{INDEXED} c.key = ?", (key,)).fetchone()
    if found is None:
        return None
    row = _as_of(connection, agreeing(found), head.revision if revision is None else revision)
    return None if row is None else entry_of(row)


def page(
    connection: sqlite3.Connection,
    prefix: bytes,
    start_after: bytes | None,
    limit: int | None,
    revision: int | None,
) -> Page:
    _, at = readable(connection, revision)
    start, end = range_start(prefix, start_after), prefix_end(prefix)
    before, bounds = ("", (start,)) if end is None else ("AND c.key < ?", (start, end))
    entries: list[Entry] = []
    with contextlib.closing(
        connection.execute(f"{INDEXED} c.key >= ? {before} ORDER BY c.key", bounds)
    ) as rows:
        for found in rows:
            row = _as_of(connection, agreeing(found), at)
            entry = None if row is None else entry_of(row)
            if entry is None:
                continue
            if len(entries) == limit:
                return Page(tuple(entries), at, more=True)
            entries.append(entry)
    return Page(tuple(entries), at)


def past(connection: sqlite3.Connection, prefix: bytes, after: int, up_to: int) -> Sequence[Batch]:
    """The next batches after `after`, up to `up_to`; the last one tells how far they reach."""
    readable(connection, after)
    last = _last_row(connection, row_id(after + 1), row_id(up_to + 1))
    if last is None:
        return [Batch(up_to)]
    reached, end = last >> PLACES, prefix_end(prefix)
    before, bounds = ("", (prefix,)) if end is None else ("AND h.key < ?", (prefix, end))
    rows = connection.execute(
        f"{CHANGES} AND h.key >= ? {before} ORDER BY h.id", (row_id(after + 1), row_id(reached + 1), *bounds)
    )
    pairs = [(row[:WIDTH], None if row[WIDTH] is None else row[WIDTH:]) for row in rows]
    return [*batches_of(pairs), Batch(reached)]


def _last_row(connection: sqlite3.Connection, start: int, end: int) -> int | None:
    """The last row of a helping; what follows in the same revision belongs to it."""
    found = connection.execute(
        "SELECT max(id) FROM (SELECT id FROM history WHERE id >= ? AND id < ? ORDER BY id LIMIT ?)",
        (start, end, PAST_ROWS),
    ).fetchone()
    number: int | None = found[0]
    return number


def _as_of(connection: sqlite3.Connection, row: Row | None, revision: int) -> Row | None:
    """The newest row of a key at a revision: down the chain from `row`, its newest."""
    while row is not None and row[0] >> PLACES > revision:
        row = connection.execute(ROW, (checked(row)[4],)).fetchone()
    return row
