"""How well the devices of this node are, as their drivers stream it.

Theory of operation: for each driver that streams there is one task that reads, and starts again when the
stream breaks. A device is as well as the last word about it, and that word holds for as long as the driver
said, or for half a minute; after that nobody knows. When word came counts by our clock, because a driver's
clock may be anything. A driver tells all of its devices each time; one that it leaves out is unknown.

Rules for this file: what follows for pods is decided elsewhere; listeners hear which driver has news.
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
"""Seconds for which the word of a driver holds that does not say for how long."""
MAX_DEVICES: Final = 10_000
"""Devices of one driver that are kept; more are not on any node."""

Listener = Callable[[str], None]


class DeviceHealthState(NamedTuple):
    """How a device is, in the words of a pod's status, and what its driver says about it."""

    state: str
    message: str = ""


UNKNOWN_HEALTH: Final = DeviceHealthState(UNKNOWN)


class DriverSource(Protocol):
    """Who is there."""

    def list_drivers(self) -> Mapping[str, DriverClient]: ...


@dataclass(frozen=True, slots=True)
class _HealthReport:
    """The last word about a device, and until when it holds."""

    health: DeviceHealth
    expires_at: float


class DeviceHealthTracker:
    """What the drivers of a node say about their devices."""

    def __init__(
        self, drivers: DriverSource, timing: TimeSource | None = None, *, poll_seconds: float = 0.5
    ) -> None:
        self._drivers = drivers
        self._time_source = timing or TimeSource()
        self._poll_seconds = poll_seconds
        self._reports: dict[str, dict[tuple[str, str], _HealthReport]] = {}
        self._notified: dict[str, Mapping[tuple[str, str], DeviceHealthState]] = {}
        """What listeners know."""
        self._watches: dict[str, tuple[DriverClient, asyncio.Task[None]]] = {}
        self._listeners: list[Listener] = []

    def get_health(self, driver: str, pool: str, device: str) -> DeviceHealthState:
        """How a device is."""
        word = self._reports.get(driver, {}).get((pool, device))
        return UNKNOWN_HEALTH if word is None else self._evaluate(word)

    def add_listener(self, on_change: Listener) -> None:
        """Be told the name of a driver when a device of it is not as it was."""
        self._listeners.append(on_change)

    async def run(self) -> None:
        """Follow the drivers until cancelled."""
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
        """Follow who came, leave who went, and notice which words hold no longer."""
        here = self._drivers.list_drivers()
        for name, (line, task) in list(self._watches.items()):
            if here.get(name) is not line:
                task.cancel()
                del self._watches[name]
        for name in self._reports.keys() - here.keys():
            del self._reports[name]
            self._notify_listeners(name)
        for name, line in here.items():
            if name not in self._watches:
                self._watches[name] = line, asyncio.create_task(self._watch_driver(line))
        for name in self._reports:
            self._notify_listeners(name)

    async def _watch_driver(self, client: DriverClient) -> None:
        """Read what a driver streams, again and again, until it turns out that it does not."""
        backoff = Backoff(self._time_source, initial=1.0, maximum=30.0)
        while (stream := client.watch_health()) is not None:
            # Closed here, because the call under it goes on until then.
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
        """Tell listeners, if there is anything new to tell."""
        now = {device: self._evaluate(word) for device, word in self._reports.get(driver, {}).items()}
        known = {device: state for device, state in now.items() if state != UNKNOWN_HEALTH}
        if known == self._notified.get(driver, {}):
            return
        self._notified[driver] = known
        for changed in self._listeners:
            changed(driver)
