"""A harness for the plugin registry: short paths, a manual clock, drivers in plain grpcio."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from dray.client.timing import TimeSource
from dray.clock import ManualClock
from dray.node.agent_metrics import NodeAgentMetrics
from dray.node.plugins.driver_client import DriverCallOptions
from dray.node.plugins.registry import PluginRegistry, PluginRegistryOptions
from dray.telemetry.logs import LogLevel, StructuredLogger
from tests.e2e.plain_driver import PlainDriver, Ways

NAME = "plain.example.com"
GRACE = 30.0
SOON = 30.0


async def until(is_so: Callable[[], bool], told: Callable[[], object] = lambda: "") -> None:
    """Wait until something is so."""
    try:
        async with asyncio.timeout(SOON):
            while not is_so():
                await asyncio.sleep(0.01)
    except TimeoutError:
        raise AssertionError(told()) from None


class RegistryHarness:
    """A registry, its directory, and its drivers."""

    def __init__(
        self, folder: Path, timeout: float, withdraw: Callable[[str], Awaitable[None]] | None
    ) -> None:
        self.registrations, self.plugins, self.cdi = folder / "r", folder / "p", folder / "c"
        for each in (self.registrations, self.plugins, self.cdi):
            each.mkdir(mode=0o700)
        self.clock = ManualClock()
        self.metrics = NodeAgentMetrics()
        self.lines: list[str] = []
        self.came: list[str] = []
        self.went: list[str] = []
        self.withdrawn: list[str] = []
        self._drivers: list[PlainDriver] = []
        time_source = TimeSource(self.clock, self._sleep)
        call_options = DriverCallOptions(timeout=timeout, time_source=time_source, metrics=self.metrics)
        log = StructuredLogger(self._take, self.clock, level=LogLevel.DEBUG)
        options = PluginRegistryOptions(self.registrations, grace=GRACE, timeout=0.5)
        self.registry = PluginRegistry(options, call_options, log=log, withdraw=withdraw or self._withdraw)
        self.registry.add_listener(self.came.append, self.went.append)

    async def _sleep(self, _seconds: float) -> None:
        """Attempts follow each other quickly, however long the wait between them should be."""
        await asyncio.sleep(0.02)

    def _take(self, line: bytes) -> bool:
        self.lines.append(line.decode())
        return True

    async def _withdraw(self, driver: str) -> None:
        self.withdrawn.append(driver)

    async def driver(self, name: str = NAME, **ways: Any) -> PlainDriver:
        """A driver that has started."""
        made = PlainDriver(self.ways(name, **ways))
        await made.start()
        self._drivers.append(made)
        return made

    def ways(self, name: str = NAME, **ways: Any) -> Ways:
        folder = self.plugins / str(len(self._drivers))
        folder.mkdir(exist_ok=True)
        return Ways(name, self.registrations, folder, self.cdi, **ways)

    async def started(self, driver: PlainDriver) -> PlainDriver:
        """Start a driver that was changed first, or that had stopped."""
        if driver not in self._drivers:
            self._drivers.append(driver)
        return await driver.start()

    async def registered(self, name: str = NAME) -> None:
        """Look until a driver is there."""
        await self.until(lambda: self.registry.find_driver(name) is not None)

    async def until(self, is_so: Callable[[], bool]) -> None:
        """Look, without any time passing, until something is so."""

        def looked() -> bool:
            self.registry.sync()
            return is_so()

        await until(looked, lambda: "".join(self.lines))

    def pass_time(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.registry.sync()

    async def end(self) -> None:
        await self.registry.close()
        for each in self._drivers:
            await each.stop()


@asynccontextmanager
async def open_registry_harness(
    timeout: float = 20.0, withdraw: Callable[[str], Awaitable[None]] | None = None
) -> AsyncIterator[RegistryHarness]:
    """A registry that is removed afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="dray-"))
    made = RegistryHarness(folder, timeout, withdraw)
    try:
        yield made
    finally:
        await made.end()
        shutil.rmtree(folder)
