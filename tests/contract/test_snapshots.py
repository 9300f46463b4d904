"""Backups of every store in one format, and the way back into a file or an etcd (R-20)."""

from __future__ import annotations

import asyncio
import itertools
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dray.store import Delete, Put, Store, StoreEntry, open_store
from dray.store.backups import back_up_store, restore_store
from dray.store.errors import (
    CompactedError,
    CorruptStoreError,
    OutcomeUnknownError,
    StoreInUseError,
    StoreOpenError,
)
from dray.store.sqlite.backup import REVISION_GAP
from tests.contract.backends import Backend


async def fill(store: Store) -> None:
    for number in range(30):
        await store.txn([], [Put(b"k/%d" % number, b"%d" % number * 50), Put(b"all", b"%d" % number)])
    await store.txn([], [Delete(b"k/3"), Delete(b"k/4")])
    await store.txn([], [Put(b"k/4", b"again"), Put(b"\xff\x00", b"")])


def values(entries) -> dict[bytes, bytes]:
    return {entry.key: entry.value for entry in entries}


def later(entry: StoreEntry) -> StoreEntry:
    """An entry as a restored file has it: the same, under numbers that nobody has seen."""
    return msgspec.structs.replace(
        entry,
        create_revision=entry.create_revision + REVISION_GAP,
        mod_revision=entry.mod_revision + REVISION_GAP,
    )


async def test_a_backup_under_load_is_one_state_and_restores_equal(backend: Backend, tmp_path: Path):
    async with backend.open() as store:
        await fill(store)

        async def load(writer: int) -> None:
            for number in range(100):
                await store.txn(
                    [], [Put(b"a/%d" % writer, b"%d" % number), Put(b"b/%d" % writer, b"%d" % number)]
                )
                await asyncio.sleep(0)

        writers = [asyncio.create_task(load(writer)) for writer in range(3)]
        await asyncio.sleep(0.01)
        saved_at = await back_up_store(store, tmp_path / "saved.db")
        await asyncio.gather(*writers)
        truth = (await store.range(b"", revision=saved_at)).entries
    resumed_at = await restore_store(tmp_path / "saved.db", str(tmp_path / "restored.db"))
    async with await open_store(str(tmp_path / "restored.db")) as restored:
        page = await restored.range(b"")
        assert page.entries == tuple(later(entry) for entry in truth)
        assert page.revision == resumed_at == saved_at + REVISION_GAP
        with pytest.raises(CompactedError):
            await restored.get(b"all", saved_at)


async def test_a_backup_is_restored_into_an_empty_etcd(etcd, tmp_path: Path):
    async with await open_store(str(tmp_path / "a.db")) as store:
        await fill(store)
        await asyncio.gather(*(store.txn([], [Put(b"big/%d" % n, b"x" * 300_000)]) for n in range(8)))
        await back_up_store(store, tmp_path / "saved.db")
        truth = values((await store.range(b"")).entries)
    address = f"etcd://{etcd[0]}/restored"
    revision = await restore_store(tmp_path / "saved.db", address)
    async with await open_store(address) as store:
        page = await store.range(b"")
        assert values(page.entries) == truth
        assert page.revision >= revision
    with pytest.raises(StoreOpenError, match="--force"):
        await restore_store(tmp_path / "saved.db", address)
    async with await open_store(address) as store:
        await store.txn([], [Put(b"later", b""), Delete(b"all")])
    await restore_store(tmp_path / "saved.db", address, force=True)
    async with await open_store(address) as store:
        assert values((await store.range(b"")).entries) == truth


async def test_extra_values_of_a_restore_replace_those_of_the_backup(tmp_path: Path):
    async with await open_store(str(tmp_path / "a.db")) as store:
        await fill(store)
        saved_at = await back_up_store(store, tmp_path / "saved.db")
        truth = values((await store.range(b"")).entries)
    address = str(tmp_path / "restored.db")
    added = {b"all": b"other", b"new": b"1"}
    resumed_at = await restore_store(tmp_path / "saved.db", address, extra_values=added)
    async with await open_store(address) as restored:
        page = await restored.range(b"")
        assert values(page.entries) == truth | added
        assert {entry.key for entry in page.entries if entry.mod_revision > saved_at + REVISION_GAP} == {
            *added
        }
        assert page.revision == resumed_at == saved_at + REVISION_GAP + 1
        written = await restored.txn([], [Put(b"k/1", b"later"), Delete(b"all")])
        assert written.revision == resumed_at + 1
    async with await open_store(address) as restored:
        left = {key: value for key, value in truth.items() if key != b"all"}
        assert values((await restored.range(b"")).entries) == left | {b"new": b"1", b"k/1": b"later"}


async def some_backup(folder: Path) -> Path:
    async with await open_store(str(folder / "first.db")) as store:
        await store.txn([], [Put(b"a", b"treasure" * 100)])
        await back_up_store(store, folder / "saved.db")
    return folder / "saved.db"


async def test_overwriting_needs_force_and_a_whole_backup(tmp_path: Path):
    saved = await some_backup(tmp_path)
    target = tmp_path / "target.db"
    async with await open_store(str(target)) as store:
        await store.txn([], [Put(b"mine", b"1")])
        with pytest.raises(StoreOpenError, match="--force"):
            await restore_store(saved, str(target))
        with pytest.raises(StoreInUseError):
            await restore_store(saved, str(target), force=True)
    whole = saved.read_bytes()
    saved.write_bytes(whole.replace(b"treasure", b"tReasure", 1))
    with pytest.raises(CorruptStoreError, match="checksum"):
        await restore_store(saved, str(target), force=True)
    async with await open_store(str(target)) as store:
        assert [entry.key for entry in (await store.range(b"")).entries] == [b"mine"]
    saved.write_bytes(whole)
    await restore_store(saved, f"sqlite:{target}", force=True)
    async with await open_store(str(target)) as store:
        assert [entry.key for entry in (await store.range(b"")).entries] == [b"a"]


async def test_the_log_of_a_store_that_was_killed_does_not_survive_its_replacement(tmp_path: Path):
    saved = await some_backup(tmp_path)
    async with await open_store(str(tmp_path / "a.db")) as store:
        await store.txn([], [Put(b"mine", b"1")])
        for ending in ("", "-wal"):
            (tmp_path / f"killed.db{ending}").write_bytes((tmp_path / f"a.db{ending}").read_bytes())
    await restore_store(saved, str(tmp_path / "killed.db"), force=True)
    async with await open_store(str(tmp_path / "killed.db")) as store:
        assert [entry.key for entry in (await store.range(b"")).entries] == [b"a"]


async def test_a_damaged_backup_does_not_reach_etcd(etcd, tmp_path: Path):
    saved = await some_backup(tmp_path)
    saved.write_bytes(saved.read_bytes().replace(b"treasure", b"tReasure", 1))
    address = f"etcd://{etcd[0]}/untouched"
    with pytest.raises(CorruptStoreError):
        await restore_store(saved, address)
    async with await open_store(address) as store:
        assert (await store.range(b"")).entries == ()


async def test_what_is_no_backup_is_refused(tmp_path: Path):
    async with await open_store(str(tmp_path / "live.db")) as store:
        await store.txn([], [Put(b"a", b"1")])
        with pytest.raises(StoreOpenError, match="make a backup"):
            await restore_store(tmp_path / "live.db", str(tmp_path / "new.db"))
    with pytest.raises(StoreOpenError, match="there is no backup"):
        await restore_store(tmp_path / "nowhere.db", str(tmp_path / "new.db"))
    with pytest.raises(StoreOpenError, match="keeps nothing"):
        await restore_store(tmp_path / "live.db", "memory:")
    assert not (tmp_path / "new.db").exists()


async def test_an_interrupted_restore_reports_its_progress(etcd, tmp_path: Path, monkeypatch):
    async with await open_store(str(tmp_path / "a.db")) as store:
        await asyncio.gather(*(store.txn([], [Put(b"%d" % n, b"")]) for n in range(250)))
        await back_up_store(store, tmp_path / "saved.db")
    from dray.store.etcd.store import EtcdStore

    plain, calls = EtcdStore.txn, itertools.count()

    async def breaking(self: EtcdStore, *arguments: Any) -> Any:
        if next(calls) == 1:
            raise OutcomeUnknownError("the line broke")
        return await plain(self, *arguments)

    monkeypatch.setattr(EtcdStore, "txn", breaking)
    address = f"etcd://{etcd[0]}/half"
    with pytest.raises(
        StoreOpenError, match=r"100 of 250 keys .* the line broke; restore again with `--force`"
    ):
        await restore_store(tmp_path / "saved.db", address)
    await restore_store(tmp_path / "saved.db", address, force=True)
    async with await open_store(address) as store:
        assert len((await store.range(b"")).entries) == 250
