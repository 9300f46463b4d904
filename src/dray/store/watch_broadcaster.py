"""From one line of changes to many watchers, each with its own bounded buffer.

Theory of operation: a store publishes its batches in order, in the thread of the event loop, and the hub
remembers how far it has come. A watcher that starts in the past reads the history at its own pace, which
costs no memory, until it stands exactly where the hub stands; because nothing else runs between that
comparison and the subscription, there is neither a gap nor an overlap. From then on batches wait for it in
a buffer. Whoever lets the buffer overflow is cut off, so that a dead reader never holds memory.

Watchers stand under the prefix they watch. Keys are parted by slashes and most prefixes end at one, so a key
finds its watchers by looking up its own beginnings; what others watch costs nothing. All watchers of one
prefix get the same batch.

Rules for this file: one thread only; nothing here knows where the history is kept.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Iterable, Iterator, Sequence
from typing import Protocol

from dray.store.base import BUFFERED_BYTES, BUFFERED_EVENTS, FIRST_REVISION, Batch, Event
from dray.store.errors import Closed, SlowWatcher

SLASH = b"/"
TOGETHER = 100
"""So many events are joined to one batch, about."""
FOLDERS = 4096
"""Of so many folders it is remembered who watches them."""


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

    def __init__(self, limit: int, heaviest: int = BUFFERED_BYTES) -> None:
        self._limit, self._heaviest = limit, heaviest
        self._waiting: deque[Batch] = deque()
        self._events = self._bytes = 0
        self._error: Exception | None = None
        self._reader: asyncio.Future[bool] | None = None
        self._source: asyncio.Future[bool] | None = None
        self._alarm: asyncio.TimerHandle | None = None
        self._deadline = 0.0
        self.handed_out = 0

    def put(self, batch: Batch, *, bounded: bool = True) -> None:
        """Add a batch; a bounded buffer that would overflow drops everything and fails instead."""
        if self._error is not None:
            return
        self._events += len(batch.events)
        self._bytes += _weight(batch)
        # One batch always fits: a revision cannot be handed out in parts.
        if bounded and self._waiting and (self._events > self._limit or self._bytes > self._heaviest):
            self._waiting.clear()
            self.fail(self._too_slow())
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
            # Something may have come between the end of the patience and this line; it goes first.
            if not await self._woken(patience) and not self._waiting and self._error is None:
                return None
        batch = self._waiting.popleft()
        self._events -= len(batch.events)
        self._bytes -= _weight(batch)
        self.handed_out = batch.revision
        return batch

    def joined(self, batch: Batch) -> Batch:
        """A batch with what waits behind it, as far as that is no more than anybody takes at once."""
        if not self._waiting:
            return batch
        events = list(batch.events)
        while self._waiting and len(events) < TOGETHER:
            batch = self._waiting.popleft()
            self._events -= len(batch.events)
            self._bytes -= _weight(batch)
            events += batch.events
        self.handed_out = batch.revision
        return Batch(batch.revision, tuple(events))

    def _too_slow(self) -> SlowWatcher:
        if self._events > self._limit:
            return SlowWatcher(self.handed_out, self._limit)
        return SlowWatcher(self.handed_out, self._heaviest, "bytes")

    async def _woken(self, patience: float | None) -> bool:
        """Sleep until something came; False when it took too long."""
        loop = asyncio.get_running_loop()
        reader: asyncio.Future[bool] = loop.create_future()
        self._reader = reader
        if patience is not None:
            self._deadline = loop.time() + patience
            # An alarm that is set stays set: a thousand watchers would set one anew for every event.
            if self._alarm is None or self._alarm.when() > self._deadline:
                self.forget_alarm()
                self._alarm = loop.call_at(self._deadline, self._ring)
        try:
            return await reader
        finally:
            self._reader = None

    def _ring(self) -> None:
        self._alarm = None
        if self._reader is None:
            return
        loop = asyncio.get_running_loop()
        if loop.time() >= self._deadline:
            self._wake(self._reader, False)
        else:
            self._alarm = loop.call_at(self._deadline, self._ring)

    def forget_alarm(self) -> None:
        """Nobody waits here any more."""
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None

    def _wake(self, sleeper: asyncio.Future[bool] | None, came: bool = True) -> None:
        if sleeper is not None and not sleeper.done():
            sleeper.set_result(came)


def _weight(batch: Batch) -> int:
    weight = 0
    for event in batch.events:
        if event.entry is not None:
            weight += len(event.entry.value)
        if event.previous is not None:
            weight += len(event.previous.value)
    return weight


class Hub:
    """Hands every published batch to every watcher whose prefix it touches."""

    def __init__(self, revision: int, limit: int = BUFFERED_EVENTS) -> None:
        self.revision = revision
        self._limit = limit
        self._watchers: dict[bytes, set[Buffer]] = {}
        self._odd_lengths: dict[int, int] = {}
        self._folders: dict[bytes, tuple[bytes, ...]] = {}
        self._arrivals: list[tuple[int, asyncio.Future[None]]] = []
        self._closed: Exception | None = None

    def publish(self, batches: Iterable[Batch]) -> None:
        for batch in batches:
            self.revision = batch.revision
            if self._watchers:
                self._hand_out(batch)
        if self._arrivals:
            self._wake_arrived()

    def close(self, error: Exception) -> None:
        """End all watches, now and later."""
        self._closed = error
        for buffers in self._watchers.values():
            for buffer in buffers:
                buffer.fail(error)
        for _, waiting in self._arrivals:
            if not waiting.done():
                waiting.set_exception(error)

    async def reached(self, revision: int) -> None:
        """Wait until everything up to `revision` was published."""
        if self.revision < revision:
            self._check_open()
            waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._arrivals.append((revision, waiting))
            await waiting

    async def watch(
        self,
        history: History,
        prefix: bytes,
        after: int,
        bookmarks: float | None,
        *,
        together: bool = False,
    ) -> AsyncGenerator[Batch, None]:
        """The past after `after`, then the present; `together` joins batches that wait behind each other."""
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
        self.enter(buffer, prefix)
        try:
            while True:
                live = await buffer.get(bookmarks)
                if live is None:
                    yield Batch(max(cursor, self.revision))
                elif live.revision > cursor:
                    yield buffer.joined(live) if together else live
        finally:
            buffer.forget_alarm()
            self.leave(buffer, prefix)

    def enter(self, buffer: Buffer, prefix: bytes) -> None:
        """Put what is published under the prefix into the buffer from now on."""
        if prefix not in self._watchers:
            self._folders.clear()
            self._watchers[prefix] = set()
            if not prefix.endswith(SLASH):
                self._odd_lengths[len(prefix)] = self._odd_lengths.get(len(prefix), 0) + 1
        self._watchers[prefix].add(buffer)

    def leave(self, buffer: Buffer, prefix: bytes) -> None:
        """Put nothing more into the buffer."""
        self._watchers[prefix].discard(buffer)
        if self._watchers[prefix]:
            return
        del self._watchers[prefix]
        self._folders.clear()
        if not prefix.endswith(SLASH):
            self._odd_lengths[len(prefix)] -= 1
            if not self._odd_lengths[len(prefix)]:
                del self._odd_lengths[len(prefix)]

    def _hand_out(self, batch: Batch) -> None:
        seen: dict[bytes, list[Event]] = {}
        for event in batch.events:
            for prefix in self._prefixes_of(event.key):
                seen.setdefault(prefix, []).append(event)
        for prefix, events in seen.items():
            whole = len(events) == len(batch.events)
            part = batch if whole else Batch(batch.revision, tuple(events))
            for buffer in self._watchers[prefix]:
                buffer.put(part)

    def _prefixes_of(self, key: bytes) -> Sequence[bytes]:
        """The prefixes under which somebody watches this key."""
        if self._odd_lengths:
            return list(self._watched_beginnings(key))
        # Keys beside each other have the same beginnings, but for the name at the end.
        folder = key[: key.rfind(SLASH) + 1]
        known = self._folders.get(folder)
        if known is None:
            if len(self._folders) >= FOLDERS:
                self._folders.clear()
            known = self._folders[folder] = tuple(self._watched_beginnings(folder))
        return known

    def _watched_beginnings(self, key: bytes) -> Iterator[bytes]:
        watchers = self._watchers
        end = key.find(SLASH) + 1
        while end:
            if (beginning := key[:end]) in watchers:
                yield beginning
            end = key.find(SLASH, end) + 1
        for length in self._odd_lengths:
            beginning = key[:length]
            # One that is too long, or ends at a slash, was met above or is none of this key.
            if len(beginning) == length and beginning in watchers and not beginning.endswith(SLASH):
                yield beginning

    def _wake_arrived(self) -> None:
        still = []
        for revision, waiting in self._arrivals:
            if waiting.done():
                continue  # whoever asked has left
            if revision > self.revision:
                still.append((revision, waiting))
            else:
                waiting.set_result(None)
        self._arrivals = still

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
