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
from pathlib import Path

import msgspec

from dray.store.errors import OpenError, WriteFailed
from dray.store.sqlite.files import Lock, explain, recognise, sync_directory, verify
from dray.store.sqlite.rows import Head, read_head, write_head

AHEAD = 1_000_000_000
"""How many revisions a restored store leaves out; more than anybody wrote since the backup."""


def save(source: sqlite3.Connection, target: Path) -> int:
    """Copy what `source` sees now into the file `target`; returns the revision of the copy."""
    building = target.with_name(target.name + ".part")
    try:
        building.unlink(missing_ok=True)
        os.close(os.open(building, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        with contextlib.closing(sqlite3.connect(building, isolation_level=None)) as copy:
            source.backup(copy)
            # A backup is one file: without this it would ask for a log beside it.
            copy.execute("PRAGMA journal_mode = DELETE")
        head = verify(building, writer=False)
        _publish(building, target)
    except sqlite3.Error as error:
        raise explain(error, target) from error
    except OSError as error:
        raise WriteFailed(f"cannot write the backup `{target}`: {error.strerror}") from error
    finally:
        building.unlink(missing_ok=True)
    return head.revision


def restore(source: Path, target: Path, *, ahead: int = AHEAD) -> int:
    """Make a store file from a backup; returns the revision it continues at. Replaces nothing."""
    if not source.exists():
        raise OpenError(f"there is no backup `{source}`")
    if target.exists():
        raise OpenError(f"`{target}` exists; move it away first, nothing is overwritten")
    lock = Lock(target)
    building = target.with_name(target.name + ".part")
    try:
        recognise(source)
        shutil.copyfile(source, building)
        verify(building, writer=False)
        head = _moved_on(building, ahead)
        for leftover in ("-wal", "-shm"):
            target.with_name(target.name + leftover).unlink(missing_ok=True)
        _publish(building, target)
    except OSError as error:
        raise WriteFailed(f"cannot restore to `{target}`: {error.strerror}") from error
    except sqlite3.Error as error:
        raise explain(error, target) from error
    finally:
        building.unlink(missing_ok=True)
        lock.release()
    return head.revision


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
