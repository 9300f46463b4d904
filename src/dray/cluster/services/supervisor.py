"""The supervisor of services in one process: restarts a service that fails.

Theory of operation: a service handles failures about single objects itself, and waits for servers and for
leadership. An exception that still leaves it is a bug in dray, and no reason to take the whole cluster down.
The supervisor logs it and starts the service anew from the state on the server, after a growing backoff.
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
    """A service that works on a cluster until it is cancelled."""

    @property
    def ready(self) -> asyncio.Event:
        """Set when its informers are synced and it works."""
        ...

    @property
    def metrics(self) -> MetricsRegistry:
        """Its metrics."""
        ...

    async def run(self) -> None:
        """Work until cancelled."""
        ...


class SupervisedService:
    """One service that is built anew whenever it ends."""

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
        """The node it works for; empty for services of the whole cluster."""
        self._after = after
        """The service that has to be ready first."""
        self._build_service = build_service
        self._log = log
        self._backoff = Backoff(time_source or TimeSource(), initial=0.5, maximum=30.0)
        self._service = build_service()
        self.ready = asyncio.Event()
        """Set when it works for the first time."""

    def collect(self) -> Iterable[Metric]:
        """Collect the metrics of the current instance, for the Prometheus client."""
        return self._service.metrics.collect()

    async def refresh(self) -> None:
        """Fetch the metrics of the current instance, if another process has them."""
        await self._service.metrics.refresh()

    async def run(self) -> None:
        """Keep it running until cancelled."""
        if self._after is not None:
            await self._after.ready.wait()
        while True:
            ready_watcher = asyncio.create_task(self._announce(self._service))
            try:
                await self._service.run()
                self._log.warning("a service ended; it starts again", service=self.name)
            except Exception as error:  # whatever it is, the other services go on
                if _is_cancelled():
                    # It failed during cancellation, which would otherwise be lost.
                    self._log.error("a service failed while it stopped", service=self.name, error=error)
                    return
                self._log.error("a service failed; it starts again", service=self.name, error=error)
            finally:
                ready_watcher.cancel()
            await self._backoff.wait()
            self._service = self._build_service()

    async def _announce(self, service: RunnableService) -> None:
        await service.ready.wait()
        self.ready.set()


def _is_cancelled() -> bool:
    """Whether the current task is being cancelled."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


class PerNodeMetrics:
    """The metrics of services that exist once per node, with the label `node`."""

    def __init__(self, services: Sequence[SupervisedService]) -> None:
        self._services = services

    def collect(self) -> Iterable[Metric]:
        """Collect every metric once, with a sample for each node."""
        found: dict[str, Metric] = {}
        for service in self._services:
            for metric in service.collect():
                merged = found.setdefault(
                    metric.name, Metric(metric.name, metric.documentation, metric.type, metric.unit)
                )
                merged.samples += [
                    sample._replace(labels={**sample.labels, "node": service.node})
                    for sample in metric.samples
                ]
        return found.values()
