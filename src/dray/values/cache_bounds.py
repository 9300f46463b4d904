"""Bounds of caches: how many entries one may have, and whose cache it is.

Theory of operation: a process that runs for months may keep nothing that grows with what it has seen. A
cache either belongs to something that goes away (a node, a slice, a claim) and goes with it, or it has a
`CacheBound`. A full cache forgets its oldest entries, an eighth at once: to look for the oldest one at every
insertion would cost more than the entry, and to forget everything would make all callers compute everything
again at the same moment.

Rules for this file: entries that are found are not moved, so that a hit is one lookup in a plain dict.
"""

from __future__ import annotations

from itertools import islice
from typing import Final, TypeVar

K = TypeVar("K")
V = TypeVar("V")

CACHE_BOUNDS: Final[dict[str, CacheBound]] = {}
"""Every bound by its name; each is a constant of a module."""


class CacheBound:
    """The bound of one cache, or of many caches of one kind."""

    __slots__ = ("max_entries", "name", "owner")

    def __init__(self, name: str, max_entries: int, owner: str) -> None:
        """`owner` says what the cache is a part of: it is forgotten with its owner."""
        if max_entries < 1:
            raise ValueError(f"the bound of `{name}` must be at least 1, got {max_entries}")
        if name in CACHE_BOUNDS:
            raise ValueError(f"there is a bound `{name}` already")
        self.name = name
        self.max_entries = max_entries
        self.owner = owner
        CACHE_BOUNDS[name] = self

    def put(self, cache: dict[K, V], key: K, value: V) -> V:
        """Put a new entry into a cache of this kind, and return its value."""
        if len(cache) >= self.max_entries:
            self.evict_oldest(cache)
        cache[key] = value
        return value

    def evict_oldest(self, cache: dict[K, V]) -> None:
        """Forget the oldest entries of a full cache."""
        for key in list(islice(cache, len(cache) - self.max_entries + 1 + self.max_entries // 8)):
            cache.pop(key, None)
