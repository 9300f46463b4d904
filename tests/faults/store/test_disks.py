"""Disks that are full or report errors: a clear error and recovery, or a clear end."""

from __future__ import annotations

import asyncio
import os
import resource
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dray.store import Committed, Put
from dray.store.errors import OutcomeUnknownError, StoreClosedError, StoreWriteError
from dray.store.sqlite import store as store_module
from dray.store.sqlite.database_file import connect
from dray.store.sqlite.store import SqliteStore

BIG = b"x" * 200_000


@contextmanager
def files_limited_to(size: int) -> Iterator[None]:
    """No file of this process may grow beyond `size` bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


async def test_a_full_disk_fails_writes_keeps_reads_and_recovers(tmp_path: Path):
    path = tmp_path / "store.db"
    async with await SqliteStore.open(path) as store:
        await store.txn([], [Put(b"a", b"1")])
        used = max(file.stat().st_size for file in tmp_path.iterdir())
        with files_limited_to(used + 50_000):
            for _ in range(3):
                with pytest.raises(StoreWriteError, match="refused to write"):
                    await store.txn([], [Put(b"a", b"2"), Put(b"big", BIG)])
            entry = await store.get(b"a")
            assert entry is not None
            assert entry.value == b"1"
            assert await store.get_revision() == entry.mod_revision
        outcome = await store.txn([], [Put(b"big", BIG)])
        assert outcome == Committed(entry.mod_revision + 1)
    async with await SqliteStore.open(path) as store:
        assert [e.key for e in (await store.range(b"")).entries] == [b"a", b"big"]


class Faulty:
    """A connection whose next statement of one kind fails like a broken disk."""

    def __init__(self, connection: sqlite3.Connection, statement: str, code: int) -> None:
        self._connection = connection
        self._statement = statement
        self._code = code
        self.armed = False
        self.failed = 0

    def __getattr__(self, name: str) -> object:
        return getattr(self._connection, name)

    def execute(self, statement: str, *arguments: object) -> sqlite3.Cursor:
        if self.armed and statement.startswith(self._statement):
            self.failed += 1
            error = sqlite3.OperationalError("disk I/O error")
            error.sqlite_errorcode = self._code
            raise error
        return self._connection.execute(statement, *arguments)  # type: ignore[arg-type]


def broken_writer(monkeypatch: pytest.MonkeyPatch, statement: str, code: int) -> list[Faulty]:
    made: list[Faulty] = []

    def opened(path: Path, *, writer: bool) -> object:
        connection = connect(path, writer=writer)
        if not writer:
            return connection
        made.append(Faulty(connection, statement, code))
        return made[-1]

    monkeypatch.setattr(store_module, "connect", opened)
    return made


@pytest.mark.parametrize("code", [sqlite3.SQLITE_IOERR_FSYNC, sqlite3.SQLITE_IOERR_READ])
async def test_a_failed_fsync_stops_the_store_without_a_second_attempt(tmp_path: Path, monkeypatch, code):
    made = broken_writer(monkeypatch, "COMMIT", code)
    store = await SqliteStore.open(tmp_path / "store.db")
    await store.txn([], [Put(b"a", b"1")])
    watching = asyncio.ensure_future(anext(store.watch(b"", await store.get_revision())))
    await asyncio.sleep(0.05)
    made[0].armed = True
    with pytest.raises(OutcomeUnknownError, match="unknown whether"):
        await store.txn([], [Put(b"a", b"2")])
    made[0].armed = False
    with pytest.raises(StoreClosedError, match="has stopped"):
        await store.txn([], [Put(b"a", b"3")])
    with pytest.raises(StoreClosedError, match="has stopped"):
        await store.get(b"a")
    with pytest.raises(StoreClosedError, match="has stopped"):
        await watching
    assert made[0].failed == 1
    await store.close()
    async with await SqliteStore.open(tmp_path / "store.db") as again:
        entry = await again.get(b"a")
        assert entry is not None
        assert entry.value == b"1"


async def test_a_refused_write_is_taken_back_and_the_next_one_may_work(tmp_path: Path, monkeypatch):
    made = broken_writer(monkeypatch, "COMMIT", sqlite3.SQLITE_FULL)
    async with await SqliteStore.open(tmp_path / "store.db") as store:
        made[0].armed = True
        with pytest.raises(StoreWriteError, match="no space left"):
            await store.txn([], [Put(b"a", b"1")])
        made[0].armed = False
        assert await store.get(b"a") is None
        assert await store.txn([], [Put(b"a", b"2")]) == Committed(2)


async def test_a_failed_fsync_of_a_checkpoint_stops_the_store_too(tmp_path: Path, monkeypatch):
    made = broken_writer(monkeypatch, "PRAGMA wal_checkpoint", sqlite3.SQLITE_IOERR_FSYNC)
    store = await SqliteStore.open(tmp_path / "store.db")
    made[0].armed = True
    await store.txn([], [Put(b"a", b"x" * (9 << 20))])
    with pytest.raises(StoreClosedError, match="has stopped"):
        await store.txn([], [Put(b"b", b"")])
    await store.close()
    assert made[0].failed == 1
    assert os.path.getsize(tmp_path / "store.db-wal") > 9 << 20
