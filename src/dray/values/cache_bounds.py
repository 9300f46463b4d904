"""Bounds of caches: how many entries a cache may have, and its owner.

Theory of operation: a long-running process may keep nothing that grows with what it has processed. A cache
either belongs to an object with an end (a node, a slice, a claim) and is freed with it, or it has a
`CacheBound`. A full cache evicts its oldest entries, an eighth at once: finding the oldest one at every
insertion would cost more than the entry, and clearing everything would make all callers recompute everything
at the same moment.

Rules for this file: a hit does not move the entry, so that it is one lookup in a plain dict.
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
        """`owner` is what the cache is a part of: it is freed with its owner."""
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
        """Evict the oldest entries of a full cache."""
        for key in list(islice(cache, len(cache) - self.max_entries + 1 + self.max_entries // 8)):
            cache.pop(key, None)
