"""Health of the devices of this node, as their drivers stream it.

Theory of operation: for each driver that streams health, one task reads the stream and opens it again when it
breaks. The last report of a device holds for the timeout that the driver gives, or for half a minute; after
that its health is unknown. Reports age by the agent's clock, because a driver's clock may differ. Each report
contains all devices of a driver; the health of one that is left out is unknown.

Rules for this file: consequences for pods are decided elsewhere; listeners get the name of the driver.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol

from dray.client.timing import Backoff, TimeSource
from dray.node.plugins.driver_interface import DeviceHealth, DriverClient
from dray.node.plugins.driver_replies import HEALTHY, UNHEALTHY, UNKNOWN

__all__ = ["HEALTHY", "UNHEALTHY", "UNKNOWN", "DeviceHealthState", "DeviceHealthTracker"]

DEFAULT_TIMEOUT_SECONDS: Final = 30.0
"""How long a report without a timeout of its own holds."""
MAX_DEVICES: Final = 10_000
"""Limit of devices stored per driver; no node has more."""

Listener = Callable[[str], None]


class DeviceHealthState(NamedTuple):
    """The health of a device, in the terms of a pod's status, and the driver's message."""

    state: str
    message: str = ""


UNKNOWN_HEALTH: Final = DeviceHealthState(UNKNOWN)


class DriverSource(Protocol):
    """Lists the registered drivers."""

    def list_drivers(self) -> Mapping[str, DriverClient]: ...


@dataclass(frozen=True, slots=True)
class _HealthReport:
    """The last report about a device, and when it expires."""

    health: DeviceHealth
    expires_at: float


class DeviceHealthTracker:
    """Tracks the health that the drivers of a node report."""

    def __init__(
        self, drivers: DriverSource, timing: TimeSource | None = None, *, poll_seconds: float = 0.5
    ) -> None:
        self._drivers = drivers
        self._time_source = timing or TimeSource()
        self._poll_seconds = poll_seconds
        self._reports: dict[str, dict[tuple[str, str], _HealthReport]] = {}
        self._notified: dict[str, Mapping[tuple[str, str], DeviceHealthState]] = {}
        """The health that listeners were last notified of."""
        self._watches: dict[str, tuple[DriverClient, asyncio.Task[None]]] = {}
        self._listeners: list[Listener] = []

    def get_health(self, driver: str, pool: str, device: str) -> DeviceHealthState:
        """Return the health of a device."""
        report = self._reports.get(driver, {}).get((pool, device))
        return UNKNOWN_HEALTH if report is None else self._evaluate(report)

    def add_listener(self, on_change: Listener) -> None:
        """Call back with the name of a driver when the health of one of its devices changes."""
        self._listeners.append(on_change)

    async def run(self) -> None:
        """Watch the drivers until cancelled."""
        try:
            while True:
                self.sync()
                await self._time_source.sleep(self._poll_seconds)
        finally:
            tasks = [task for _, task in self._watches.values()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._watches.clear()

    def sync(self) -> None:
        """Start and stop watches as drivers come and go, and notice expired reports."""
        registered = self._drivers.list_drivers()
        for name, (client, task) in list(self._watches.items()):
            if registered.get(name) is not client:
                task.cancel()
                del self._watches[name]
        for name in self._reports.keys() - registered.keys():
            del self._reports[name]
            self._notify_listeners(name)
        for name, client in registered.items():
            if name not in self._watches:
                self._watches[name] = client, asyncio.create_task(self._watch_driver(client))
        for name in self._reports:
            self._notify_listeners(name)

    async def _watch_driver(self, client: DriverClient) -> None:
        """Read the health stream of a driver, reopening it, until it proves not to have one."""
        backoff = Backoff(self._time_source, initial=1.0, maximum=30.0)
        while (stream := client.watch_health()) is not None:
            # Closed explicitly, because the underlying call continues until then.
            closing: Any = stream
            async with aclosing(closing):
                async for states in stream:
                    self._store_reports(client.name, states)
                    backoff.reset()
            await backoff.wait()

    def _store_reports(self, driver: str, states: Sequence[DeviceHealth]) -> None:
        now = self._time_source.clock.monotonic()
        self._reports[driver] = {
            (each.pool, each.device): _HealthReport(each, now + (each.timeout or DEFAULT_TIMEOUT_SECONDS))
            for each in states[:MAX_DEVICES]
        }
        self._notify_listeners(driver)

    def _evaluate(self, report: _HealthReport) -> DeviceHealthState:
        if self._time_source.clock.monotonic() >= report.expires_at:
            return UNKNOWN_HEALTH
        return DeviceHealthState(report.health.health, report.health.message)

    def _notify_listeners(self, driver: str) -> None:
        """Notify listeners if the health of any device has changed."""
        current = {device: self._evaluate(report) for device, report in self._reports.get(driver, {}).items()}
        known = {device: state for device, state in current.items() if state != UNKNOWN_HEALTH}
        if known == self._notified.get(driver, {}):
            return
        self._notified[driver] = known
        for on_change in self._listeners:
            on_change(driver)
