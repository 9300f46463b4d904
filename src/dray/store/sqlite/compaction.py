"""Forgetting the past, in steps small enough that nobody waits long for the writer.

Theory of operation: the first step notes the compacted revision, and from then on nobody reads what is
about to go. The next steps walk the history from its beginning and remove, oldest first, the rows that a
newer row at or before that revision replaced, and deletes. Oldest first matters: a delete that went before
the rows it ended would bring them back. A crash in between leaves rows that nobody sees; the next
compaction meets them again. Pages that became free are given back to the file system after each step.
"""

from __future__ import annotations

import sqlite3

import msgspec

from dray.store.sqlite.rows import Head, row_id

STEP_ROWS = 500
"""How many rows one step removes."""
SCAN_ROWS = 5000
"""How many rows one step looks at."""
STEP_PAGES = 4000
"""How many free pages one step gives back."""


class Compaction:
    """One run of forgetting everything that only the past before `revision` needs."""

    def __init__(self, revision: int) -> None:
        self._revision = revision
        self._end = row_id(revision + 1)
        self._cursor: int | None = None

    def step(self, connection: sqlite3.Connection, head: Head) -> Head | None:
        if self._cursor is None:
            return self._begin(head)
        if self._cursor >= self._end:
            return None
        (reach,) = connection.execute(
            "SELECT max(id) FROM (SELECT id FROM history WHERE id >= ? AND id < ? ORDER BY id LIMIT ?)",
            (self._cursor, self._end, SCAN_ROWS),
        ).fetchone()
        if reach is None:
            return None
        doomed = connection.execute(
            "SELECT id, checksum FROM history h WHERE id >= ? AND id <= ? AND (value IS NULL OR EXISTS"
            " (SELECT 1 FROM history n WHERE n.key = h.key AND n.id > h.id AND n.id < ?))"
            " ORDER BY id LIMIT ?",
            (self._cursor, reach, self._end, STEP_ROWS),
        ).fetchall()
        connection.executemany("DELETE FROM history WHERE id = ?", ((number,) for number, _ in doomed))
        self._cursor = (doomed[-1][0] if len(doomed) == STEP_ROWS else reach) + 1
        return head.with_rows((checksum for _, checksum in doomed), sign=-1)

    def after_commit(self, connection: sqlite3.Connection) -> None:
        # SQLite gives back one page per step of this statement, and `execute` would take only the first.
        connection.executescript(f"PRAGMA incremental_vacuum({STEP_PAGES})")

    def _begin(self, head: Head) -> Head | None:
        self._cursor = 0
        if self._revision <= head.compacted:
            self._cursor = self._end
            return None
        return msgspec.structs.replace(head, compacted=self._revision)
