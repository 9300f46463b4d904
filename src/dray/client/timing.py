"""When things happen: clock, sleep and chance as one argument, waits that grow, and a limit on the rate."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from dray.clock import Clock, SystemClock


@dataclass(frozen=True, slots=True)
class Tempo:
    """The clock, how to wait, and a number between 0 and 1 that nobody can foresee."""

    clock: Clock = field(default_factory=SystemClock)
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    chance: Callable[[], float] = random.random


class Backoff:
    """Waits that double up to a longest, each spread so that many clients do not come back together.

    A wait is between half and all of its length. When nothing failed for twice the longest wait, the next
    failure is a first one again.
    """

    def __init__(self, tempo: Tempo, *, first: float = 0.8, longest: float = 30.0) -> None:
        self._tempo = tempo
        self._first = self._next = first
        self._longest = longest
        self._last = tempo.clock.monotonic()

    def next(self) -> float:
        """How long to wait this time."""
        now = self._tempo.clock.monotonic()
        if now - self._last > 2 * self._longest:
            self._next = self._first
        self._last = now
        length, self._next = self._next, min(self._next * 2, self._longest)
        return length * (0.5 + self._tempo.chance() / 2)

    def reset(self) -> None:
        """Things went well: the next wait is a first one."""
        self._next = self._first

    async def wait(self, at_least: float = 0.0) -> None:
        """Wait; longer when the server asked for it."""
        await self._tempo.sleep(max(self.next(), at_least))


class Limiter:
    """At most `qps` calls per second in the long run, `burst` at once; callers are served in their order."""

    def __init__(self, qps: float, burst: int, tempo: Tempo) -> None:
        if qps <= 0 or burst < 1:
            raise ValueError(
                f"expected a rate above 0 and a burst of at least 1, got qps `{qps}`, burst `{burst}`"
            )
        self._qps = qps
        self._burst = burst
        self._tempo = tempo
        self._left = float(burst)
        self._at = tempo.clock.monotonic()

    async def turn(self) -> None:
        """Wait for a turn. Turns are handed out when asked for, so nobody can be overtaken."""
        self._refill()
        self._left -= 1
        if self._left < 0:
            await self._tempo.sleep(-self._left / self._qps)

    def try_turn(self) -> bool:
        """Take a turn if there is one now."""
        self._refill()
        if self._left < 1:
            return False
        self._left -= 1
        return True

    def _refill(self) -> None:
        now = self._tempo.clock.monotonic()
        self._left = min(float(self._burst), self._left + (now - self._at) * self._qps)
        self._at = now
