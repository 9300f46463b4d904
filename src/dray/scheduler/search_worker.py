"""Continues searches for devices between decisions, so that the loop stays alive however hard a search is.

Theory of operation: a decision that finds no node while searches go on decides nothing. Its pod waits here,
and this worker continues the searches in short slices: after each one everybody else gets a turn, and while
pods are there to be placed the worker rests as long as the slice took. So hard pods get half of the time at
most, leases are renewed, watches are read and health is told. The pod is woken when a search found devices,
unless its nodes are ranked, or when all its searches ended; then it is decided anew on what the cluster is
like now. It is also woken, now and then, when something happened that could help it, or when it is gone.

Rules for this file: searches that nobody waits for are not continued.
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
"""Work between two turns of everybody else."""
DECISION_SECONDS: Final = 0.03
"""Work on searches in one decision; what takes longer goes on here."""
RECHECK_SECONDS: Final = 0.25
"""Work after which a pod is decided anew if something happened meanwhile."""
MAX_WAITING_PODS: Final = 256
"""Pods that may wait for searches at the same time; others come back later."""


@dataclass(slots=True, eq=False)
class _Waiter:
    """A pod that waits for its searches."""

    notified: asyncio.Future[None]
    is_stale: Callable[[], bool]
    last_checked: float
    """The work on its question when it was last asked whether it is stale."""


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

    async def wait(self, question: DeviceQuery, is_stale: Callable[[], bool]) -> None:
        """Wait until deciding anew may tell more about a question; `is_stale` says that it does anyway."""
        waiter = _Waiter(asyncio.get_running_loop().create_future(), is_stale, question.seconds_spent)
        self._waiting.setdefault(question, set()).add(waiter)
        self._has_work.set()
        try:
            await waiter.notified
        finally:
            others = self._waiting[question]
            others.discard(waiter)
            if not others:
                del self._waiting[question]
                self._searches.forget_query(question)

    def drop_unwanted_searches(self) -> None:
        """Drop searches that nobody waits for: their pod was placed without them, or refused."""
        for question in self._searches.list_open_queries():
            if question not in self._waiting:
                self._searches.forget_query(question)

    async def run(self) -> None:
        """Work, until cancelled."""
        while True:
            began = self._monotonic()
            worked = self._searches.run_next(TIME_SLICE_SECONDS)
            if worked is None:
                self._has_work.clear()
                await self._has_work.wait()
                continue
            question, ending = worked
            found = isinstance(ending, Solved) and not needs_ranking(question)
            self._notify_waiters(question, everybody=found or not question.pending)
            await self._yield_time(self._monotonic() - began)

    def _notify_waiters(self, question: DeviceQuery, *, everybody: bool) -> None:
        for waiter in self._waiting.get(question, ()):
            if not waiter.notified.done() and (everybody or self._is_stale(waiter, question)):
                waiter.notified.set_result(None)

    def _is_stale(self, waiter: _Waiter, question: DeviceQuery) -> bool:
        if question.seconds_spent - waiter.last_checked < RECHECK_SECONDS:
            return False
        waiter.last_checked = question.seconds_spent
        return waiter.is_stale()

    async def _yield_time(self, seconds: float) -> None:
        """Let everybody else have a turn, and pods that could be placed as much time as the search had."""
        until = self._monotonic() + seconds
        await asyncio.sleep(0)
        while self._is_busy() and self._monotonic() < until:
            await asyncio.sleep(0)
