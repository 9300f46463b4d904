"""Device health: reported by drivers, for the timeout of a report."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest

from dray.client.timing import TimeSource
from dray.clock import ManualClock
from dray.node.plugins.device_health import (
    DEFAULT_TIMEOUT_SECONDS,
    UNKNOWN_HEALTH,
    DeviceHealthState,
    DeviceHealthTracker,
)
from dray.node.plugins.driver_interface import DeviceHealth
from tests.unit.node.registry_harness import NAME, RegistryHarness, open_registry_harness, until

BROKEN = DeviceHealthState("Unhealthy", "fan is off")
WELL = DeviceHealthState("Healthy")


@asynccontextmanager
async def followed(here: RegistryHarness) -> AsyncIterator[tuple[DeviceHealthTracker, list[str]]]:
    """The health of the drivers of a place, and whose news listeners heard."""
    heard: list[str] = []
    health = DeviceHealthTracker(here.registry, TimeSource(here.clock, here._sleep))
    health.add_listener(heard.append)
    working = asyncio.create_task(health.run())
    try:
        yield health, heard
    finally:
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)


def test_the_health_of_devices_comes_from_their_driver() -> None:
    async def run() -> None:
        async with open_registry_harness() as here:
            driver = await here.driver()
            await here.registered()
            async with followed(here) as (health, heard):
                assert health.get_health(NAME, "pool", "dev-0") == UNKNOWN_HEALTH
                driver.health.put_nowait(
                    [("pool", "dev-0", 1, 0, ""), ("pool", "dev-1", 2, 0, "fan\nis off")]
                )
                await until(lambda: heard == [NAME])
                assert health.get_health(NAME, "pool", "dev-0") == WELL
                assert health.get_health(NAME, "pool", "dev-1") == BROKEN
                assert health.get_health(NAME, "other", "dev-1") == UNKNOWN_HEALTH
                assert health.get_health("other.example.com", "pool", "dev-1") == UNKNOWN_HEALTH
                driver.health.put_nowait([("pool", "dev-0", 2, 0, "fan is off")])
                await until(lambda: health.get_health(NAME, "pool", "dev-0") == BROKEN)
                assert health.get_health(NAME, "pool", "dev-1") == UNKNOWN_HEALTH, (
                    "a device that is left out is unknown"
                )

    asyncio.run(run())


def test_a_report_holds_for_its_timeout_and_listeners_are_notified_when_it_expires() -> None:
    async def run() -> None:
        async with open_registry_harness() as here:
            driver = await here.driver()
            await here.registered()
            async with followed(here) as (health, heard):
                driver.health.put_nowait([("pool", "short", 1, 5, ""), ("pool", "usual", 1, -1, "")])
                await until(lambda: heard == [NAME])
                here.clock.advance(5)
                assert health.get_health(NAME, "pool", "short") == UNKNOWN_HEALTH
                assert health.get_health(NAME, "pool", "usual") == WELL
                await until(lambda: heard == [NAME, NAME])
                here.clock.advance(DEFAULT_TIMEOUT_SECONDS - 5)
                assert health.get_health(NAME, "pool", "usual") == UNKNOWN_HEALTH
                await until(lambda: heard == [NAME] * 3)

    asyncio.run(run())


def test_a_stream_that_ends_is_read_again() -> None:
    async def run() -> None:
        async with open_registry_harness() as here:
            driver = await here.driver()
            await here.registered()
            async with followed(here) as (health, _):
                driver.health.put_nowait([("pool", "dev-0", 1, 0, "")])
                driver.health.put_nowait(None)
                driver.health.put_nowait([("pool", "dev-0", 2, 0, "fan is off")])
                await until(lambda: health.get_health(NAME, "pool", "dev-0") == BROKEN)
                assert [method for method, _ in driver.calls] == [
                    "v1.DRAResourceHealth/NodeWatchResources"
                ] * 2

    asyncio.run(run())


def test_devices_of_a_driver_that_is_not_registered_are_unknown() -> None:
    async def run() -> None:
        async with open_registry_harness() as here:
            driver = await here.driver()
            await here.registered()
            async with followed(here) as (health, heard):
                driver.health.put_nowait([("pool", "dev-0", 1, 0, "")])
                await until(lambda: heard == [NAME])
                await driver.stop()
                await here.until(lambda: here.registry.find_driver(NAME) is None)
                await until(lambda: heard == [NAME, NAME])
                assert health.get_health(NAME, "pool", "dev-0") == UNKNOWN_HEALTH

    asyncio.run(run())


def test_in_a_rolling_update_the_newest_instance_is_heard() -> None:
    async def run() -> None:
        async with open_registry_harness() as here:
            old = await here.driver(instance="-1")
            await here.registered()
            async with followed(here) as (health, _):
                old.health.put_nowait([("pool", "dev-0", 1, 0, "")])
                await until(lambda: health.get_health(NAME, "pool", "dev-0") == WELL)
                new = await here.driver(instance="-2")
                await here.until(lambda: len(here.came) == 2)
                new.health.put_nowait([("pool", "dev-0", 2, 0, "fan is off")])
                await until(lambda: health.get_health(NAME, "pool", "dev-0") == BROKEN)

    asyncio.run(run())


class _Silent:
    """A driver that streams nothing."""

    name = NAME
    classic = False

    def __init__(self) -> None:
        self.asked = 0

    def list_drivers(self) -> dict[str, _Silent]:
        return {NAME: self}

    def watch_health(self) -> AsyncIterator[Sequence[DeviceHealth]] | None:
        self.asked += 1
        return None


def test_a_driver_without_health_is_asked_once() -> None:
    async def run() -> None:
        silent = _Silent()
        health = DeviceHealthTracker(silent, TimeSource(ManualClock()))  # type: ignore[arg-type]
        for _ in range(3):
            health.sync()
            await asyncio.sleep(0)
        assert silent.asked == 1

    asyncio.run(run())


@pytest.mark.parametrize("state", [0, 7])
def test_unknown_states_are_unknown(state: int) -> None:
    async def run() -> None:
        async with open_registry_harness() as here:
            driver = await here.driver()
            await here.registered()
            async with followed(here) as (health, heard):
                driver.health.put_nowait([("pool", "dev-0", state, 0, "strange")])
                await until(lambda: heard == [NAME])
                assert health.get_health(NAME, "pool", "dev-0") == DeviceHealthState("Unknown", "strange")

    asyncio.run(run())
