"""Claims prepared and given back over real sockets, as an agent asks for it."""

from __future__ import annotations

import asyncio
import stat
import sys
from typing import Any

import pytest

from dray.driver import Claim, DeviceStatus, Ready
from dray.wire.grpc_services import DRA_V1BETA1
from tests.unit.driver.onnode import DRIVER, NODE, Gpu, on_node


@pytest.mark.req("K3063-131", "K3063-132")
def test_a_claim_is_prepared_with_its_devices_and_a_cdi_file() -> None:
    async def scene() -> None:
        async with on_node() as node, node.running() as line:
            uid = await node.claim("c", "gpu-0", "gpu-1")
            assert await line.ok(uid, "c") == [
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
            await line.given_back(uid, "c")
            assert node.cdi() == {}

    asyncio.run(scene())


@pytest.mark.req("K3063-134", "K3063-146")
def test_both_calls_may_be_repeated_and_the_author_is_asked_once() -> None:
    async def scene() -> None:
        async with on_node() as node:
            gpu = Gpu()
            async with node.running(gpu) as line:
                uid = await node.claim("c")
                first = await line.ok(uid, "c")
                assert await line.ok(uid, "c") == first
                for _ in range(3):
                    await line.given_back(uid, "c")
            assert gpu.calls == [("prepare", "c"), ("unprepare", "c")]

    asyncio.run(scene())


def test_v1beta1_is_served_too() -> None:
    async def scene() -> None:
        async with on_node() as node, node.running() as line:
            uid = await node.claim("c")
            reply = (await line.prepare((uid, "c"), service=DRA_V1BETA1))[uid]
            assert [(each.device_name, reply.error) for each in reply.devices] == [("gpu-0", "")]
            assert (await line.unprepare((uid, "c"), service=DRA_V1BETA1))[uid].error == ""

    asyncio.run(scene())


def test_each_claim_of_a_call_ends_by_itself() -> None:
    async def scene() -> None:
        async with on_node() as node:
            gpu = Gpu()

            def trouble(what: str, claim: object) -> None:
                if str(claim) == "default/bad":
                    raise OSError("no such bus")

            gpu.trouble = trouble
            async with node.running(gpu) as line:
                good, bad = await node.claim("good"), await node.claim("bad", "gpu-1")
                reply = await line.prepare((good, "good"), (bad, "bad"), ("0" * 8, "missing"))
                assert reply[good].error == ""
                assert (
                    reply[bad].error
                    == f"driver {DRIVER}: claim default/bad: prepare failed: OSError: no such bus"
                )
                assert (
                    reply["0" * 8].error == f"driver {DRIVER}: claim default/missing: there is no such claim"
                )
                assert "Traceback" not in reply[bad].error

    asyncio.run(scene())


@pytest.mark.req("K3063-135", "K3063-143")
def test_after_a_prepare_that_failed_both_calls_work() -> None:
    async def scene() -> None:
        async with on_node() as node:
            gpu = Gpu()
            async with node.running(gpu) as line:
                one, two = await node.claim("one"), await node.claim("two", "gpu-1")

                def trouble(what: str, _claim: object) -> None:
                    if what == "prepare":
                        raise OSError("busy")

                gpu.trouble = trouble
                assert "OSError: busy" in await line.refused(one, "one")
                assert "OSError: busy" in await line.refused(two, "two")
                gpu.trouble = lambda _what, _claim: None
                assert await line.ok(one, "one")
                await line.given_back(two, "two")
                assert gpu.calls[-2:] == [("prepare", "one"), ("unprepare", "two")]
                assert len(node.cdi()) == 1

    asyncio.run(scene())


def test_an_unprepare_that_failed_is_done_again() -> None:
    async def scene() -> None:
        async with on_node() as node:
            gpu = Gpu()
            async with node.running(gpu) as line:
                uid = await node.claim("c")
                await line.ok(uid, "c")

                def trouble(_what: str, _claim: object) -> None:
                    raise OSError("busy")

                gpu.trouble = trouble
                error = (await line.unprepare((uid, "c")))[uid].error
                assert error == f"driver {DRIVER}: claim default/c: unprepare failed: OSError: busy"
                gpu.trouble = lambda _what, _claim: None
                await line.given_back(uid, "c")
                assert gpu.calls.count(("unprepare", "c")) == 2
                assert node.cdi() == {}

    asyncio.run(scene())


def test_what_cannot_be_prepared_is_refused_with_the_reason() -> None:
    async def scene() -> None:
        async with on_node() as node, node.running() as line:
            other = await node.claim("other")
            assert "another claim of that name" in await line.refused("11111111-1111", "other")
            api = node.served.api
            from tests.contract.documents import claim

            made = await api.create(claim("waiting"))
            assert "it is not allocated" in await line.refused(made["metadata"]["uid"], "waiting")
            strange = await node.allocated(
                "strange",
                [{"request": "gpu", "driver": "other.example.com", "pool": "p", "device": "d"}],
            )
            assert "no device of this driver" in await line.refused(strange, "strange")
            field = {"key": "metadata.name", "operator": "In", "values": ["node-b"]}
            away = await node.claim(
                "away", "gpu-3", nodeSelector={"nodeSelectorTerms": [{"matchFields": [field]}]}
            )
            assert "it is allocated for node `node-b`, this is `node-a`" in await line.refused(away, "away")
            assert await line.ok(other, "other")

    asyncio.run(scene())


def test_calls_for_one_claim_wait_for_each_other_and_outlive_whoever_asked() -> None:
    async def scene() -> None:
        async with on_node() as node:
            gpu = Gpu()
            import threading

            go, began = threading.Event(), threading.Event()

            def trouble(what: str, _claim: object) -> None:
                began.set()
                assert go.wait(20)

            gpu.trouble = trouble
            async with node.running(gpu) as line:
                uid = await node.claim("c")
                first = asyncio.create_task(line.prepare((uid, "c")))
                await asyncio.to_thread(began.wait, 20)
                first.cancel()
                await asyncio.wait([first])
                second = asyncio.create_task(line.ok(uid, "c"))
                await asyncio.sleep(0.05)
                assert gpu.calls == [("prepare", "c")]
                go.set()
                assert [each[2] for each in await second] == ["gpu-0"]
                assert gpu.calls == [("prepare", "c")]

    asyncio.run(scene())


def test_files_are_only_as_open_as_they_must_be() -> None:
    async def scene() -> None:
        async with on_node() as node, node.running() as line:
            uid = await node.claim("c")
            await line.ok(uid, "c")

            def mode(path: object) -> int:
                from pathlib import Path

                return stat.S_IMODE(Path(str(path)).stat().st_mode)

            assert mode(node.choices.cdi / f"{DRIVER}_{uid}.json") == 0o644
            assert mode(node.state / "prepared" / f"{uid}.json") == 0o600
            for directory in (node.choices.plugins / DRIVER, node.state, node.choices.registry):
                assert mode(directory) == 0o700

    asyncio.run(scene())


def test_a_cdi_file_that_somebody_took_away_or_changed_comes_back() -> None:
    async def scene() -> None:
        async with on_node() as node, node.running() as line:
            uid = await node.claim("c")
            answer = await line.ok(uid, "c")
            file = node.choices.cdi / f"{DRIVER}_{uid}.json"
            content = file.read_text()
            for spoil in (file.unlink, lambda: file.write_text(content[:40])):
                spoil()
                assert await line.ok(uid, "c") == answer
                assert file.read_text() == content

    asyncio.run(scene())


@pytest.mark.parametrize(
    ("answer", "told"),
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
def test_authors_who_answer_in_another_form_are_told_which_one(answer: Any, told: str) -> None:
    async def scene() -> None:
        class Odd(Gpu):
            def prepare(self, claim: Claim) -> Any:
                if not callable(answer):
                    return answer
                return answer(claim) if answer.__code__.co_argcount else answer()

        async with on_node() as node, node.running(Odd()) as line:
            uid = await node.claim("c")
            assert told in await line.refused(uid, "c")
            await line.given_back(uid, "c")

    asyncio.run(scene())
