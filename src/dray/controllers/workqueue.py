"""The work queue of a controller: each key is worked on by one worker at a time, and again when it changed
meanwhile.

Theory of operation: a key is unknown, waiting, being processed, or being processed and dirty. Adding moves it
along; so a key that was added a hundred times before a worker was free is processed once, and nothing that
was added during processing is lost. A key may also wait for a time: after a failure, longer each time, or for
a later check. Adding it ends that wait.

Rules for this file: the meaning of a key is up to the reconcile function. One that raises anything but a
failed call is broken, and ends `run`.
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
from dray.controllers import metrics as controller_metrics
from dray.telemetry.metrics import MetricsRegistry

K = TypeVar("K", bound=Hashable)

INITIAL_BACKOFF: Final = 0.05
MAX_BACKOFF: Final = 30.0
"""Seconds. Failures that last (an exhausted quota, a rule that objects) are tried again this often, so that a
fix that causes no event is noticed soon.
"""


class WorkQueue(Generic[K]):
    """Keys, and the workers that process them."""

    def __init__(self, name: str, time_source: TimeSource, metrics: MetricsRegistry) -> None:
        self._time_source = time_source
        self._now = time_source.clock.monotonic
        self._waiting: deque[K] = deque()
        self._added_at: dict[K, float] = {}
        """Waiting keys, with the time they were added."""
        self._processing: dict[K, float] = {}
        """Keys that are being processed, with the time that began."""
        self._dirty: set[K] = set()
        self._due: dict[K, float] = {}
        self._timers: list[tuple[float, int, K]] = []
        self._sequence = count()
        self._failures: dict[K, int] = {}
        self._idle_workers: deque[asyncio.Future[None]] = deque()
        self._timer_changed = asyncio.Event()
        self.name, self._metrics = name, metrics
        self._adds = metrics.get_series(controller_metrics.ADDS, (name,))

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def is_idle(self) -> bool:
        """Whether no key waits for or has a worker; keys that wait for a time do not count."""
        return not self._waiting and not self._processing

    def get_work_durations(self) -> list[float]:
        """Return the seconds spent so far on each unfinished key."""
        now = self._now()
        return [now - begun for begun in self._processing.values()]

    def add(self, key: K) -> None:
        """Add a key."""
        self._due.pop(key, None)
        if key in self._added_at:
            return
        self._adds[0] += 1
        if key in self._processing:
            self._dirty.add(key)
            return
        self._append(key)

    def _append(self, key: K) -> None:
        self._added_at[key] = self._now()
        self._waiting.append(key)
        self._wake_worker()

    def _wake_worker(self) -> None:
        """Wake the worker that has been idle longest: one key needs no more than one of them."""
        while self._idle_workers:
            idle = self._idle_workers.popleft()
            if not idle.done():
                idle.set_result(None)
                return

    def add_after(self, key: K, seconds: float) -> None:
        """Add a key after some seconds; sooner, if it is added or due sooner."""
        due = self._now() + seconds
        if key in self._added_at or self._due.get(key, due + 1) <= due:
            return
        self._due[key] = due
        heapq.heappush(self._timers, (due, next(self._sequence), key))
        self._timer_changed.set()

    def add_rate_limited(self, key: K, min_delay: float = 0.0) -> None:
        """Add a key again after a failure; later each time."""
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        self._metrics.count(controller_metrics.RETRIES, self.name)
        wait = min(INITIAL_BACKOFF * 2.0 ** min(failures - 1, 20), MAX_BACKOFF)
        self.add_after(key, max(wait * (0.5 + self._time_source.random_float() / 2), min_delay))

    def forget(self, key: K) -> None:
        """Reset the failures of a key that succeeded."""
        self._failures.pop(key, None)

    async def run(
        self,
        reconcile: Callable[[K], Awaitable[None]],
        on_failure: Callable[[K, Exception], None],
        workers: int,
    ) -> None:
        """Process keys until cancelled. A failed call is passed to `on_failure`, and its key is tried again
        later.
        """
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
            await self._wait_for_work()
        key, now = self._waiting.popleft(), self._now()
        self._metrics.observe(controller_metrics.QUEUE_SECONDS, now - self._added_at.pop(key), self.name)
        self._processing[key] = now
        return key

    async def _wait_for_work(self) -> None:
        idle: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._idle_workers.append(idle)
        try:
            await idle
        except asyncio.CancelledError:
            # A worker that is cancelled after it was woken leaves its key to another one.
            if idle.done() and not idle.cancelled() and self._waiting:
                self._wake_worker()
            raise

    def _mark_done(self, key: K) -> None:
        self._metrics.observe(
            controller_metrics.WORK_SECONDS, self._now() - self._processing.pop(key), self.name
        )
        if key in self._dirty:
            self._dirty.discard(key)
            self._due.pop(key, None)
            self._append(key)

    async def _run_timers(self) -> None:
        """Add keys when they are due."""
        while True:
            self._timer_changed.clear()
            self.add_due()
            wait = self._timers[0][0] - self._now() if self._timers else None
            with suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await self._timer_changed.wait()

    def add_due(self) -> None:
        """Add the keys that are due."""
        while self._timers and self._timers[0][0] <= self._now():
            due, _, key = heapq.heappop(self._timers)
            if self._due.get(key) == due:
                self.add(key)
