"""Requests that waited for something that did not come."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import pytest

from dray.api.kinds import get_kind
from dray.server.http.errors import ApiStatusError
from dray.server.http.requests import ApiCall, ApiRequest, RequestUser
from dray.server.objects.pending_object import PendingObject
from dray.server.objects.stored_object import build_key
from dray.server.registry.object_registry import ObjectRegistry, SaveObject
from dray.server.watch import cache as caches
from dray.server.watch.cache import WatchCache
from dray.store import EntryPage, EventBatch, Put
from dray.store.errors import CompactedError, StoreError
from dray.store.memory import MemoryStore
from tests.contract.api import path, serving
from tests.contract.documents import config

CONFIGS = get_kind("", "ConfigMap")


async def test_who_stops_waiting_for_a_revision_is_forgotten() -> None:
    """Every list at a revision of the far future left something behind that every later write looked at."""
    async with MemoryStore() as store:
        cache = WatchCache(store)
        await cache.resync()
        following = asyncio.create_task(cache.follow())
        for _ in range(10):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(cache.wait_for_revision(10**9), 0.001)
        await store.txn([], [Put(b"/key", b"value")])
        await cache.wait_until_fresh()
        assert cache.waiter_count == 0
        following.cancel()


async def test_a_cache_that_falls_behind_is_reported_and_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A request waited for ever when the store took writes and did not tell of them."""
    monkeypatch.setattr(caches, "WAIT_TIMEOUT_SECONDS", 0.05)
    async with MemoryStore() as store:
        cache = WatchCache(store)
        await cache.resync()
        await store.txn([], [Put(b"/key", b"value")])
        with pytest.raises(StoreError, match=r"the cache is at revision 1 and does not reach 2"):
            await cache.wait_until_fresh()


async def test_the_future_is_answered_in_time_and_costs_nothing() -> None:
    async with serving() as api:
        said = await api.ask("GET", path("configmaps"), resourceVersion=10**15)
        assert said.code == 504
        assert "Too large resource version" in said.message


class Forgetful(MemoryStore):
    """A store that has forgotten the past, and then does not answer for a while."""

    forgot = silent = 0

    async def watch(
        self, prefix: bytes, after_revision: int, *, bookmarks: float | None = None
    ) -> AsyncGenerator[EventBatch, None]:
        if self._is_forgetting():
            self.forgot -= 1
            raise CompactedError(after_revision, after_revision + 1)
        async with aclosing(super().watch(prefix, after_revision, bookmarks=bookmarks)) as batches:
            async for batch in batches:
                yield batch
                if self._is_forgetting():
                    break

    def _is_forgetting(self) -> bool:
        return self.forgot > 0

    async def range(self, prefix: bytes, **more: Any) -> EntryPage:
        if self.silent:
            self.silent -= 1
            raise StoreError("no answer")
        return await super().range(prefix, **more)


async def test_a_cache_that_must_read_everything_anew_tries_until_it_can(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The server ended when the store did not answer right after it had forgotten the past."""
    monkeypatch.setattr(caches, "RETRY_SECONDS", 0.01)
    async with Forgetful() as store:
        cache = WatchCache(store)
        await cache.resync()
        following = asyncio.create_task(cache.follow())
        await asyncio.sleep(0)
        store.forgot, store.silent = 2, 2
        await store.txn([], [Put(b"/key", b"value")])
        async with asyncio.timeout(5):
            while store.forgot or store.silent or cache.get_row(b"/key") is None:
                assert not following.done()
                await asyncio.sleep(0.005)
            await store.txn([], [Put(b"/key", b"other")])
            await cache.wait_until_fresh()
        entry = cache.get_row(b"/key")
        assert entry is not None
        assert entry.value == b"other"
        assert cache.sync_error is None
        following.cancel()


class Late(MemoryStore):
    """A store that does not say how far it has come."""

    async def get_revision(self) -> int:
        return 1


async def test_a_lost_race_behind_a_cache_that_does_not_follow_is_a_failure_like_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What the server does by itself counts on failures only."""
    monkeypatch.setattr(caches, "WAIT_TIMEOUT_SECONDS", 0.05)
    async with Late() as store:
        cache = WatchCache(store)
        await cache.resync()
        await store.txn([], [Put(build_key(CONFIGS, "default", "c"), b"{}")])
        request = ApiRequest(
            ApiCall("create", "", CONFIGS, "", "v1", "configmaps", "default", "c"), RequestUser("u")
        )
        draft = PendingObject.from_document(config("c"))
        with pytest.raises(ApiStatusError, match="does not reach 2") as failed:
            await ObjectRegistry(store, cache, []).write(
                request, CONFIGS, "default", "c", lambda old: SaveObject(draft)
            )
        assert failed.value.code == 503
