"""Opening a store: a foreign, damaged or missing one is refused in one line that says what to do."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import stat
from pathlib import Path

import pytest

from dray.store import Delete, Put, open_store
from dray.store.errors import (
    CorruptStoreError,
    ForeignFileError,
    StoreError,
    StoreFormatError,
    StoreInUseError,
    StoreOpenError,
    StoreUnreachableError,
)
from dray.store.memory import MemoryStore
from dray.store.sqlite.store import SqliteStore


async def refused(address: str, kind: type[StoreError], *words: str) -> None:
    with pytest.raises(kind) as raised:
        await open_store(address)
    text = str(raised.value)
    assert "\n" not in text
    assert all(word in text for word in words), text


async def test_an_address_names_its_back_end(tmp_path: Path):
    assert isinstance(await open_store("memory:"), MemoryStore)
    for address in (str(tmp_path / "a.db"), f"sqlite:{tmp_path / 'b.db'}", str(tmp_path / "odd ?#%.db")):
        async with await open_store(address) as store:
            assert isinstance(store, SqliteStore)
    assert (tmp_path / "odd ?#%.db").exists()


@pytest.mark.parametrize("address", ["", "sqlite:", "http://x", "etcd:x", "etcd://", "etcd://nowhere/dray"])
async def test_an_address_that_names_nothing_is_refused(address: str):
    await refused(address, StoreOpenError, "`etcd" if address.startswith("etcd") else "`memory:`")


async def test_a_new_file_is_for_its_owner_only(tmp_path: Path):
    async with await open_store(str(tmp_path / "a.db")):
        for path in tmp_path.iterdir():
            assert stat.S_IMODE(path.stat().st_mode) == 0o600, path


async def test_a_file_in_use_names_the_process(tmp_path: Path):
    async with await open_store(str(tmp_path / "a.db")):
        await refused(str(tmp_path / "a.db"), StoreInUseError, "a.db", str(os.getpid()))
    async with await open_store(str(tmp_path / "a.db")):
        pass


async def test_a_text_file_is_left_alone(tmp_path: Path):
    path = tmp_path / "notes"
    path.write_text("my notes")
    await refused(str(path), ForeignFileError, "not a store of dray", "choose another file")
    assert path.read_text() == "my notes"


async def test_a_database_of_another_program_is_left_alone(tmp_path: Path):
    path = tmp_path / "theirs.db"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE theirs (x)")
    connection.close()
    before = path.read_bytes()
    await refused(str(path), ForeignFileError, "another program")
    assert path.read_bytes() == before


async def test_a_newer_format_is_refused(tmp_path: Path):
    path = await some_store(tmp_path)
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 3")
    connection.close()
    await refused(str(path), StoreFormatError, "format 3", "format 2")


@pytest.mark.parametrize(
    ("statement", "word"),
    [
        ("UPDATE history SET value = x'00' WHERE id = (SELECT min(id) FROM history)", "checksum"),
        ("DELETE FROM history WHERE id = (SELECT min(id) FROM history)", "is missing"),
        ("DELETE FROM history WHERE key = x'61'; DELETE FROM current WHERE key = x'61'", "add up"),
        ("UPDATE head SET revision = 2", "head record"),
        ("DELETE FROM head", "head record"),
        ("DELETE FROM current WHERE key = x'61'", "index of current keys"),
        ("UPDATE current SET id = (SELECT min(id) FROM history)", "index of current keys"),
        ("DROP TABLE current", "no such table"),
    ],
)
async def test_a_file_that_was_tampered_with_is_refused(tmp_path: Path, statement: str, word: str):
    path = await some_store(tmp_path)
    connection = sqlite3.connect(path, isolation_level=None)
    connection.executescript(statement)
    connection.close()
    await refused(str(path), CorruptStoreError, word, "dray server restore")


async def test_a_missing_folder_is_named(tmp_path: Path):
    await refused(str(tmp_path / "no" / "a.db"), StoreOpenError, "no")


async def test_an_etcd_that_is_not_there_is_one_line():
    from dray.store.etcd.store import EtcdStore

    with pytest.raises(StoreUnreachableError) as raised:
        await EtcdStore.open(("127.0.0.1:1",), timeout=0.3)
    assert "`127.0.0.1:1`" in str(raised.value)
    assert "\n" not in str(raised.value)


async def test_a_damaged_record_is_never_served_while_running(tmp_path: Path):
    path = tmp_path / "a.db"
    async with await SqliteStore.open(path) as store:
        await store.txn([], [Put(b"a", b"1"), Put(b"b", b"2")])
        connection = sqlite3.connect(path, isolation_level=None)
        connection.execute("UPDATE history SET value = x'39' WHERE key = x'61'")
        connection.close()
        with pytest.raises(CorruptStoreError, match="checksum"):
            await store.get(b"a")
        with pytest.raises(CorruptStoreError, match="checksum"):
            await store.range(b"")


async def test_compaction_gives_space_back(tmp_path: Path):
    path = tmp_path / "a.db"
    async with await SqliteStore.open(path) as store:
        for _ in range(20):
            await asyncio.gather(*(store.txn([], [Put(b"k%d" % n, os.urandom(2000))]) for n in range(50)))
        await store.backup(tmp_path / "before.db")
        await store.compact(await store.get_revision())
        await store.backup(tmp_path / "after.db")
        assert len((await store.range(b"")).entries) == 50
    before, after = (tmp_path / "before.db").stat().st_size, (tmp_path / "after.db").stat().st_size
    assert after < before / 5
    assert path.stat().st_size <= after + 8192


async def some_store(folder: Path) -> Path:
    path = folder / "a.db"
    async with await SqliteStore.open(path) as store:
        await store.txn([], [Put(b"a", b"1")])
        await store.txn([], [Put(b"a", b"2"), Put(b"b", b"3")])
    return path


async def test_compaction_counts_a_delete_that_was_followed_by_a_new_beginning_once(tmp_path: Path):
    path = tmp_path / "a.db"
    async with await SqliteStore.open(path) as store:
        for _ in range(4):
            await store.txn([], [Put(b"%d" % n, b"") for n in range(120)])
            await store.txn([], [Delete(b"%d" % n) for n in range(120)])
        await store.txn([], [Put(b"7", b"last")])
        await store.compact(await store.get_revision())
    async with await SqliteStore.open(path) as store:
        assert [entry.key for entry in (await store.range(b"")).entries] == [b"7"]
