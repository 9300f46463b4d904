"""The work budget of an explanation: its limits in time and steps, and its pauses.

Theory of operation: an explanation is a generator that pauses now and then, for callers with other work. With
a clock it has a limit in seconds of work for each search and one for all together; pauses do not count. A
search that exceeds it is reported as given up, and untried hints are left out. Without a clock, the steps of
a search are limited.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator
from typing import Final, TypeVar

from dray.allocator.inventory.node_shapes import NodeShape
from dray.allocator.search.backtracking import STEP_BUDGET
from dray.allocator.search.resumable import UNLIMITED_STEPS, ResumableSearch, TimeLimit
from dray.allocator.search.trace import GaveUp, SearchEnding

T = TypeVar("T")
Steps = Generator[None, None, T]
"""A computation in small steps, for callers with other work in between."""

SLICE_SECONDS: Final = 0.01
"""Work between two pauses of a search."""
PAUSE_INTERVAL: Final = 128
"""Devices or nodes between two pauses."""


def run_to_end(steps: Steps[T]) -> T:
    """The result of a stepwise computation, run without pauses."""
    while True:
        try:
            next(steps)
        except StopIteration as ended:
            found: T = ended.value
            return found


def _find_nothing(_shape: NodeShape) -> GaveUp | None:
    return None


def _read_stopped_clock() -> float:
    return 0.0


class WorkBudget:
    """The work budget of one explanation.

    `find_given_up` returns the ending of a search that was given up already: it is not repeated.
    """

    def __init__(
        self,
        limit: TimeLimit | None = None,
        *,
        max_steps: int | None = None,
        find_given_up: Callable[[NodeShape], GaveUp | None] = _find_nothing,
    ) -> None:
        self.find_given_up = find_given_up
        self.max_steps = (
            (STEP_BUDGET if limit is None else UNLIMITED_STEPS) if max_steps is None else max_steps
        )
        self._clock = _read_stopped_clock if limit is None else limit.clock
        self._seconds_per_search = math.inf if limit is None else limit.per_search
        self._total_seconds = math.inf if limit is None else limit.total
        self._started_at: float | None = None

    @property
    def remaining_seconds(self) -> float:
        """Seconds of work that are left, counted from the first call."""
        if self._started_at is None:
            self._started_at = self._clock()
        return self._total_seconds - (self._clock() - self._started_at)

    def pause(self) -> Steps[None]:
        """Yield to the caller; that time does not count."""
        began = self._clock()
        yield
        if self._started_at is not None:
            self._started_at += self._clock() - began

    def run_search(self, search: ResumableSearch, max_seconds: float = math.inf) -> Steps[SearchEnding]:
        """Run a search to its end, or until its time or the total time is used up."""
        allowed = min(self._seconds_per_search, max_seconds, self.remaining_seconds)
        while (ending := search.advance(self._clock, SLICE_SECONDS)) is None and search.spent < allowed:
            yield from self.pause()
        return ending or search.give_up()
