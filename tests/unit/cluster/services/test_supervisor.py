"""A service that fails is logged and started again."""

from __future__ import annotations

import asyncio

from dray.client.timing import TimeSource
from dray.clock import SystemClock
from dray.cluster.services.supervisor import SupervisedService
from dray.telemetry.logs import StructuredLogger
from dray.telemetry.metrics import MetricsRegistry, build_metric_table


class Stumbling:
    """Falls over before it is ready, until it has done so often enough."""

    made = 0

    def __init__(self, falls: int) -> None:
        type(self).made += 1
        self._falls = type(self).made <= falls
        self.ready = asyncio.Event()
        self.metrics = MetricsRegistry(build_metric_table())

    async def run(self) -> None:
        if self._falls:
            raise ZeroDivisionError("a slip")
        self.ready.set()
        await asyncio.Event().wait()


def test_it_starts_again_until_it_stands() -> None:
    lines: list[str] = []
    waits: list[float] = []

    def take(line: bytes) -> bool:
        lines.append(line.decode())
        return True

    async def sleep(seconds: float) -> None:
        waits.append(seconds)
        await asyncio.sleep(0)

    async def main() -> None:
        Stumbling.made = 0
        log, tempo = StructuredLogger(take, SystemClock()), TimeSource(sleep=sleep, random_float=lambda: 1.0)
        kept = SupervisedService("stumbling", lambda: Stumbling(2), log, tempo)
        task = asyncio.create_task(kept.run())
        async with asyncio.timeout(10):
            await kept.ready.wait()
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()
        assert list(kept.collect()) == []

    asyncio.run(main())
    assert Stumbling.made == 3
    assert waits == [0.5, 1.0], "each wait is longer than the one before"
    assert len(lines) == 2
    assert all("a service failed; it starts again service=stumbling" in line for line in lines)
    assert all("ZeroDivisionError: a slip" in line for line in lines)


class Clumsy(Stumbling):
    """Falls over when it is to end."""

    async def run(self) -> None:
        self.ready.set()
        try:
            await asyncio.Event().wait()
        finally:
            raise ZeroDivisionError("a bug in startup")


def test_one_that_falls_over_on_its_way_down_ends_all_the_same() -> None:
    lines: list[str] = []

    def take(line: bytes) -> bool:
        lines.append(line.decode())
        return True

    async def main() -> None:
        kept = SupervisedService("clumsy", lambda: Clumsy(0), StructuredLogger(take, SystemClock()))
        task = asyncio.create_task(kept.run())
        async with asyncio.timeout(10):
            await kept.ready.wait()
            task.cancel()
            await asyncio.wait([task])

    asyncio.run(main())
    assert ["a service failed while it stopped service=clumsy" in line for line in lines] == [True]
