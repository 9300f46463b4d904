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

from dray.allocator.inventory.device_inventory import Shape
from dray.allocator.requests import Ask, Want
from dray.allocator.search.backtracking import search
from dray.allocator.search.candidates import options_of
from dray.allocator.search.trace import Beat, DeadEnd, Ending, Exhausted, Faulted, GaveUp, Point, Solved, Took

Clock = Callable[[], float]
"""Seconds that only go forward."""

SEARCH_SECONDS: Final = 1.0
"""Work that one search, which is one node shape, gets unless said otherwise."""
SHAPES_PER_QUESTION: Final = 10
"""A question about many nodes gets so many times the work of one search: 10 s, the filter timeout of
Kubernetes."""
NO_BUDGET: Final = 2**62
"""Steps for a search that is limited by time."""

_FEW: Final = 16
"""Events that are taken at once when a search begins: most searches have ended by then, and need no notes."""
_ENDINGS: Final = (Solved, Exhausted, GaveUp, Faulted)


class TimeLimit(msgspec.Struct, frozen=True):
    """How many seconds of work searches may take: each alone, and all for one question together."""

    clock: Clock
    per_search: float = SEARCH_SECONDS

    @property
    def total(self) -> float:
        """Seconds for a question about many nodes."""
        return self.per_search * SHAPES_PER_QUESTION

    def at_most(self, seconds: float) -> TimeLimit:
        """The limit of a search for which there are only so many seconds left."""
        return self if self.per_search <= seconds else TimeLimit(self.clock, seconds)


def begin(ask: Ask, shape: Shape, clock: Clock, budget: int = NO_BUDGET) -> Ending | RunningSearch:
    """Begin a search: its ending when it comes at once, as it mostly does, or the search to continue."""
    began = clock()
    events = iter(search(ask, shape, budget))
    first = list(islice(events, _FEW))
    last = first[-1]
    if isinstance(last, _ENDINGS) and not isinstance(last, GaveUp):
        return last
    running = RunningSearch(ask, shape, chain(first, events))
    running.spent = clock() - began
    return running


class RunningSearch:
    """A search that is run slice by slice."""

    __slots__ = ("_ask", "_best", "_events", "_shape", "_stack", "_stuck", "ending", "spent", "steps")

    def __init__(self, ask: Ask, shape: Shape, events: Iterator[Beat]) -> None:
        self._ask = ask
        self._shape = shape
        self._events = events
        self._stack: list[Point] = []
        """The points of the devices that are taken now."""
        self._best: tuple[Point, ...] = ()
        """The same when they were most."""
        self._stuck: tuple[int, Point] | None = None
        """The dead end with most devices taken, and how many they were."""
        self.spent = 0.0
        """Seconds of work so far."""
        self.steps = 0
        """Devices taken and dead ends met so far."""
        self.ending: Ending | None = None

    def advance(self, clock: Clock, seconds: float) -> Ending | None:
        """Work for some seconds, at least for one event; how the search ended, or None while it has not."""
        ending = self.ending
        if ending is not None:
            return ending
        began = now = clock()
        until = began + seconds
        for event in self._events:
            ending = self._note(event)
            now = clock()
            if ending is not None or now >= until:
                break
        self.spent += now - began
        self.ending = self.give_up() if isinstance(ending, GaveUp) else ending
        return self.ending

    def give_up(self) -> GaveUp:
        """What there is to say when this search is not continued."""
        found = len(self._best)
        stuck = self._stuck[1] if self._stuck is not None else None
        return GaveUp(self.steps, self.spent, found, self._wanted(), stuck)

    def _note(self, event: Beat) -> Ending | None:
        """Keep what an event says about how far the search came; returns it when it is the last one."""
        if isinstance(event, Took):
            self.steps += 1
            self._undo(event.pick.point)
            self._stack.append(event.pick.point)
            if len(self._stack) > len(self._best):
                self._best = tuple(self._stack)
        elif isinstance(event, DeadEnd):
            self.steps += 1
            self._undo(event.point)
            if self._stuck is None or len(self._stack) > self._stuck[0]:
                self._stuck = (len(self._stack), event.point)
        elif isinstance(event, _ENDINGS):
            return event
        return None

    def _undo(self, point: Point) -> None:
        """Forget the devices taken at a point and behind it."""
        stack, index, nth = self._stack, point.choice.index, point.nth
        while stack:
            last = stack[-1]
            if last.choice.index < index or (last.choice.index == index and last.nth < nth):
                return
            stack.pop()

    def _wanted(self) -> int:
        """How many devices are asked for: by the alternatives that were tried when most were found, and by
        the smallest alternatives of the requests behind them."""
        tried = {point.choice.index: point.want for point in self._best}
        total = 0
        for choice in self._ask.choices:
            wants = (tried[choice.index],) if choice.index in tried else choice.wants
            total += min(self._count(want) for want in wants)
        return total

    def _count(self, want: Want) -> int:
        if not want.wants_all:
            return want.count
        # How many match is known once they were all judged; one at least, or there is no solution.
        return max(1, options_of(self._shape, want).suiting.bit_count())
