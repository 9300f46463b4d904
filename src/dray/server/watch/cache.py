"""The watch cache: the current state of all objects, fed by one watch of the store; clients watch the cache.

Theory of operation: the cache lists the store once and then applies its changes in order; `revision` is the
last one applied. A consistent read asks the store for its current revision and waits until the cache has
reached it, so it is as fresh as a read of the store without reading there. Clients watch the broadcaster of
the cache: the store has one watcher, however many clients there are. A watch from a recent revision is
served from the batches in memory, one from an older revision from the store's history.

Rules for this file: objects are replaced, never modified; listeners are called in the order of the changes
and must not block.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import aclosing, contextmanager
from typing import Final

from dray.api.kinds import KINDS, Kind
from dray.server.objects.field_values import read_field
from dray.server.objects.stored_object import (
    REGISTRY_PREFIX,
    StoredObject,
    build_key,
    build_kind_prefix,
    build_prefix,
    parse_kind,
)
from dray.server.watch.field_index import INDEXED_FIELDS, FieldIndex, list_values
from dray.server.watch.key_index import KeyIndex
from dray.server.watch.recent_batches import MAX_HISTORY_EVENTS, RecentBatches
from dray.store import EventBatch, Put, Store, StoreEntry, StoreEvent, Write
from dray.store.errors import (
    CompactedError,
    CorruptStoreError,
    FutureRevisionError,
    StoreClosedError,
    StoreError,
)
from dray.store.watch_broadcaster import RequiredField, WatchBroadcaster, filter_batch

ChangeListener = Callable[[StoredObject | None, StoredObject | None], None]
"""Called with the old and the new state of an object."""

ROOT_PREFIX: Final = b"/"

PAGE_SIZE: Final = 2_000
RETRY_SECONDS: Final = 0.5
WAIT_TIMEOUT_SECONDS: Final = 30.0
"""How long a request waits for the cache to reach a revision."""


class WatchCache:
    """The current state of every object and row."""

    def __init__(self, store: Store, max_history_events: int = MAX_HISTORY_EVENTS) -> None:
        """`max_history_events` bounds the changes that are kept for watches of past revisions."""
        self._store = store
        self._objects: dict[bytes, StoredObject] = {}
        self._rows: dict[bytes, StoreEntry] = {}
        self._keys: dict[bytes, KeyIndex] = {}
        self._listeners: dict[bytes, list[ChangeListener]] = {}
        self._waiters: list[tuple[int, asyncio.Future[None]]] = []
        self._field_indexes: dict[bytes, tuple[FieldIndex, ...]] = {}
        self._recent = RecentBatches(_list_values, _get_kind_prefix, max_history_events)
        self._close_error: BaseException | None = None
        self._sync_error: str | None = None
        self.hub = WatchBroadcaster(0, list_values=_list_values)

    @property
    def revision(self) -> int:
        """The revision that the cache has reached."""
        return self.hub.revision

    @property
    def sync_error(self) -> str | None:
        """Why the cache does not follow the store; None while it does."""
        return self._sync_error

    async def resync(self) -> None:
        """List the store, and apply the differences to the cache as one batch."""
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
        # Clients resume after the last version they got, so versions must grow within the batch, too.
        events.sort(key=lambda event: event.entry.mod_revision if event.entry is not None else revision)
        events += (StoreEvent(key, revision, None, self._get_entry(key)) for key in sorted(missing))
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
                    # Resync in the loop: the store may not answer now, and that must not end the task.
                    gap = True
                except StoreError as error:
                    self._sync_error = f"the store cannot be followed: {error}"
                    await asyncio.sleep(RETRY_SECONDS)
        except BaseException as error:
            self._close(error)
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
        """The current state of an object; None when there is none."""
        return self._objects.get(build_key(kind, namespace, name))

    def get_by_key(self, key: bytes) -> StoredObject | None:
        """The current state of the object at a key; None when there is none."""
        return self._objects.get(key)

    def get_row(self, key: bytes) -> StoreEntry | None:
        """An entry that is no object, for example a row of the ledger."""
        return self._rows.get(key)

    def list_rows(self, prefix: bytes) -> list[StoreEntry]:
        """All rows under a prefix, ordered by key; this scans every row."""
        return [self._rows[key] for key in sorted(self._rows) if key.startswith(prefix)]

    def list_objects(
        self, kind: Kind, namespace: str = "", required: RequiredField | None = None
    ) -> list[StoredObject]:
        """All objects of a kind, or those in one namespace, ordered by key.

        Objects that do not have the `required` value are left out if the field has an index.
        """
        if required is not None and required.field in INDEXED_FIELDS:
            index = self._get_field_index(kind, required.field)
            selected = index.list_keys(required.value, build_prefix(kind, namespace))
            return [self._objects[key] for key in selected]
        keys = self._keys.get(build_kind_prefix(kind))
        if keys is None:
            return []
        return [self._objects[key] for key in keys.list_under(build_prefix(kind, namespace))]

    def _get_field_index(self, kind: Kind, field: str) -> FieldIndex:
        prefix = build_kind_prefix(kind)
        known = self._field_indexes.get(prefix, ())
        for index in known:
            if index.field == field:
                return index
        index = FieldIndex(field, read_field, self.list_objects(kind))
        self._field_indexes[prefix] = (*known, index)
        return index

    def copy_contents(self) -> tuple[int, dict[bytes, StoredObject | StoreEntry]]:
        """A copy of all entries, with their revision."""
        return self.revision, {**self._objects, **self._rows}

    def count(self, kind: Kind) -> int:
        """The number of objects of a kind."""
        keys = self._keys.get(build_kind_prefix(kind))
        return 0 if keys is None else len(keys.keys)

    def count_by_kind(self) -> Iterator[tuple[Kind, int]]:
        """The number of objects of each kind."""
        for kind in KINDS:
            keys = self._keys.get(build_kind_prefix(kind)) if kind.stored_as is None else None
            if keys is not None:
                yield kind, len(keys.keys)

    def add_listener(self, kind: Kind, listener: ChangeListener) -> None:
        """Call `listener` for every object of the kind, and for every later change."""
        self._listeners.setdefault(build_kind_prefix(kind), []).append(listener)
        for stored in self.list_objects(kind):
            listener(None, stored)

    async def wait_until_fresh(self) -> int:
        """Wait until the cache has every write that was acknowledged before; returns its revision."""
        current = await self._store.get_revision()
        await self.wait_for_revision(current)
        return max(self.revision, current)

    async def wait_for_revision(self, revision: int) -> None:
        """Wait until the cache has reached a revision."""
        if self._close_error is not None:
            raise self._close_error
        if self.revision >= revision:
            return
        loop = asyncio.get_running_loop()
        waiting: asyncio.Future[None] = loop.create_future()
        self._waiters.append((revision, waiting))
        timer = loop.call_later(WAIT_TIMEOUT_SECONDS, self._time_out, revision, waiting)
        try:
            await waiting
        finally:
            timer.cancel()

    def _time_out(self, revision: int, waiter: asyncio.Future[None]) -> None:
        if not waiter.done():
            why = self._sync_error or "the watch of the store delivers no changes"
            text = f"the cache is at revision {self.revision} and does not reach {revision}: {why}"
            waiter.set_exception(StoreError(text))

    @property
    def waiter_count(self) -> int:
        """The number of requests that wait for a revision."""
        return len(self._waiters)

    def watch(
        self, prefix: bytes, after: int, bookmarks: float | None, required: RequiredField | None = None
    ) -> AsyncGenerator[EventBatch, None]:
        """Watch the changes under a prefix after a revision; those in quick succession come as one batch.

        Most changes of objects that do not have a `required` value are left out.
        """
        history = _SelectedHistory(self, required)
        return self.hub.watch(history, prefix, after, bookmarks, coalesce=True, required=required)

    async def check_readable(self, revision: int) -> None:
        """Raise unless the changes after a revision can be read."""
        if revision > self.revision:
            raise FutureRevisionError(revision, self.revision)
        if revision < self._recent.start_revision:
            async with aclosing(self._store.watch(ROOT_PREFIX, revision, bookmarks=0.001)) as batches:
                await anext(batches)  # raises `CompactedError` when the revision is compacted

    async def read_events(
        self, prefix: bytes, after: int, up_to: int, required: RequiredField | None
    ) -> Sequence[EventBatch]:
        """Read the next batches of changes after a revision, without most of those that do not concern a
        watch with this requirement.
        """
        if after >= self._recent.start_revision:
            return [*self._recent.list_after(after, prefix, required), EventBatch(up_to)]
        batches: list[EventBatch] = []
        async with aclosing(self._store.watch(ROOT_PREFIX, after, bookmarks=1.0)) as older:
            async for batch in older:
                batches.append(filter_batch(batch, prefix))
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
        stored = self._objects.get(key)
        if stored is None:
            return self._rows.get(key)
        return StoreEntry(key, stored.value, 0, stored.revision, 0)

    def _apply_entry(self, key: bytes, entry: StoreEntry | None) -> None:
        # A newer server on the same store may have kinds that this one does not know.
        kind = parse_kind(key) if key.startswith(REGISTRY_PREFIX) else None
        if kind is None:
            self._put_row(key, entry)
            return
        new = None if entry is None else StoredObject(kind, entry.key, entry.value, entry.mod_revision)
        old = self._put_object(key, new)
        if new is not None or old is not None:
            for listener in self._listeners.get(build_kind_prefix(kind), ()):
                listener(old, new)

    def _put_object(self, key: bytes, new: StoredObject | None) -> StoredObject | None:
        """Replace an object without a call of the listeners; returns the one before."""
        old = self._objects.get(key)
        if new is not None:
            self._objects[key] = new
        elif old is not None:
            del self._objects[key]
        else:
            return None
        prefix = build_kind_prefix((new or old).kind)  # type: ignore[union-attr]
        if (old is None) != (new is None):
            self._keys.setdefault(prefix, KeyIndex()).update(key, present=new is not None)
        for index in self._field_indexes.get(prefix, ()):
            index.replace(old, new)
        return old

    @contextmanager
    def stage_writes(self) -> Iterator[Callable[[Write, int], None]]:
        """Show writes that are not committed yet, each at a revision, to the caller inside the block.

        The block must not suspend, so nobody else sees them; listeners and watchers are not called.
        """
        undo: list[tuple[bytes, StoredObject | StoreEntry | None]] = []

        def stage(write: Write, revision: int) -> None:
            key, value = write.key, write.value if type(write) is Put else None
            if key.startswith(REGISTRY_PREFIX):
                kind = parse_kind(key)
                assert kind is not None, key
                stored = None if value is None else StoredObject(kind, key, value, revision)
                undo.append((key, self._put_object(key, stored)))
            else:
                row = None if value is None else StoreEntry(key, value, 0, revision, 0)
                undo.append((key, self._put_row(key, row)))

        try:
            yield stage
        finally:
            for key, before in reversed(undo):
                if key.startswith(REGISTRY_PREFIX):
                    self._put_object(key, before if isinstance(before, StoredObject) else None)
                else:
                    self._put_row(key, before if isinstance(before, StoreEntry) else None)

    def _put_row(self, key: bytes, new: StoreEntry | None) -> StoreEntry | None:
        old = self._rows.pop(key, None)
        if new is not None:
            self._rows[key] = new
        return old

    def _wake_waiters(self) -> None:
        waiting, self._waiters = self._waiters, []
        for wanted, waiter in waiting:
            if waiter.done():
                continue  # the request was cancelled
            if wanted > self.revision:
                self._waiters.append((wanted, waiter))
            else:
                waiter.set_result(None)


class _SelectedHistory:
    """The history of the cache for one watch."""

    def __init__(self, cache: WatchCache, required: RequiredField | None) -> None:
        self._cache = cache
        self._required = required
        self.check_readable = cache.check_readable

    async def read_events(self, prefix: bytes, after: int, up_to: int) -> Sequence[EventBatch]:
        return await self._cache.read_events(prefix, after, up_to, self._required)


def _list_values(field: str, entry: StoreEntry) -> Sequence[str]:
    return list_values(field, entry, read_field)


def _get_kind_prefix(key: bytes) -> bytes:
    """The prefix of the kind of an object; empty for other keys."""
    if not key.startswith(REGISTRY_PREFIX):
        return b""
    kind = parse_kind(key)
    return b"" if kind is None else build_kind_prefix(kind)
