"""From one line of changes to many watchers, each with its own bounded buffer.

Theory of operation: a store publishes its batches in order, in the thread of the event loop, and the hub
remembers how far it has come. A watcher that starts in the past reads the history at its own pace, which
costs no memory, until it stands exactly where the hub stands; because nothing else runs between that
comparison and the subscription, there is neither a gap nor an overlap. From then on batches wait for it in
a buffer. Whoever lets the buffer overflow is cut off, so that a dead reader never holds memory.

Rules for this file: one thread only; nothing here knows where the history is kept.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Iterable, Sequence
from typing import Protocol

from dray.store.base import BUFFERED_EVENTS, FIRST_REVISION, Batch
from dray.store.errors import Closed, SlowWatcher


class History(Protocol):
    """Where a hub reads what it does not remember."""

    async def check_readable(self, revision: int) -> None:
        """Raise `Compacted` or `FutureRevision` when the history does not reach from `revision` to now."""
        ...

    async def past(self, prefix: bytes, after: int, up_to: int) -> Sequence[Batch]:
        """The next batches after `after`; the last one, maybe empty, tells how far they reach."""
        ...


class Buffer:
    """Batches on their way to one watcher."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._waiting: deque[Batch] = deque()
        self._events = 0
        self._error: Exception | None = None
        self._reader: asyncio.Future[None] | None = None
        self._source: asyncio.Future[None] | None = None
        self.handed_out = 0

    def put(self, batch: Batch, *, bounded: bool = True) -> None:
        """Add a batch; a bounded buffer that would overflow drops everything and fails instead."""
        if self._error is not None:
            return
        self._events += len(batch.events)
        # One batch always fits: a revision cannot be handed out in parts.
        if bounded and self._events > self._limit and self._waiting:
            self._waiting.clear()
            self.fail(SlowWatcher(self.handed_out, self._limit))
            return
        if self._waiting and not self._waiting[-1].events:
            self._waiting.pop()  # A bookmark that nobody read yet is outdated by whatever comes after it.
        self._waiting.append(batch)
        self._wake(self._reader)

    async def drained(self) -> None:
        """Wait until everything was read; for sources that can be asked to wait."""
        while self._waiting and self._error is None:
            self._source = asyncio.get_running_loop().create_future()
            await self._source

    def fail(self, error: Exception) -> None:
        """End the watch with `error`, after what is already waiting."""
        if self._error is None:
            self._error = error
            self._wake(self._reader)
            self._wake(self._source)

    async def get(self, patience: float | None) -> Batch | None:
        """The next batch, or None when nothing came for `patience` seconds."""
        while not self._waiting:
            if self._error is not None:
                raise self._error
            self._wake(self._source)
            self._reader = asyncio.get_running_loop().create_future()
            try:
                async with asyncio.timeout(patience):
                    await self._reader
            except TimeoutError:
                return None
            finally:
                self._reader = None
        batch = self._waiting.popleft()
        self._events -= len(batch.events)
        self.handed_out = batch.revision
        return batch

    def _wake(self, sleeper: asyncio.Future[None] | None) -> None:
        if sleeper is not None and not sleeper.done():
            sleeper.set_result(None)


class Hub:
    """Hands every published batch to every watcher whose prefix it touches."""

    def __init__(self, revision: int, limit: int = BUFFERED_EVENTS) -> None:
        self.revision = revision
        self._limit = limit
        self._watchers: dict[Buffer, bytes] = {}
        self._closed: Exception | None = None

    def publish(self, batches: Iterable[Batch]) -> None:
        for batch in batches:
            self.revision = batch.revision
            for buffer, prefix in self._watchers.items():
                seen = only(batch, prefix)
                if seen.events:
                    buffer.put(seen)

    def close(self, error: Exception) -> None:
        """End all watches, now and later."""
        self._closed = error
        for buffer in self._watchers:
            buffer.fail(error)

    async def watch(
        self, history: History, prefix: bytes, after: int, bookmarks: float | None
    ) -> AsyncGenerator[Batch, None]:
        """The past after `after`, then the present."""
        cursor = max(after, FIRST_REVISION)
        await history.check_readable(cursor)
        while cursor < self.revision:
            self._check_open()
            for batch in await history.past(prefix, cursor, self.revision):
                cursor = batch.revision
                if batch.events:
                    yield batch
        self._check_open()
        buffer = Buffer(self._limit)
        buffer.handed_out = cursor
        self._watchers[buffer] = prefix
        try:
            while True:
                live = await buffer.get(bookmarks)
                if live is None:
                    yield Batch(max(cursor, self.revision))
                elif live.revision > cursor:
                    yield live
        finally:
            del self._watchers[buffer]

    def _check_open(self) -> None:
        if self._closed is not None:
            raise self._closed


def only(batch: Batch, prefix: bytes) -> Batch:
    """The batch without events elsewhere."""
    if not prefix:
        return batch
    events = tuple(event for event in batch.events if event.key.startswith(prefix))
    return batch if len(events) == len(batch.events) else Batch(batch.revision, events)


def closed() -> Closed:
    return Closed("the store is closed")
