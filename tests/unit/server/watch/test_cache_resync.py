"""A watch cache that lists the store again tells watchers what they missed, in the order of versions."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

from dray.api.kinds import get_kind
from dray.server.objects.stored_object import build_key, build_prefix
from dray.server.watch.cache import WatchCache
from dray.store import Delete, Put
from dray.store.memory import MemoryStore

CONFIGS = get_kind("", "ConfigMap")


def test_versions_grow_within_the_batch_of_a_resync() -> None:
    """Found by schedule 5306 of the simulation: clients resume after the last version they got."""
    asyncio.run(miss_changes_and_resync())


async def miss_changes_and_resync() -> None:
    store = MemoryStore()
    keys = {name: build_key(CONFIGS, "default", name) for name in "abc"}
    await store.txn([], [Put(keys["b"], b"{}")])
    cache = WatchCache(store)
    await cache.resync()
    async with aclosing(cache.watch(build_prefix(CONFIGS, ""), cache.revision, None)) as watch:
        first = asyncio.ensure_future(anext(watch))
        await asyncio.sleep(0)  # the watch begins before the changes
        for write in (Put(keys["c"], b"{}"), Put(keys["a"], b"{}"), Delete(keys["b"])):
            await store.txn([], [write])
        await cache.resync()
        batch = await first
    versions = [event.entry.mod_revision for event in batch.events if event.entry is not None]
    assert [event.key for event in batch.events] == [keys["c"], keys["a"], keys["b"]]
    assert versions == sorted(versions)
    await store.close()
