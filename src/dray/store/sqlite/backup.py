"""Backups of a store file, made while it is in use, and their restore.

Theory of operation: SQLite copies one unchanging state page by page while writes go on. The copy is verified
like a file that is opened, synced, and only then renamed, so that a file with the name of a backup is intact.
A restored store continues far ahead of the revision it was saved at, and its history is compacted: a watcher
that has seen later revisions must not see different changes under the same numbers. The entries move ahead by
the same gap, so that clients that remember a later version of a restored object do not take the restored one
for outdated.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from dray.durable import sync_directory
from dray.store.errors import StoreOpenError, StoreWriteError
from dray.store.sqlite.database_file import (
    check_file_header,
    connect,
    create_tables,
    explain_error,
    lock_store,
    verify_file,
)
from dray.store.sqlite.rows import (
    COLUMNS,
    SUM_MASK,
    Row,
    StoreHead,
    compute_row_checksum,
    encode_row_id,
    read_head,
    verify_row,
    write_head,
)

REVISION_GAP = 1_000_000_000
"""How many revisions a restored store skips; more than anybody wrote since the backup."""

NO_EXTRA_VALUES: Mapping[bytes, bytes] = MappingProxyType({})


def save_copy(source: sqlite3.Connection, target: Path) -> int:
    """Copy the state that `source` reads now into the file `target`; returns the revision of the copy."""

    def copy_database(copy: sqlite3.Connection) -> None:
        source.backup(copy)
        # A backup is one file: without this it would need a log beside it.
        copy.execute("PRAGMA journal_mode = DELETE")

    return build_file(target, copy_database)


def build_backup(rows: Sequence[Row], head: StoreHead, target: Path) -> int:
    """Build a backup of rows from another store, one for each key, ordered by their numbers."""

    def fill_database(new: sqlite3.Connection) -> None:
        create_tables(new, head)
        new.execute("BEGIN IMMEDIATE")
        insert_rows(new, rows)
        new.execute("COMMIT")

    return build_file(target, fill_database)


def restore_backup(
    source: Path, target: Path, *, force: bool = False, extra_values: Mapping[bytes, bytes] = NO_EXTRA_VALUES
) -> int:
    """Build a store file from a backup and extra values; returns the revision it continues at.

    An existing file stays as it is, unless `force` is given and the backup is intact.
    """
    if target.exists() and not force:
        raise StoreOpenError(f"`{target}` exists; move it away, or overwrite it with `--force`")
    lock = lock_store(target)
    building = target.with_name(target.name + ".part")
    try:
        copy_checked(source, building)
        verify_file(building, writer=False)
        head = _renumber_rows(building, extra_values)
        _checkpoint_and_drop_wal(target)
        _move_into_place(building, target)
    except OSError as error:
        raise StoreWriteError(f"cannot restore to `{target}`: {error.strerror}") from error
    except sqlite3.Error as error:
        raise explain_error(error, target) from error
    finally:
        building.unlink(missing_ok=True)
        lock.release()
    return head.revision


def copy_checked(source: Path, target: Path) -> Path:
    """Copy a backup after checking that it looks like one."""
    if not source.exists():
        raise StoreOpenError(f"there is no backup `{source}`")
    log = source.with_name(source.name + "-wal")
    if log.exists() and log.stat().st_size:
        raise StoreOpenError(
            f"`{source}` is a store in use, part of which is in `{log.name}`; make a backup of it first"
        )
    check_file_header(source)
    shutil.copyfile(source, target)
    return target


def build_file(target: Path, fill: Callable[[sqlite3.Connection], None]) -> int:
    """Fill a new file, verify it, and only then rename it."""
    building = target.with_name(target.name + ".part")
    # SQLite would apply the journal of a killed attempt to the new file.
    leftovers = (building, building.with_name(building.name + "-journal"))
    try:
        for leftover in leftovers:
            leftover.unlink(missing_ok=True)
        os.close(os.open(building, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        with contextlib.closing(sqlite3.connect(building, isolation_level=None)) as new:
            fill(new)
        head = verify_file(building, writer=False)
        _move_into_place(building, target)
    except sqlite3.Error as error:
        raise explain_error(error, target) from error
    except OSError as error:
        raise StoreWriteError(f"cannot write `{target}`: {error.strerror}") from error
    finally:
        for leftover in leftovers:
            leftover.unlink(missing_ok=True)
    return head.revision


def _checkpoint_and_drop_wal(target: Path) -> None:
    """Checkpoint a store before it is overwritten: its log must neither outlive it nor be lost."""
    if target.exists():
        with contextlib.suppress(sqlite3.Error), contextlib.closing(connect(target, writer=True)) as old:
            old.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    for leftover in ("-wal", "-shm"):
        target.with_name(target.name + leftover).unlink(missing_ok=True)


def _renumber_rows(path: Path, extra_values: Mapping[bytes, bytes]) -> StoreHead:
    """Renumber the current rows, append the extra values, and drop the history."""
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        head = read_head(connection)
        found = connection.execute(
            f"SELECT {COLUMNS} FROM current c JOIN history h ON h.id = c.id ORDER BY h.id"
        )
        rows = [
            _shift_row(verify_row(row)) for row in found if row[5] is not None and row[1] not in extra_values
        ]
        revision = head.revision + REVISION_GAP + bool(extra_values)
        for place, (key, value) in enumerate(extra_values.items()):
            rows.append(_build_row(encode_row_id(revision, place), key, revision, 1, value))
        total = sum(row[6] for row in rows) & SUM_MASK
        head = StoreHead(revision=revision, compacted=revision, rows=len(rows), total=total)
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("DELETE FROM current")
        connection.execute("DELETE FROM history")
        insert_rows(connection, rows)
        write_head(connection, head)
        connection.execute("COMMIT")
        return head


def _shift_row(row: Row) -> Row:
    """Return the row of the same entry, moved ahead by the gap and without a predecessor."""
    number, key, created, version, _, value, _ = row
    assert value is not None, key
    return _build_row(number + encode_row_id(REVISION_GAP), key, created + REVISION_GAP, version, value)


def _build_row(number: int, key: bytes, created: int, version: int, value: bytes) -> Row:
    fields = (number, key, created, version, 0)
    return (*fields, value, compute_row_checksum(fields, value))


def insert_rows(connection: sqlite3.Connection, rows: Sequence[Row]) -> None:
    """Insert rows in the order of their numbers; the last one of a key is its current row."""
    connection.executemany("INSERT INTO history VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
    connection.executemany("REPLACE INTO current VALUES (?, ?)", ((row[1], row[0]) for row in rows))


def _move_into_place(building: Path, target: Path) -> None:
    file = os.open(building, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)
    os.replace(building, target)
    sync_directory(target.parent)
