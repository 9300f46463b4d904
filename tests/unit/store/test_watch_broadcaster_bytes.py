"""A watcher that does not read is cut off by the bytes in its buffer, not only by their number."""

from __future__ import annotations

import asyncio

import pytest

from dray.store import EventBatch, StoreEntry, StoreEvent
from dray.store.errors import SlowWatcherError
from dray.store.watch_buffer import WatchBuffer


def batch(revision: int, size: int) -> EventBatch:
    entry = StoreEntry(b"k", b"x" * size, 1, revision, 1)
    return EventBatch(revision, (StoreEvent(b"k", revision, entry, None),))


def test_heavy_events_cut_a_watcher_off_and_are_let_go():
    async def test() -> None:
        buffer = WatchBuffer(max_events=1000, max_bytes=1000)
        buffer.put(batch(2, 600))
        buffer.put(batch(3, 300))
        assert await buffer.get(None) == batch(2, 600)
        buffer.put(batch(4, 600))
        buffer.put(batch(5, 200))
        with pytest.raises(SlowWatcherError, match="more than 1000 bytes behind") as cut:
            await buffer.get(None)
        assert cut.value.revision == 2

    asyncio.run(test())


def test_one_batch_always_fits():
    async def test() -> None:
        buffer = WatchBuffer(max_events=1000, max_bytes=1000)
        buffer.put(batch(2, 5000))
        assert await buffer.get(None) == batch(2, 5000)
        buffer.put(batch(3, 900))
        assert await buffer.get(None) == batch(3, 900)

    asyncio.run(test())
