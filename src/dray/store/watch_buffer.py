"""The buffer of one watcher: batches of changes that wait to be read, up to a number of events and bytes.

Only one thread uses this module.
"""

from __future__ import annotations

import asyncio
from collections import deque

from dray.store.base import MAX_BUFFERED_BYTES, EventBatch
from dray.store.errors import SlowWatcherError

MAX_COALESCED_EVENTS = 100
"""About how many events are joined to one batch."""
TIMER_RESOLUTION_SECONDS = 0.001
"""Timers of an event loop may fire earlier by this."""


class WatchBuffer:
    """Batches that wait for one watcher."""

    def __init__(self, max_events: int, max_bytes: int = MAX_BUFFERED_BYTES) -> None:
        self._max_events, self._max_bytes = max_events, max_bytes
        self._pending: deque[tuple[EventBatch, int]] = deque()
        self._events = self._bytes = 0
        self._error: Exception | None = None
        self._reader_waiter: asyncio.Future[bool] | None = None
        self._source_waiter: asyncio.Future[bool] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._deadline = 0.0
        self.delivered_revision = 0

    def put(self, batch: EventBatch, *, size: int | None = None, bounded: bool = True) -> None:
        """Add a batch, whose `size` in bytes may be known; a bounded buffer that would overflow drops
        everything and fails instead.
        """
        if self._error is not None:
            return
        if size is None:
            size = count_bytes(batch)
        self._events += len(batch.events)
        self._bytes += size
        # One batch always fits: a revision cannot be delivered in parts.
        if bounded and self._pending and (self._events > self._max_events or self._bytes > self._max_bytes):
            self._pending.clear()
            self.fail(self._build_slow_error())
            return
        if self._pending and not self._pending[-1][0].events:
            self._pending.pop()  # Whatever follows a bookmark that was not read makes it obsolete.
        self._pending.append((batch, size))
        self._wake(self._reader_waiter)

    async def wait_until_drained(self) -> None:
        """Wait until everything has been read; for sources that support backpressure."""
        while self._pending and self._error is None:
            self._source_waiter = asyncio.get_running_loop().create_future()
            await self._source_waiter

    def fail(self, error: Exception) -> None:
        """End the watch with `error`, after what is already in the buffer."""
        if self._error is None:
            self._error = error
            self._wake(self._reader_waiter)
            self._wake(self._source_waiter)

    async def get(self, timeout: float | None) -> EventBatch | None:
        """Return the next batch, or None when none arrived for `timeout` seconds."""
        while not self._pending:
            if self._error is not None:
                raise self._error
            self._wake(self._source_waiter)
            # A batch may have arrived between the time-out and this line; it goes first.
            if not await self._wait_for_wakeup(timeout) and not self._pending and self._error is None:
                return None
        batch = self._take()
        self.delivered_revision = batch.revision
        return batch

    def _take(self) -> EventBatch:
        batch, size = self._pending.popleft()
        self._events -= len(batch.events)
        self._bytes -= size
        return batch

    def coalesce_pending(self, batch: EventBatch) -> EventBatch:
        """Join a batch with those that wait behind it, up to the limit of one batch."""
        if not self._pending:
            return batch
        events = list(batch.events)
        while self._pending and len(events) < MAX_COALESCED_EVENTS:
            batch = self._take()
            events += batch.events
        self.delivered_revision = batch.revision
        return EventBatch(batch.revision, tuple(events))

    def _build_slow_error(self) -> SlowWatcherError:
        if self._events > self._max_events:
            return SlowWatcherError(self.delivered_revision, self._max_events)
        return SlowWatcherError(self.delivered_revision, self._max_bytes, "bytes")

    async def _wait_for_wakeup(self, timeout: float | None) -> bool:
        """Sleep until something arrived; False on a time-out."""
        loop = asyncio.get_running_loop()
        reader: asyncio.Future[bool] = loop.create_future()
        self._reader_waiter = reader
        if timeout is not None:
            self._deadline = loop.time() + timeout
            # A timer that is set stays set: a thousand watchers would set one anew for every event.
            if self._timer is None or self._timer.when() > self._deadline:
                self.cancel_timer()
                self._timer = loop.call_at(self._deadline, self._on_timer)
        try:
            return await reader
        finally:
            self._reader_waiter = None

    def _on_timer(self) -> None:
        self._timer = None
        if self._reader_waiter is None:
            return
        loop = asyncio.get_running_loop()
        # uvloop rounds to milliseconds: a timer for the rest of one would fire at once, again and again.
        if self._deadline - loop.time() < TIMER_RESOLUTION_SECONDS:
            self._wake(self._reader_waiter, False)
        else:
            self._timer = loop.call_at(self._deadline, self._on_timer)

    def cancel_timer(self) -> None:
        """Cancel the timer; nothing waits for it any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _wake(self, waiter: asyncio.Future[bool] | None, arrived: bool = True) -> None:
        if waiter is not None and not waiter.done():
            waiter.set_result(arrived)


def count_bytes(batch: EventBatch) -> int:
    """The size of the values in a batch, new and previous ones."""
    weight = 0
    for event in batch.events:
        if event.entry is not None:
            weight += len(event.entry.value)
        if event.previous is not None:
            weight += len(event.previous.value)
    return weight
