"""All objects as they are now, kept from one watch of the store, and the feed of every other watch.

Theory of operation: the cache reads everything once and then follows the store's changes in order;
`get_revision` is how far it has come. A read that must see everything acknowledged asks the store where it
stands and waits until the cache stands there too, so it is as good as a read of the store and costs no read.
Watches of clients hang on the cache's own hub: the store sees one watcher, however many clients there are. A
watch that begins in the recent past is served from the batches still remembered, an older one from the
store's history.

Rules for this file: objects are only replaced, never changed; whoever listens is called in the order of the
changes and must not wait.
"""

from __future__ import annotations

import asyncio
import bisect
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import aclosing
from typing import Final

from dray.api.kinds import KINDS, Kind
from dray.server.objects.stored_object import (
    REGISTRY_PREFIX,
    StoredObject,
    build_key,
    build_kind_prefix,
    build_prefix,
    parse_kind,
)
from dray.store import EventBatch, Store, StoreEntry, StoreEvent
from dray.store.errors import (
    CompactedError,
    CorruptStoreError,
    FutureRevisionError,
    StoreClosedError,
    StoreError,
)
from dray.store.watch_broadcaster import WatchBroadcaster

ChangeListener = Callable[[StoredObject | None, StoredObject | None], None]
"""Called with what an object was and what it became."""

MAX_HISTORY_EVENTS: Final = 20_000
MAX_HISTORY_BYTES: Final = 64 * 1024 * 1024
"""How many events are remembered for watches that begin in the past, and how much they may weigh."""

ROOT_PREFIX: Final = b"/"

PAGE_SIZE: Final = 2_000
RETRY_SECONDS: Final = 0.5
WAIT_TIMEOUT_SECONDS: Final = 30.0
"""So long a request waits for the cache: a store that takes writes must tell of them."""


class WatchCache:
    """Every object as it is now."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._objects: dict[bytes, StoredObject] = {}
        self._rows: dict[bytes, StoreEntry] = {}
        self._keys: dict[bytes, _KeyIndex] = {}
        self._listeners: dict[bytes, list[ChangeListener]] = {}
        self._waiters: list[tuple[int, asyncio.Future[None]]] = []
        self._recent = _RecentBatches()
        self._close_error: BaseException | None = None
        self._sync_error: str | None = None
        self.hub = WatchBroadcaster(0)

    @property
    def revision(self) -> int:
        """How far the cache has come."""
        return self.hub.revision

    @property
    def sync_error(self) -> str | None:
        """Why the cache does not follow the store; None while it does."""
        return self._sync_error

    async def resync(self) -> None:
        """Read everything there is, and find out what changed since the cache last knew."""
        page = await self._store.range(ROOT_PREFIX, limit=PAGE_SIZE)
        revision = page.revision
        missing = self._objects.keys() | self._rows.keys()
        events: list[StoreEvent] = []
        while True:
            for entry in page.entries:
                missing.discard(entry.key)
                before = self._get_entry(entry.key)
                if before is None or before.mod_revision != entry.mod_revision:
                    events.append(StoreEvent(entry.key, revision, entry, before))
            if not page.more:
                break
            page = await self._store.range(
                ROOT_PREFIX, start_after=page.entries[-1].key, limit=PAGE_SIZE, revision=revision
            )
        events += (StoreEvent(place, revision, None, self._get_entry(place)) for place in sorted(missing))
        self._apply_batch(EventBatch(revision, tuple(events)), remember=False)
        self._recent.clear(revision)

    async def follow(self) -> None:
        """Follow the store until it is closed; the owner runs this as a task."""
        try:
            gap = False
            while True:
                try:
                    if gap:
                        await self.resync()
                        gap = False
                    await self._follow()
                except (StoreClosedError, CorruptStoreError):
                    raise
                except CompactedError:
                    # Not filled here: the store may not answer just now, and that is no reason to end.
                    gap = True
                except StoreError as broken:
                    self._sync_error = f"the store cannot be followed: {broken}"
                    await asyncio.sleep(RETRY_SECONDS)
        except BaseException as ended:
            self._close(ended)
            raise

    async def _follow(self) -> None:
        async with aclosing(self._store.watch(ROOT_PREFIX, self.revision, bookmarks=1.0)) as batches:
            async for batch in batches:
                self._sync_error = None
                self._apply_batch(batch)

    def _close(self, error: BaseException) -> None:
        self._close_error = error
        self._sync_error = f"the store is not followed any more: {error}"
        self.hub.close(error if isinstance(error, Exception) else StoreClosedError("the server is stopping"))
        for _, waiting in self._waiters:
            if not waiting.done():
                waiting.set_exception(error)

    def get(self, kind: Kind, namespace: str, name: str) -> StoredObject | None:
        """One object as it is now."""
        return self._objects.get(build_key(kind, namespace, name))

    def get_by_key(self, key: bytes) -> StoredObject | None:
        """The object at a key, as it is now."""
        return self._objects.get(key)

    def get_row(self, key: bytes) -> StoreEntry | None:
        """What stands beside the objects under a key, for example a row of the ledger."""
        return self._rows.get(key)

    def list_rows(self, prefix: bytes) -> list[StoreEntry]:
        """All rows whose keys start alike, in order; this looks at every row."""
        return [self._rows[place] for place in sorted(self._rows) if place.startswith(prefix)]

    def list_objects(self, kind: Kind, namespace: str = "") -> list[StoredObject]:
        """All objects of a kind, or those in one namespace, in the order of their keys."""
        keys = self._keys.get(build_kind_prefix(kind))
        if keys is None:
            return []
        return [self._objects[place] for place in keys.list_under(build_prefix(kind, namespace))]

    def copy_contents(self) -> tuple[int, dict[bytes, StoredObject | StoreEntry]]:
        """Everything as it is now, with the revision; the copy stays as it is."""
        return self.revision, {**self._objects, **self._rows}

    def count(self, kind: Kind) -> int:
        """How many objects of a kind there are."""
        keys = self._keys.get(build_kind_prefix(kind))
        return 0 if keys is None else len(keys.keys)

    def count_by_kind(self) -> Iterator[tuple[Kind, int]]:
        """How many objects of each kind there are."""
        for kind in KINDS:
            keys = self._keys.get(build_kind_prefix(kind)) if kind.stored_as is None else None
            if keys is not None:
                yield kind, len(keys.keys)

    def add_listener(self, kind: Kind, listener: ChangeListener) -> None:
        """Call `listener` for every object of the kind there is, and for every change from now on."""
        self._listeners.setdefault(build_kind_prefix(kind), []).append(listener)
        for held in self.list_objects(kind):
            listener(None, held)

    async def wait_until_fresh(self) -> int:
        """Wait until the cache shows every write acknowledged before; where it stands then."""
        wanted = await self._store.get_revision()
        await self.wait_for_revision(wanted)
        return max(self.revision, wanted)

    async def wait_for_revision(self, revision: int) -> None:
        """Wait until the cache has come that far."""
        if self._close_error is not None:
            raise self._close_error
        if self.revision >= revision:
            return
        loop = asyncio.get_running_loop()
        waiting: asyncio.Future[None] = loop.create_future()
        self._waiters.append((revision, waiting))
        alarm = loop.call_later(WAIT_TIMEOUT_SECONDS, self._time_out, revision, waiting)
        try:
            await waiting
        finally:
            alarm.cancel()

    def _time_out(self, revision: int, waiter: asyncio.Future[None]) -> None:
        if not waiter.done():
            why = self._sync_error or "the store does not tell of its changes"
            waiter.set_exception(
                StoreError(
                    f"the cache stands at revision {self.revision} and does not come to {revision}: {why}"
                )
            )

    @property
    def waiter_count(self) -> int:
        """How many requests wait for the cache."""
        return len(self._waiters)

    def watch(self, prefix: bytes, after: int, bookmarks: float | None) -> AsyncGenerator[EventBatch, None]:
        """Every change under a prefix after a revision; those that follow each other closely come at once."""
        return self.hub.watch(self, prefix, after, bookmarks, coalesce=True)

    async def check_readable(self, revision: int) -> None:
        if revision > self.revision:
            raise FutureRevisionError(revision, self.revision)
        if revision < self._recent.start_revision:
            async with aclosing(self._store.watch(ROOT_PREFIX, revision, bookmarks=0.001)) as batches:
                await anext(batches)  # raises `CompactedError` when the past is gone

    async def read_events(self, prefix: bytes, after: int, up_to: int) -> Sequence[EventBatch]:
        if after >= self._recent.start_revision:
            return [
                *(_filter_batch(batch, prefix) for batch in self._recent.list_after(after)),
                EventBatch(up_to),
            ]
        batches: list[EventBatch] = []
        async with aclosing(self._store.watch(ROOT_PREFIX, after, bookmarks=1.0)) as older:
            async for batch in older:
                batches.append(_filter_batch(batch, prefix))
                if batch.revision >= up_to or len(batches) >= PAGE_SIZE:
                    return batches
        raise CompactedError(after)

    def _apply_batch(self, batch: EventBatch, *, remember: bool = True) -> None:
        for event in batch.events:
            self._apply_entry(event.key, event.entry)
        if batch.events:
            if remember:
                self._recent.add(batch)
            self.hub.publish([batch])
        self.hub.revision = max(self.hub.revision, batch.revision)
        if self._waiters:
            self._wake_waiters()

    def _get_entry(self, key: bytes) -> StoreEntry | None:
        held = self._objects.get(key)
        if held is None:
            return self._rows.get(key)
        return StoreEntry(key, held.value, 0, held.revision, 0)

    def _apply_entry(self, key: bytes, entry: StoreEntry | None) -> None:
        # What a newer server keeps under a kind of its own is none of our objects.
        if key.startswith(REGISTRY_PREFIX) and parse_kind(key) is not None:
            self._replace_object(key, None if entry is None else StoredObject.from_entry(entry))
        elif entry is None:
            self._rows.pop(key, None)
        else:
            self._rows[key] = entry

    def _replace_object(self, key: bytes, new: StoredObject | None) -> None:
        old = self._objects.get(key)
        if new is None:
            if old is None:
                return
            del self._objects[key]
        else:
            self._objects[key] = new
        kind = (new or old).kind  # type: ignore[union-attr]
        home = build_kind_prefix(kind)
        if (old is None) != (new is None):
            self._keys.setdefault(home, _KeyIndex()).update(key, present=new is not None)
        for listener in self._listeners.get(home, ()):
            listener(old, new)

    def _wake_waiters(self) -> None:
        waiting, self._waiters = self._waiters, []
        for wanted, waiter in waiting:
            if waiter.done():
                continue  # whoever asked has left
            if wanted > self.revision:
                self._waiters.append((wanted, waiter))
            else:
                waiter.set_result(None)


class _KeyIndex:
    """The keys of a kind; put in order when somebody lists, not when somebody writes."""

    def __init__(self) -> None:
        self.keys: set[bytes] = set()
        self._ordered: list[bytes] | None = []

    def update(self, key: bytes, *, present: bool) -> None:
        ordered = self._ordered
        if present:
            self.keys.add(key)
            if ordered is not None and (not ordered or ordered[-1] < key):
                ordered.append(key)
                return
        else:
            self.keys.discard(key)
        self._ordered = None

    def list_under(self, prefix: bytes) -> list[bytes]:
        if self._ordered is None:
            self._ordered = sorted(self.keys)
        ordered = self._ordered
        first = bisect.bisect_left(ordered, prefix)
        if first == 0 and ordered and ordered[-1].startswith(prefix):
            return list(ordered)
        return ordered[first : bisect.bisect_left(ordered, prefix + b"\xff")]


class _RecentBatches:
    """The newest batches, up to a number of events."""

    def __init__(self) -> None:
        self._batches: deque[EventBatch] = deque()
        self._events = self._bytes = 0
        self.start_revision = 0
        """Every change after this revision is remembered."""

    def clear(self, revision: int) -> None:
        """Begin anew; what was before is not known in one piece."""
        self._batches.clear()
        self._events = self._bytes = 0
        self.start_revision = revision

    def add(self, batch: EventBatch) -> None:
        self._batches.append(batch)
        self._events += len(batch.events)
        self._bytes += _count_bytes(batch)
        while self._events > MAX_HISTORY_EVENTS or self._bytes > MAX_HISTORY_BYTES:
            oldest = self._batches.popleft()
            self._events -= len(oldest.events)
            self._bytes -= _count_bytes(oldest)
            self.start_revision = oldest.revision

    def list_after(self, revision: int) -> list[EventBatch]:
        first = bisect.bisect_right(self._batches, revision, key=lambda batch: batch.revision)
        return [self._batches[position] for position in range(first, len(self._batches))]


def _filter_batch(batch: EventBatch, prefix: bytes) -> EventBatch:
    events = tuple(event for event in batch.events if event.key.startswith(prefix))
    return EventBatch(batch.revision, events)


def _count_bytes(batch: EventBatch) -> int:
    return sum(len(entry.value) for event in batch.events for entry in (event.entry, event.previous) if entry)
