"""Watches share encoded events only when they have the same previous state."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

from dray.api.kinds import get_kind
from dray.clock import ManualClock
from dray.server.http.requests import ApiCall, ApiRequest, RequestUser
from dray.server.http.responses import ResponseWriter
from dray.server.objects.stored_object import build_key, encode_document
from dray.server.registry.watch_server import WatchServer
from dray.store import EventBatch, StoreEntry, StoreEvent
from dray.store.errors import StoreClosedError

CONFIGS = get_kind("", "ConfigMap")
PLACE = build_key(CONFIGS, "default", "c")


class Retold:
    """A cache that sends the given batches."""

    revision = 5

    def __init__(self) -> None:
        self.batches: list[EventBatch] = []

    async def caught_up(self) -> int:
        return self.revision

    async def watch(
        self, place: bytes, after: int, pause: float, required: object
    ) -> AsyncGenerator[EventBatch, None]:
        for batch in self.batches:
            yield batch
        raise StoreClosedError("all batches are sent")


def entry(revision: int) -> StoreEntry:
    document = {"metadata": {"name": "c", "namespace": "default"}, "data": {"at": str(revision)}}
    return StoreEntry(PLACE, encode_document(CONFIGS, document), 6, revision, 1)


def test_watches_with_different_previous_states_do_not_share_a_batch():
    """After a gap the cache merges missed changes into one; other watches got them one by one."""

    async def scenario() -> list[bytes]:
        cache: Any = Retold()
        watching = WatchServer(cache, cache, ResponseWriter(cache, ManualClock().now), lambda most: 0)
        call = ApiCall(
            "watch", "", CONFIGS, "", "v1", "configmaps", "default", query={"resourceVersion": "5"}
        )
        starts = []
        for before in (entry(6), None):
            cache.batches = [EventBatch(7, (StoreEvent(PLACE, 7, entry(7), before),))]
            opened: Any = await watching.open(ApiRequest(call, RequestUser("u")), CONFIGS)
            starts.append(b"".join([line async for line in opened.body])[:16])
        return starts

    assert asyncio.run(scenario()) == [b'{"type":"MODIFIE', b'{"type":"ADDED",']
