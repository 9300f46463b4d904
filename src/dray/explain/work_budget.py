"""How much work an explanation may be, and in how small pieces it is done.

Theory of operation: an explanation is a generator that pauses now and then, for those who have other things
to do in between. With a clock it also has a limit: so many seconds of work for each search and ten times as
much for everything together, pauses not counted. What is not known by then is told as given up, and hints
that were not tried are left out. Without a clock a search may take so many steps.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator
from typing import Final, TypeVar

from dray.allocator.inventory.device_inventory import Shape
from dray.allocator.search.backtracking import BUDGET
from dray.allocator.search.resumable import NO_BUDGET, RunningSearch, TimeLimit
from dray.allocator.search.trace import Ending, GaveUp

T = TypeVar("T")
Steps = Generator[None, None, T]
"""Something on its way, for those who have other things to do in between."""

SLICE_SECONDS: Final = 0.01
"""Work between two pauses of a search."""
PORTION: Final = 128
"""Devices or nodes that are looked at between two pauses."""


def at_once(steps: Steps[T]) -> T:
    """What steps lead to, without a pause."""
    while True:
        try:
            next(steps)
        except StopIteration as ended:
            found: T = ended.value
            return found


def _nothing_known(_shape: Shape) -> GaveUp | None:
    return None


def _stopped() -> float:
    return 0.0


class Effort:
    """The work of one explanation.

    `given_up` tells of searches that were given up already: they are not made again.
    """

    def __init__(
        self,
        limit: TimeLimit | None = None,
        *,
        budget: int | None = None,
        given_up: Callable[[Shape], GaveUp | None] = _nothing_known,
    ) -> None:
        self.given_up = given_up
        self.budget = (BUDGET if limit is None else NO_BUDGET) if budget is None else budget
        self._clock = _stopped if limit is None else limit.clock
        self._per_search = math.inf if limit is None else limit.per_search
        self._total = math.inf if limit is None else limit.total
        self._began: float | None = None

    @property
    def left(self) -> float:
        """Seconds of work that are left; counted from when somebody first asks."""
        if self._began is None:
            self._began = self._clock()
        return self._total - (self._clock() - self._began)

    def pause(self) -> Steps[None]:
        """Let others work; that time does not count."""
        began = self._clock()
        yield
        if self._began is not None:
            self._began += self._clock() - began

    def run(self, running: RunningSearch, most: float = math.inf) -> Steps[Ending]:
        """Run a search to its end, or until it has used up its time or what is left of all time."""
        allowed = min(self._per_search, most, self.left)
        while (ending := running.advance(self._clock, SLICE_SECONDS)) is None and running.spent < allowed:
            yield from self.pause()
        return ending or running.give_up()
