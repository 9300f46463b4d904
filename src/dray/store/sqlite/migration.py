"""Migration of a store file from an older format to the current one.

Theory of operation: the old file is never changed. Its log is folded into it, a second name keeps it, and
the new file is built beside it row by row, verified like a file that is opened, synced, and only then renamed
to the name of the store. A process that is killed at any moment therefore leaves the whole old store or the
whole new one under that name; what else it leaves is overwritten by the next attempt. Revisions, versions and
history stay as they are: clients continue to watch where they were.

`FORMATS` has a reader for each older format; a new format adds the one it replaces.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import msgspec

from dray.durable import sync_directory
from dray.store.errors import CorruptStoreError, StoreOpenError, StoreWriteError
from dray.store.sqlite import format_1
from dray.store.sqlite.backup import build_file, insert_rows
from dray.store.sqlite.database_file import (
    RESTORE_HINT,
    check_file_header,
    create_tables,
    explain_error,
    lock_store,
    raise_newer_format,
)
from dray.store.sqlite.rows import FORMAT_VERSION, SUM_MASK, Row, StoreHead, write_head

BATCH_ROWS = 1000
"""Rows that are inserted by one statement."""

Progress = Callable[[str, int, int], None]
"""Called with the current step, and how much of how much is done."""


class FormatReader(NamedTuple):
    """Reads a file of an older format into rows of the current one."""

    read_head: Callable[[sqlite3.Connection], StoreHead]
    iter_rows: Callable[[sqlite3.Connection], Iterator[Row]]


FORMATS: Mapping[int, FormatReader] = {1: FormatReader(format_1.read_head, format_1.iter_rows)}


@dataclass(frozen=True)
class StoreFileFormat:
    """The format of a store file, and how much a migration has to copy."""

    number: int
    rows: int
    size: int
    """Bytes of the file and of its log."""

    @property
    def is_current(self) -> bool:
        return self.number == FORMAT_VERSION


@dataclass(frozen=True)
class MigratedStore:
    """The outcome of a migration."""

    old_format: int
    rows: int
    revision: int
    backup: Path
    """The old file."""


def read_format(path: Path) -> StoreFileFormat:
    """Read the format of a store file; raise `StoreFormatError` for one that only a newer dray reads."""
    if not path.exists():
        raise StoreOpenError(f"there is no store `{path}`; name another with `--data-dir` or `--store`")
    with _translate_errors(path):
        check_file_header(path)
        with contextlib.closing(_connect(path, "ro")) as connection:
            (number,) = connection.execute("PRAGMA user_version").fetchone()
            if number > FORMAT_VERSION:
                raise_newer_format(connection, path, number)
            if number != FORMAT_VERSION and number not in FORMATS:
                raise CorruptStoreError(f"no dray has written format {number}")
            (rows,) = connection.execute("SELECT count(*) FROM history").fetchone()
        log = path.with_name(path.name + "-wal")
        size = path.stat().st_size + (log.stat().st_size if log.exists() else 0)
    return StoreFileFormat(number, rows, size)


def migrate_file(path: Path, progress: Progress = lambda what, done, total: None) -> MigratedStore:
    """Replace a file of an older format by one of the current format; the old one gets another name."""
    lock = lock_store(path)
    try:
        found = read_format(path)
        if found.is_current:
            raise StoreOpenError(f"`{path}` has format {FORMAT_VERSION} already")
        with _translate_errors(path):
            _fold_log(path)
            backup = _keep_old_file(path, found.number)
            try:
                revision = build_file(path, lambda new: _fill(new, backup, found, progress))
            except BaseException:
                backup.unlink()
                raise
    finally:
        lock.release()
    return MigratedStore(found.number, found.rows, revision, backup)


def _fold_log(path: Path) -> None:
    """Move everything from the write-ahead log into the file."""
    with contextlib.closing(_connect(path, "rw")) as connection:
        (mode,) = connection.execute("PRAGMA journal_mode = DELETE").fetchone()
    if mode != "delete":
        raise StoreOpenError(f"`{path}` is in use by another program; stop it")


def _keep_old_file(path: Path, number: int) -> Path:
    """Give the old file a second name, beside the store."""
    names = (path.with_name(f"{path.name}.format-{number}{more}") for more in _iter_suffixes())
    backup = next(name for name in names if not name.exists() or name.samefile(path))
    if not backup.exists():
        try:
            os.link(path, backup)
        except OSError:  # a file system without links
            part = backup.with_name(backup.name + ".part")
            shutil.copyfile(path, part)
            with part.open("rb+") as file:
                os.fsync(file.fileno())
            os.replace(part, backup)
    sync_directory(path.parent)
    return backup


def _iter_suffixes() -> Iterator[str]:
    yield ""
    yield from (f"-{number}" for number in itertools.count(2))


def _fill(new: sqlite3.Connection, old_path: Path, found: StoreFileFormat, progress: Progress) -> None:
    """Copy every row of the old file into the new one."""
    reader, what, done = FORMATS[found.number], "copying records", 0
    with contextlib.closing(_connect(old_path, "ro")) as old:
        findings = [row[0] for row in old.execute("PRAGMA integrity_check(3)")]
        if findings != ["ok"]:
            raise CorruptStoreError(f"{findings[0]}")
        head, total = reader.read_head(old), 0
        create_tables(new, head)
        new.execute("BEGIN IMMEDIATE")
        rows = reader.iter_rows(old)
        while batch := list(itertools.islice(rows, BATCH_ROWS)):
            insert_rows(new, batch)
            done += len(batch)
            total = (total + sum(row[6] for row in batch)) & SUM_MASK
            progress(what, done, found.rows)
        write_head(new, msgspec.structs.replace(head, rows=done, total=total))
        new.execute("COMMIT")
    progress("verifying the new file", 0, 0)


def _connect(path: Path, mode: str) -> sqlite3.Connection:
    return sqlite3.connect(f"{path.absolute().as_uri()}?mode={mode}", uri=True, isolation_level=None)


@contextlib.contextmanager
def _translate_errors(path: Path) -> Iterator[None]:
    """Translate errors to those of the store."""
    try:
        yield
    except CorruptStoreError as error:
        raise CorruptStoreError(f"`{path}` is damaged: {error}; {RESTORE_HINT}") from error
    except OSError as error:
        raise StoreWriteError(f"cannot migrate `{path}`: {error.strerror}") from error
    except sqlite3.Error as error:
        raise explain_error(error, path) from error
