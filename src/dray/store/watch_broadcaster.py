"""Broadcasts one sequence of changes to many watchers, each with its own bounded buffer.

Theory of operation: a store publishes its batches in order, in the thread of the event loop, and the
broadcaster remembers its revision. A watcher that starts in the past reads the history at its own pace, which
costs no memory, until it has reached the revision of the broadcaster; because nothing else runs between that
comparison and the subscription, there is neither a gap nor an overlap. From then on its batches wait in a
buffer. A watcher whose buffer overflows is cut off, so that a dead reader never holds memory.

Watchers are indexed by the prefix they watch. Keys are divided by slashes and most prefixes end at one, so a
key finds its watchers by looking up its own prefixes; other watchers cost nothing. All watchers of one prefix
get the same batch. A watcher may also require the value of a field: it gets the changes of objects that have
the value or had it before, and the cost of a change does not grow with watchers that require other values.

Only one thread uses this module; it does not depend on where the history is stored.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

from dray.store.base import FIRST_REVISION, MAX_BUFFERED_EVENTS, EventBatch, StoreEntry, StoreEvent
from dray.store.errors import StoreClosedError
from dray.store.watch_buffer import WatchBuffer, count_bytes

SLASH = b"/"
MAX_CACHED_FOLDERS = 4096
"""For how many directories of keys the watched prefixes are cached."""


class RequiredField(NamedTuple):
    """A field of objects, and the value that a watcher requires it to have."""

    field: str
    value: str


ValueLister = Callable[[str, StoreEntry], Sequence[str]]
"""The values that a field of an entry has: one, or several in the case of labels."""


class EventHistory(Protocol):
    """The history from which a broadcaster reads what is no longer in memory."""

    async def check_readable(self, revision: int) -> None:
        """Raise `CompactedError` or `FutureRevisionError` unless the history covers `revision` to now."""
        ...

    async def read_events(self, prefix: bytes, after: int, up_to: int) -> Sequence[EventBatch]:
        """Return the next batches after `after`; the last one, maybe empty, has the revision they reach."""
        ...


class _PrefixWatchers:
    """The watchers of one prefix, in the order in which they began: of everything below it, and by the field
    and value they require.
    """

    def __init__(self) -> None:
        self.buffers: dict[WatchBuffer, None] = {}
        self.by_field: dict[str, dict[str, dict[WatchBuffer, None]]] = {}

    def add(self, buffer: WatchBuffer, required: RequiredField | None) -> None:
        if required is None:
            self.buffers[buffer] = None
        else:
            values = self.by_field.setdefault(required.field, {})
            values.setdefault(required.value, {})[buffer] = None

    def remove(self, buffer: WatchBuffer, required: RequiredField | None) -> None:
        if required is None:
            self.buffers.pop(buffer, None)
            return
        values = self.by_field[required.field]
        values[required.value].pop(buffer, None)
        if not values[required.value]:
            del values[required.value]
        if not values:
            del self.by_field[required.field]

    @property
    def is_empty(self) -> bool:
        return not self.buffers and not self.by_field

    def iterate_buffers(self) -> Iterator[WatchBuffer]:
        """All watchers, whatever they require."""
        yield from self.buffers
        for values in self.by_field.values():
            for buffers in values.values():
                yield from buffers


class WatchBroadcaster:
    """Delivers every published batch to every watcher whose prefix it touches.

    `list_values` is needed for watchers that require the value of a field.
    """

    def __init__(
        self,
        revision: int,
        max_events: int = MAX_BUFFERED_EVENTS,
        list_values: ValueLister | None = None,
    ) -> None:
        self.revision = revision
        self._max_events = max_events
        self._list_values = list_values
        self._watchers: dict[bytes, _PrefixWatchers] = {}
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
        for watchers in self._watchers.values():
            for buffer in watchers.iterate_buffers():
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
        required: RequiredField | None = None,
    ) -> AsyncGenerator[EventBatch, None]:
        """Yield the history after `after`, then new changes; `coalesce` joins batches that wait behind each
        other.

        With `required`, new changes of objects that neither have nor had the value are left out; those in the
        history are not.
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
        self.subscribe(buffer, prefix, required)
        try:
            while True:
                live = await buffer.get(bookmarks)
                if live is None:
                    yield EventBatch(max(cursor, self.revision))
                elif live.revision > cursor:
                    yield buffer.coalesce_pending(live) if coalesce else live
        finally:
            buffer.cancel_timer()
            self.unsubscribe(buffer, prefix, required)

    def subscribe(self, buffer: WatchBuffer, prefix: bytes, required: RequiredField | None = None) -> None:
        """Put what is published under the prefix into the buffer from now on."""
        if prefix not in self._watchers:
            self._folder_prefixes.clear()
            self._watchers[prefix] = _PrefixWatchers()
            if not prefix.endswith(SLASH):
                self._unaligned_lengths[len(prefix)] = self._unaligned_lengths.get(len(prefix), 0) + 1
        self._watchers[prefix].add(buffer, required)

    def unsubscribe(self, buffer: WatchBuffer, prefix: bytes, required: RequiredField | None = None) -> None:
        """Stop filling the buffer."""
        self._watchers[prefix].remove(buffer, required)
        if not self._watchers[prefix].is_empty:
            return
        del self._watchers[prefix]
        self._folder_prefixes.clear()
        if not prefix.endswith(SLASH):
            self._unaligned_lengths[len(prefix)] -= 1
            if not self._unaligned_lengths[len(prefix)]:
                del self._unaligned_lengths[len(prefix)]

    def _dispatch(self, batch: EventBatch) -> None:
        if len(batch.events) == 1:
            for prefix in self._find_prefixes(batch.events[0].key):
                self._dispatch_part(prefix, batch)
            return
        seen: dict[bytes, list[StoreEvent]] = {}
        for event in batch.events:
            for prefix in self._find_prefixes(event.key):
                seen.setdefault(prefix, []).append(event)
        for prefix, events in seen.items():
            whole = len(events) == len(batch.events)
            self._dispatch_part(prefix, batch if whole else EventBatch(batch.revision, tuple(events)))

    def _dispatch_part(self, prefix: bytes, part: EventBatch) -> None:
        """Deliver the changes under a prefix to its watchers."""
        watchers = self._watchers[prefix]
        if watchers.buffers:
            size = count_bytes(part)
            for buffer in watchers.buffers:
                buffer.put(part, size=size)
        for field, values in watchers.by_field.items():
            self._dispatch_by_value(part, field, values)

    def _dispatch_by_value(
        self, batch: EventBatch, field: str, watchers: Mapping[str, Collection[WatchBuffer]]
    ) -> None:
        """Deliver each change to the watchers of the value that the object has, and of the one it had."""
        assert self._list_values is not None
        found: dict[str, list[StoreEvent]] = {}
        for event in batch.events:
            entries = [entry for entry in (event.entry, event.previous) if entry is not None]
            values = [value for entry in entries for value in self._list_values(field, entry)]
            for value in dict.fromkeys(values):
                if value in watchers:
                    found.setdefault(value, []).append(event)
        for value, events in found.items():
            whole = len(events) == len(batch.events)
            part = batch if whole else EventBatch(batch.revision, tuple(events))
            size = count_bytes(part)
            for buffer in watchers[value]:
                buffer.put(part, size=size)

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
