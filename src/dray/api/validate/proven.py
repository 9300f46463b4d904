"""Values that were found sound before, and need not be looked at again.

Theory of operation: objects repeat themselves. A driver publishes the same attributes with every generation
of a slice, and every claim of a template asks for the same. A rule that looks at nothing but one value gives
the same answer each time, so a yes can be remembered. A no is not: it needs a path, and it is rare.

The memory is bounded by starting again when it is full, which costs one slow round and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Final, Generic, TypeVar

T = TypeVar("T")

REMEMBERED: Final = 8192
"""How many values of one kind are remembered."""


class Proven(Generic[T]):
    """Sound values of one kind."""

    __slots__ = ("_known", "_most")

    def __init__(self, most: int = REMEMBERED) -> None:
        self._known: set[T] = set()
        self._most = most

    def __contains__(self, value: object) -> bool:
        return value in self._known

    def __len__(self) -> int:
        return len(self._known)

    def add(self, values: Collection[T]) -> None:
        """Remember values that were found sound."""
        if len(self._known) + len(values) > self._most:
            self._known.clear()
        self._known.update(values)

    def unknown(self, values: Iterable[T]) -> set[T]:
        """Those of the values that are not remembered; they are walked twice when there are any."""
        # The common case is this one call into C.
        return set() if self._known.issuperset(values) else set(values) - self._known

    def covers(self, values: Iterable[T], is_sound: Callable[[T], bool]) -> bool:
        """Whether all values are sound; only those that are not remembered are looked at, each once."""
        fresh = self.unknown(values)
        if not all(map(is_sound, fresh)):
            return False
        if fresh:
            self.add(fresh)
        return True
