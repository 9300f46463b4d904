"""Keys that wait to be worked on: each by one worker at a time, again when it changed meanwhile.

Theory of operation: a key is in one of four states: unknown, waiting, being worked on, or being worked on and
to be worked on again. Adding moves it along; so what was added a hundred times before a worker came is done
once, and nothing that was added during the work is lost. A key may also wait for its time: after a failure,
longer each time, or because there is something to look at later. An event is worth more than a time: adding
ends the waiting.

Rules for this file: what a key means is the business of the work. Work that raises something else than a
failure of a call is broken, and ends `run`.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from collections.abc import Awaitable, Callable, Hashable
from contextlib import suppress
from itertools import count
from typing import Final, Generic, TypeVar

from dray.client.rest_client import CALL_ERRORS
from dray.client.timing import TimeSource
from dray.controllers import metrics as measures
from dray.telemetry.metrics import MetricsRegistry

K = TypeVar("K", bound=Hashable)

INITIAL_BACKOFF: Final = 0.05
MAX_BACKOFF: Final = 30.0
"""Seconds. Failures that last (a quota that is used up, a rule that objects) are tried again this often, so
that nobody waits long for what has been put right without an event."""


class WorkQueue(Generic[K]):
    """Keys, and the workers who take them."""

    def __init__(self, name: str, time_source: TimeSource, metrics: MetricsRegistry) -> None:
        self._time_source = time_source
        self._now = time_source.clock.monotonic
        self._waiting: deque[K] = deque()
        self._added_at: dict[K, float] = {}
        """Keys that wait, with the moment they were added."""
        self._processing: dict[K, float] = {}
        """Keys that are being worked on, with the moment that began."""
        self._dirty: set[K] = set()
        self._due: dict[K, float] = {}
        self._timers: list[tuple[float, int, K]] = []
        self._sequence = count()
        self._failures: dict[K, int] = {}
        self._work_available = asyncio.Event()
        self._timer_changed = asyncio.Event()
        self.name, self._metrics = name, metrics
        self._adds = metrics.get_series(measures.ADDS, (name,))

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def is_idle(self) -> bool:
        """Whether nothing waits and nothing is worked on; what waits for its time does not count."""
        return not self._waiting and not self._processing

    def get_work_durations(self) -> list[float]:
        """How long the work that is not finished has taken so far, in seconds."""
        now = self._now()
        return [now - begun for begun in self._processing.values()]

    def add(self, key: K) -> None:
        """Something about a key has changed."""
        self._due.pop(key, None)
        if key in self._added_at:
            return
        self._adds[0] += 1
        if key in self._processing:
            self._dirty.add(key)
            return
        self._added_at[key] = self._now()
        self._waiting.append(key)
        self._work_available.set()

    def add_after(self, key: K, seconds: float) -> None:
        """Look at a key after a while; sooner, if it is added or was to be looked at sooner."""
        due = self._now() + seconds
        if key in self._added_at or self._due.get(key, due + 1) <= due:
            return
        self._due[key] = due
        heapq.heappush(self._timers, (due, next(self._sequence), key))
        self._timer_changed.set()

    def add_rate_limited(self, key: K, min_delay: float = 0.0) -> None:
        """Look at a key again after a failure; later each time."""
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        self._metrics.count(measures.RETRIES, self.name)
        wait = min(INITIAL_BACKOFF * 2.0 ** min(failures - 1, 20), MAX_BACKOFF)
        self.add_after(key, max(wait * (0.5 + self._time_source.random_float() / 2), min_delay))

    def forget(self, key: K) -> None:
        """A key went well: its next failure is a first one."""
        self._failures.pop(key, None)

    async def run(
        self,
        reconcile: Callable[[K], Awaitable[None]],
        on_failure: Callable[[K, Exception], None],
        workers: int,
    ) -> None:
        """Work on keys, until cancelled. A call that fails is told, and its key is tried again later."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._run_timers())
            for _ in range(workers):
                tasks.create_task(self._run_worker(reconcile, on_failure))

    async def _run_worker(
        self, reconcile: Callable[[K], Awaitable[None]], on_failure: Callable[[K, Exception], None]
    ) -> None:
        while True:
            key = await self._take()
            try:
                await reconcile(key)
            except CALL_ERRORS as failed:
                on_failure(key, failed)
                self.add_rate_limited(key, getattr(failed, "retry_after", None) or 0.0)
            else:
                self.forget(key)
            finally:
                self._mark_done(key)

    async def _take(self) -> K:
        while not self._waiting:
            self._work_available.clear()
            await self._work_available.wait()
        key, now = self._waiting.popleft(), self._now()
        self._metrics.observe(measures.QUEUE_SECONDS, now - self._added_at.pop(key), self.name)
        self._processing[key] = now
        return key

    def _mark_done(self, key: K) -> None:
        self._metrics.observe(measures.WORK_SECONDS, self._now() - self._processing.pop(key), self.name)
        if key in self._dirty:
            self._dirty.discard(key)
            self._due.pop(key, None)
            self._added_at[key] = self._now()
            self._waiting.append(key)
            self._work_available.set()

    async def _run_timers(self) -> None:
        """Add keys when their time has come."""
        while True:
            self._timer_changed.clear()
            self.add_due()
            wait = self._timers[0][0] - self._now() if self._timers else None
            with suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await self._timer_changed.wait()

    def add_due(self) -> None:
        """Add the keys whose time has come."""
        while self._timers and self._timers[0][0] <= self._now():
            due, _, key = heapq.heappop(self._timers)
            if self._due.get(key) == due:
                self.add(key)
