"""Objects of one kind, kept as they are on the server: list, then watch, for ever.

Theory of operation: a list tells everything at one version; a watch continues from there. Versions are
numbers that grow with every write. `_done` is the version up to which everything has been seen: several
objects may change in one write and share a version, so a version is done only when the next one comes or a
bookmark says so. A watch that breaks is resumed after `_done`; what comes twice because of that is known by
its version and told nobody. When the server no longer remembers that far, or sends what cannot be in order,
everything is listed again, and what differs is told as if it had been watched: nothing is lost but the steps
in between.

Rules for this file: failures of the server are waited out, with waits that grow; mistakes of listeners are
not ours to hide, they end `run`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Iterable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, overload

import msgspec
from msgspec.structs import replace

from dray.api.kinds import Kind
from dray.client.client import PAGE, Client
from dray.client.errors import (
    ApiError,
    BadRequest,
    Expired,
    Forbidden,
    Invalid,
    NotFound,
    ServerTimeout,
    WatchBroken,
)
from dray.client.informers.indexer import Listener, Seen, Shelf
from dray.client.informers.watch_stream import SHORTEST_WATCH, Batch, Span, watch
from dray.client.object_refs import Key, Selection, row_of, stamp_of
from dray.client.response_decoding import DELETED, Bookmark
from dray.client.rest_client import TROUBLE
from dray.client.timing import Backoff

T = TypeVar("T")
S = TypeVar("S", bound=msgspec.Struct)

_LIST_AGAIN = (Expired, WatchBroken, NotFound, BadRequest, ServerTimeout)
_NO_INITIAL_EVENTS = (Invalid, BadRequest, Forbidden)
_TOO_SHORT = 1.0
"""A watch that ends sooner than this many seconds was not ended by its time."""


@dataclass(slots=True)
class Counts:
    """What an informer has done, for metrics."""

    lists: int = 0
    watches: int = 0
    events: int = 0
    bookmarks: int = 0
    duplicates: int = 0
    relists: int = 0
    failures: int = 0


@dataclass(frozen=True, slots=True)
class Ways:
    """How an informer goes about it.

    `keep` turns an object into what is kept of it, for example without its managed fields. `trouble` is told
    every failure that is waited out. `initial_events` asks the server to send everything in the watch.
    """

    page: int = PAGE
    initial_events: bool = False
    keep: Callable[[Any], Any] | None = None
    trouble: Callable[[Exception], None] | None = None
    first_wait: float = 0.8
    longest_wait: float = 30.0


_USUAL = Ways()


def without_managed_fields(obj: Any) -> Any:
    """A struct without the record of who set which field, for those who do not read it (`Ways.keep`)."""
    if not obj.metadata.managed_fields:
        return obj
    return replace(obj, metadata=replace(obj.metadata, managed_fields=()))


@dataclass(slots=True)
class _Place:
    """Where in the history an informer stands."""

    done: int
    highest: int

    def see(self, version: int) -> None:
        if version > self.highest:
            self.done, self.highest = self.highest, version


class Informer(Generic[T]):
    """All objects of a kind that match, as they are. `run` keeps them so; whoever starts it owns it."""

    @overload
    def __init__(
        self: Informer[S],
        client: Client,
        kind: type[S],
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
        ways: Ways = _USUAL,
    ) -> None: ...
    @overload
    def __init__(
        self: Informer[Any],
        client: Client,
        kind: Kind,
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
        ways: Ways = _USUAL,
    ) -> None: ...
    def __init__(
        self,
        client: Client,
        kind: Any,
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
        ways: Ways = _USUAL,
    ) -> None:
        self.kind = row_of(kind)
        self._read_as = kind
        self.counts = Counts()
        self._client = client
        self._namespace = namespace
        self._select = Selection(label_selector, field_selector)
        self._ways = ways
        self._initial = ways.initial_events
        self._tempo = client.habits.tempo
        self._backoff, self._before_lists = (
            Backoff(self._tempo, first=ways.first_wait, longest=ways.longest_wait) for _ in range(2)
        )
        self._shelf: Shelf[T] = Shelf()
        self._place: _Place | None = None
        self._gathered: dict[Key, Seen] | None = None
        self._synced = asyncio.Event()
        self._ended: BaseException | None = None

    def get(self, name: str, namespace: str = "") -> T | None:
        """One object, if it is there."""
        seen = self._shelf.seen.get(Key(namespace, name))
        return None if seen is None else seen.object

    def all(self) -> list[T]:
        """All objects."""
        return [seen.object for seen in self._shelf.seen.values()]

    def __len__(self) -> int:
        return len(self._shelf.seen)

    def add_index(self, name: str, values_of: Callable[[T], Iterable[Hashable]]) -> None:
        """Keep objects by what `values_of` says about them; it must say the same of the same object."""
        self._shelf.add_index(name, values_of)

    def by_index(self, name: str, value: Hashable) -> list[T]:
        """The objects for which the index gave this value."""
        return self._shelf.by_index(name, value)

    def listen(
        self,
        added: Callable[[T], None] | None = None,
        updated: Callable[[T, T], None] | None = None,
        deleted: Callable[[T], None] | None = None,
    ) -> Callable[[], None]:
        """Call these for everything there is and for every change, in order; the result ends it."""
        return self._shelf.listen(Listener(added, updated, deleted))

    async def synced(self) -> None:
        """Wait until everything was seen once; raises when `run` ended before."""
        await self._synced.wait()
        if self._ended is not None:
            raise RuntimeError(f"the informer of {self.kind.plural} has ended") from self._ended

    @property
    def resource_version(self) -> str:
        """The version up to which everything is here; empty before the first list."""
        return "" if self._place is None else str(self._place.done)

    async def run(self) -> None:
        """Keep the objects as they are on the server; ends only by being cancelled or by a mistake."""
        try:
            while True:
                if self._place is None and not self._initial:
                    await self._list()
                else:
                    await self._follow()
        except BaseException as ended:
            self._ended = ended
            self._synced.set()
            raise

    async def _list(self) -> None:
        self.counts.lists += 1
        try:
            listing = await self._client.list(
                self._read_as, self._namespace, self._select, page=self._ways.page
            )
            now = dict(map(self._seen, listing.items))
            version = _number(listing.resource_version)
            if version < 0 or any(seen.version < 0 for seen in now.values()):
                raise WatchBroken(f"the list of {self.kind.plural} has a `resourceVersion` that is no number")
        except TROUBLE as failed:
            await self._wait_out(failed)
            return
        self._replace(now, version)

    def _replace(self, now: dict[Key, Seen], version: int) -> None:
        self._place = _Place(version, version)
        self._gathered = None
        self._shelf.replace(now)
        self._backoff.reset()
        self._synced.set()

    async def _follow(self) -> None:
        initial = self._place is None
        self._gathered = {} if initial else None
        span = Span(
            self._read_as,
            self._namespace,
            self._select,
            self.resource_version,
            initial,
            SHORTEST_WATCH + int(self._tempo.chance() * SHORTEST_WATCH),
        )
        self.counts.watches += 1
        begun, place = self._tempo.clock.monotonic(), self._highest()
        failed = await self._drain(span)
        if self._highest() > place:
            # Only what is new is a success: a watch that repeats itself and ends must not be asked in a rush.
            self._backoff.reset()
            self._before_lists.reset()
        elif failed is None and self._tempo.clock.monotonic() - begun < _TOO_SHORT:
            await self._backoff.wait()
        if failed is not None:
            await self._resume_later(failed, initial=initial)

    def _highest(self) -> int:
        return -1 if self._place is None else self._place.highest

    async def _drain(self, span: Span) -> Exception | None:
        """Follow one watch to its end; why it ended, unless its time was up."""
        async with aclosing(watch(self._client, span)) as batches:
            while True:
                try:
                    batch = await anext(batches, None)
                except TROUBLE as failed:
                    return failed
                if batch is None:
                    return None
                if not self._apply(batch):
                    return WatchBroken(f"the watch of {self.kind.plural} is not in order")

    def _apply(self, batch: Batch) -> bool:
        """Take over what happened; False when it cannot have happened in this order."""
        for event in batch:
            if isinstance(event, Bookmark):
                if not self._mark(event):
                    return False
                continue
            self.counts.events += 1
            key, seen = self._seen(event.object)
            if seen.version < 0:
                return False
            gathered = self._gathered
            if gathered is None:
                if not self._change(event.type, key, seen):
                    return False
            elif event.type == DELETED:
                gathered.pop(key, None)
            else:
                gathered[key] = seen
        return True

    def _change(self, what: str, key: Key, new: Seen) -> bool:
        place, old = self._place, self._shelf.seen.get(key)
        assert place is not None
        known = -1 if old is None else old.version
        if what == DELETED:
            # Some servers send the last version of the object, others the version of its deletion.
            if old is None or new.version < known:
                self.counts.duplicates += 1
            else:
                self._shelf.remove(key)
        elif new.version <= known:
            self.counts.duplicates += 1
        elif old is None and new.version < place.highest:
            return False
        else:
            self._shelf.put(key, new)
        place.see(new.version)
        return True

    def _mark(self, bookmark: Bookmark) -> bool:
        self.counts.bookmarks += 1
        version = _number(bookmark.resource_version)
        if version < 0:
            return False
        if self._gathered is not None:
            if bookmark.initial_events_end:
                self._replace(self._gathered, version)
        elif self._place is not None and version >= self._place.highest:
            self._place = _Place(version, version)
        return True

    def _seen(self, obj: Any) -> tuple[Key, Seen]:
        key, uid, version = stamp_of(obj)
        keep = self._ways.keep
        return key, Seen(obj if keep is None else keep(obj), _number(version), uid)

    async def _resume_later(self, failed: Exception, *, initial: bool) -> None:
        if isinstance(failed, NotFound):
            self._client.forget_version(self.kind)
        if initial and isinstance(failed, _NO_INITIAL_EVENTS):
            self._initial = False  # this server does not do it: list instead, at once
        elif isinstance(failed, _LIST_AGAIN):
            await self._list_again(failed)
        else:
            await self._wait_out(failed)

    async def _list_again(self, why: Exception) -> None:
        self.counts.relists += 1
        self._place = None
        await self._wait_out(why, self._before_lists)

    async def _wait_out(self, failed: Exception, backoff: Backoff | None = None) -> None:
        self.counts.failures += 1
        if self._ways.trouble is not None:
            self._ways.trouble(failed)
        asked = failed.retry_after if isinstance(failed, ApiError) else None
        await (backoff or self._backoff).wait(min(asked or 0.0, self._ways.longest_wait))


def _number(version: str) -> int:
    """A version as the number it is; -1 for what is none."""
    return int(version) if version.isascii() and version.isdigit() else -1
