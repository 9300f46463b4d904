"""The health of devices, as drivers stream it to agents."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

import pytest

from dray.driver import DeviceState
from dray.driver import metrics as m
from dray.wire.grpc_services import (
    HEALTH_V1,
    HEALTH_V1ALPHA1,
    HEALTH_V1BETA1,
    GrpcService,
    GrpcStub,
)
from tests.unit.driver.driver_node import NODE, AgentClient, HealthReportingGpu, open_driver_node
from tests.unit.driver.driver_server import wait_until

LIMIT = 20.0


@pytest.mark.parametrize("service", [HEALTH_V1, HEALTH_V1BETA1, HEALTH_V1ALPHA1], ids=lambda each: each.name)
def test_health_is_streamed(service: GrpcService) -> None:
    async def scenario() -> None:
        async with open_driver_node() as node:
            gpu = HealthReportingGpu()
            async with node.run_driver(gpu) as agent:
                request = service.get_message_class("NodeWatchResourcesRequest")()
                messages: Any = GrpcStub(agent.endpoint, service).stream("NodeWatchResources", request)
                first = await _next(messages)
                assert [
                    (each.device.pool_name, each.device.device_name, each.health) for each in first.devices
                ] == [(NODE, "gpu-0", 1), ("elsewhere", "gpu-1", 0)]
                assert all(each.last_updated_time > 0 for each in first.devices)
                gpu.states = [DeviceState("gpu-0", False, "too hot", timeout_seconds=7)]
                gpu.changed()
                while len((message := await _next(messages)).devices) != 1:
                    pass
                state = message.devices[0]
                assert state.health == 2
                assert (state.message, state.health_check_timeout_seconds) == ("too hot", 7)
                assert _number(agent, m.UNHEALTHY) == 1
                messages.cancel()

    asyncio.run(scenario())


def test_a_health_stream_survives_an_exception_of_the_author() -> None:
    async def scenario() -> None:
        class Shaky(HealthReportingGpu):
            def health(self) -> Iterable[DeviceState]:
                self.received.append(("health", None))  # type: ignore[arg-type]
                if len(self.received) == 1:
                    raise OSError("no bus")
                return self.states

        async with open_driver_node() as node, node.run_driver(Shaky()) as agent:
            request = HEALTH_V1.get_message_class("NodeWatchResourcesRequest")()
            messages: Any = GrpcStub(agent.endpoint, HEALTH_V1).stream("NodeWatchResources", request)
            assert len((await _next(messages)).devices) == 2
            assert "cannot read the health of devices" in node.log_text
            messages.cancel()

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("wrong", "expected"),
    [
        ("gpu-0", "`health` must yield `DeviceState` values, not `'gpu-0'`"),
        (DeviceState("gpu-0", "yes"), "`healthy` is True, False or None, not `'yes'`"),  # type: ignore[arg-type]
        (DeviceState("gpu-0", True, timeout_seconds=-1), "`timeout_seconds` is at most"),
    ],
)
def test_a_driver_continues_after_invalid_health_values(wrong: Any, expected: str) -> None:
    async def scenario() -> None:
        async with open_driver_node() as node:
            gpu = HealthReportingGpu()
            gpu.states = [wrong]
            async with node.run_driver(gpu) as agent:
                request = HEALTH_V1.get_message_class("NodeWatchResourcesRequest")()
                messages: Any = GrpcStub(agent.endpoint, HEALTH_V1).stream("NodeWatchResources", request)
                await wait_until(lambda: _now(expected in node.log_text))
                gpu.states = [DeviceState("gpu-0", True)]
                gpu.changed()
                assert len((await _next(messages)).devices) == 1
                assert await agent.prepare_ok(await node.create_claim("c"), "c")
                messages.cancel()

    asyncio.run(scenario())


async def _next(messages: Any) -> Any:
    async with asyncio.timeout(LIMIT):
        return await anext(aiter(messages))


async def _now(value: Any) -> Any:
    return value


def _number(agent: AgentClient, name: str) -> float:
    for family in agent.service.metrics.collect():
        if family.name == name:
            return sum(sample.value for sample in family.samples)
    raise AssertionError(name)
