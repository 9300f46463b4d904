"""Clock, sleep and random numbers as one argument, exponential backoff, and a rate limiter."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from dray.clock import Clock, SystemClock


@dataclass(frozen=True, slots=True)
class TimeSource:
    """The clock, how to sleep, and random numbers between 0 and 1."""

    clock: Clock = field(default_factory=SystemClock)
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    random_float: Callable[[], float] = random.random

    def random_int(self, limit: int) -> int:
        """Return a random number below a limit, and at least 0."""
        return int(self.random_float() * limit)


class Backoff:
    """Waits that double up to a maximum, each with jitter so that many clients do not retry together.

    A wait is between half and all of its length. When nothing failed for twice the maximum, the next failure
    is a first one again.
    """

    def __init__(self, time_source: TimeSource, *, initial: float = 0.8, maximum: float = 30.0) -> None:
        self._time_source = time_source
        self._initial = self._next_delay = initial
        self._maximum = maximum
        self._last_used = time_source.clock.monotonic()

    def compute_delay(self) -> float:
        """Return how long to wait this time."""
        now = self._time_source.clock.monotonic()
        if now - self._last_used > 2 * self._maximum:
            self._next_delay = self._initial
        self._last_used = now
        length, self._next_delay = self._next_delay, min(self._next_delay * 2, self._maximum)
        return length * (0.5 + self._time_source.random_float() / 2)

    def reset(self) -> None:
        """Make the next wait a first one, after a success."""
        self._next_delay = self._initial

    async def wait(self, min_delay: float = 0.0) -> None:
        """Wait; longer when the server asked for it."""
        await self._time_source.sleep(max(self.compute_delay(), min_delay))


class RateLimiter:
    """At most `qps` calls per second in the long run, `burst` at once; callers are served in their order."""

    def __init__(self, qps: float, burst: int, time_source: TimeSource) -> None:
        if qps <= 0 or burst < 1:
            raise ValueError(
                f"expected a rate above 0 and a burst of at least 1, got qps `{qps}`, burst `{burst}`"
            )
        self._qps = qps
        self._burst = burst
        self._time_source = time_source
        self._tokens = float(burst)
        self._refilled_at = time_source.clock.monotonic()

    async def acquire(self) -> None:
        """Wait for a token. Tokens are reserved when asked for, so no caller can overtake another."""
        self._refill()
        self._tokens -= 1
        if self._tokens < 0:
            await self._time_source.sleep(-self._tokens / self._qps)

    def try_acquire(self) -> bool:
        """Take a token if there is one now."""
        self._refill()
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True

    def _refill(self) -> None:
        now = self._time_source.clock.monotonic()
        self._tokens = min(float(self._burst), self._tokens + (now - self._refilled_at) * self._qps)
        self._refilled_at = now
