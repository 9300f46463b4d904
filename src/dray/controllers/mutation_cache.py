"""The mutation cache: objects as this process last wrote or read them, until the informer has caught up.

Theory of operation: an informer is always a little behind. A controller that decides by it alone repeats what
it did a moment ago: it creates a claim twice, or releases what is released. So the response to every write
and direct read is laid over the informer, and dropped when the informer shows that version or a later one. An
object that is known to be deleted is laid over as absent, as long as the informer still shows it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Any, Final, Generic, NamedTuple, TypeVar

from dray.client.informers.informer import Informer
from dray.client.object_refs import ObjectKey, get_identity, parse_resource_version

T = TypeVar("T")

SWEEP_SIZE: Final = 2_000
"""With so many entries the cache drops those that are obsolete and were never looked up."""


class _CachedMutation(NamedTuple):
    object: Any
    """None: the object with this uid is deleted."""
    version: int
    uid: str


class MutationCache(Generic[T]):
    """The objects of an informer, overlaid with newer versions."""

    def __init__(
        self,
        kind: type[Any],
        informer: Informer[T],
        index: str = "",
        index_func: Callable[[T], Iterable[Hashable]] | None = None,
    ) -> None:
        self.kind = kind
        self.informer = informer
        self._entries: dict[ObjectKey, _CachedMutation] = {}
        self._index, self._index_func = index, index_func
        self._keys_by_value: dict[Hashable, set[ObjectKey]] = {}
        self._sweep_at = SWEEP_SIZE
        informer.listen(self._on_updated, lambda _old, new: self._on_updated(new), self._on_deleted)

    def __len__(self) -> int:
        return len(self._entries)

    def put(self, obj: T) -> None:
        """Take over the newest version of an object."""
        key, uid, version = get_identity(obj)
        number = parse_resource_version(version)
        known = self._entries.get(key)
        if known is not None and known.version > number:
            return
        self._drop(key)
        self._entries[key] = _CachedMutation(obj, number, uid)
        for value in self._iterate_index_values(obj):
            self._keys_by_value.setdefault(value, set()).add(key)
        if len(self._entries) > self._sweep_at:
            self._sweep()

    def remove(self, obj: T) -> None:
        """Take over that an object is deleted."""
        key, uid, version = get_identity(obj)
        self._drop(key)
        if self._is_in_informer(key, uid):
            self._entries[key] = _CachedMutation(None, parse_resource_version(version), uid)

    def get(self, namespace: str, name: str) -> T | None:
        """Return the newest known version of an object."""
        key = ObjectKey(namespace, name)
        if key in self._entries:
            entry = self._get_current(key)
            if entry is not None:
                newest: T | None = entry.object
                return newest
        return self.informer.get(name, namespace)

    def get_by_index(self, value: Hashable) -> list[T]:
        """Return the objects for which the index gives this value."""
        found = self.informer.get_by_index(self._index, value)
        if not self._entries:
            return found
        keys = dict.fromkeys(get_identity(obj).key for obj in found) | dict.fromkeys(
            self._keys_by_value.get(value, ())
        )
        newest = (self.get(*key) for key in keys)
        return [obj for obj in newest if obj is not None and value in self._iterate_index_values(obj)]

    def _iterate_index_values(self, obj: T) -> Iterator[Hashable]:
        if self._index_func is not None:
            yield from self._index_func(obj)

    def _get_current(self, key: ObjectKey) -> _CachedMutation | None:
        """Return the entry of a key, unless the informer has caught up."""
        entry = self._entries[key]
        if entry.object is None:
            obsolete = not self._is_in_informer(key, entry.uid)
        else:
            obsolete = parse_resource_version(self.informer.resource_version) >= entry.version
        if obsolete:
            self._drop(key)
            return None
        return entry

    def _is_in_informer(self, key: ObjectKey, uid: str) -> bool:
        shown = self.informer.get(key.name, key.namespace)
        return shown is not None and get_identity(shown).uid == uid

    def _on_updated(self, obj: T) -> None:
        key, uid, version = get_identity(obj)
        entry = self._entries.get(key)
        if entry is None or (entry.object is None and entry.uid == uid):
            return
        if parse_resource_version(version) >= entry.version:
            self._drop(key)

    def _on_deleted(self, obj: T) -> None:
        key, uid, _ = get_identity(obj)
        entry = self._entries.get(key)
        if entry is not None and entry.uid == uid:
            self._drop(key)

    def _drop(self, key: ObjectKey) -> None:
        entry = self._entries.pop(key, None)
        if entry is None or entry.object is None:
            return
        for value in self._iterate_index_values(entry.object):
            there = self._keys_by_value.get(value)
            if there is not None:
                there.discard(key)
                if not there:
                    del self._keys_by_value[value]

    def _sweep(self) -> None:
        for key in list(self._entries):
            self._get_current(key)
        self._sweep_at = max(SWEEP_SIZE, 2 * len(self._entries))
