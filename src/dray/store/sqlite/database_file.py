"""Opening of a store file: create, identify, verify, or refuse it.

Theory of operation: opening reads the whole file once. SQLite checks its own structure, every row is checked
against its checksum, the sum over all rows against the head, and the index of current keys against the
history. A file that passes has everything that was acknowledged or, after a torn write-ahead log, everything
up to some revision; any other file is refused, because serving a part as the whole would be wrong.

Nothing here runs while the store is in use, except `connect`.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from pathlib import Path
from typing import NoReturn

from dray.durable import FileLock, sync_directory
from dray.store.errors import (
    CorruptStoreError,
    ForeignFileError,
    StoreFormatError,
    StoreInUseError,
    StoreOpenError,
    StoreWriteError,
)
from dray.store.sqlite.rows import (
    APPLICATION_ID,
    COLUMNS,
    FORMAT_VERSION,
    INDEX_BITS,
    OLDEST_READER,
    SUM_MASK,
    TABLES,
    StoreHead,
    read_head,
    verify_row,
    write_head,
)

MAGIC = b"SQLite format 3\0"
RESTORE_HINT = "restore the latest backup with `dray server restore`"


def lock_store(path: Path) -> FileLock:
    """Lock a store for this process; the lock file names the process for the message others get."""
    lock_path = path.with_name(path.name + ".lock")
    try:
        lock = FileLock.try_acquire(lock_path)
        if lock is None:
            holder = lock_path.read_bytes()[:20].decode("ascii", "replace").strip()
            raise StoreInUseError(f"`{path}` is in use by process {holder}; stop it, or choose another file")
    except OSError as error:
        raise StoreOpenError(f"cannot create `{lock_path}`: {error.strerror}") from error
    os.ftruncate(lock.descriptor, 0)
    os.pwrite(lock.descriptor, b"%d\n" % os.getpid(), 0)
    return lock


def connect(path: Path, *, writer: bool) -> sqlite3.Connection:
    """Open a connection of the running store; only one may write, and only that one ever checkpoints."""
    # Quoting keeps `?` and `#` in the name of a file from being read as part of the URI.
    mode = "rw" if writer else "ro"
    connection = sqlite3.connect(
        f"{path.absolute().as_uri()}?mode={mode}",
        uri=True,
        isolation_level=None,
        check_same_thread=False,
        # The writer has a statement for every number of rows up to a limit, see `group_commit`.
        cached_statements=256,
    )
    # The writer never waits: there is no other writer, and a checkpoint that meets readers is repeated.
    connection.execute(f"PRAGMA busy_timeout = {0 if writer else 10_000}")
    connection.execute("PRAGMA mmap_size = 0")
    if writer:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        # The writer checkpoints explicitly: an automatic checkpoint would hide a failed fsync.
        connection.execute("PRAGMA wal_autocheckpoint = 0")
        connection.execute("PRAGMA cache_size = -16000")
    else:
        connection.execute("PRAGMA query_only = ON")
    return connection


def prepare_file(path: Path) -> StoreHead:
    """Create the file if there is none, or verify it; returns its head."""
    if not path.parent.is_dir():
        raise StoreOpenError(
            f"there is no directory `{path.parent}` for the store; create it, or choose another place"
        )
    try:
        fresh = not path.exists() or path.stat().st_size == 0
        if fresh:
            _create_file(path)
        else:
            check_file_header(path)
            # Before a writer opens it, which changes the file.
            with contextlib.closing(connect(path, writer=False)) as connection:
                _check_format(connection, path)
        return verify_file(path)
    except OSError as error:
        raise StoreOpenError(f"cannot open `{path}`: {error.strerror}") from error
    except sqlite3.Error as error:
        raise explain_error(error, path) from error


def verify_file(path: Path, *, writer: bool = True) -> StoreHead:
    """Verify the whole file; raises `CorruptStoreError` unless every record is present and intact."""
    with contextlib.closing(connect(path, writer=writer)) as connection:
        try:
            _check_format(connection, path)
            findings = [row[0] for row in connection.execute("PRAGMA integrity_check(3)")]
            if findings != ["ok"]:
                raise CorruptStoreError(f"{findings[0]}")
            head = read_head(connection)
            _verify_current(connection, _verify_rows(connection, head))
        except CorruptStoreError as error:
            raise CorruptStoreError(f"`{path}` is damaged: {error}; {RESTORE_HINT}") from error
        except (sqlite3.DatabaseError, TypeError, ValueError, OverflowError) as error:
            code = getattr(error, "sqlite_errorcode", 0) & 0xFF
            if code in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_CANTOPEN):
                raise
            raise CorruptStoreError(f"`{path}` is damaged: {error}; {RESTORE_HINT}") from error
        return head


def explain_error(error: sqlite3.Error, path: Path) -> StoreOpenError | StoreWriteError:
    """Translate an error of SQLite to an error of the store."""
    code = (getattr(error, "sqlite_errorcode", None) or 0) & 0xFF
    if code == sqlite3.SQLITE_FULL:
        return StoreWriteError(f"no space left for `{path}`; free some and try again")
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return CorruptStoreError(f"`{path}` is damaged: {error}; {RESTORE_HINT}")
    return StoreOpenError(f"cannot open `{path}`: {error}")


def _create_file(path: Path) -> None:
    # A crash in here leaves nothing half-done: the file is built under another name and renamed when it is
    # complete, so there is no journal to replay.
    building = path.with_name(path.name + ".new")
    for leftover in (building, path.with_name(path.name + "-wal"), path.with_name(path.name + "-shm")):
        leftover.unlink(missing_ok=True)
    os.close(os.open(building, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    with contextlib.closing(sqlite3.connect(building, isolation_level=None)) as connection:
        create_tables(connection, StoreHead())
    os.replace(building, path)
    sync_directory(path.parent)


def create_tables(connection: sqlite3.Connection, head: StoreHead) -> None:
    """Create the tables of an empty file."""
    connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {FORMAT_VERSION}")
    connection.execute("BEGIN IMMEDIATE")
    for statement in TABLES:
        connection.execute(statement)
    connection.execute("INSERT INTO origin VALUES (1, ?)", (OLDEST_READER,))
    write_head(connection, head)
    connection.execute("COMMIT")


def check_file_header(path: Path) -> None:
    """Refuse a foreign file before SQLite touches it."""
    with path.open("rb") as file:
        header = file.read(100)
    if header[:16] != MAGIC:
        raise ForeignFileError(
            f"`{path}` is not a store of dray, or its head is damaged; choose another file, or {RESTORE_HINT}"
        )
    if int.from_bytes(header[68:72], "big") != APPLICATION_ID:
        raise ForeignFileError(f"`{path}` is a database of another program; choose another file")


def _check_format(connection: sqlite3.Connection, path: Path) -> None:
    (found,) = connection.execute("PRAGMA user_version").fetchone()
    if found > FORMAT_VERSION:
        raise_newer_format(connection, path, found)
    if found != FORMAT_VERSION:
        raise StoreFormatError(
            f"`{path}` has format {found}, this dray reads format {FORMAT_VERSION}; "
            f"migrate it with `dray server migrate --store {path}`"
        )


def raise_newer_format(connection: sqlite3.Connection, path: Path, found: int) -> NoReturn:
    """Raise an error that names the dray to use, if the file names one."""
    needed = "the dray that wrote it"
    with contextlib.suppress(sqlite3.Error):
        for (version,) in connection.execute("SELECT dray FROM origin"):
            needed = f"dray {version} or newer"
    raise StoreFormatError(
        f"`{path}` has format {found}, made by a newer dray; this one reads format {FORMAT_VERSION}: "
        f"use {needed}"
    )


def _verify_rows(connection: sqlite3.Connection, head: StoreHead) -> dict[bytes, int]:
    """Check every row and the chain of rows of each key; returns the newest row of each key."""
    count, total, newest = 0, 0, dict[bytes, int]()
    for row in connection.execute(f"SELECT {COLUMNS} FROM history h ORDER BY id"):
        number, key, _, _, previous, _, checksum = verify_row(row)
        before = newest.get(key, 0)
        # The row before may have been compacted, but only together with all older ones.
        if previous != before and (before or previous >> INDEX_BITS > head.compacted):
            raise CorruptStoreError(f"a record before revision `{number >> INDEX_BITS}` is missing")
        newest[key] = number
        total += checksum
        count += 1
    if (count, total & SUM_MASK) != (head.rows, head.total):
        raise CorruptStoreError(
            f"{count} records add up to something else than the {head.rows} that were written"
        )
    if max(newest.values(), default=0) >> INDEX_BITS > head.revision:
        raise CorruptStoreError(f"a record is newer than revision `{head.revision}`, where the store stands")
    return newest


def _verify_current(connection: sqlite3.Connection, newest: dict[bytes, int]) -> None:
    """Check that the index of current keys is exactly the newest row of every key."""
    indexed = dict(connection.execute("SELECT key, id FROM current"))
    if indexed != newest:
        raise CorruptStoreError(
            f"the index of current keys names {len(indexed)} keys, the history {len(newest)}"
        )
