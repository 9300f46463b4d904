"""The partial solution, and the way back.

Theory of operation: a search is a walk that must be able to retrace its steps. Every fact the walk
establishes (a device taken, a counter lowered, a value pinned) is one entry in `facts`, and `set_fact` is
the only way to set one. `set_fact` first notes the old value on the trail. `mark` is a place on the trail;
`rewind` walks back to it.

Rules for this file: nothing here knows why a candidate is refused (see checks/), what a gate is (see
admit), or what time it is.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

Fact = Hashable

_ABSENT: Any = object()

USED_DEVICES = "used"
"""Mask of candidates taken in this attempt, whoever took them."""


class PartialSolution:
    """Facts with a trail."""

    __slots__ = ("facts", "undo_log")

    def __init__(self) -> None:
        self.facts: dict[Fact, Any] = {}
        self.undo_log: list[tuple[Fact, Any]] = []

    def set_fact(self, fact: Fact, value: Any) -> None:
        """Establish a fact; the old one is noted on the trail."""
        self.undo_log.append((fact, self.facts.get(fact, _ABSENT)))
        self.facts[fact] = value

    def mark(self) -> int:
        """The place on the trail to come back to."""
        return len(self.undo_log)

    def rewind(self, mark: int) -> None:
        """Undo every fact established since a mark, last first."""
        facts, trail = self.facts, self.undo_log
        while len(trail) > mark:
            fact, old = trail.pop()
            if old is _ABSENT:
                del facts[fact]
            else:
                facts[fact] = old

    def freeze(self) -> frozenset[tuple[Fact, Any]]:
        """All facts as one value: two walks with the same image stand at the same place."""
        return frozenset(self.facts.items())
