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

from dray.client.rest_client import TROUBLE
from dray.client.timing import Tempo
from dray.controllers import metrics as measures
from dray.telemetry.metrics import Metrics

K = TypeVar("K", bound=Hashable)

FIRST_WAIT: Final = 0.05
LONGEST_WAIT: Final = 30.0
"""Seconds. Failures that last (a quota that is used up, a rule that objects) are tried again this often, so
that nobody waits long for what has been put right without an event."""


class WorkQueue(Generic[K]):
    """Keys, and the workers who take them."""

    def __init__(self, name: str, tempo: Tempo, metrics: Metrics) -> None:
        self._tempo = tempo
        self._now = tempo.clock.monotonic
        self._waiting: deque[K] = deque()
        self._since: dict[K, float] = {}
        """Keys that wait, with the moment they were added."""
        self._begun: dict[K, float] = {}
        """Keys that are being worked on, with the moment that began."""
        self._again: set[K] = set()
        self._due: dict[K, float] = {}
        self._timers: list[tuple[float, int, K]] = []
        self._numbers = count()
        self._failures: dict[K, int] = {}
        self._work_is_there = asyncio.Event()
        self._timer_changed = asyncio.Event()
        self.name, self._metrics = name, metrics
        self._adds = metrics.series(measures.ADDS, (name,))

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def idle(self) -> bool:
        """Whether nothing waits and nothing is worked on; what waits for its time does not count."""
        return not self._waiting and not self._begun

    def ages(self) -> list[float]:
        """How long the work that is not finished has taken so far, in seconds."""
        now = self._now()
        return [now - begun for begun in self._begun.values()]

    def add(self, key: K) -> None:
        """Something about a key has changed."""
        self._due.pop(key, None)
        if key in self._since:
            return
        self._adds[0] += 1
        if key in self._begun:
            self._again.add(key)
            return
        self._since[key] = self._now()
        self._waiting.append(key)
        self._work_is_there.set()

    def add_later(self, key: K, seconds: float) -> None:
        """Look at a key after a while; sooner, if it is added or was to be looked at sooner."""
        due = self._now() + seconds
        if key in self._since or self._due.get(key, due + 1) <= due:
            return
        self._due[key] = due
        heapq.heappush(self._timers, (due, next(self._numbers), key))
        self._timer_changed.set()

    def retry(self, key: K, at_least: float = 0.0) -> None:
        """Look at a key again after a failure; later each time."""
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        self._metrics.count(measures.RETRIES, self.name)
        wait = min(FIRST_WAIT * 2.0 ** min(failures - 1, 20), LONGEST_WAIT)
        self.add_later(key, max(wait * (0.5 + self._tempo.chance() / 2), at_least))

    def forget(self, key: K) -> None:
        """A key went well: its next failure is a first one."""
        self._failures.pop(key, None)

    async def run(
        self, work: Callable[[K], Awaitable[None]], troubled: Callable[[K, Exception], None], workers: int
    ) -> None:
        """Work on keys, until cancelled. A call that fails is told, and its key is tried again later."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._mind_time())
            for _ in range(workers):
                tasks.create_task(self._worker(work, troubled))

    async def _worker(
        self, work: Callable[[K], Awaitable[None]], troubled: Callable[[K, Exception], None]
    ) -> None:
        while True:
            key = await self._next()
            try:
                await work(key)
            except TROUBLE as failed:
                troubled(key, failed)
                self.retry(key, getattr(failed, "retry_after", None) or 0.0)
            else:
                self.forget(key)
            finally:
                self._done(key)

    async def _next(self) -> K:
        while not self._waiting:
            self._work_is_there.clear()
            await self._work_is_there.wait()
        key, now = self._waiting.popleft(), self._now()
        self._metrics.observe(measures.QUEUE_SECONDS, now - self._since.pop(key), self.name)
        self._begun[key] = now
        return key

    def _done(self, key: K) -> None:
        self._metrics.observe(measures.WORK_SECONDS, self._now() - self._begun.pop(key), self.name)
        if key in self._again:
            self._again.discard(key)
            self._due.pop(key, None)
            self._since[key] = self._now()
            self._waiting.append(key)
            self._work_is_there.set()

    async def _mind_time(self) -> None:
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
