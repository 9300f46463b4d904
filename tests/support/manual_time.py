"""A time source with a manual clock: a sleeper wakes when the clock is advanced past its deadline."""

from __future__ import annotations

import asyncio

from dray.client.timing import TimeSource
from dray.clock import ManualClock


class ManualTime:
    """A manual clock, and its sleepers."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.time_source = TimeSource(self.clock, self._sleep, lambda: 0.5)
        self._asleep: list[tuple[float, asyncio.Future[None]]] = []

    async def _sleep(self, seconds: float) -> None:
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        waits: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._asleep.append((self.clock.monotonic() + seconds, waits))
        await waits

    async def advance(self, seconds: float) -> None:
        """Advance the clock, and let everything that is due run."""
        self.clock.advance(seconds)
        now = self.clock.monotonic()
        for due, waits in self._asleep:
            if due <= now and not waits.done():
                waits.set_result(None)
        self._asleep = [(due, waits) for due, waits in self._asleep if due > now]
        for _ in range(20):
            await asyncio.sleep(0)
