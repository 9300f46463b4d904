"""Device searches of a scheduler: results per query and node shape, running searches, and given-up ones.

Theory of operation: a *query* is what pods of one kind ask for. How its search ends on a shape depends on
both alone, so the ending holds in every snapshot and is cached. A long search runs in slices. One decision
works on searches for `decision_seconds` seconds, and for a third of that on any one of them; shapes that are
not done by then are scheduled, and the caller of `run_next` continues them. Queries take turns. Within a
query the shape with the least work comes next, and runs until it had twice as much. So a hard shape does not
keep a pod from an easy one, and a search that could not be kept costs the same work again at most.

A search gets `limit.per_search` seconds of work in the first attempt of a pod and twice as much with every
further one, up to `MAX_TIME_FACTOR` times. Then it is given up. The give-up is cached with its seconds, so
its cost is paid once: it is the answer until an attempt has more time, and then the search continues where it
stopped, unless too many others stopped since (`RUNNING_SEARCHES`).

A search is scheduled only while a pod waits for it; see `forget_query`.
"""

from __future__ import annotations

import math
from collections import Counter, OrderedDict
from dataclasses import dataclass, field
from typing import Final

from dray.allocator.inventory.node_shapes import NodeShape
from dray.allocator.requests import AllocationRequest
from dray.allocator.search.resumable import ResumableSearch, TimeLimit, start_search
from dray.allocator.search.trace import GaveUp, SearchEnding
from dray.api.resource import DeviceClass
from dray.values.cache_bounds import CacheBound

SEARCH_ENDINGS: Final = CacheBound("outcomes of searches", 64, "a shape")
MAX_PENDING_SHAPES: Final = 4096
"""Shapes that are scheduled for one query at the same time; further ones have to be requested again."""
RUNNING_SEARCHES: Final = CacheBound("searches to continue", 64, "the scheduler")
MAX_TIME_FACTOR: Final = 8
"""How many times `per_search` a search may get in later attempts."""

_NOT_STARTED: Final = GaveUp(0)


@dataclass(slots=True)
class _PendingSearch:
    """A running search: the seconds of work it may take, and when the next one gets its turn."""

    time_budget: float
    yield_after: float


@dataclass(slots=True, eq=False)
class DeviceQuery:
    """What pods ask for. The endings of its searches are kept with the shapes."""

    allocation_request: AllocationRequest
    classes: dict[str, DeviceClass]
    pending: dict[NodeShape, _PendingSearch] = field(default_factory=dict)
    """Shapes that a pod waits for."""
    current: NodeShape | None = None
    """The one of them whose turn it is."""
    seconds_spent: float = 0.0
    """Seconds of work for this query so far."""


class DeviceSearches:
    """All searches of one scheduler."""

    def __init__(self, limit: TimeLimit, decision_seconds: float = math.inf) -> None:
        self.limit = limit
        self.decision_seconds = decision_seconds
        """Seconds of work in one decision."""
        self.ending_counts: Counter[str] = Counter()
        """Searches, by how they ended."""
        self.total_seconds = 0.0
        """Work on all searches so far."""
        self._running: dict[tuple[DeviceQuery, NodeShape], ResumableSearch] = {}
        self._open_queries: OrderedDict[DeviceQuery, None] = OrderedDict()
        """Queries with scheduled shapes; the first one is next."""

    @property
    def is_sliced(self) -> bool:
        """Whether searches continue between decisions."""
        return self.decision_seconds < math.inf

    # --- one search ---

    def compute_time_budget(self, attempts: int) -> float:
        """Seconds of work a search may take after so many attempts."""
        return self.limit.per_search * min(2.0 ** min(attempts, MAX_TIME_FACTOR), MAX_TIME_FACTOR)

    def is_final(self, given_up: GaveUp) -> bool:
        """Whether a search that was given up gets no more time in any later attempt."""
        return given_up.seconds >= self.limit.per_search * MAX_TIME_FACTOR

    def get_ending(self, query: DeviceQuery, shape: NodeShape, time_budget: float) -> SearchEnding | None:
        """The ending of the search on a shape; None also when it was given up after less time."""
        ending: SearchEnding | None = shape.endings.get(query)
        return None if isinstance(ending, GaveUp) and ending.seconds < time_budget else ending

    def has_started(self, query: DeviceQuery, shape: NodeShape) -> bool:
        """Whether a search was begun and can be continued."""
        return (query, shape) in self._running

    def run_search(
        self, query: DeviceQuery, shape: NodeShape, seconds: float, time_budget: float
    ) -> SearchEnding | None:
        """Run a search for some seconds; None when it neither ended nor used up its time."""
        clock = self.limit.clock
        began = clock()
        kept = self._running.pop((query, shape), None) if self._running else None
        found = kept or start_search(query.allocation_request, shape, clock)
        ending: SearchEnding | None
        if isinstance(found, ResumableSearch):
            ending = found.advance(clock, min(seconds, time_budget - found.spent))
            if ending is None:
                RUNNING_SEARCHES.put(self._running, (query, shape), found)
                ending = found.give_up() if found.spent >= time_budget else None
        else:
            ending = found
        spent = clock() - began
        query.seconds_spent += spent
        self.total_seconds += spent
        if ending is not None:
            self._record_ending(query, shape, ending)
        return ending

    def give_up(self, query: DeviceQuery, shape: NodeShape) -> GaveUp:
        """The ending when a pod has no time left, with how far the search got."""
        running = self._running.get((query, shape))
        if running is None:
            ending = shape.endings.get(query)
            return ending if isinstance(ending, GaveUp) else _NOT_STARTED
        given_up = running.give_up()
        SEARCH_ENDINGS.put(shape.endings, query, given_up)
        return given_up

    def _record_ending(self, query: DeviceQuery, shape: NodeShape, ending: SearchEnding) -> None:
        self.ending_counts[type(ending).__name__] += 1
        SEARCH_ENDINGS.put(shape.endings, query, ending)
        if query.pending:
            query.pending.pop(shape, None)
            query.current = None
            if not query.pending:
                self._open_queries.pop(query, None)

    # --- searches that continue between decisions ---

    @property
    def unfinished(self) -> int:
        """The number of searches that pods wait for."""
        return sum(len(query.pending) for query in self._open_queries)

    def list_open_queries(self) -> tuple[DeviceQuery, ...]:
        """Queries with running searches."""
        return tuple(self._open_queries)

    def schedule_search(self, query: DeviceQuery, shape: NodeShape, time_budget: float) -> None:
        """Schedule a search to continue until it ends or has used up some time."""
        known = query.pending.get(shape)
        if known is not None:
            known.time_budget = max(time_budget, known.time_budget)
        elif len(query.pending) < MAX_PENDING_SHAPES:
            running = self._running.get((query, shape))
            query.pending[shape] = _PendingSearch(
                time_budget, 2 * running.spent if running is not None else 0.0
            )
            self._open_queries.setdefault(query)

    def run_next(self, seconds: float) -> tuple[DeviceQuery, SearchEnding | None] | None:
        """Run the next scheduled search; the query and the ending, if it ended."""
        if not self._open_queries:
            return None
        query, _ = self._open_queries.popitem(last=False)
        wanted = query.pending
        shape = query.current
        if shape is None:
            shape = query.current = min(wanted, key=lambda each: wanted[each].yield_after)
        ending = self.run_search(query, shape, seconds, wanted[shape].time_budget)
        if ending is None and self._running[query, shape].spent >= wanted[shape].yield_after:
            wanted[shape].yield_after = 2 * self._running[query, shape].spent
            query.current = None
        if query.pending:
            self._open_queries[query] = None
        return query, ending

    def forget_query(self, query: DeviceQuery) -> None:
        """Drop a query that no pod waits for any more."""
        query.pending.clear()
        query.current = None
        self._open_queries.pop(query, None)
