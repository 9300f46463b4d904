"""All objects as they are now, kept from one watch of the store, and the feed of every other watch.

Theory of operation: the cache reads everything once and then follows the store's changes in order; `revision`
is how far it has come. A read that must see everything acknowledged asks the store where it stands and waits
until the cache stands there too, so it is as good as a read of the store and costs no read. Watches of
clients hang on the cache's own hub: the store sees one watcher, however many clients there are. A watch that
begins in the recent past is served from the batches still remembered, an older one from the store's history.

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
from dray.server.objects.stored_object import ROOT, Held, key, kind_at, kind_prefix, prefix
from dray.store import Batch, Entry, Event, Store
from dray.store.errors import Closed, Compacted, Damaged, FutureRevision, StoreError
from dray.store.watch_broadcaster import Hub

Listener = Callable[[Held | None, Held | None], None]
"""Called with what an object was and what it became."""

REMEMBERED_EVENTS: Final = 20_000
REMEMBERED_BYTES: Final = 64 * 1024 * 1024
"""How many events are remembered for watches that begin in the past, and how much they may weigh."""

EVERYTHING: Final = b"/"

PAGE: Final = 2_000
RETRY_SECONDS: Final = 0.5
PATIENCE_SECONDS: Final = 30.0
"""So long a request waits for the cache: a store that takes writes must tell of them."""


class Cache:
    """Every object as it is now."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._objects: dict[bytes, Held] = {}
        self._rows: dict[bytes, Entry] = {}
        self._keys: dict[bytes, _Keys] = {}
        self._listeners: dict[bytes, list[Listener]] = {}
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []
        self._recent = _Recent()
        self._ended: BaseException | None = None
        self._trouble: str | None = None
        self.hub = Hub(0)

    @property
    def revision(self) -> int:
        """How far the cache has come."""
        return self.hub.revision

    @property
    def trouble(self) -> str | None:
        """Why the cache does not follow the store; None while it does."""
        return self._trouble

    async def fill(self) -> None:
        """Read everything there is, and find out what changed since the cache last knew."""
        page = await self._store.range(EVERYTHING, limit=PAGE)
        revision = page.revision
        missing = self._objects.keys() | self._rows.keys()
        events: list[Event] = []
        while True:
            for entry in page.entries:
                missing.discard(entry.key)
                before = self._entry(entry.key)
                if before is None or before.mod_revision != entry.mod_revision:
                    events.append(Event(entry.key, revision, entry, before))
            if not page.more:
                break
            page = await self._store.range(
                EVERYTHING, start_after=page.entries[-1].key, limit=PAGE, revision=revision
            )
        events += (Event(place, revision, None, self._entry(place)) for place in sorted(missing))
        self._take(Batch(revision, tuple(events)), remember=False)
        self._recent.clear(revision)

    async def follow(self) -> None:
        """Follow the store until it is closed; the owner runs this as a task."""
        try:
            gap = False
            while True:
                try:
                    if gap:
                        await self.fill()
                        gap = False
                    await self._follow()
                except (Closed, Damaged):
                    raise
                except Compacted:
                    # Not filled here: the store may not answer just now, and that is no reason to end.
                    gap = True
                except StoreError as broken:
                    self._trouble = f"the store cannot be followed: {broken}"
                    await asyncio.sleep(RETRY_SECONDS)
        except BaseException as ended:
            self._end(ended)
            raise

    async def _follow(self) -> None:
        async with aclosing(self._store.watch(EVERYTHING, self.revision, bookmarks=1.0)) as batches:
            async for batch in batches:
                self._trouble = None
                self._take(batch)

    def _end(self, ended: BaseException) -> None:
        self._ended = ended
        self._trouble = f"the store is not followed any more: {ended}"
        self.hub.close(ended if isinstance(ended, Exception) else Closed("the server is stopping"))
        for _, waiting in self._waiting:
            if not waiting.done():
                waiting.set_exception(ended)

    def get(self, kind: Kind, namespace: str, name: str) -> Held | None:
        """One object as it is now."""
        return self._objects.get(key(kind, namespace, name))

    def at(self, place: bytes) -> Held | None:
        """The object at a key, as it is now."""
        return self._objects.get(place)

    def row(self, place: bytes) -> Entry | None:
        """What stands beside the objects under a key, for example a row of the ledger."""
        return self._rows.get(place)

    def rows(self, start: bytes) -> list[Entry]:
        """All rows whose keys start alike, in order; this looks at every row."""
        return [self._rows[place] for place in sorted(self._rows) if place.startswith(start)]

    def all(self, kind: Kind, namespace: str = "") -> list[Held]:
        """All objects of a kind, or those in one namespace, in the order of their keys."""
        keys = self._keys.get(kind_prefix(kind))
        if keys is None:
            return []
        return [self._objects[place] for place in keys.under(prefix(kind, namespace))]

    def contents(self) -> tuple[int, dict[bytes, Held | Entry]]:
        """Everything as it is now, with the revision; the copy stays as it is."""
        return self.revision, {**self._objects, **self._rows}

    def count(self, kind: Kind) -> int:
        """How many objects of a kind there are."""
        keys = self._keys.get(kind_prefix(kind))
        return 0 if keys is None else len(keys.known)

    def counts(self) -> Iterator[tuple[Kind, int]]:
        """How many objects of each kind there are."""
        for kind in KINDS:
            keys = self._keys.get(kind_prefix(kind)) if kind.kept_as is None else None
            if keys is not None:
                yield kind, len(keys.known)

    def listen(self, kind: Kind, listener: Listener) -> None:
        """Call `listener` for every object of the kind there is, and for every change from now on."""
        self._listeners.setdefault(kind_prefix(kind), []).append(listener)
        for held in self.all(kind):
            listener(None, held)

    async def caught_up(self) -> int:
        """Wait until the cache shows every write acknowledged before; where it stands then."""
        wanted = await self._store.revision()
        await self.reached(wanted)
        return max(self.revision, wanted)

    async def reached(self, revision: int) -> None:
        """Wait until the cache has come that far."""
        if self._ended is not None:
            raise self._ended
        if self.revision >= revision:
            return
        loop = asyncio.get_running_loop()
        waiting: asyncio.Future[None] = loop.create_future()
        self._waiting.append((revision, waiting))
        alarm = loop.call_later(PATIENCE_SECONDS, self._give_up, revision, waiting)
        try:
            await waiting
        finally:
            alarm.cancel()

    def _give_up(self, revision: int, waiting: asyncio.Future[None]) -> None:
        if not waiting.done():
            why = self._trouble or "the store does not tell of its changes"
            waiting.set_exception(
                StoreError(
                    f"the cache stands at revision {self.revision} and does not come to {revision}: {why}"
                )
            )

    @property
    def waiting(self) -> int:
        """How many requests wait for the cache."""
        return len(self._waiting)

    def watch(self, place: bytes, after: int, bookmarks: float | None) -> AsyncGenerator[Batch, None]:
        """Every change under a prefix after a revision; those that follow each other closely come at once."""
        return self.hub.watch(self, place, after, bookmarks, together=True)

    async def check_readable(self, revision: int) -> None:
        if revision > self.revision:
            raise FutureRevision(revision, self.revision)
        if revision < self._recent.begin:
            async with aclosing(self._store.watch(EVERYTHING, revision, bookmarks=0.001)) as batches:
                await anext(batches)  # raises `Compacted` when the past is gone

    async def past(self, place: bytes, after: int, up_to: int) -> Sequence[Batch]:
        if after >= self._recent.begin:
            return [*(_under(batch, place) for batch in self._recent.after(after)), Batch(up_to)]
        batches: list[Batch] = []
        async with aclosing(self._store.watch(EVERYTHING, after, bookmarks=1.0)) as older:
            async for batch in older:
                batches.append(_under(batch, place))
                if batch.revision >= up_to or len(batches) >= PAGE:
                    return batches
        raise Compacted(after)

    def _take(self, batch: Batch, *, remember: bool = True) -> None:
        for event in batch.events:
            self._set(event.key, event.entry)
        if batch.events:
            if remember:
                self._recent.add(batch)
            self.hub.publish([batch])
        self.hub.revision = max(self.hub.revision, batch.revision)
        if self._waiting:
            self._wake()

    def _entry(self, place: bytes) -> Entry | None:
        held = self._objects.get(place)
        if held is None:
            return self._rows.get(place)
        return Entry(place, held.value, 0, held.revision, 0)

    def _set(self, place: bytes, entry: Entry | None) -> None:
        # What a newer server keeps under a kind of its own is none of our objects.
        if place.startswith(ROOT) and kind_at(place) is not None:
            self._replace(place, None if entry is None else Held.of(entry))
        elif entry is None:
            self._rows.pop(place, None)
        else:
            self._rows[place] = entry

    def _replace(self, place: bytes, new: Held | None) -> None:
        old = self._objects.get(place)
        if new is None:
            if old is None:
                return
            del self._objects[place]
        else:
            self._objects[place] = new
        kind = (new or old).kind  # type: ignore[union-attr]
        home = kind_prefix(kind)
        if (old is None) != (new is None):
            self._keys.setdefault(home, _Keys()).change(place, there=new is not None)
        for listener in self._listeners.get(home, ()):
            listener(old, new)

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, []
        for wanted, waiter in waiting:
            if waiter.done():
                continue  # whoever asked has left
            if wanted > self.revision:
                self._waiting.append((wanted, waiter))
            else:
                waiter.set_result(None)


class _Keys:
    """The keys of a kind; put in order when somebody lists, not when somebody writes."""

    def __init__(self) -> None:
        self.known: set[bytes] = set()
        self._ordered: list[bytes] | None = []

    def change(self, place: bytes, *, there: bool) -> None:
        ordered = self._ordered
        if there:
            self.known.add(place)
            if ordered is not None and (not ordered or ordered[-1] < place):
                ordered.append(place)
                return
        else:
            self.known.discard(place)
        self._ordered = None

    def under(self, start: bytes) -> list[bytes]:
        if self._ordered is None:
            self._ordered = sorted(self.known)
        ordered = self._ordered
        first = bisect.bisect_left(ordered, start)
        if first == 0 and ordered and ordered[-1].startswith(start):
            return list(ordered)
        return ordered[first : bisect.bisect_left(ordered, start + b"\xff")]


class _Recent:
    """The newest batches, up to a number of events."""

    def __init__(self) -> None:
        self._batches: deque[Batch] = deque()
        self._events = self._bytes = 0
        self.begin = 0
        """Every change after this revision is remembered."""

    def clear(self, revision: int) -> None:
        """Begin anew; what was before is not known in one piece."""
        self._batches.clear()
        self._events = self._bytes = 0
        self.begin = revision

    def add(self, batch: Batch) -> None:
        self._batches.append(batch)
        self._events += len(batch.events)
        self._bytes += _weight(batch)
        while self._events > REMEMBERED_EVENTS or self._bytes > REMEMBERED_BYTES:
            oldest = self._batches.popleft()
            self._events -= len(oldest.events)
            self._bytes -= _weight(oldest)
            self.begin = oldest.revision

    def after(self, revision: int) -> list[Batch]:
        first = bisect.bisect_right(self._batches, revision, key=lambda batch: batch.revision)
        return [self._batches[position] for position in range(first, len(self._batches))]


def _under(batch: Batch, place: bytes) -> Batch:
    events = tuple(event for event in batch.events if event.key.startswith(place))
    return Batch(batch.revision, events)


def _weight(batch: Batch) -> int:
    return sum(len(entry.value) for event in batch.events for entry in (event.entry, event.previous) if entry)
