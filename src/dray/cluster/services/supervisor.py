"""Services of one process that come back when they fall over.

Theory of operation: a service handles what goes wrong with single objects itself, and waits for servers and
for leadership. What still comes out of it is a fault of ours, and no reason to take the whole cluster down.
It is said, and the service starts afresh from what the server knows, after a wait that grows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from prometheus_client.core import Metric

from dray.client.timing import Backoff, TimeSource
from dray.telemetry.logs import StructuredLogger
from dray.telemetry.metrics import MetricsRegistry


class RunnableService(Protocol):
    """Something that works on a cluster until it is cancelled."""

    @property
    def ready(self) -> asyncio.Event:
        """Set when it has seen everything and works."""
        ...

    @property
    def metrics(self) -> MetricsRegistry:
        """Its numbers."""
        ...

    async def run(self) -> None:
        """Work until cancelled."""
        ...


class SupervisedService:
    """One service that is made anew whenever it ends."""

    def __init__(
        self,
        name: str,
        build_service: Callable[[], RunnableService],
        log: StructuredLogger,
        time_source: TimeSource | None = None,
        *,
        node: str = "",
        after: SupervisedService | None = None,
    ) -> None:
        self.name = name
        self.node = node
        """The node it works for; empty for those of the whole cluster."""
        self._after = after
        """Who has to work first."""
        self._build_service = build_service
        self._log = log
        self._backoff = Backoff(time_source or TimeSource(), initial=0.5, maximum=30.0)
        self._service = build_service()
        self.ready = asyncio.Event()
        """Set when it works for the first time."""

    def collect(self) -> Iterable[Metric]:
        """The numbers of the service as it is now, for the Prometheus client."""
        return self._service.metrics.collect()

    async def run(self) -> None:
        """Keep it running until cancelled."""
        if self._after is not None:
            await self._after.ready.wait()
        while True:
            announcing = asyncio.create_task(self._announce(self._service))
            try:
                await self._service.run()
                self._log.warning("a service ended; it starts again", service=self.name)
            except Exception as broken:  # whatever it is, the others go on
                if _is_cancelled():
                    # It failed on its way down, and took the wish that it ends with it.
                    self._log.error("a service failed while it stopped", service=self.name, error=broken)
                    return
                self._log.error("a service failed; it starts again", service=self.name, error=broken)
            finally:
                announcing.cancel()
            await self._backoff.wait()
            self._service = self._build_service()

    async def _announce(self, service: RunnableService) -> None:
        await service.ready.wait()
        self.ready.set()


def _is_cancelled() -> bool:
    """Whether somebody has cancelled us."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


class PerNodeMetrics:
    """The numbers of services that are there once for each node, told apart by the label `node`."""

    def __init__(self, services: Sequence[SupervisedService]) -> None:
        self._services = services

    def collect(self) -> Iterable[Metric]:
        """Every number once, with a sample for each node."""
        found: dict[str, Metric] = {}
        for service in self._services:
            for metric in service.collect():
                whole = found.setdefault(
                    metric.name, Metric(metric.name, metric.documentation, metric.type, metric.unit)
                )
                whole.samples += [
                    sample._replace(labels={**sample.labels, "node": service.node})
                    for sample in metric.samples
                ]
        return found.values()
