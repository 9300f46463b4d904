"""Requests that waited for what did not come."""

from __future__ import annotations

import asyncio

import pytest

from dray.server import cache as caches
from dray.server.cache import Cache
from dray.store import Put
from dray.store.errors import StoreError
from dray.store.memory import MemoryStore
from tests.contract.api import path, serving


async def test_who_stops_waiting_for_a_revision_is_forgotten() -> None:
    """Every list at a revision of the far future left something behind that every later write looked at."""
    async with MemoryStore() as store:
        cache = Cache(store)
        await cache.fill()
        following = asyncio.create_task(cache.follow())
        for _ in range(10):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(cache.reached(10**9), 0.001)
        await store.txn([], [Put(b"/key", b"value")])
        await cache.caught_up()
        assert cache.waiting == 0
        following.cancel()


async def test_a_cache_that_does_not_follow_is_told_and_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A request waited for ever when the store took writes and did not tell of them."""
    monkeypatch.setattr(caches, "PATIENCE_SECONDS", 0.05)
    async with MemoryStore() as store:
        cache = Cache(store)
        await cache.fill()
        await store.txn([], [Put(b"/key", b"value")])
        with pytest.raises(StoreError, match=r"the cache stands at revision 1 and does not come to 2"):
            await cache.caught_up()


async def test_the_future_is_answered_in_time_and_costs_nothing() -> None:
    async with serving() as api:
        said = await api.ask("GET", path("configmaps"), resourceVersion=10**15)
        assert said.code == 504
        assert "Too large resource version" in said.message
