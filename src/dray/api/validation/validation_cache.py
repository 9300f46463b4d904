"""Cache of values that were found valid and need not be checked again.

Theory of operation: objects repeat themselves. A driver publishes the same attributes with every generation
of a slice, and every claim of a template has the same requests. A rule that reads nothing but one value gives
the same result each time, so a positive result can be cached. A negative one is not: it needs a path, and it
is rare.

The cache is bounded: values that were not used since half of it was filled anew are evicted. Values in
constant use stay, however many other values pass through.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from itertools import islice
from typing import Generic, TypeVar

from dray.values.cache_bounds import CacheBound

T = TypeVar("T")


class ValidValueCache(Generic[T]):
    """Valid values of one kind."""

    __slots__ = ("_known", "_most", "_older")

    def __init__(self, bound: CacheBound) -> None:
        self._known: set[T] = set()
        self._older: set[T] = set()
        self._most = bound.max_entries

    def __contains__(self, value: object) -> bool:
        return value in self._known or value in self._older

    def __len__(self) -> int:
        return len(self._known | self._older)

    def add(self, values: Collection[T]) -> None:
        """Add values that were found valid."""
        if len(self._known) + len(values) > self._most // 2:
            self._known, self._older = set(), self._known
        self._known.update(islice(values, self._most // 2))

    def filter_unknown(self, values: Iterable[T]) -> set[T]:
        """Return those of the values that are not cached; they are iterated twice when there are any."""
        # The common case is this one call into C.
        if self._known.issuperset(values):
            return set()
        unknown = set(values) - self._known
        reused = unknown & self._older
        if reused:
            self.add(reused)
            unknown -= reused
        return unknown

    def are_all_valid(self, values: Iterable[T], is_valid: Callable[[T], bool]) -> bool:
        """Whether all values are valid; only those that are not cached are checked, each once."""
        unknown = self.filter_unknown(values)
        if not all(map(is_valid, unknown)):
            return False
        if unknown:
            self.add(unknown)
        return True
