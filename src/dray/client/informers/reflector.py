"""The reflector: lists the objects of one kind and follows their changes, for whoever keeps them.

Theory of operation: a list returns everything at one version; a watch continues from there. Versions are
numbers that grow with every write. `_WatchPosition.complete` is the version up to which everything has been
seen: several objects may change in one write and share a version, so a version is complete only when the next
one or a bookmark comes. A watch that breaks is resumed after the complete version; events that come twice
because of that are recognised by their version and dropped. When the server no longer keeps that version, or
sends events out of order, everything is listed again, and the sink replaces all it has.

Rules for this file: failures of the server are waited out with a growing backoff; an exception of the sink
ends `run`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec

from dray.api.kinds import Kind
from dray.client.client import DEFAULT_PAGE_SIZE, Client
from dray.client.errors import (
    ApiError,
    BadRequestError,
    BrokenWatchError,
    ForbiddenError,
    InvalidObjectError,
    NotFoundError,
    ResourceExpiredError,
    ServerTimeoutError,
)
from dray.client.informers.indexer import IndexedObject
from dray.client.informers.watch_stream import MIN_WATCH_SECONDS, WatchBatch, WatchRequest, watch_in_batches
from dray.client.object_refs import (
    SELECT_ALL,
    ObjectKey,
    ObjectSelector,
    get_identity,
    parse_resource_version,
    resolve_kind,
)
from dray.client.response_decoding import DELETED, Bookmark
from dray.client.rest_client import CALL_ERRORS
from dray.client.timing import Backoff

_RELIST_ERRORS = (ResourceExpiredError, BrokenWatchError, NotFoundError, BadRequestError, ServerTimeoutError)
_INITIAL_EVENTS_ERRORS = (InvalidObjectError, BadRequestError, ForbiddenError)
_SHORT_WATCH_SECONDS = 1.0
"""A watch that ends sooner than this many seconds was not ended by its timeout."""


@dataclass(slots=True)
class InformerStats:
    """Counters of an informer, for metrics."""

    lists: int = 0
    watches: int = 0
    events: int = 0
    bookmarks: int = 0
    duplicates: int = 0
    relists: int = 0
    failures: int = 0


@dataclass(frozen=True, slots=True)
class InformerOptions:
    """Options of an informer.

    `transform` turns an object into what is kept of it, for example without its managed fields. `on_failure`
    receives every failure that is waited out. `send_initial_events` asks the server to send everything in the
    watch. `may_share` allows a shared reflector of the process to provide the objects in the form in which it
    keeps them; then the other options but `on_failure` have no effect.
    """

    page_size: int = DEFAULT_PAGE_SIZE
    send_initial_events: bool = False
    transform: Callable[[Any], Any] | None = None
    on_failure: Callable[[Exception], None] | None = None
    initial_backoff: float = 0.8
    max_backoff: float = 30.0
    may_share: bool = False


@dataclass(slots=True)
class _WatchPosition:
    """How far an informer has followed the watch."""

    complete: int
    highest: int

    def advance(self, version: int) -> None:
        if version > self.highest:
            self.complete, self.highest = self.highest, version


class ObjectSink(Protocol):
    """Keeps the objects that a reflector sees."""

    @property
    def objects(self) -> Mapping[ObjectKey, IndexedObject]: ...

    def put(self, key: ObjectKey, new: IndexedObject) -> None:
        """Add or change an object."""
        ...

    def remove(self, key: ObjectKey) -> None:
        """Remove an object."""
        ...

    def replace(self, now: dict[ObjectKey, IndexedObject]) -> None:
        """Replace all objects."""
        ...


@dataclass(frozen=True, slots=True)
class ReflectedObjects:
    """The objects that a reflector follows; `kind` is its row, or the struct its objects are read as."""

    kind: Kind | type[msgspec.Struct]
    namespace: str = ""
    selector: ObjectSelector = SELECT_ALL


class Reflector:
    """Follows the objects of one kind. `run` feeds the sink; its caller owns the task."""

    def __init__(
        self, client: Client, reflected: ReflectedObjects, sink: ObjectSink, options: InformerOptions
    ) -> None:
        self.kind = resolve_kind(reflected.kind)
        self.stats = InformerStats()
        self._client = client
        self._reflected = reflected
        self._sink = sink
        self._options = options
        self._send_initial_events = options.send_initial_events
        self._time_source = client.options.time_source
        self._backoff, self._relist_backoff = (
            Backoff(self._time_source, initial=options.initial_backoff, maximum=options.max_backoff)
            for _ in range(2)
        )
        self._position: _WatchPosition | None = None
        self._initial_objects: dict[ObjectKey, IndexedObject] | None = None

    @property
    def resource_version(self) -> str:
        """The version up to which everything was seen; empty before the first list."""
        return "" if self._position is None else str(self._position.complete)

    async def run(self) -> None:
        """Follow the objects; ends only by cancellation or by an error of the sink."""
        while True:
            if self._position is None and not self._send_initial_events:
                await self._list_objects()
            else:
                await self._watch_objects()

    async def _list_objects(self) -> None:
        self.stats.lists += 1
        try:
            listing = await self._client.list(
                self._reflected.kind,
                self._reflected.namespace,
                self._reflected.selector,
                page_size=self._options.page_size,
            )
            now = dict(map(self._build_indexed_object, listing.items))
            version = parse_resource_version(listing.resource_version)
            if version < 0 or any(seen.version < 0 for seen in now.values()):
                raise BrokenWatchError(
                    f"the list of {self.kind.plural} has a `resourceVersion` that is no number"
                )
        except CALL_ERRORS as failed:
            await self._wait_after_failure(failed)
            return
        self._replace(now, version)

    def _replace(self, now: dict[ObjectKey, IndexedObject], version: int) -> None:
        self._position = _WatchPosition(version, version)
        self._initial_objects = None
        self._sink.replace(now)
        self._backoff.reset()

    async def _watch_objects(self) -> None:
        initial = self._position is None
        self._initial_objects = {} if initial else None
        request = WatchRequest(
            self._reflected.kind,
            self._reflected.namespace,
            self._reflected.selector,
            self.resource_version,
            initial,
            MIN_WATCH_SECONDS + int(self._time_source.random_float() * MIN_WATCH_SECONDS),
        )
        self.stats.watches += 1
        started, before = self._time_source.clock.monotonic(), self._get_highest_version()
        failed = await self._consume_watch(request)
        if self._get_highest_version() > before:
            # Only new events are a success: a watch that repeats old ones must not be reopened at once.
            self._backoff.reset()
            self._relist_backoff.reset()
        elif failed is None and self._time_source.clock.monotonic() - started < _SHORT_WATCH_SECONDS:
            await self._backoff.wait()
        if failed is not None:
            await self._recover(failed, initial=initial)

    def _get_highest_version(self) -> int:
        return -1 if self._position is None else self._position.highest

    async def _consume_watch(self, request: WatchRequest) -> Exception | None:
        """Follow one watch to its end; return why it ended, unless its time was up."""
        async with aclosing(watch_in_batches(self._client, request)) as batches:
            while True:
                try:
                    batch = await anext(batches, None)
                except CALL_ERRORS as failed:
                    return failed
                if batch is None:
                    return None
                if not self._apply_batch(batch):
                    return BrokenWatchError(f"the watch of {self.kind.plural} is not in order")

    def _apply_batch(self, batch: WatchBatch) -> bool:
        """Apply a batch of events; False when they are out of order."""
        for event in batch:
            if isinstance(event, Bookmark):
                if not self._apply_bookmark(event):
                    return False
                continue
            self.stats.events += 1
            key, seen = self._build_indexed_object(event.object)
            if seen.version < 0:
                return False
            initial = self._initial_objects
            if initial is None:
                if not self._apply_event(event.type, key, seen):
                    return False
            elif event.type == DELETED:
                initial.pop(key, None)
            else:
                initial[key] = seen
        return True

    def _apply_event(self, event_type: str, key: ObjectKey, new: IndexedObject) -> bool:
        position, old = self._position, self._sink.objects.get(key)
        assert position is not None
        known = -1 if old is None else old.version
        if event_type == DELETED:
            # Some servers send the last version of the object, others the version of its deletion.
            if old is None or new.version < known:
                self.stats.duplicates += 1
            else:
                self._sink.remove(key)
        elif new.version <= known:
            self.stats.duplicates += 1
        elif old is None and new.version < position.highest:
            return False
        else:
            self._sink.put(key, new)
        position.advance(new.version)
        return True

    def _apply_bookmark(self, bookmark: Bookmark) -> bool:
        self.stats.bookmarks += 1
        version = parse_resource_version(bookmark.resource_version)
        if version < 0:
            return False
        if self._initial_objects is not None:
            if bookmark.initial_events_end:
                self._replace(self._initial_objects, version)
        elif self._position is not None and version >= self._position.highest:
            self._position = _WatchPosition(version, version)
        return True

    def _build_indexed_object(self, obj: Any) -> tuple[ObjectKey, IndexedObject]:
        key, uid, version = get_identity(obj)
        transform = self._options.transform
        return key, IndexedObject(
            obj if transform is None else transform(obj), parse_resource_version(version), uid
        )

    async def _recover(self, error: Exception, *, initial: bool) -> None:
        if isinstance(error, NotFoundError):
            self._client.forget_version(self.kind)
        if initial and isinstance(error, _INITIAL_EVENTS_ERRORS):
            self._send_initial_events = False  # this server does not support it: list instead, at once
        elif isinstance(error, _RELIST_ERRORS):
            await self._relist(error)
        else:
            await self._wait_after_failure(error)

    async def _relist(self, error: Exception) -> None:
        self.stats.relists += 1
        self._position = None
        await self._wait_after_failure(error, self._relist_backoff)

    async def _wait_after_failure(self, error: Exception, backoff: Backoff | None = None) -> None:
        self.stats.failures += 1
        if self._options.on_failure is not None:
            self._options.on_failure(error)
        retry_after = error.retry_after if isinstance(error, ApiError) else None
        await (backoff or self._backoff).wait(min(retry_after or 0.0, self._options.max_backoff))
