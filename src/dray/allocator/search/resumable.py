"""Running searches: pause one, continue it later, and give it up when its time is over.

Theory of operation: `search` is a generator of events and knows no clock. A step of it takes between a few
microseconds and a fraction of a millisecond, so a number of steps says little about time. Whoever runs a
search brings a clock, and the clock is read after every event: a slice ends at most one event late. Between
two slices nothing runs, and only the work within slices is counted.

While events pass, the most devices that were found at once are noted, and where no further one was found.
That is what a search which was given up has to tell.

Rules for this file: the clock is an argument. What a search finds does not depend on how it is sliced.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain, islice
from typing import Final

import msgspec

from dray.allocator.inventory.device_inventory import NodeShape
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
"""Work that one search, which is one node shape, gets unless said otherwise."""
SHAPES_PER_QUERY: Final = 10
"""A question about many nodes gets so many times the work of one search: 10 s, the filter timeout of
Kubernetes."""
UNLIMITED_STEPS: Final = 2**62
"""Steps for a search that is limited by time."""

_FIRST_EVENTS: Final = 16
"""Events that are taken at once when a search begins: most searches have ended by then, and need no notes."""
_ENDINGS: Final = (Solved, Exhausted, GaveUp, Faulted)


class TimeLimit(msgspec.Struct, frozen=True):
    """How many seconds of work searches may take: each alone, and all for one question together."""

    clock: Clock
    per_search: float = SEARCH_SECONDS

    @property
    def total(self) -> float:
        """Seconds for a question about many nodes."""
        return self.per_search * SHAPES_PER_QUERY

    def limit_to(self, seconds: float) -> TimeLimit:
        """The limit of a search for which there are only so many seconds left."""
        return self if self.per_search <= seconds else TimeLimit(self.clock, seconds)


def start_search(
    allocation_request: AllocationRequest, shape: NodeShape, clock: Clock, budget: int = UNLIMITED_STEPS
) -> SearchEnding | ResumableSearch:
    """Begin a search: its ending when it comes at once, as it mostly does, or the search to continue."""
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
    """A search that is run slice by slice."""

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
        """The same when they were most."""
        self._deepest_dead_end: tuple[int, SearchPoint] | None = None
        """The dead end with most devices taken, and how many they were."""
        self.spent = 0.0
        """Seconds of work so far."""
        self.steps = 0
        """Devices taken and dead ends met so far."""
        self.ending: SearchEnding | None = None

    def advance(self, clock: Clock, seconds: float) -> SearchEnding | None:
        """Work for some seconds, at least for one event; how the search ended, or None while it has not."""
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
        """What there is to say when this search is not continued."""
        found = len(self._best_points)
        stuck = self._deepest_dead_end[1] if self._deepest_dead_end is not None else None
        return GaveUp(self.steps, self.spent, found, self._count_wanted(), stuck)

    def _record_event(self, event: TraceEvent) -> SearchEnding | None:
        """Keep what an event says about how far the search came; returns it when it is the last one."""
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
        """How many devices are asked for: by the alternatives that were tried when most were found, and by
        the smallest alternatives of the requests behind them."""
        tried = {point.choice.index: point.alternative for point in self._best_points}
        total = 0
        for choice in self._allocation_request.choices:
            wants = (tried[choice.index],) if choice.index in tried else choice.alternatives
            total += min(self._count_devices(want) for want in wants)
        return total

    def _count_devices(self, alternative: RequestAlternative) -> int:
        if not alternative.takes_all:
            return alternative.count
        # How many match is known once they were all judged; one at least, or there is no solution.
        return max(1, get_candidate_set(self._shape, alternative).matching.bit_count())
