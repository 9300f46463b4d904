"""Objects as we last wrote or read them ourselves, until the informer has come as far.

Theory of operation: an informer is always a little behind. Whoever decides by it alone decides again what it
did a moment ago: makes a claim twice, releases what is released. So the answer to every write and direct read
is laid over the informer, and is taken away when the informer shows that version or a later one. An object
that we saw to be gone is laid over as absent, as long as the informer still shows it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Any, Final, Generic, NamedTuple, TypeVar

from dray.client.informers.informer import Informer
from dray.client.object_refs import Key, stamp_of

T = TypeVar("T")

SWEEP: Final = 2_000
"""With so many entries it is worth looking for those that are obsolete and were never asked for."""


class _Entry(NamedTuple):
    object: Any
    """None: there is none of this uid any more."""
    version: int
    uid: str


class Recent(Generic[T]):
    """The objects of an informer, with our own knowledge laid over them."""

    def __init__(
        self,
        kind: type[Any],
        informer: Informer[T],
        index: str = "",
        values_of: Callable[[T], Iterable[Hashable]] | None = None,
    ) -> None:
        self.kind = kind
        self.informer = informer
        self._entries: dict[Key, _Entry] = {}
        self._index, self._values_of = index, values_of
        self._by_value: dict[Hashable, set[Key]] = {}
        self._sweep_at = SWEEP
        informer.listen(self._saw, lambda _old, new: self._saw(new), self._went)

    def __len__(self) -> int:
        return len(self._entries)

    def put(self, obj: T) -> None:
        """This is what the server has, as far as we know."""
        key, uid, version = stamp_of(obj)
        number = _number(version)
        known = self._entries.get(key)
        if known is not None and known.version > number:
            return
        self._drop(key)
        self._entries[key] = _Entry(obj, number, uid)
        for value in self._values(obj):
            self._by_value.setdefault(value, set()).add(key)
        if len(self._entries) > self._sweep_at:
            self._sweep()

    def remove(self, obj: T) -> None:
        """This object is gone."""
        key, uid, version = stamp_of(obj)
        self._drop(key)
        if self._shows(key, uid):
            self._entries[key] = _Entry(None, _number(version), uid)

    def get(self, namespace: str, name: str) -> T | None:
        """The newest we know of an object."""
        key = Key(namespace, name)
        if key in self._entries:
            entry = self._current(key)
            if entry is not None:
                newest: T | None = entry.object
                return newest
        return self.informer.get(name, namespace)

    def at(self, value: Hashable) -> list[T]:
        """The objects for which the index gives this value."""
        found = self.informer.by_index(self._index, value)
        if not self._entries:
            return found
        keys = dict.fromkeys(stamp_of(obj).key for obj in found) | dict.fromkeys(
            self._by_value.get(value, ())
        )
        newest = (self.get(*key) for key in keys)
        return [obj for obj in newest if obj is not None and value in self._values(obj)]

    def _values(self, obj: T) -> Iterator[Hashable]:
        if self._values_of is not None:
            yield from self._values_of(obj)

    def _current(self, key: Key) -> _Entry | None:
        """What is laid over a key, unless the informer has come as far."""
        entry = self._entries[key]
        if entry.object is None:
            obsolete = not self._shows(key, entry.uid)
        else:
            obsolete = _number(self.informer.resource_version) >= entry.version
        if obsolete:
            self._drop(key)
            return None
        return entry

    def _shows(self, key: Key, uid: str) -> bool:
        shown = self.informer.get(key.name, key.namespace)
        return shown is not None and stamp_of(shown).uid == uid

    def _saw(self, obj: T) -> None:
        key, uid, version = stamp_of(obj)
        entry = self._entries.get(key)
        if entry is None or (entry.object is None and entry.uid == uid):
            return
        if _number(version) >= entry.version:
            self._drop(key)

    def _went(self, obj: T) -> None:
        key, uid, _ = stamp_of(obj)
        entry = self._entries.get(key)
        if entry is not None and entry.uid == uid:
            self._drop(key)

    def _drop(self, key: Key) -> None:
        entry = self._entries.pop(key, None)
        if entry is None or entry.object is None:
            return
        for value in self._values(entry.object):
            there = self._by_value.get(value)
            if there is not None:
                there.discard(key)
                if not there:
                    del self._by_value[value]

    def _sweep(self) -> None:
        for key in list(self._entries):
            self._current(key)
        self._sweep_at = max(SWEEP, 2 * len(self._entries))


def _number(version: str) -> int:
    return int(version) if version.isascii() and version.isdigit() else -1
