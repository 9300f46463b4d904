"""The sockets of a driver: one process per path, and sockets that are restored when others remove them."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from dray.api.resource import ResourceSlice
from dray.driver.service import driver_service, served_sockets
from dray.driver.service.grpc_servers import DriverSockets, build_socket_paths
from dray.errors import InputError
from dray.telemetry.health import run_health_checks
from dray.wire.unix_sockets import open_channel
from tests.contract.api import path
from tests.unit.driver.driver_node import DRIVER, AgentClient, DriverNode, Gpu, open_driver_node
from tests.unit.driver.driver_server import wait_until
from tests.unit.driver.service.test_driver_service import get_info, notify_registration_status


@pytest.fixture(autouse=True)
def _check_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver_service, "SOCKET_CHECK_SECONDS", 0.02)


def _find_sockets(node: DriverNode) -> DriverSockets:
    return build_socket_paths(DRIVER, node.options.plugins, node.options.registry)


def _read_readiness(agent: AgentClient) -> str:
    result = run_health_checks("/readyz", agent.service.build_health_checks(), verbose=True)
    assert result is not None
    assert result.passed == ("failed" not in result.text)
    return result.text


async def _now(value: Any) -> Any:
    return value


@contextmanager
def _listen(path: Path) -> Iterator[None]:
    """Listen at a path, as another program would."""
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen()
        yield


def _leave_dead_socket(path: Path) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with _listen(path):
        pass


def test_a_driver_is_ready_once_an_agent_has_registered_it() -> None:
    async def scenario() -> None:
        async with open_driver_node() as node, node.run_driver() as agent:
            unregistered = _read_readiness(agent)
            assert "[+]published ok" in unregistered
            assert "[-]registered failed: no agent has registered the driver" in unregistered
            assert str(node.options.registry) in unregistered
            await notify_registration_status(agent, registered=False, error="version 7 is not known")
            assert "the agent refused the driver: version 7 is not known" in _read_readiness(agent)
            await notify_registration_status(agent, registered=True)
            assert "readyz check passed" in _read_readiness(agent)

    asyncio.run(scenario())


@pytest.mark.parametrize("which", ["endpoint", "registration", "both"])
def test_sockets_that_are_removed_are_served_again(which: str) -> None:
    async def scenario() -> None:
        async with open_driver_node() as node:
            gpu = Gpu()
            async with node.run_driver(gpu) as agent:
                await notify_registration_status(agent, registered=True)
                sockets = _find_sockets(node)
                both = (sockets.endpoint, sockets.registration)
                removed = both if which == "both" else (getattr(sockets, which),)
                for each in removed:
                    each.unlink()
                await wait_until(lambda: _now(all(each.exists() for each in both)))
                assert "a socket was removed and is served again" in node.log_text
                await wait_until(
                    lambda: _now(agent.service.registered.is_set()),
                    lambda is_set: is_set == (sockets.registration not in removed),
                )
                async with (
                    open_channel(sockets.endpoint) as endpoint,
                    open_channel(sockets.registration) as other,
                ):
                    again = AgentClient(agent.service, endpoint, other)
                    assert (await get_info(again)).name == DRIVER
                    await notify_registration_status(again, registered=True)
                    assert await again.prepare_ok(await node.create_claim("c"), "c")
                assert "readyz check passed" in _read_readiness(agent)
            assert not any(each.exists() for each in both), "its own sockets are removed at its end"

    asyncio.run(scenario())


def test_the_directory_of_a_driver_may_be_removed_with_its_sockets() -> None:
    async def scenario() -> None:
        async with open_driver_node() as node, node.run_driver():
            sockets = _find_sockets(node)
            sockets.registration.unlink()
            sockets.registration.parent.rmdir()
            await wait_until(lambda: _now(sockets.registration.exists()))

    asyncio.run(scenario())


def test_a_driver_whose_socket_another_process_took_is_not_ready_and_publishes_nothing() -> None:
    async def scenario() -> None:
        async with open_driver_node() as node, node.run_driver() as agent:
            await notify_registration_status(agent, registered=True)
            taken = _find_sockets(node).registration
            taken.unlink()
            with _listen(taken):
                await wait_until(
                    lambda: _now(_read_readiness(agent)), lambda text: "another process serves" in text
                )
                assert str(taken) in _read_readiness(agent)
                assert f"agents cannot reach the driver driver={DRIVER}" in node.log_text
                await _withdraw_slices(node)
                agent.service.driver.changed()
                await wait_until(lambda: _now("devices are not published: another process" in node.log_text))
                assert await node.server.slices() == []
            # The process that took it has ended, and left a dead socket.
            await wait_until(node.server.slices)
            assert "[+]sockets ok" in _read_readiness(agent)
            assert "[-]registered failed" in _read_readiness(agent)

    asyncio.run(scenario())


async def _withdraw_slices(node: DriverNode) -> None:
    """Delete all slices, as the agent does when a driver has gone."""
    for each in await node.server.slices():
        await node.server.admin.delete(ResourceSlice, each.metadata.name)
        await node.server.api.gone(path("resourceslices", each.metadata.name))


def test_a_second_process_refuses_to_start_and_leaves_the_first_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario() -> None:
        monkeypatch.setattr(served_sockets, "TAKE_OVER_SECONDS", 0.3)
        async with open_driver_node() as node, node.run_driver() as agent:
            with pytest.raises(InputError) as refused:
                async with node.run_driver(Gpu()):
                    pass
            assert str(refused.value) == (
                f"another process of driver `{DRIVER}` serves the socket `{_find_sockets(node).endpoint}` "
                "already; stop it first, or give each of the two an `--instance` of its own"
            )
            assert (await get_info(agent)).name == DRIVER
            assert await agent.prepare_ok(await node.create_claim("c"), "c")
            async with node.run_driver(Gpu(), instance="two"):
                assert len(list(node.options.registry.iterdir())) == 2

    asyncio.run(scenario())


def test_a_process_without_a_lock_counts_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        monkeypatch.setattr(served_sockets, "TAKE_OVER_SECONDS", 0.3)
        async with open_driver_node() as node:
            registration = _find_sockets(node).registration
            registration.parent.mkdir(mode=0o700)
            with _listen(registration), pytest.raises(InputError, match="another process of driver"):
                async with node.run_driver():
                    pass
            async with node.run_driver():
                """What it has left is dead now."""

    asyncio.run(scenario())


def test_a_successor_waits_until_the_process_before_it_has_ended() -> None:
    async def scenario() -> None:
        async with open_driver_node() as node:
            ending = node.run_driver()
            await ending.__aenter__()

            async def start_next() -> None:
                async with node.run_driver() as agent:
                    assert await agent.prepare_ok(await node.create_claim("c"), "c")
                    assert (await get_info(agent)).name == DRIVER

            following = asyncio.create_task(start_next())
            await wait_until(
                lambda: _now("waiting for another process of the driver to end" in node.log_text)
            )
            await ending.__aexit__(None, None, None)
            await following

    asyncio.run(scenario())


def test_a_driver_removes_no_socket_of_another_process_at_its_end() -> None:
    async def scenario() -> None:
        async with open_driver_node() as node:
            async with node.run_driver():
                taken = _find_sockets(node).endpoint
                taken.unlink()
                listening = _listen(taken)
                listening.__enter__()
            assert taken.is_socket()
            listening.__exit__(None, None, None)

    asyncio.run(scenario())


def test_sockets_of_killed_instances_are_removed_at_the_start_and_those_of_living_ones_stay() -> None:
    async def scenario() -> None:
        async with open_driver_node() as node, node.run_driver(instance="living"):
            options = node.options
            dead = build_socket_paths(DRIVER, options.plugins, options.registry, "killed")
            foreign = build_socket_paths("nic.example.com", options.plugins, options.registry)
            for each in (dead.endpoint, dead.registration, foreign.registration):
                _leave_dead_socket(each)
            async with node.run_driver(Gpu()):
                assert sorted(each.name for each in options.registry.iterdir()) == [
                    f"{DRIVER}-living-reg.sock",
                    f"{DRIVER}-reg.sock",
                    "nic.example.com-reg.sock",
                ]
                assert sorted(each.name for each in (options.plugins / DRIVER).glob("*.sock")) == [
                    "dra-living.sock",
                    "dra.sock",
                ]

    asyncio.run(scenario())
