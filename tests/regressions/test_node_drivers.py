"""Faults that agents have had with their drivers elsewhere, by their row in the list of regressions."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import grpc
import pytest

from dray.node.plugins.driver_interface import (
    MISSING_ENTRY,
    ClaimRef,
    DriverCallFailure,
    DriverCallFault,
    DriverClient,
    PreparedDevice,
)
from tests.e2e.plain_driver import PlainDriver
from tests.e2e.processes import Process
from tests.unit.node.registry_harness import GRACE, NAME, RegistryHarness, open_registry_harness, until

CLAIM = ClaimRef("default", "c", "uid-c")
OTHER = ClaimRef("default", "d", "uid-d")
READY = (PreparedDevice(pool=NAME, device="dev-0", cdi=(f"{NAME}/plain=uid-c-dev-0",)),)


def line(here: RegistryHarness) -> DriverClient:
    found = here.registry.find_driver(NAME)
    assert found is not None
    return found


def test_k06_a_driver_that_never_registered_is_nobody_to_wait_for() -> None:
    """Others called a driver that had never been there until the call timed out, and the pod stayed."""

    async def run() -> None:
        async with open_registry_harness() as here:
            silent = PlainDriver(here.ways("silent.example.com"))
            silent.hangs.add("GetInfo")
            await here.started(silent)
            here.registry.sync()
            for name in ("never.example.com", "silent.example.com"):
                assert here.registry.find_driver(name) is None
            # And one that was never there has no slices to withdraw.
            here.pass_time(10 * GRACE)
            assert (here.went, here.withdrawn) == ([], [])

    asyncio.run(run())


def test_k09_a_connection_that_was_idle_for_long_works_at_the_next_call() -> None:
    """Others found the connection closed after half an hour without calls, and the next call failed."""

    async def run() -> None:
        async with open_registry_harness() as here:
            driver = PlainDriver(here.ways(versions=("v1.DRAPlugin",)))
            driver.options = (("grpc.max_connection_idle_ms", 50),)
            await here.started(driver)
            await here.registered()
            (instance,) = here.registry._list_instances()
            for _ in range(2):
                await until(lambda: instance.channel.get_state() == grpc.ChannelConnectivity.IDLE)
                assert await line(here).prepare([CLAIM]) == {CLAIM.uid: READY}
            # Nor does anybody who looks take sleep for death.
            await until(lambda: instance.channel.get_state() == grpc.ChannelConnectivity.IDLE)
            here.pass_time(60 * 30)
            here.pass_time(60 * 30)
            assert (here.went, here.withdrawn) == ([], [])
            assert await line(here).prepare([CLAIM]) == {CLAIM.uid: READY}

    asyncio.run(run())


def test_k10_a_reply_without_an_entry_or_with_an_empty_one_is_an_answer() -> None:
    """Others crashed on a reply that left out a claim, and on one whose message was empty."""

    async def run() -> None:
        async with open_registry_harness() as here:
            driver = await here.driver()
            await here.registered()
            driver.left_out.add(OTHER.uid)
            driver.empty.add(CLAIM.uid)
            missing = DriverCallFailure(DriverCallFault.REFUSED, f"driver `{NAME}`: {MISSING_ENTRY}")
            assert await line(here).prepare([CLAIM, OTHER]) == {CLAIM.uid: (), OTHER.uid: missing}
            assert await line(here).unprepare([CLAIM, OTHER]) == {CLAIM.uid: None, OTHER.uid: missing}
            driver.left_out.clear()
            assert (await line(here).unprepare([OTHER])) == {OTHER.uid: None}

    asyncio.run(run())


@contextmanager
def process(here: RegistryHarness) -> Iterator[Process]:
    """The plain driver in a process of its own."""
    arguments = [sys.executable, "-m", "tests.e2e.plain_driver", "--name", NAME]
    places = ["--registry", here.registrations, "--plugins", here.plugins, "--cdi-dir", here.cdi]
    made = Process([*arguments, *map(str, places)], here.cdi / "log", f"{NAME} is ready")
    try:
        yield made
    finally:
        made.stop(signal.SIGKILL)


def test_k14_a_driver_that_was_killed_has_gone_after_the_grace_time_and_is_left_alone() -> None:
    """Others kept the slices of a driver that left its sockets behind, and tried to connect for ever."""

    async def run() -> None:
        async with open_registry_harness() as here:
            with process(here) as driver:
                await asyncio.to_thread(driver.start)
                await here.registered()
                await asyncio.to_thread(driver.stop, signal.SIGKILL)
                assert len(list(here.registrations.iterdir())) == 1
                await here.until(lambda: here.registry._list_instances()[0].unreachable_since is not None)
                outcome = (await line(here).prepare([CLAIM]))[CLAIM.uid]
                assert isinstance(outcome, DriverCallFailure)
                assert outcome.fault is DriverCallFault.NO_ANSWER
                here.pass_time(GRACE - 1)
                assert (here.went, here.withdrawn) == ([], [])
                here.pass_time(1)
                await until(lambda: here.withdrawn == [NAME])
                assert here.registry.find_driver(NAME) is None
                # Nobody listens at that file, and nobody ever will.
                here.clock.advance(GRACE)
                await until(lambda: not here.registry._tasks, lambda: "".join(here.lines))
                assert "ignored until it is replaced" in here.lines[-1]
                here.pass_time(100 * GRACE)
                assert not here.registry._tasks
                await asyncio.to_thread(driver.start)
                await here.registered()
                assert await line(here).prepare([CLAIM]) == {CLAIM.uid: READY}
                assert (here.went, here.withdrawn) == ([NAME], [NAME])

    asyncio.run(run())


def test_k14_sockets_from_before_the_agent_started_are_not_drivers() -> None:
    """A driver may have died while no agent looked: its slices are withdrawn all the same."""

    async def run() -> None:
        async with open_registry_harness() as here:
            with process(here) as driver:
                await asyncio.to_thread(driver.start)
                await asyncio.to_thread(driver.stop, signal.SIGKILL)
            here.registry.expect_drivers([NAME])
            here.registry.sync()
            here.pass_time(GRACE)
            await until(lambda: here.withdrawn == [NAME])
            assert here.registry.find_driver(NAME) is None
            here.clock.advance(GRACE)
            await until(lambda: not here.registry._tasks, lambda: "".join(here.lines))

    asyncio.run(run())


@pytest.mark.parametrize("code", [grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.INTERNAL])
def test_k15_a_driver_that_could_not_be_notified_registers_again(code: grpc.StatusCode) -> None:
    """Others had a driver half registered when it could not be told, and never tried again."""

    async def run() -> None:
        async with open_registry_harness() as here:
            driver = PlainDriver(here.ways())
            driver.fails["NotifyRegistrationStatus"] = (code, "not now")
            await here.started(driver)
            await here.until(lambda: any("NotifyRegistrationStatus: not now" in each for each in here.lines))
            assert (here.registry.find_driver(NAME), here.came, driver.statuses) == (None, [], [])
            driver.fails.clear()
            await here.registered()
            assert (here.came, driver.statuses) == ([NAME], [(True, "")])
            assert await line(here).prepare([CLAIM]) == {CLAIM.uid: READY}

    asyncio.run(run())
