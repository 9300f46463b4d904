"""Resumable searches: paused, continued later, and given up when their time is over.

Theory of operation: `search` is a generator of events without a clock. A step takes between a few
microseconds and a fraction of a millisecond, so a number of steps tells little about time. The caller that
runs a search brings a clock, which is read after every event: a slice ends at most one event late. Between
two slices nothing runs, and only the work within slices counts.

While events pass, the search notes the largest number of devices found at once, and the point where no
further one was found. A search that is given up reports both.

The clock is an argument. What a search finds does not depend on how it is sliced.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain, islice
from typing import Final

import msgspec

from dray.allocator.inventory.node_shapes import NodeShape
from dray.allocator.requests import AllocationRequest, RequestAlternative
from dray.allocator.search.backtracking import search
from dray.allocator.search.candidates import get_candidate_set
from dray.allocator.search.trace import (
    CandidateTaken,
    DeadEnd,
    Exhausted,
    Faulted,
    GaveUp,
    SearchEnding,
    SearchPoint,
    Solved,
    TraceEvent,
)

Clock = Callable[[], float]
"""Seconds that only go forward."""

SEARCH_SECONDS: Final = 1.0
"""Default seconds of work for one search, which is one node shape."""
SHAPES_PER_QUERY: Final = 10
"""A query about many nodes gets this many times the work of one search: 10 s, the filter timeout of
Kubernetes."""
UNLIMITED_STEPS: Final = 2**62
"""Steps for a search that is limited by time."""

_FIRST_EVENTS: Final = 16
"""Events that are read at once when a search starts: most searches end within them."""
_ENDINGS: Final = (Solved, Exhausted, GaveUp, Faulted)


class TimeLimit(msgspec.Struct, frozen=True):
    """Seconds of work that searches may take: each alone, and all for one query together."""

    clock: Clock
    per_search: float = SEARCH_SECONDS

    @property
    def total(self) -> float:
        """Seconds for a query about many nodes."""
        return self.per_search * SHAPES_PER_QUERY

    def limit_to(self, seconds: float) -> TimeLimit:
        """The limit of a search for which there are only so many seconds left."""
        return self if self.per_search <= seconds else TimeLimit(self.clock, seconds)


def start_search(
    allocation_request: AllocationRequest, shape: NodeShape, clock: Clock, budget: int = UNLIMITED_STEPS
) -> SearchEnding | ResumableSearch:
    """Start a search; returns its ending if it ends at once, as most do, or the search to continue."""
    began = clock()
    events = iter(search(allocation_request, shape, budget))
    first = list(islice(events, _FIRST_EVENTS))
    last = first[-1]
    if isinstance(last, _ENDINGS) and not isinstance(last, GaveUp):
        return last
    running = ResumableSearch(allocation_request, shape, chain(first, events))
    running.spent = clock() - began
    return running


class ResumableSearch:
    """A search that runs slice by slice."""

    __slots__ = (
        "_allocation_request",
        "_best_points",
        "_deepest_dead_end",
        "_events",
        "_shape",
        "_stack",
        "ending",
        "spent",
        "steps",
    )

    def __init__(
        self, allocation_request: AllocationRequest, shape: NodeShape, events: Iterator[TraceEvent]
    ) -> None:
        self._allocation_request = allocation_request
        self._shape = shape
        self._events = events
        self._stack: list[SearchPoint] = []
        """The points of the devices that are taken now."""
        self._best_points: tuple[SearchPoint, ...] = ()
        """The same when there were most of them."""
        self._deepest_dead_end: tuple[int, SearchPoint] | None = None
        """The dead end with most devices taken, and how many they were."""
        self.spent = 0.0
        """Seconds of work so far."""
        self.steps = 0
        """Devices taken and dead ends met so far."""
        self.ending: SearchEnding | None = None

    def advance(self, clock: Clock, seconds: float) -> SearchEnding | None:
        """Run for some seconds, at least for one event; the ending, or None before the end."""
        ending = self.ending
        if ending is not None:
            return ending
        began = now = clock()
        until = began + seconds
        for event in self._events:
            ending = self._record_event(event)
            now = clock()
            if ending is not None or now >= until:
                break
        self.spent += now - began
        self.ending = self.give_up() if isinstance(ending, GaveUp) else ending
        return self.ending

    def give_up(self) -> GaveUp:
        """The ending of a search that is not continued, with how far it got."""
        found = len(self._best_points)
        stuck = self._deepest_dead_end[1] if self._deepest_dead_end is not None else None
        return GaveUp(self.steps, self.spent, found, self._count_wanted(), stuck)

    def _record_event(self, event: TraceEvent) -> SearchEnding | None:
        """Note how far the search got; returns the event if it is the ending."""
        if isinstance(event, CandidateTaken):
            self.steps += 1
            self._discard_from(event.pick.point)
            self._stack.append(event.pick.point)
            if len(self._stack) > len(self._best_points):
                self._best_points = tuple(self._stack)
        elif isinstance(event, DeadEnd):
            self.steps += 1
            self._discard_from(event.point)
            if self._deepest_dead_end is None or len(self._stack) > self._deepest_dead_end[0]:
                self._deepest_dead_end = (len(self._stack), event.point)
        elif isinstance(event, _ENDINGS):
            return event
        return None

    def _discard_from(self, point: SearchPoint) -> None:
        """Forget the devices taken at a point and behind it."""
        stack, index, nth = self._stack, point.choice.index, point.device_index
        while stack:
            last = stack[-1]
            if last.choice.index < index or (last.choice.index == index and last.device_index < nth):
                return
            stack.pop()

    def _count_wanted(self) -> int:
        """How many devices are requested: by the alternatives that were tried when most were found, and by
        the smallest alternatives of the requests behind them."""
        tried = {point.choice.index: point.alternative for point in self._best_points}
        total = 0
        for choice in self._allocation_request.choices:
            alternatives = (tried[choice.index],) if choice.index in tried else choice.alternatives
            total += min(self._count_devices(alternative) for alternative in alternatives)
        return total

    def _count_devices(self, alternative: RequestAlternative) -> int:
        if not alternative.takes_all:
            return alternative.count
        # How many match is known once all were evaluated; at least one, or there is no solution.
        return max(1, get_candidate_set(self._shape, alternative).matching.bit_count())
