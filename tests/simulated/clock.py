"""The clock of one simulated process: virtual time with an offset and a drift of its own."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

from tests.simulated.event_loop import SimulatedLoop

EPOCH: Final = datetime(2026, 1, 1, tzinfo=UTC)


class SimulatedClock:
    """Wall time may be wrong and jump; monotonic time never goes back, but may be fast or slow."""

    def __init__(self, loop: SimulatedLoop) -> None:
        self._loop = loop
        self.offset = 0.0
        """Seconds by which the wall clock is wrong."""

    def now(self) -> datetime:
        return EPOCH + timedelta(seconds=self._loop.time() + self.offset)

    def monotonic(self) -> float:
        return self._loop.time()
