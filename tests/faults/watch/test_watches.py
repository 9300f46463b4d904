"""R-04 in small, for every back end; the full size: `python -m tests.faults.watch --full`."""

from __future__ import annotations

from pathlib import Path

import pytest

from dray.store.memory import MemoryStore
from dray.store.sqlite.store import SqliteStore
from tests.contract.etcd_server import NO_ETCD, binary
from tests.faults.watch.campaign import Tally, campaign
from tests.faults.watch.etcd import etcd_with_a_torn_line

SEED = 4
BUFFER = 200


def judge(tally: Tally) -> None:
    assert not tally.wrong, tally.wrong[:5]
    assert tally.told > 5_000
    assert tally.compacted > 0
    assert tally.bookmarks > 0


async def test_small_a_store_in_memory_keeps_every_promise():
    async with MemoryStore(BUFFER) as store:
        judge(await campaign(store, store, 6_000, 600, SEED))


async def test_small_a_store_in_one_file_keeps_every_promise(tmp_path: Path):
    async with await SqliteStore.open(tmp_path / "a.db", buffered_events=BUFFER) as store:
        tally = await campaign(store, store, 6_000, 600, SEED)
    judge(tally)
    assert tally.cut_off > 0


async def test_small_a_store_in_etcd_keeps_every_promise(tmp_path: Path):
    if binary(tmp_path) is None:
        pytest.skip(NO_ETCD)
    async with etcd_with_a_torn_line(tmp_path, BUFFER, SEED) as (writing, watching):
        judge(await campaign(writing, watching, 6_000, 600, SEED))
