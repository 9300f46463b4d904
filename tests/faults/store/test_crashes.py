"""R-01, R-02 and R-20 in small; the full sizes: `python -m tests.faults.store --full`."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from dray.store import Put
from dray.store.errors import CorruptStoreError, StoreOpenError
from dray.store.sqlite.backup import restore_backup
from dray.store.sqlite.store import SqliteStore
from tests.faults.store import backups, corruption, crashes

SEED = 20


def test_small_kill_at_random_and_at_named_points_loses_nothing_acknowledged(tmp_path: Path):
    tally = crashes.campaign(tmp_path, kills=10, seed=SEED)
    assert tally.acknowledged > 50
    assert tally.sound(), tally


def test_small_cut_logs_and_flipped_bits_give_a_prefix_or_a_refusal(tmp_path: Path):
    seen = corruption.campaign(tmp_path, SEED, step=499, reach=16_000, flips=60)
    assert not [judgement for judgement in seen if "WRONG" in judgement], seen
    assert {"cut: prefix", "flip: refused"} <= seen.keys()


def test_the_judge_of_corruption_catches_wrong_data(tmp_path: Path):
    states = corruption.make(tmp_path, SEED, writes=20)
    assert corruption.judge_cut(tmp_path, states, 10**9) == "whole"
    assert corruption.judge_cut(tmp_path, {at: {} for at in states}, 10**9).startswith("WRONG")


async def test_a_backup_under_load_is_one_state_and_restores_equal(tmp_path: Path):
    async with await SqliteStore.open(tmp_path / "store.db") as store:
        saved = asyncio.Event()

        async def load(writer: int) -> None:
            number = 0
            while number < 10 or not saved.is_set():
                number += 1
                pair = b"%d" % number
                await store.txn([], [Put(b"a/%d" % writer, pair), Put(b"b/%d" % writer, pair)])

        writers = [asyncio.create_task(load(writer)) for writer in range(4)]
        while await store.get(b"a/3") is None:
            await asyncio.sleep(0)
        saved_at = await store.backup(tmp_path / "saved.db")
        saved.set()
        await asyncio.gather(*writers)
        truth = await store.range(b"", revision=saved_at)

    resumed_at = restore_backup(tmp_path / "saved.db", tmp_path / "restored.db")
    async with await SqliteStore.open(tmp_path / "restored.db") as restored:
        page = await restored.range(b"")
        assert [(each.key, each.value, each.version) for each in page.entries] == [
            (each.key, each.value, each.version) for each in truth.entries
        ]
        assert min(each.mod_revision for each in page.entries) > saved_at, "no number is used twice"
        assert page.revision == resumed_at > saved_at + 10**8
        assert (await restored.txn([], [Put(b"new", b"")])).revision == resumed_at + 1


async def test_a_damaged_backup_is_refused_and_nothing_is_left(tmp_path: Path):
    async with await SqliteStore.open(tmp_path / "store.db") as store:
        await store.txn([], [Put(b"a", b"treasure" * 100)])
        await store.backup(tmp_path / "saved.db")
    saved = tmp_path / "saved.db"
    whole = saved.read_bytes()
    place = whole.rfind(b"treasure")
    saved.write_bytes(whole[:place] + b"tReasure" + whole[place + 8 :])
    with pytest.raises(CorruptStoreError, match="checksum"):
        restore_backup(saved, tmp_path / "restored.db")
    assert not [path for path in tmp_path.iterdir() if path.name in ("restored.db", "restored.db.part")]


async def test_backups_into_one_file_at_the_same_time_do_not_disturb_each_other(tmp_path: Path):
    async with await SqliteStore.open(tmp_path / "store.db") as store:
        await asyncio.gather(*(store.txn([], [Put(b"%d" % n, b"x" * 500)]) for n in range(500)))
        revisions = await asyncio.gather(*(store.backup(tmp_path / "saved.db") for _ in range(4)))
    assert set(revisions) == {501}


async def test_restoring_overwrites_nothing(tmp_path: Path):
    async with await SqliteStore.open(tmp_path / "store.db") as store:
        await store.backup(tmp_path / "saved.db")
    with pytest.raises(StoreOpenError, match="move it away"):
        restore_backup(tmp_path / "saved.db", tmp_path / "store.db")
    with pytest.raises(StoreOpenError, match="there is no backup"):
        restore_backup(tmp_path / "elsewhere.db", tmp_path / "new.db")


def test_small_backups_under_load_come_back_equal_and_damaged_ones_are_refused(tmp_path: Path):
    seen = backups.campaign(tmp_path, rounds=3, flips=30, seed=SEED)
    assert not [judgement for judgement in seen if "WRONG" in judgement], seen
    assert seen["restored equal"] == 3
    assert seen["damaged refused"] > 0
