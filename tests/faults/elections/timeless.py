"""An event loop in which nobody waits: when everybody sleeps, it is the time at which the first one wakes.

Everything that sleeps on the loop does so in made time, so hours pass in seconds. While a thread works for
somebody, time stands still. Whatever waits for sockets does not belong in here.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

T = TypeVar("T")

START = datetime(2026, 1, 1, tzinfo=UTC)


class _Skipping(selectors.DefaultSelector):
    """Waits for threads only: what else should be waited for has passed."""

    def __init__(self) -> None:
        super().__init__()
        self.passed = 0.0
        self.threads = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if ready or timeout == 0:
            return ready
        if self.threads or timeout is None:
            return super().select(None)
        self.passed += timeout
        return ready


class Timeless(asyncio.SelectorEventLoop):
    """The loop."""

    def __init__(self) -> None:
        self._skipping = _Skipping()
        super().__init__(self._skipping)

    def time(self) -> float:
        return self._skipping.passed

    def run_in_executor(self, executor: Any, work: Any, *arguments: Any) -> Any:  # type: ignore[override]
        self._skipping.threads += 1
        done = super().run_in_executor(executor, work, *arguments)
        done.add_done_callback(self._came_back)
        return done

    def _came_back(self, _done: object) -> None:
        self._skipping.threads -= 1


class LoopClock:
    """The time of the loop, as everybody in it sees it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def monotonic(self) -> float:
        return self._loop.time()

    def now(self) -> datetime:
        return START + timedelta(seconds=self._loop.time())


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run something to its end in made time."""
    with asyncio.Runner(loop_factory=Timeless) as runner:
        return runner.run(work)
