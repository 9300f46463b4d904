"""The indexer: objects of one kind as an informer last saw them, with indexes and listeners.

Rules for this file: no method awaits. Listeners are called in the order of the changes, after the indexer
shows them; their exceptions are not caught.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import msgspec

from dray.client.object_refs import ObjectKey

T = TypeVar("T")


class IndexedObject(msgspec.Struct, frozen=True, gc=False):
    """An object with its version and uid."""

    object: Any
    version: int
    uid: str


@dataclass(frozen=True, slots=True)
class ObjectListener(Generic[T]):
    """Callbacks for changes; each is optional."""

    added: Callable[[T], None] | None = None
    updated: Callable[[T, T], None] | None = None
    deleted: Callable[[T], None] | None = None


class ObjectIndex:
    """Objects by the values of an index function."""

    def __init__(self, index_func: Callable[[Any], Iterable[Hashable]]) -> None:
        self._index_func = index_func
        self._objects_by_value: dict[Hashable, dict[ObjectKey, Any]] = {}

    def replace(self, key: ObjectKey, old: Any | None, new: Any | None) -> None:
        now = tuple(self._index_func(new)) if new is not None else ()
        before = tuple(self._index_func(old)) if old is not None else ()
        if now == before:  # most changes
            for value in now:
                self._objects_by_value[value][key] = new
            return
        for value in before:
            by_key = None if value in now else self._objects_by_value.get(value)
            if by_key is not None:  # an index function may yield a value twice
                by_key.pop(key, None)
                if not by_key:
                    del self._objects_by_value[value]
        for value in now:
            self._objects_by_value.setdefault(value, {})[key] = new

    def get_objects(self, value: Hashable) -> list[Any]:
        return list(self._objects_by_value.get(value, {}).values())


class Indexer(Generic[T]):
    """Objects by key, their indexes and listeners."""

    def __init__(self) -> None:
        self.objects: dict[ObjectKey, IndexedObject] = {}
        self.synced = asyncio.Event()
        """Set when all objects were seen once."""
        self.is_replacing = False
        """Whether listeners are being called with the differences to a list."""
        self._indexes: dict[str, ObjectIndex] = {}
        self._listeners: list[ObjectListener[T]] = []

    def add_index(self, name: str, index_func: Callable[[T], Iterable[Hashable]]) -> None:
        """Add an index."""
        if name in self._indexes:
            raise ValueError(f"there is an index `{name}` already")
        index = self._indexes[name] = ObjectIndex(index_func)
        for key, seen in self.objects.items():
            index.replace(key, None, seen.object)

    def get_by_index(self, name: str, value: Hashable) -> list[T]:
        """Return the objects with this value in the named index."""
        try:
            return self._indexes[name].get_objects(value)
        except KeyError:
            known = ", ".join(f"`{known}`" for known in self._indexes) or "none"
            raise KeyError(f"there is no index `{name}`; there are: {known}") from None

    def listen(self, listener: ObjectListener[T]) -> Callable[[], None]:
        """Call the listener for every existing object and for every change; the result removes it."""
        self._listeners = [*self._listeners, listener]
        if listener.added is not None:
            for seen in list(self.objects.values()):
                listener.added(seen.object)

        def stop() -> None:
            self._listeners = [known for known in self._listeners if known is not listener]

        return stop

    def put(self, key: ObjectKey, new: IndexedObject) -> None:
        """Add or change an object. Another uid under the same key is another object."""
        old = self.objects.get(key)
        if old is not None and old.uid != new.uid:
            self.remove(key)
            old = None
        self.objects[key] = new
        before = None if old is None else old.object
        if self._indexes:
            for index in self._indexes.values():
                index.replace(key, before, new.object)
        for listener in self._listeners:
            if before is None:
                if listener.added is not None:
                    listener.added(new.object)
            elif listener.updated is not None:
                listener.updated(before, new.object)

    def remove(self, key: ObjectKey) -> None:
        """Remove an object."""
        old = self.objects.pop(key, None)
        if old is None:
            return
        for index in self._indexes.values():
            index.replace(key, old.object, None)
        for listener in self._listeners:
            if listener.deleted is not None:
                listener.deleted(old.object)

    def replace(self, now: Mapping[ObjectKey, IndexedObject]) -> None:
        """Replace all objects: notify of removals, additions and changes."""
        self.is_replacing = True
        try:
            self._replace(now)
        finally:
            self.is_replacing = False
        self.synced.set()

    def _replace(self, now: Mapping[ObjectKey, IndexedObject]) -> None:
        for key in [key for key in self.objects if key not in now]:
            self.remove(key)
        for key, new in now.items():
            old = self.objects.get(key)
            if old is None or old.version != new.version or old.uid != new.uid:
                self.put(key, new)
