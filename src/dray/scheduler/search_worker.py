"""The search worker: continues device searches between decisions, so that the loop never blocks on a hard
one.

Theory of operation: a decision that finds no node while searches are unfinished decides nothing. Its pod
waits here, and the worker continues the searches in short time slices: after each slice it yields to other
tasks, and while pods are ready to be placed it pauses as long as the slice took. So hard pods get half of the
time at most, leases are renewed, watches are read and health checks are answered. A pod is woken when a
search found devices, unless its nodes have to be ranked, or when all its searches ended; then it is decided
anew on the current cluster. It is also woken when a signal could help it, or when it is gone; this is checked
now and then.

Rules for this file: searches that no pod waits for are not continued.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from dray.allocator.search.trace import Solved
from dray.placement.device_searches import DeviceQuery, DeviceSearches
from dray.placement.plugins.dynamic_resources import needs_ranking

TIME_SLICE_SECONDS: Final = 0.01
"""Work between two turns of other tasks."""
DECISION_SECONDS: Final = 0.03
"""Work on searches within one decision; longer ones continue here."""
RECHECK_SECONDS: Final = 0.25
"""Work after which a pod is decided anew if a signal came meanwhile."""
MAX_WAITING_PODS: Final = 256
"""Pods that may wait for searches at the same time; others come back later."""


@dataclass(slots=True, eq=False)
class _Waiter:
    """A pod that waits for its searches."""

    notified: asyncio.Future[None]
    is_stale: Callable[[], bool]
    last_checked: float
    """The seconds spent on its query when `is_stale` was called last."""


class SearchWorker:
    """Runs the searches that pods wait for."""

    def __init__(
        self, searches: DeviceSearches, monotonic: Callable[[], float], is_busy: Callable[[], bool]
    ) -> None:
        self._searches = searches
        self._monotonic = monotonic
        self._is_busy = is_busy
        self._waiting: dict[DeviceQuery, set[_Waiter]] = {}
        self._has_work = asyncio.Event()

    @property
    def waiting(self) -> int:
        """How many pods wait for searches."""
        return sum(map(len, self._waiting.values()))

    async def wait(self, query: DeviceQuery, is_stale: Callable[[], bool]) -> None:
        """Wait until a new decision on a query may have another result, or `is_stale` says that it has."""
        waiter = _Waiter(asyncio.get_running_loop().create_future(), is_stale, query.seconds_spent)
        self._waiting.setdefault(query, set()).add(waiter)
        self._has_work.set()
        try:
            await waiter.notified
        finally:
            others = self._waiting[query]
            others.discard(waiter)
            if not others:
                del self._waiting[query]
                self._searches.forget_query(query)

    def drop_unwanted_searches(self) -> None:
        """Drop searches that no pod waits for: the pod was placed without them, or refused."""
        for query in self._searches.list_open_queries():
            if query not in self._waiting:
                self._searches.forget_query(query)

    async def run(self) -> None:
        """Run searches until cancelled."""
        while True:
            began = self._monotonic()
            worked = self._searches.run_next(TIME_SLICE_SECONDS)
            if worked is None:
                self._has_work.clear()
                await self._has_work.wait()
                continue
            query, ending = worked
            found = isinstance(ending, Solved) and not needs_ranking(query)
            self._notify_waiters(query, everybody=found or not query.pending)
            await self._yield_time(self._monotonic() - began)

    def _notify_waiters(self, query: DeviceQuery, *, everybody: bool) -> None:
        for waiter in self._waiting.get(query, ()):
            if not waiter.notified.done() and (everybody or self._is_stale(waiter, query)):
                waiter.notified.set_result(None)

    def _is_stale(self, waiter: _Waiter, query: DeviceQuery) -> bool:
        if query.seconds_spent - waiter.last_checked < RECHECK_SECONDS:
            return False
        waiter.last_checked = query.seconds_spent
        return waiter.is_stale()

    async def _yield_time(self, seconds: float) -> None:
        """Yield to other tasks, and give pods that could be placed as much time as the search had."""
        until = self._monotonic() + seconds
        await asyncio.sleep(0)
        while self._is_busy() and self._monotonic() < until:
            await asyncio.sleep(0)
