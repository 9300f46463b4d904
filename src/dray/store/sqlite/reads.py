"""Questions to the file: each is one read transaction on a connection that cannot write.

Rules for this file: plain functions of a connection, run in reader threads; every row is checked before it
leaves.
"""

from __future__ import annotations

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
    current_row,
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
PRESENT = f"SELECT {COLUMNS}, c.key FROM current c JOIN history h ON h.id = c.id WHERE c.key >= ?"
PAST = (
    f"SELECT {COLUMNS}, h.key FROM (SELECT max(id) AS id FROM history WHERE key >= ? AND id < ? {{end}}"
    " GROUP BY key ORDER BY key) l JOIN history h ON h.id = l.id WHERE h.value IS NOT NULL"
)


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
    if revision is None or revision == head.revision:
        row = current_row(connection, key)
    elif (refusal := _refusal(head, revision)) is not None:
        return refusal
    else:
        row = _row_before(connection, key, row_id(revision + 1))
    return None if row is None else entry_of(row)


def page(
    connection: sqlite3.Connection,
    prefix: bytes,
    start_after: bytes | None,
    limit: int | None,
    revision: int | None,
) -> Page:
    head, at = readable(connection, revision)
    start, end = range_start(prefix, start_after), prefix_end(prefix)
    asked = -1 if limit is None else limit + 1
    if at == head.revision:
        before, bounds = ("", ()) if end is None else ("AND c.key < ?", (end,))
        rows = connection.execute(f"{PRESENT} {before} ORDER BY c.key LIMIT ?", (start, *bounds, asked))
    else:
        before, bounds = ("", ()) if end is None else ("AND key < ?", (end,))
        rows = connection.execute(
            f"{PAST.format(end=before)} ORDER BY h.key LIMIT ?", (start, row_id(at + 1), *bounds, asked)
        )
    entries = tuple(entry for row in rows if (entry := agreeing(row)) is not None)
    if limit is not None and len(entries) > limit:
        return Page(entries[:limit], at, more=True)
    return Page(entries, at)


def past(connection: sqlite3.Connection, prefix: bytes, after: int, up_to: int) -> Sequence[Batch]:
    """The next batches after `after`, up to `up_to`; the last one tells how far they reach."""
    readable(connection, after)
    last = _last_row(connection, row_id(after + 1), row_id(up_to + 1))
    if last is None:
        return [Batch(up_to)]
    reached = last >> PLACES
    rows = connection.execute(
        f"SELECT {COLUMNS} FROM history h WHERE id >= ? AND id < ? ORDER BY id",
        (row_id(after + 1), row_id(reached + 1)),
    )
    seen = [checked(row) for row in rows]
    pairs = [(row, _row_before(connection, row[1], row[0])) for row in seen if row[1].startswith(prefix)]
    return [*batches_of(pairs), Batch(reached)]


def _last_row(connection: sqlite3.Connection, start: int, end: int) -> int | None:
    """The last row of a helping; what follows in the same revision belongs to it."""
    found = connection.execute(
        "SELECT max(id) FROM (SELECT id FROM history WHERE id >= ? AND id < ? ORDER BY id LIMIT ?)",
        (start, end, PAST_ROWS),
    ).fetchone()
    number: int | None = found[0]
    return number


def _row_before(connection: sqlite3.Connection, key: bytes, number: int) -> Row | None:
    """The newest row of the key that is older than row `number`."""
    found: Row | None = connection.execute(
        f"SELECT {COLUMNS} FROM history h WHERE key = ? AND id < ? ORDER BY id DESC LIMIT 1", (key, number)
    ).fetchone()
    return found
