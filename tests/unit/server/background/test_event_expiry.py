"""Events expire an hour after they were last observed."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from dray.api.kinds import get_kind
from dray.clock import ManualClock, format_timestamp
from dray.server.background.event_expiry import EVENT_LIFETIME, EventExpiry
from dray.server.objects.stored_object import build_key, encode_document
from dray.server.registry.object_registry import ObjectRegistry
from dray.server.watch.cache import WatchCache
from dray.store import Put, open_store

EVENT = get_kind("", "Event")


async def left_after(events: dict[str, dict[str, Any]], clock: ManualClock) -> tuple[int, list[str]]:
    async with await open_store("memory:") as store:
        for name, fields in events.items():
            metadata = {"name": name, "namespace": "default", **fields.pop("metadata", {})}
            value = encode_document(EVENT, {"metadata": metadata, **fields})
            await store.txn([], [Put(build_key(EVENT, "default", name), value)])
        cache = WatchCache(store)
        await cache.resync()
        following = asyncio.create_task(cache.follow())
        gone = await EventExpiry(cache, ObjectRegistry(store, cache, []), clock).sweep()
        await cache.wait_until_fresh()
        left = [held.name for held in cache.list_objects(EVENT)]
        following.cancel()
        return gone, left


@pytest.mark.parametrize(
    "fields",
    [
        {"metadata": {"creationTimestamp": "OLD"}},
        {"metadata": {"creationTimestamp": "OLD"}, "lastTimestamp": "OLD", "eventTime": None},
        {"eventTime": "OLD"},
        # Nothing of an event is checked when it is written.
        {"metadata": {"creationTimestamp": "OLD"}, "series": "often"},
        {"metadata": {"creationTimestamp": "OLD"}, "series": [1], "lastTimestamp": {}, "eventTime": 5},
        {"metadata": {"creationTimestamp": "OLD"}, "series": {"lastObservedTime": ["NEW"]}},
    ],
)
def test_an_event_that_was_not_observed_for_an_hour_is_deleted(fields):
    clock = ManualClock()
    old = format_timestamp(clock.now() - EVENT_LIFETIME - timedelta(seconds=1))
    assert asyncio.run(left_after({"e": dated(fields, old)}, clock)) == (1, [])


@pytest.mark.parametrize(
    "fields",
    [
        {"metadata": {"creationTimestamp": "NEW"}},
        {"metadata": {"creationTimestamp": "2001-01-01T00:00:00Z"}, "lastTimestamp": "NEW"},
        {"metadata": {"creationTimestamp": "2001-01-01T00:00:00Z"}, "series": {"lastObservedTime": "NEW"}},
        {"eventTime": "no time at all"},
    ],
)
def test_a_recently_observed_event_stays(fields):
    clock = ManualClock()
    new = format_timestamp(clock.now() - EVENT_LIFETIME + timedelta(seconds=1))
    assert asyncio.run(left_after({"e": dated(fields, new)}, clock)) == (0, ["e"])


def dated(value: Any, moment: str) -> Any:
    if isinstance(value, dict):
        return {name: dated(part, moment) for name, part in value.items()}
    return moment if value in ("OLD", "NEW") else value
