"""Claims prepared and unprepared over real sockets, as an agent calls."""

from __future__ import annotations

import asyncio
import stat
import sys
import threading
from collections.abc import Iterable
from typing import Any

import pytest

from dray.driver import Claim, DeviceStatus, Ready, device
from dray.wire.grpc_services import DRA_V1BETA1
from tests.contract.documents import allocation
from tests.unit.driver.driver_node import DRIVER, NODE, Gpu, open_driver_node


@pytest.mark.req("K3063-131", "K3063-132")
def test_a_claim_is_prepared_with_its_devices_and_a_cdi_file() -> None:
    async def scenario() -> None:
        async with open_driver_node() as node, node.run_driver() as agent:
            uid = await node.create_claim("c", "gpu-0", "gpu-1")
            assert await agent.prepare_ok(uid, "c") == [
                ("gpu", NODE, "gpu-0", (f"{DRIVER}/claim={uid}-0",)),
                ("gpu", NODE, "gpu-1", (f"{DRIVER}/claim={uid}-1",)),
            ]
            assert node.cdi() == {
                f"{DRIVER}_{uid}.json": {
                    "cdiVersion": "0.5.0" if uid[0].isdigit() else "0.3.0",
                    "kind": f"{DRIVER}/claim",
                    "devices": [
                        {"name": f"{uid}-{number}", "containerEdits": {"env": [f"GPU=gpu-{number}"]}}
                        for number in (0, 1)
                    ],
                }
            }
            await agent.unprepare_ok(uid, "c")
            assert node.cdi() == {}

    asyncio.run(scenario())


def test_a_share_of_a_device_is_named_in_v1_and_a_whole_device_has_no_share() -> None:
    async def scenario() -> None:
        class Shared(Gpu):
            def devices(self) -> Iterable[Any]:
                return [device("gpu-0"), device("gpu-1", capacity={"memory": "8Gi"}, shared=True)]

        share = "3f1a2b4c-5d6e-4f70-8192-a3b4c5d6e7f8"
        async with open_driver_node() as node, node.run_driver(Shared()) as agent:
            whole, shared = (allocation(each)["devices"]["results"][0] for each in ("gpu-0", "gpu-1"))
            uid = await node.create_allocated_claim(
                "c", [whole, shared | {"shareID": share, "consumedCapacity": {"memory": "8Gi"}}]
            )
            reply = (await agent.prepare((uid, "c")))[uid]
            assert [each.share_id for each in reply.devices] == ["", share]
            assert [each.HasField("share_id") for each in reply.devices] == [False, True]
            older = (await agent.prepare((uid, "c"), service=DRA_V1BETA1))[uid]
            assert [each.device_name for each in older.devices] == ["gpu-0", "gpu-1"]

    asyncio.run(scenario())


@pytest.mark.req("K3063-134", "K3063-146")
def test_both_calls_can_be_repeated_and_the_author_is_called_once() -> None:
    async def scenario() -> None:
        async with open_driver_node() as node:
            gpu = Gpu()
            async with node.run_driver(gpu) as agent:
                uid = await node.create_claim("c")
                first = await agent.prepare_ok(uid, "c")
                assert await agent.prepare_ok(uid, "c") == first
                for _ in range(3):
                    await agent.unprepare_ok(uid, "c")
            assert gpu.calls == [("prepare", "c"), ("unprepare", "c")]

    asyncio.run(scenario())


def test_v1beta1_is_served_too() -> None:
    async def scenario() -> None:
        async with open_driver_node() as node, node.run_driver() as agent:
            uid = await node.create_claim("c")
            reply = (await agent.prepare((uid, "c"), service=DRA_V1BETA1))[uid]
            assert [(each.device_name, reply.error) for each in reply.devices] == [("gpu-0", "")]
            assert (await agent.unprepare((uid, "c"), service=DRA_V1BETA1))[uid].error == ""

    asyncio.run(scenario())


def test_each_claim_of_a_call_ends_by_itself() -> None:
    async def scenario() -> None:
        async with open_driver_node() as node:
            gpu = Gpu()

            def trouble(what: str, claim: object) -> None:
                if str(claim) == "default/bad":
                    raise OSError("no such bus")

            gpu.on_call = trouble
            async with node.run_driver(gpu) as agent:
                good, bad = await node.create_claim("good"), await node.create_claim("bad", "gpu-1")
                reply = await agent.prepare((good, "good"), (bad, "bad"), ("0" * 8, "missing"))
                assert reply[good].error == ""
                assert (
                    reply[bad].error
                    == f"driver {DRIVER}: claim default/bad: prepare failed: OSError: no such bus"
                )
                assert (
                    reply["0" * 8].error == f"driver {DRIVER}: claim default/missing: there is no such claim"
                )
                assert "Traceback" not in reply[bad].error

    asyncio.run(scenario())


@pytest.mark.req("K3063-135", "K3063-143")
def test_after_a_prepare_that_failed_both_calls_work() -> None:
    async def scenario() -> None:
        async with open_driver_node() as node:
            gpu = Gpu()
            async with node.run_driver(gpu) as agent:
                one, two = await node.create_claim("one"), await node.create_claim("two", "gpu-1")

                def trouble(what: str, _claim: object) -> None:
                    if what == "prepare":
                        raise OSError("busy")

                gpu.on_call = trouble
                assert "OSError: busy" in await agent.expect_refusal(one, "one")
                assert "OSError: busy" in await agent.expect_refusal(two, "two")
                gpu.on_call = lambda _what, _claim: None
                assert await agent.prepare_ok(one, "one")
                await agent.unprepare_ok(two, "two")
                assert gpu.calls[-2:] == [("prepare", "one"), ("unprepare", "two")]
                assert len(node.cdi()) == 1

    asyncio.run(scenario())


def test_an_unprepare_that_failed_is_done_again() -> None:
    async def scenario() -> None:
        async with open_driver_node() as node:
            gpu = Gpu()
            async with node.run_driver(gpu) as agent:
                uid = await node.create_claim("c")
                await agent.prepare_ok(uid, "c")

                def trouble(_what: str, _claim: object) -> None:
                    raise OSError("busy")

                gpu.on_call = trouble
                error = (await agent.unprepare((uid, "c")))[uid].error
                assert error == f"driver {DRIVER}: claim default/c: unprepare failed: OSError: busy"
                gpu.on_call = lambda _what, _claim: None
                await agent.unprepare_ok(uid, "c")
                assert gpu.calls.count(("unprepare", "c")) == 2
                assert node.cdi() == {}

    asyncio.run(scenario())


def test_what_cannot_be_prepared_is_refused_with_the_reason() -> None:
    async def scenario() -> None:
        async with open_driver_node() as node, node.run_driver() as agent:
            other = await node.create_claim("other")
            assert "another claim of that name" in await agent.expect_refusal("11111111-1111", "other")
            api = node.server.api
            from tests.contract.documents import claim

            made = await api.create(claim("waiting"))
            assert "it is not allocated" in await agent.expect_refusal(made["metadata"]["uid"], "waiting")
            strange = await node.create_allocated_claim(
                "strange",
                [{"request": "gpu", "driver": "other.example.com", "pool": "p", "device": "d"}],
            )
            assert "no device of this driver" in await agent.expect_refusal(strange, "strange")
            field = {"key": "metadata.name", "operator": "In", "values": ["node-b"]}
            away = await node.create_claim(
                "away", "gpu-3", nodeSelector={"nodeSelectorTerms": [{"matchFields": [field]}]}
            )
            assert "it is allocated for node `node-b`, this is `node-a`" in await agent.expect_refusal(
                away, "away"
            )
            assert await agent.prepare_ok(other, "other")

    asyncio.run(scenario())


def test_calls_for_one_claim_wait_for_each_other_and_outlive_their_caller() -> None:
    async def scenario() -> None:
        async with open_driver_node() as node:
            gpu = Gpu()
            go, began = threading.Event(), threading.Event()

            def block(_method: str, claim: Claim) -> None:
                if claim.name == "c":
                    began.set()
                    assert go.wait(20)

            gpu.on_call = block
            async with node.run_driver(gpu) as agent:
                uid, other = await node.create_claim("c"), await node.create_claim("other", "gpu-1")
                first = asyncio.create_task(agent.prepare((uid, "c")))
                await asyncio.to_thread(began.wait, 20)
                first.cancel()
                await asyncio.wait([first])
                second = asyncio.create_task(agent.prepare_ok(uid, "c"))
                await agent.prepare_ok(other, "other")  # sent after the second call, and answered
                assert gpu.calls == [("prepare", "c"), ("prepare", "other")]
                go.set()
                assert [each[2] for each in await second] == ["gpu-0"]
                assert gpu.calls == [("prepare", "c"), ("prepare", "other")]

    asyncio.run(scenario())


def test_files_are_only_as_open_as_they_must_be() -> None:
    async def scenario() -> None:
        async with open_driver_node() as node, node.run_driver() as agent:
            uid = await node.create_claim("c")
            await agent.prepare_ok(uid, "c")

            def mode(path: object) -> int:
                from pathlib import Path

                return stat.S_IMODE(Path(str(path)).stat().st_mode)

            assert mode(node.options.cdi / f"{DRIVER}_{uid}.json") == 0o644
            assert mode(node.state / "prepared" / f"{uid}.json") == 0o600
            for directory in (node.options.plugins / DRIVER, node.state, node.options.registry):
                assert mode(directory) == 0o700

    asyncio.run(scenario())


def test_a_deleted_or_changed_cdi_file_is_written_again() -> None:
    async def scenario() -> None:
        async with open_driver_node() as node, node.run_driver() as agent:
            uid = await node.create_claim("c")
            answer = await agent.prepare_ok(uid, "c")
            file = node.options.cdi / f"{DRIVER}_{uid}.json"
            content = file.read_text()
            for spoil in (file.unlink, lambda: file.write_text(content[:40])):
                spoil()
                assert await agent.prepare_ok(uid, "c") == answer
                assert file.read_text() == content

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (Ready(), "`prepare` must return a list, or yield one thing after the other; it returned `Ready`"),
        (None, "`prepare` returned nothing for device `gpu-0` of request `gpu`"),
        (["gpu-0"], "`prepare` must return `Ready` values, not `str`"),
        ([Ready()], "`prepare` returned nothing for device `gpu-0`"),
        (lambda: sys.exit(3), "prepare failed: RuntimeError: it called sys.exit(3)"),
        (lambda: [Ready("gpu-0")], "Ready(got=...): expected `Got` or `NoneType`, got `'gpu-0'`"),  # type: ignore[arg-type]
        (lambda: [Ready(env="A=1")], "Ready(env=...): expected `Mapping`, got `'A=1'`"),  # type: ignore[arg-type]
        (lambda: [Ready(env={"A=B": "1"})], "Ready(env=...): `A=B` is no name of a variable"),
        (lambda: [Ready(mounts="/a:/b")], "Ready(mounts=...): expected a list, got `'/a:/b'`"),
        (lambda: [Ready(mounts=[("/a", "/b")])], "Ready(mounts=...): expected `Mount` or `str`, got"),  # type: ignore[list-item]
        (lambda: [Ready(status={})], "Ready(status=...): expected `DeviceStatus` or `NoneType`, got"),  # type: ignore[arg-type]
        (
            lambda claim: [Ready(claim.devices[0], status=DeviceStatus(data=[1]))],
            "data that is no JSON object: `[1]`",
        ),
    ],
)
def test_a_prepare_result_of_another_type_is_an_error(answer: Any, message: str) -> None:
    async def scenario() -> None:
        class Odd(Gpu):
            def prepare(self, claim: Claim) -> Any:
                if not callable(answer):
                    return answer
                return answer(claim) if answer.__code__.co_argcount else answer()

        async with open_driver_node() as node, node.run_driver(Odd()) as agent:
            uid = await node.create_claim("c")
            assert message in await agent.expect_refusal(uid, "c")
            await agent.unprepare_ok(uid, "c")

    asyncio.run(scenario())
