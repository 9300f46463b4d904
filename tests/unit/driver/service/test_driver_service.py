"""The driver service: registration, rolling updates and publication."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest

from dray.api.resource import ResourceSlice
from dray.client.client import Client
from dray.driver import Claim, Driver, DriverService, Pool, Reach, Ready, async_driver, device
from dray.driver import metrics as m
from dray.gates import GATES, GateSet
from dray.wire.grpc_services import (
    REGISTRATION,
)
from dray.wire.unix_sockets import open_channel
from tests.unit.driver.driver_node import DRIVER, NODE, AgentClient, Gpu, HealthReportingGpu, open_driver_node
from tests.unit.driver.driver_server import serve_for_drivers, wait_until

LIMIT = 20.0


async def get_info(agent: AgentClient) -> Any:
    return await agent.registry.call(
        "GetInfo", agent.registry.service.get_message_class("InfoRequest")(), timeout=LIMIT
    )


async def notify_registration_status(agent: AgentClient, *, registered: bool, error: str = "") -> None:
    status = agent.registry.service.get_message_class("RegistrationStatus")
    await agent.registry.call(
        "NotifyRegistrationStatus", status(plugin_registered=registered, error=error), timeout=LIMIT
    )


def test_get_info_returns_the_name_endpoint_and_versions() -> None:
    async def scenario() -> None:
        async with open_driver_node() as node:
            async with node.run_driver() as agent:
                plugin = await get_info(agent)
                assert (plugin.type, plugin.name) == ("DRAPlugin", DRIVER)
                assert plugin.endpoint == str(node.options.plugins / DRIVER / "dra.sock")
                assert list(plugin.supported_versions) == ["v1.DRAPlugin", "v1beta1.DRAPlugin"]
            async with node.run_driver(HealthReportingGpu()) as agent:
                assert list((await get_info(agent)).supported_versions) == [
                    "v1.DRAPlugin",
                    "v1beta1.DRAPlugin",
                    "v1.DRAResourceHealth",
                    "v1beta1.DRAResourceHealth",
                    "v1alpha1.DRAResourceHealth",
                ]

    asyncio.run(scenario())


def test_get_info_is_answered_while_all_threads_and_the_event_loop_are_busy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Kubelets wait one second for it."""
    monkeypatch.setattr(async_driver, "MAX_THREADS", 1)
    busy, blocked, answered = threading.Event(), threading.Event(), threading.Event()
    answers: list[Any] = []

    class Busy(Gpu):
        def prepare(self, claim: Claim) -> Iterable[Ready]:
            busy.set()
            answered.wait(LIMIT)
            return super().prepare(claim)

    def call_get_info(path: Path) -> None:
        blocked.wait(LIMIT)
        method = REGISTRATION.methods["GetInfo"]
        codec = (method.request.SerializeToString, method.response.FromString)
        with grpc.insecure_channel(f"unix:{path}") as channel:
            answers.append(channel.unary_unary(method.path, *codec)(method.request(), timeout=LIMIT / 2))
        answered.set()

    async def scenario() -> None:
        async with open_driver_node() as node, node.run_driver(Busy()) as agent:
            claims = [(await node.create_claim(name, name), name) for name in ("gpu-0", "gpu-1")]
            preparing = asyncio.create_task(agent.prepare(*claims))
            await wait_until(lambda: _now(busy.is_set()))
            socket = node.options.registry / f"{DRIVER}-reg.sock"
            calling = asyncio.create_task(asyncio.to_thread(call_get_info, socket))
            await asyncio.sleep(0)
            blocked.set()
            assert answered.wait(LIMIT), "no answer while the event loop was blocked"
            await calling
            assert [each.name for each in answers] == [DRIVER]
            assert [each.error for each in (await preparing).values()] == ["", ""]

    asyncio.run(scenario())


def test_a_malformed_registration_status_is_refused_and_the_next_one_is_taken() -> None:
    async def scenario() -> None:
        async with open_driver_node() as node, node.run_driver() as agent:
            path = REGISTRATION.methods["NotifyRegistrationStatus"].path
            async with open_channel(node.options.registry / f"{DRIVER}-reg.sock") as channel:
                with pytest.raises(grpc.aio.AioRpcError) as refused:
                    await channel.unary_unary(path)(b"\xff", timeout=LIMIT)
            assert refused.value.code() is grpc.StatusCode.INTERNAL
            assert not agent.service.registered.is_set()
            await notify_registration_status(agent, registered=True)
            await wait_until(lambda: _now(agent.service.registered.is_set()))

    asyncio.run(scenario())


def test_the_registration_status_is_recorded() -> None:
    async def scenario() -> None:
        async with open_driver_node() as node, node.run_driver() as agent:
            await notify_registration_status(agent, registered=False, error="version 7 is not known")
            assert not agent.service.registered.is_set()
            assert "version 7 is not known" in node.log_text
            assert _number(agent, m.REGISTERED) == 0
            await notify_registration_status(agent, registered=True)
            async with asyncio.timeout(LIMIT):
                await agent.service.registered.wait()
            assert _number(agent, m.REGISTERED) == 1

    asyncio.run(scenario())


def test_two_instances_serve_side_by_side_and_share_what_is_prepared() -> None:
    async def scenario() -> None:
        async with open_driver_node() as node:
            uid = ""
            old, new = Gpu(), Gpu()
            async with node.run_driver(old, instance="old") as first:
                uid = await node.create_claim("c")
                answer = await first.prepare_ok(uid, "c")
                async with node.run_driver(new, instance="new") as second:
                    assert len(list(node.options.registry.iterdir())) == 2
                    assert await second.prepare_ok(uid, "c") == answer
                    await node.remove_claim("c")
                    other = await node.create_claim("other")
                    assert "held by claim `default/c`" in await second.expect_refusal(other, "other")
                    await second.unprepare_ok(uid, "c")
                    assert await first.prepare_ok(other, "other")
                assert [each.name for each in node.options.registry.iterdir()] == [f"{DRIVER}-old-reg.sock"]
            assert (old.calls, new.calls) == (
                [("prepare", "c"), ("prepare", "other")],
                [("unprepare", "c")],
            )

    asyncio.run(scenario())


def test_devices_are_published_again_after_changed() -> None:
    async def scenario() -> None:
        class Growing(Gpu):
            count = 1

            def devices(self) -> list[Any]:
                return [device(f"gpu-{number}") for number in range(self.count)]

        async with open_driver_node() as node:
            gpu = Growing()
            async with node.run_driver(gpu) as agent:
                assert await node.server.devices() == ["gpu-0"]
                assert _number(agent, m.DEVICES) == 1
                gpu.count = 3
                await asyncio.to_thread(gpu.changed)
                await wait_until(node.server.devices, lambda names: names == ["gpu-0", "gpu-1", "gpu-2"])
            gpu.changed()  # after the end nobody listens, and nothing happens

    asyncio.run(scenario())


def test_without_a_node_a_driver_only_publishes_what_is_attached_by_network() -> None:
    async def scenario() -> None:
        class Fabric(Gpu):
            def devices(self) -> list[Any]:
                return [Pool("fabric", [device("link-0")], nodes=Reach.ALL_NODES)]

        async with open_driver_node() as node:
            kit = DriverService(
                Fabric(), Client(node.server.connect(node="")), replace(node.options, node="")
            )
            task = asyncio.create_task(kit.run())
            async with asyncio.timeout(LIMIT):
                await kit.ready.wait()
            (page,) = await node.server.slices()
            assert (page.spec.all_nodes, page.spec.pool.name) == (True, "fabric")
            assert not node.options.registry.exists()
            task.cancel()
            await asyncio.wait([task])

    asyncio.run(scenario())


def test_an_exception_in_devices_is_logged_and_retried() -> None:
    async def scenario() -> None:
        class Shaky(Gpu):
            broken = True

            def devices(self) -> list[Any]:
                if self.broken:
                    return [device("gpu-0", attributes={"x" * 99: 1})]
                return [device("gpu-0")]

        async with open_driver_node() as node:
            gpu = Shaky()
            async with node.run_driver(gpu, until_published=False) as agent:
                await wait_until(lambda: _now("device `gpu-0`: attributes: " in node.log_text))
                assert not agent.service.ready.is_set()
                gpu.broken = False
                gpu.changed()
                await wait_until(node.server.devices, lambda names: names == ["gpu-0"])

    asyncio.run(scenario())


def test_a_server_without_the_api_is_logged_once_and_retried() -> None:
    async def scenario() -> None:
        without = GateSet.from_defaults().override(dict.fromkeys(GATES, False))
        async with open_driver_node(without) as node, serve_for_drivers() as other:
            gpu = Gpu()
            async with asyncio.timeout(LIMIT), node.run_driver(gpu, until_published=False) as agent:
                tried = re.escape(f'dray_driver_publications_total{{driver="{DRIVER}",result="error"}}')
                while not re.search(f"{tried} [3-9]", agent.service.metrics.render().decode()):
                    gpu.changed()
                    await asyncio.sleep(0.01)
                (logged,) = [each for each in node.lines if "ERROR" in each]
                assert "devices are not published: " in logged
                assert "serves resourceslices in none of `resource.k8s.io/v1`, " in logged
                assert "with feature gate `DynamicResourceAllocation` on" in logged
                assert not agent.service.ready.is_set()
                node.transport.inner = other.connect().inner
                gpu.changed()
                await wait_until(other.devices, lambda names: len(names) == 4)
                await wait_until(lambda: _now(node.log_text.count("devices are published") == 1))

    asyncio.run(scenario())


def test_a_slow_devices_method_is_logged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dray.driver.service.driver_service.SLOW_DEVICES_SECONDS", 0.01)

    async def scenario() -> None:
        go = asyncio.Event()

        class Slow(Gpu):
            async def devices(self) -> list[Any]:  # type: ignore[override]
                await go.wait()
                return [device("gpu-0")]

        async with open_driver_node() as node, node.run_driver(Slow(), until_published=False):
            await wait_until(lambda: _now("`devices` does not end" in node.log_text))
            go.set()
            await wait_until(node.server.devices, lambda names: names == ["gpu-0"])

    asyncio.run(scenario())


def test_calls_are_counted_and_timed() -> None:
    async def scenario() -> None:
        async with open_driver_node() as node, node.run_driver() as agent:
            uid = await node.create_claim("c")
            await agent.prepare_ok(uid, "c")
            await agent.expect_refusal("1234", "none")
            text = agent.service.metrics.render().decode()
            assert f'dray_driver_claims_total{{driver="{DRIVER}",method="prepare",result="ok"}} 1.0' in text
            assert (
                f'dray_driver_claims_total{{driver="{DRIVER}",method="prepare",result="error"}} 1.0' in text
            )
            assert f'dray_driver_claim_seconds_count{{driver="{DRIVER}",method="prepare"}} 2.0' in text
            assert f'dray_driver_held_claims{{driver="{DRIVER}",stage="prepared"}} 1.0' in text

    asyncio.run(scenario())


def test_what_is_written_to_keep_devices_published_is_counted() -> None:
    async def scenario() -> None:
        async with open_driver_node() as node, node.run_driver() as agent:

            def tells(name: str, value: int, **labels: str) -> bool:
                pairs = ",".join(f'{key}="{word}"' for key, word in ({"driver": DRIVER} | labels).items())
                return f"{name}{{{pairs}}} {value}.0\n" in agent.service.metrics.render().decode()

            assert tells(m.WRITES, 1, operation="create")
            assert tells(m.HEALED, 0)
            (slice_,) = await node.server.slices()
            await node.server.admin.delete(ResourceSlice, slice_.metadata.name)
            await wait_until(lambda: _now(tells(m.HEALED, 1)))
            assert tells(m.WRITES, 2, operation="create")
            assert tells(m.WRITES, 0, operation="update")
            assert tells(m.WRITES, 0, operation="delete")
            assert tells(m.FAILURES, 0)

    asyncio.run(scenario())


def test_authors_may_write_async_methods() -> None:
    async def scenario() -> None:
        class Soft(Driver):
            name = DRIVER

            def __init__(self) -> None:
                self.given: list[str] = []

            async def devices(self) -> list[Any]:
                await asyncio.sleep(0)
                return [device("gpu-0")]

            async def unprepare(self, claim: Any) -> None:
                await asyncio.sleep(0)
                self.given.append(claim.name)

        async with open_driver_node() as node:
            soft = Soft()
            async with node.run_driver(soft) as agent:
                assert await node.server.devices() == ["gpu-0"]
                uid = await node.create_claim("c")
                assert await agent.prepare_ok(uid, "c") == [("gpu", NODE, "gpu-0", ())]
                assert node.cdi() == {}
                await agent.unprepare_ok(uid, "c")
            assert soft.given == ["c"]

    asyncio.run(scenario())


async def _now(value: Any) -> Any:
    return value


def _number(agent: AgentClient, name: str) -> float:
    for family in agent.service.metrics.collect():
        if family.name == name:
            return sum(sample.value for sample in family.samples)
    raise AssertionError(name)
