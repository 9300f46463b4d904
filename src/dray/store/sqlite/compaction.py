"""Compaction in steps that are small enough not to delay the writer.

Theory of operation: the first step records the compacted revision, and from then on nobody reads the rows
that are about to go. The next steps sweep the rows up to that revision, oldest first and each only once: a
row makes the one before it of the same key obsolete, and a delete also itself. Each step records its
position, so that after a crash, and at the next compaction, the sweep continues where it stopped; the rows
that stay are never visited again. Each step returns free pages to the file system.
"""

from __future__ import annotations

import sqlite3

import msgspec

from dray.store.sqlite.rows import StoreHead, encode_row_id

STEP_ROWS = 500
"""How many rows one step sweeps."""
STEP_PAGES = 4000
"""How many free pages one step returns."""


class SqliteCompaction:
    """One compaction, which drops the history before `revision`."""

    def __init__(self, revision: int) -> None:
        self._revision = revision
        self._end = encode_row_id(revision + 1)
        self._started = False

    def step(self, connection: sqlite3.Connection, head: StoreHead) -> StoreHead | None:
        if not self._started:
            self._started = True
            if self._revision > head.compacted:
                return msgspec.structs.replace(head, compacted=self._revision)
        swept = connection.execute(
            "SELECT id, key, previous, value IS NULL FROM history"
            " WHERE id >= ? AND id < ? ORDER BY id LIMIT ?",
            (head.swept, self._end, STEP_ROWS),
        ).fetchall()
        if not swept:
            return None
        deletes = [(key, number) for number, key, _, is_delete in swept if is_delete]
        # A delete before a new creation is named twice, and must count once.
        doomed = sorted({previous for _, _, previous, _ in swept} | {number for _, number in deletes})
        sums = _read_checksums(connection, doomed)
        connection.executemany("DELETE FROM history WHERE id = ?", ((number,) for number in doomed))
        connection.executemany("DELETE FROM current WHERE key = ? AND id = ?", deletes)
        return msgspec.structs.replace(head.subtract_rows(sums), swept=swept[-1][0] + 1)

    def run_after_commit(self, connection: sqlite3.Connection) -> None:
        # SQLite returns one page per step of this statement, and `execute` would take only the first.
        connection.executescript(f"PRAGMA incremental_vacuum({STEP_PAGES})")


def _read_checksums(connection: sqlite3.Connection, numbers: list[int]) -> list[int]:
    """Read the checksums of those rows that exist: a delete before a new creation is gone already."""
    sums: list[int] = []
    for start in range(0, len(numbers), 100):
        some = numbers[start : start + 100]
        marks = ", ".join("?" * len(some))
        sums += [
            row[0] for row in connection.execute(f"SELECT checksum FROM history WHERE id IN ({marks})", some)
        ]
    return sums
