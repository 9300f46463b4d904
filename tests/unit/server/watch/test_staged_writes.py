"""Staged writes: the cache shows them inside the block, and is the same as before after it."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress

import pytest

from dray.server.objects.stored_object import build_key
from dray.server.watch.cache import WatchCache
from dray.store import Delete, Put
from dray.store.memory import MemoryStore
from tests.unit.server.registries import CONFIGS

NAMES = [f"c{number}" for number in range(6)]
ROWS = [b"/ledger/%d" % number for number in range(3)]


def config(name: str, value: int) -> bytes:
    head = (
        b'{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"%s","namespace":"default"}'
        % name.encode()
    )
    return head + b',"data":{"n":"%d"}}' % value


def key(name: str) -> bytes:
    return build_key(CONFIGS, "default", name)


async def _fill(store: MemoryStore) -> WatchCache:
    for name in NAMES[::2]:
        await store.txn([], [Put(key(name), config(name, 0))])
    await store.txn([], [Put(ROWS[0], b"0")])
    cache = WatchCache(store)
    await cache.resync()
    return cache


def _describe(cache: WatchCache) -> tuple[object, ...]:
    listed = [(each.name, each.revision, each.value) for each in cache.list_objects(CONFIGS)]
    return cache.copy_contents(), listed, cache.count(CONFIGS), cache.list_rows(b"/ledger/"), cache.revision


@pytest.mark.parametrize("seed", range(20))
def test_staged_writes_are_shown_and_taken_back(seed: int) -> None:
    async def check() -> None:
        rng, changes = random.Random(seed), []
        async with MemoryStore() as store:
            cache = await _fill(store)
            before = _describe(cache)
            cache.add_listener(CONFIGS, lambda old, new: changes.append((old, new)))
            changes.clear()
            expected = {each.name: each.value for each in cache.list_objects(CONFIGS)}
            with suppress(ZeroDivisionError), cache.stage_writes() as stage:
                for step in range(1, 12):
                    name, row = rng.choice(NAMES), rng.choice(ROWS)
                    if rng.random() < 0.4:
                        stage(Delete(key(name)), -step)
                        expected.pop(name, None)
                    else:
                        stage(Put(key(name), config(name, step)), -step)
                        expected[name] = config(name, step)
                        shown = cache.get_by_key(key(name))
                        assert shown is not None
                        assert shown.revision == -step
                    stage(Put(row, b"%d" % step), -step)
                    entry = cache.get_row(row)
                    assert entry is not None
                    assert entry.mod_revision == -step
                    assert {each.name: each.value for each in cache.list_objects(CONFIGS)} == expected
                    assert cache.count(CONFIGS) == len(expected)
                raise ZeroDivisionError
            assert _describe(cache) == before
            assert changes == []

    asyncio.run(check())
