"""Records: no change is visible before its line is in the log, and none happens without one."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from dray.store import (
    CommitRecord,
    Committed,
    KeyAbsent,
    Put,
    SequenceCommitted,
    TxnConflict,
    TxnStep,
)
from dray.store.errors import RecordNotWrittenError
from dray.store.memory import MemoryStore
from dray.store.records import commit_recorded, commit_sequence_recorded, takes_records
from dray.store.sqlite import store as store_module
from dray.store.sqlite.database_file import connect
from dray.store.sqlite.store import SqliteStore


class Log:
    """A log that notes which keys the file of the store had when each batch of lines came."""

    def __init__(self, path: Path, fault: Exception | None = None) -> None:
        self._path, self.fault = path, fault
        self.batches: list[tuple[list[bytes], set[bytes]]] = []

    def append_before_commit(self, lines: Sequence[bytes]) -> None:
        if self.fault is not None:
            raise self.fault
        with closing(sqlite3.connect(self._path)) as connection:
            keys = {bytes(key) for (key,) in connection.execute("SELECT key FROM current")}
        self.batches.append((list(lines), keys))

    @property
    def lines(self) -> list[bytes]:
        return [line for lines, _ in self.batches for line in lines]


async def read_keys(store: SqliteStore) -> list[bytes]:
    return [entry.key for entry in (await store.range(b"/")).entries]


async def test_a_line_is_in_the_log_before_its_change_is_in_the_file(tmp_path: Path):
    path = tmp_path / "store.db"
    async with await SqliteStore.open(path) as store:
        log = Log(path)
        outcome = await store.txn_recorded([], [Put(b"/a", b"1")], CommitRecord(log, b"first"))
        assert isinstance(outcome, Committed)
        steps = [TxnStep((), (Put(b"/b", b"1"),)), TxnStep((), (Put(b"/c", b"1"),))]
        sequence = await store.txn_sequence_recorded(steps, CommitRecord(log, b"second"))
        assert isinstance(sequence, SequenceCommitted)
        assert log.batches == [([b"first"], set()), ([b"second"], {b"/a"})]
        assert await read_keys(store) == [b"/a", b"/b", b"/c"]


async def test_requests_that_share_a_commit_share_an_append(tmp_path: Path):
    path = tmp_path / "store.db"
    async with await SqliteStore.open(path) as store:
        log = Log(path)
        names = [b"%d" % number for number in range(20)]
        await asyncio.gather(
            *(store.txn_recorded([], [Put(b"/" + name, b"1")], CommitRecord(log, name)) for name in names)
        )
        assert log.batches == [(names, set())]


async def test_a_log_that_takes_no_line_refuses_the_change_and_no_other(tmp_path: Path):
    path = tmp_path / "store.db"
    async with await SqliteStore.open(path) as store:
        log = Log(path)
        full = Log(path)
        for fault in (RecordNotWrittenError("it is full"), OSError("a fault of the log")):
            full.fault = fault
            step = TxnStep((), (Put(b"/sequence", b"1"),))
            refused, refused_sequence, plain, recorded = await asyncio.gather(
                store.txn_recorded([], [Put(b"/refused", b"1")], CommitRecord(full, b"refused")),
                store.txn_sequence_recorded([step], CommitRecord(full, b"refused")),
                store.txn([], [Put(b"/plain", b"1")]),
                store.txn_recorded([], [Put(b"/recorded", b"1")], CommitRecord(log, b"recorded")),
                return_exceptions=True,
            )
            for outcome in (refused, refused_sequence):
                assert isinstance(outcome, RecordNotWrittenError)
                assert str(fault) in str(outcome)
            assert isinstance(plain, Committed)
            assert isinstance(recorded, Committed)
        assert await read_keys(store) == [b"/plain", b"/recorded"]
        full.fault = None
        again = CommitRecord(full, b"again")
        assert isinstance(await store.txn_recorded([], [Put(b"/again", b"1")], again), Committed)
        assert full.lines == [b"again"]


async def test_a_line_is_written_once_however_often_its_request_tries(tmp_path: Path):
    path = tmp_path / "store.db"
    async with await SqliteStore.open(path) as store:
        log = Log(path)
        record = CommitRecord(log, b"once")
        await store.txn([], [Put(b"/a", b"1")])
        lost = await commit_recorded(store, [KeyAbsent(b"/a")], [Put(b"/a", b"2")], record)
        assert isinstance(lost, TxnConflict)
        assert not record.is_pending
        assert isinstance(await commit_recorded(store, [], [Put(b"/a", b"2")], record), Committed)
        assert isinstance(
            await commit_sequence_recorded(store, [TxnStep((), (Put(b"/b", b"1"),))], record),
            SequenceCommitted,
        )
        assert log.lines == [b"once"]


async def test_a_line_without_its_change_is_what_a_failed_commit_leaves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    path = tmp_path / "store.db"

    def connect_full(path, *, writer):
        connection = connect(path, writer=writer)
        return FullDisk(connection) if writer else connection

    monkeypatch.setattr(store_module, "connect", connect_full)
    async with await SqliteStore.open(path) as store:
        log = Log(path)
        with pytest.raises(Exception, match="no space left"):
            await store.txn_recorded([], [Put(b"/a", b"1")], CommitRecord(log, b"line"))
        assert log.lines == [b"line"]
        assert await read_keys(store) == []


class FullDisk:
    """A connection to a disk without space."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def __getattr__(self, name: str) -> object:
        return getattr(self._connection, name)

    def execute(self, statement: str, *arguments: object) -> sqlite3.Cursor:
        if statement == "COMMIT":
            error = sqlite3.OperationalError("database or disk is full")
            error.sqlite_errorcode = sqlite3.SQLITE_FULL
            raise error
        return self._connection.execute(statement, *arguments)  # type: ignore[arg-type]


def test_a_store_without_records_says_so():
    assert not takes_records(MemoryStore())
