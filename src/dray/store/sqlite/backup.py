"""Copies of a store file, made while it is in use, and the way back.

Theory of operation: SQLite copies one unchanging state page by page while writes go on. The copy is verified
like a file that is opened, made durable, and only then gets its name, so that a file with the name of a
backup is a whole one. A restored store continues far ahead of the revision it was saved at, with everything
before forgotten: a watcher that knew a later past must not take up a different one under the same numbers.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from dray.store.errors import OpenError, WriteFailed
from dray.store.sqlite.files import Lock, connect, explain, lay_out, recognise, sync_directory, verify
from dray.store.sqlite.rows import Head, Row, read_head, write_head

AHEAD = 1_000_000_000
"""How many revisions a restored store leaves out; more than anybody wrote since the backup."""


def save(source: sqlite3.Connection, target: Path) -> int:
    """Copy what `source` sees now into the file `target`; returns the revision of the copy."""

    def copied(copy: sqlite3.Connection) -> None:
        source.backup(copy)
        # A backup is one file: without this it would ask for a log beside it.
        copy.execute("PRAGMA journal_mode = DELETE")

    return _built(target, copied)


def build(rows: Sequence[Row], head: Head, target: Path) -> int:
    """Make a backup of rows from elsewhere, one of each key, ordered by their numbers."""

    def filled(new: sqlite3.Connection) -> None:
        lay_out(new, head)
        new.execute("BEGIN IMMEDIATE")
        new.executemany("INSERT INTO history VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
        new.executemany("INSERT INTO current VALUES (?, ?)", ((row[1], row[0]) for row in rows))
        new.execute("COMMIT")

    return _built(target, filled)


def restore(source: Path, target: Path, *, ahead: int = AHEAD, force: bool = False) -> int:
    """Make a store file from a backup; returns the revision it continues at.

    A file that is there already stays as it is, unless `force` is given and the backup is whole.
    """
    if target.exists() and not force:
        raise OpenError(f"`{target}` exists; move it away, or overwrite it with `--force`")
    lock = Lock(target)
    building = target.with_name(target.name + ".part")
    try:
        checked_copy(source, building)
        verify(building, writer=False)
        head = _moved_on(building, ahead)
        _leave(target)
        _publish(building, target)
    except OSError as error:
        raise WriteFailed(f"cannot restore to `{target}`: {error.strerror}") from error
    except sqlite3.Error as error:
        raise explain(error, target) from error
    finally:
        building.unlink(missing_ok=True)
        lock.release()
    return head.revision


def checked_copy(source: Path, target: Path) -> Path:
    """Copy a backup, if it looks like one."""
    if not source.exists():
        raise OpenError(f"there is no backup `{source}`")
    log = source.with_name(source.name + "-wal")
    if log.exists() and log.stat().st_size:
        raise OpenError(
            f"`{source}` is a store in use, part of which is in `{log.name}`; make a backup of it first"
        )
    recognise(source)
    shutil.copyfile(source, target)
    return target


def _built(target: Path, fill: Callable[[sqlite3.Connection], None]) -> int:
    """Fill a new file, verify it, and only then give it its name."""
    building = target.with_name(target.name + ".part")
    try:
        building.unlink(missing_ok=True)
        os.close(os.open(building, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        with contextlib.closing(sqlite3.connect(building, isolation_level=None)) as new:
            fill(new)
        head = verify(building, writer=False)
        _publish(building, target)
    except sqlite3.Error as error:
        raise explain(error, target) from error
    except OSError as error:
        raise WriteFailed(f"cannot write the backup `{target}`: {error.strerror}") from error
    finally:
        building.unlink(missing_ok=True)
    return head.revision


def _leave(target: Path) -> None:
    """Let a store that is overwritten end in one piece: its log must not outlive it, nor go before it."""
    if target.exists():
        with contextlib.suppress(sqlite3.Error), contextlib.closing(connect(target, writer=True)) as old:
            old.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    for leftover in ("-wal", "-shm"):
        target.with_name(target.name + leftover).unlink(missing_ok=True)


def _moved_on(path: Path, ahead: int) -> Head:
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        head = read_head(connection)
        if ahead:
            revision = head.revision + ahead
            head = msgspec.structs.replace(head, revision=revision, compacted=revision)
            connection.execute("BEGIN IMMEDIATE")
            write_head(connection, head)
            connection.execute("COMMIT")
        return head


def _publish(building: Path, target: Path) -> None:
    file = os.open(building, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)
    os.replace(building, target)
    sync_directory(target)
