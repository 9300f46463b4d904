"""Broadcasts one sequence of changes to many watchers, each with its own bounded buffer.

Theory of operation: a store publishes its batches in order, in the thread of the event loop, and the
broadcaster remembers its revision. A watcher that starts in the past reads the history at its own pace, which
costs no memory, until it has reached the revision of the broadcaster; because nothing else runs between that
comparison and the subscription, there is neither a gap nor an overlap. From then on its batches wait in a
buffer. A watcher whose buffer overflows is cut off, so that a dead reader never holds memory.

Watchers are indexed by the prefix they watch. Keys are divided by slashes and most prefixes end at one, so a
key finds its watchers by looking up its own prefixes; other watchers cost nothing. All watchers of one prefix
get the same batch.

Only one thread uses this module; it does not depend on where the history is stored.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Iterable, Iterator, Sequence
from typing import Protocol

from dray.store.base import FIRST_REVISION, MAX_BUFFERED_BYTES, MAX_BUFFERED_EVENTS, EventBatch, StoreEvent
from dray.store.errors import SlowWatcherError, StoreClosedError

SLASH = b"/"
MAX_COALESCED_EVENTS = 100
"""About how many events are joined to one batch."""
MAX_CACHED_FOLDERS = 4096
"""For how many directories of keys the watched prefixes are cached."""


class EventHistory(Protocol):
    """The history from which a broadcaster reads what is no longer in memory."""

    async def check_readable(self, revision: int) -> None:
        """Raise `CompactedError` or `FutureRevisionError` unless the history covers `revision` to now."""
        ...

    async def read_events(self, prefix: bytes, after: int, up_to: int) -> Sequence[EventBatch]:
        """Return the next batches after `after`; the last one, maybe empty, has the revision they reach."""
        ...


class WatchBuffer:
    """Batches that wait for one watcher."""

    def __init__(self, max_events: int, max_bytes: int = MAX_BUFFERED_BYTES) -> None:
        self._max_events, self._max_bytes = max_events, max_bytes
        self._pending: deque[EventBatch] = deque()
        self._events = self._bytes = 0
        self._error: Exception | None = None
        self._reader_waiter: asyncio.Future[bool] | None = None
        self._source_waiter: asyncio.Future[bool] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._deadline = 0.0
        self.delivered_revision = 0

    def put(self, batch: EventBatch, *, bounded: bool = True) -> None:
        """Add a batch; a bounded buffer that would overflow drops everything and fails instead."""
        if self._error is not None:
            return
        self._events += len(batch.events)
        self._bytes += _count_bytes(batch)
        # One batch always fits: a revision cannot be delivered in parts.
        if bounded and self._pending and (self._events > self._max_events or self._bytes > self._max_bytes):
            self._pending.clear()
            self.fail(self._build_slow_error())
            return
        if self._pending and not self._pending[-1].events:
            self._pending.pop()  # Whatever follows a bookmark that was not read makes it obsolete.
        self._pending.append(batch)
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
        batch = self._pending.popleft()
        self._events -= len(batch.events)
        self._bytes -= _count_bytes(batch)
        self.delivered_revision = batch.revision
        return batch

    def coalesce_pending(self, batch: EventBatch) -> EventBatch:
        """Join a batch with those that wait behind it, up to the limit of one batch."""
        if not self._pending:
            return batch
        events = list(batch.events)
        while self._pending and len(events) < MAX_COALESCED_EVENTS:
            batch = self._pending.popleft()
            self._events -= len(batch.events)
            self._bytes -= _count_bytes(batch)
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
        if loop.time() >= self._deadline:
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


def _count_bytes(batch: EventBatch) -> int:
    weight = 0
    for event in batch.events:
        if event.entry is not None:
            weight += len(event.entry.value)
        if event.previous is not None:
            weight += len(event.previous.value)
    return weight


class WatchBroadcaster:
    """Delivers every published batch to every watcher whose prefix it touches."""

    def __init__(self, revision: int, max_events: int = MAX_BUFFERED_EVENTS) -> None:
        self.revision = revision
        self._max_events = max_events
        self._watchers: dict[bytes, dict[WatchBuffer, None]] = {}
        """The buffers under each prefix, in the order in which their watches began."""
        self._unaligned_lengths: dict[int, int] = {}
        self._folder_prefixes: dict[bytes, tuple[bytes, ...]] = {}
        self._revision_waiters: list[tuple[int, asyncio.Future[None]]] = []
        self._close_error: Exception | None = None

    def publish(self, batches: Iterable[EventBatch]) -> None:
        for batch in batches:
            self.revision = batch.revision
            if self._watchers:
                self._dispatch(batch)
        if self._revision_waiters:
            self._wake_revision_waiters()

    def close(self, error: Exception) -> None:
        """End all watches, now and later."""
        self._close_error = error
        for buffers in self._watchers.values():
            for buffer in buffers:
                buffer.fail(error)
        for _, waiting in self._revision_waiters:
            if not waiting.done():
                waiting.set_exception(error)

    async def wait_for_revision(self, revision: int) -> None:
        """Wait until everything up to `revision` was published."""
        if self.revision < revision:
            self._check_open()
            waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._revision_waiters.append((revision, waiting))
            await waiting

    async def watch(
        self,
        history: EventHistory,
        prefix: bytes,
        after: int,
        bookmarks: float | None,
        *,
        coalesce: bool = False,
    ) -> AsyncGenerator[EventBatch, None]:
        """Yield the history after `after`, then new changes; `coalesce` joins batches that wait behind each
        other.
        """
        cursor = max(after, FIRST_REVISION)
        await history.check_readable(cursor)
        while cursor < self.revision:
            self._check_open()
            for batch in await history.read_events(prefix, cursor, self.revision):
                cursor = batch.revision
                if batch.events:
                    yield batch
        self._check_open()
        buffer = WatchBuffer(self._max_events)
        buffer.delivered_revision = cursor
        self.subscribe(buffer, prefix)
        try:
            while True:
                live = await buffer.get(bookmarks)
                if live is None:
                    yield EventBatch(max(cursor, self.revision))
                elif live.revision > cursor:
                    yield buffer.coalesce_pending(live) if coalesce else live
        finally:
            buffer.cancel_timer()
            self.unsubscribe(buffer, prefix)

    def subscribe(self, buffer: WatchBuffer, prefix: bytes) -> None:
        """Put what is published under the prefix into the buffer from now on."""
        if prefix not in self._watchers:
            self._folder_prefixes.clear()
            self._watchers[prefix] = {}
            if not prefix.endswith(SLASH):
                self._unaligned_lengths[len(prefix)] = self._unaligned_lengths.get(len(prefix), 0) + 1
        self._watchers[prefix][buffer] = None

    def unsubscribe(self, buffer: WatchBuffer, prefix: bytes) -> None:
        """Stop filling the buffer."""
        self._watchers[prefix].pop(buffer, None)
        if self._watchers[prefix]:
            return
        del self._watchers[prefix]
        self._folder_prefixes.clear()
        if not prefix.endswith(SLASH):
            self._unaligned_lengths[len(prefix)] -= 1
            if not self._unaligned_lengths[len(prefix)]:
                del self._unaligned_lengths[len(prefix)]

    def _dispatch(self, batch: EventBatch) -> None:
        seen: dict[bytes, list[StoreEvent]] = {}
        for event in batch.events:
            for prefix in self._find_prefixes(event.key):
                seen.setdefault(prefix, []).append(event)
        for prefix, events in seen.items():
            whole = len(events) == len(batch.events)
            part = batch if whole else EventBatch(batch.revision, tuple(events))
            for buffer in self._watchers[prefix]:
                buffer.put(part)

    def _find_prefixes(self, key: bytes) -> Sequence[bytes]:
        """Return the watched prefixes of this key."""
        if self._unaligned_lengths:
            return list(self._iter_watched_prefixes(key))
        # Neighbouring keys have the same prefixes, but for the name at the end.
        folder = key[: key.rfind(SLASH) + 1]
        known = self._folder_prefixes.get(folder)
        if known is None:
            if len(self._folder_prefixes) >= MAX_CACHED_FOLDERS:
                self._folder_prefixes.clear()
            known = self._folder_prefixes[folder] = tuple(self._iter_watched_prefixes(folder))
        return known

    def _iter_watched_prefixes(self, key: bytes) -> Iterator[bytes]:
        watchers = self._watchers
        end = key.find(SLASH) + 1
        while end:
            if (beginning := key[:end]) in watchers:
                yield beginning
            end = key.find(SLASH, end) + 1
        for length in self._unaligned_lengths:
            beginning = key[:length]
            # A prefix that is too long, or ends at a slash, was found above or is not one of this key.
            if len(beginning) == length and beginning in watchers and not beginning.endswith(SLASH):
                yield beginning

    def _wake_revision_waiters(self) -> None:
        still = []
        for revision, waiting in self._revision_waiters:
            if waiting.done():
                continue  # its waiter has left
            if revision > self.revision:
                still.append((revision, waiting))
            else:
                waiting.set_result(None)
        self._revision_waiters = still

    def _check_open(self) -> None:
        if self._close_error is not None:
            raise self._close_error


def filter_batch(batch: EventBatch, prefix: bytes) -> EventBatch:
    """Return the batch without events outside the prefix."""
    if not prefix:
        return batch
    events = tuple(event for event in batch.events if event.key.startswith(prefix))
    return batch if len(events) == len(batch.events) else EventBatch(batch.revision, events)


def build_closed_error() -> StoreClosedError:
    return StoreClosedError("the store is closed")
