"""The cache verifier finds every difference between the cache and the store."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import pytest
from msgspec.structs import replace

from dray.api.kinds import KINDS
from dray.claims.ledger.rows import LEDGER_PREFIX
from dray.server.objects.stored_object import StoredObject, build_key
from dray.server.watch import cache_verifier
from dray.server.watch.cache import WatchCache
from dray.server.watch.cache_verifier import CacheComparison, CacheVerifier, compare_with_store
from dray.store import Delete, Put
from dray.store.memory import MemoryStore

CLAIM = next(kind for kind in KINDS if kind.qualified_name == "ResourceClaim.resource.k8s.io")


def place(number: int) -> bytes:
    return build_key(CLAIM, "ml", f"claim-{number:04d}")


@asynccontextmanager
async def filled(objects: int = 700):
    store = MemoryStore()
    for number in range(objects):
        await store.txn(
            [], [Put(place(number), b'{"n":%d}' % number), Put(LEDGER_PREFIX + b"%d" % number, b"row")]
        )
    cache = WatchCache(store)
    await cache.resync()
    following = asyncio.create_task(cache.follow())
    try:
        yield cache, store
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
        await store.close()


def run(test) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(20), filled() as (cache, store):
            await test(cache, store)

    asyncio.run(bounded())


def test_a_correct_cache_equals_the_store_and_has_the_same_digest_on_every_server():
    async def test(cache, store):
        first, again = await compare_with_store(cache, store), await compare_with_store(cache, store)
        assert first == again
        assert (first.equal, first.entries) == (True, 1400)
        await store.txn([], [Put(place(3), b"{}")])
        await cache.wait_until_fresh()
        assert (await compare_with_store(cache, store)).digest != first.digest

    run(test)


def test_concurrent_writes_are_no_difference():
    async def test(cache, store):
        async def write() -> None:
            for number in range(300):
                await store.txn([], [Put(place(number), b'{"new":1}'), Delete(place(number + 300))])

        writing = asyncio.create_task(write())
        for _ in range(5):
            assert (await compare_with_store(cache, store)).equal
        await writing

    run(test)


def _lost(objects):
    del objects[place(5)]


def _left_over(objects):
    objects[place(9999)] = replace(objects[place(5)], key=place(9999))


def _other_bytes(objects):
    held: StoredObject = objects[place(5)]
    objects[place(5)] = replace(held, value=b'{"n":6}')


def _old(objects):
    held: StoredObject = objects[place(5)]
    objects[place(5)] = replace(held, revision=held.revision - 1)


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (_lost, "claim-0005: in the store, not in the cache"),
        (_left_over, "claim-9999: in the cache, not in the store"),
        (_other_bytes, "claim-0005: other bytes"),
        (_old, "claim-0005: at revision"),
    ],
)
def test_every_corruption_is_found_and_named(spoil, words):
    async def test(cache, store):
        spoil(cache._objects)
        found = await compare_with_store(cache, store)
        assert len(found.differences) == 1
        assert words in found.differences[0]

    run(test)


def test_a_lost_row_of_the_ledger_is_found():
    async def test(cache, store):
        del cache._rows[LEDGER_PREFIX + b"7"]
        assert (await compare_with_store(cache, store)).differences == (
            "/ledger/7: in the store, not in the cache",
        )

    run(test)


def test_the_verifier_finds_a_corruption_within_a_period_and_notices_its_repair():
    async def test(cache, store):
        seen: list[CacheComparison] = []
        dog = CacheVerifier(cache, store, seen.append, period=0.02)
        running = asyncio.create_task(dog.run())
        while not seen:
            await asyncio.sleep(0.005)
        assert dog.check() is None
        sound = cache._objects[place(5)]
        _other_bytes(cache._objects)
        before = len(seen)
        while dog.check() is None:
            await asyncio.sleep(0.005)
        assert len(seen) - before <= 2
        assert "claim-0005: other bytes" in (dog.check() or "")
        cache._objects[place(5)] = sound
        while dog.check() is not None:
            await asyncio.sleep(0.005)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    run(test)


def test_many_differences_are_not_all_named():
    found = CacheComparison(
        7, 0, "", tuple(f"x{number}" for number in range(cache_verifier.MAX_NAMED_DIFFERENCES + 5))
    )
    dog = CacheVerifier(None, None, lambda found: None)  # type: ignore[arg-type]
    dog.record(found)
    assert "and 5 more" in (dog.check() or "")
