"""Rows H07 to H10 and H13: what driver frameworks and drivers got wrong elsewhere with claims."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from dray.driver import Got, device
from tests.contract.api import path
from tests.unit.driver.driver_node import DRIVER, NODE, Gpu, open_driver_node
from tests.unit.driver.driver_server import wait_until

# --- H07: NVIDIA#1162, #1188: a Prepare that came late brought a claim back after Unprepare ---


@pytest.fixture
def slow_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever happens here happens within the time in which calls may be late."""
    monkeypatch.setattr("dray.driver.preparing.prepared_claims.LATE_CALL_SECONDS", 3600.0)


@pytest.mark.usefixtures("slow_machine")
def test_h07_a_prepare_that_comes_after_unprepare_is_refused() -> None:
    async def scenario() -> None:
        async with open_driver_node() as node:
            gpu = Gpu()
            async with node.run_driver(gpu) as agent:
                uid = await node.create_claim("c")
                await agent.prepare_ok(uid, "c")
                await agent.unprepare_ok(uid, "c")
                assert "this call comes too late" in await agent.expect_refusal(uid, "c")
            async with node.run_driver(gpu) as agent:  # it is not forgotten with the process
                assert "this call comes too late" in await agent.expect_refusal(uid, "c")
            assert gpu.calls == [("prepare", "c"), ("unprepare", "c")]
            assert node.cdi() == {}

    asyncio.run(scenario())


def test_h07_a_pod_that_needs_the_claim_again_is_not_late_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even when it is the only one: an agent may give a claim back and find that its pod needs it."""

    async def scenario() -> None:
        async with open_driver_node() as node:
            gpu = Gpu()
            async with node.run_driver(gpu) as agent:
                uid = await node.create_claim("c")
                answer = await agent.prepare_ok(uid, "c")
                await agent.unprepare_ok(uid, "c")
                monkeypatch.setattr(
                    "dray.driver.preparing.prepared_claims.LATE_CALL_SECONDS", 0.0
                )  # the time is over
                assert await agent.prepare_ok(uid, "c") == answer
                await agent.unprepare_ok(uid, "c")
                await node.server.api.patch(
                    path("resourceclaims", "c", sub="status"), {"status": {"reservedFor": None}}
                )
                assert "nobody else has it reserved since" in await agent.expect_refusal(uid, "c")
            assert gpu.calls == [("prepare", "c"), ("unprepare", "c")] * 2
            assert node.cdi() == {}

    asyncio.run(scenario())


@pytest.mark.usefixtures("slow_machine")
def test_h07_a_pod_that_came_since_gets_the_claim_prepared() -> None:
    async def scenario() -> None:
        async with open_driver_node() as node, node.run_driver() as agent:
            uid = await node.create_claim("c", users=["first"])
            await agent.prepare_ok(uid, "c")
            await agent.unprepare_ok(uid, "c")
            await node.reserve("c", "second")
            assert await agent.prepare_ok(uid, "c")

    asyncio.run(scenario())


@pytest.mark.usefixtures("slow_machine")
def test_h07_pods_that_joined_after_prepare_count_as_those_that_left() -> None:
    async def scenario() -> None:
        async with open_driver_node() as node, node.run_driver() as agent:
            uid = await node.create_claim("c", users=["first"])
            await agent.prepare_ok(uid, "c")
            await node.reserve("c", "second", "third")
            await agent.unprepare_ok(uid, "c")
            assert "this call comes too late" in await agent.expect_refusal(uid, "c")

    asyncio.run(scenario())


@pytest.mark.usefixtures("slow_machine")
def test_h07_a_group_that_has_a_claim_reserved_sends_one_pod_after_the_other() -> None:
    async def scenario() -> None:
        async with open_driver_node() as node, node.run_driver() as agent:
            uid = await node.create_claim("c")
            group = {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "g", "uid": "u-1"}
            where = path("resourceclaims", "c", sub="status")
            await node.server.api.patch(where, {"status": {"reservedFor": [group]}})
            for _ in range(2):
                await agent.prepare_ok(uid, "c")
                await agent.unprepare_ok(uid, "c")

    asyncio.run(scenario())


@pytest.mark.usefixtures("slow_machine")
def test_h07_after_a_reboot_nothing_is_late() -> None:
    async def scenario() -> None:
        async with open_driver_node() as node:
            async with node.run_driver() as agent:
                uid = await node.create_claim("c")
                await agent.prepare_ok(uid, "c")
                await agent.unprepare_ok(uid, "c")
            async with node.run_driver(boot_id="boot-2") as agent:
                assert await agent.prepare_ok(uid, "c")

    asyncio.run(scenario())


# --- H08: NVIDIA#1278: a claim that went while the driver was down stayed "prepared" for good ---


def test_h08_what_was_prepared_for_a_claim_that_is_gone_is_given_back_at_the_start() -> None:
    async def scenario() -> None:
        async with open_driver_node() as node:
            async with node.run_driver() as agent:
                gone, there = await node.create_claim("gone"), await node.create_claim("there", "gpu-1")
                await agent.prepare_ok(gone, "gone")
                await agent.prepare_ok(there, "there")
            await node.remove_claim("gone")
            gpu = Gpu()
            async with node.run_driver(gpu) as agent:
                entries = node.state / "prepared"
                await wait_until(lambda: _now(list(entries.iterdir())), lambda files: len(files) == 1)
                assert gpu.calls == [("unprepare", "gone")]
                assert list(node.cdi()) == [f"{DRIVER}_{there}.json"]
                again = await node.create_claim("again", "gpu-0")
                assert await agent.prepare_ok(again, "again")

    asyncio.run(scenario())


def test_h08_what_the_agent_says_it_holds_is_left_to_the_agent() -> None:
    async def scenario() -> None:
        async with open_driver_node() as node:
            async with node.run_driver() as agent:
                uid = await node.create_claim("c")
                await agent.prepare_ok(uid, "c")
            await node.server.api.create(
                {
                    "apiVersion": "dray.dev/v1alpha1",
                    "kind": "Preparation",
                    "metadata": {"name": f"{NODE}.{uid}"},
                    "spec": {
                        "nodeName": NODE,
                        "claim": {"namespace": "default", "name": "c", "uid": uid},
                    },
                },
                "/apis/dray.dev/v1alpha1/preparations",
            )
            await node.remove_claim("c")
            gpu = Gpu()
            async with node.run_driver(gpu) as agent:
                where = "/apis/dray.dev/v1alpha1/preparations"
                await wait_until(
                    lambda: _now([each for each in node.transport.requests if each.path.startswith(where)])
                )
                assert gpu.calls == []
                assert len(node.cdi()) == 1
                await agent.unprepare_ok(uid, "c")

    asyncio.run(scenario())


async def _now(value: Any) -> Any:
    return value


# --- H09: NVIDIA#340, #342: Unprepare asked for the claim and failed when it was gone ---


def test_h09_a_claim_is_given_back_when_it_is_gone_and_when_the_api_is() -> None:
    async def scenario() -> None:
        async with open_driver_node() as node:
            gpu = Gpu()
            async with node.run_driver(gpu) as agent:
                gone, cut = await node.create_claim("gone"), await node.create_claim("cut", "gpu-1", "gpu-2")
                await agent.prepare_ok(gone, "gone")
                await agent.prepare_ok(cut, "cut")
                await node.remove_claim("gone")
                await agent.unprepare_ok(gone, "gone")
                node.transport.inner = None
                await agent.unprepare_ok(cut, "cut")
                assert [each for each in gpu.calls if each[0] == "unprepare"] == [
                    ("unprepare", "gone"),
                    ("unprepare", "cut"),
                ]
                assert [got.device for got in gpu.received[-1][1].devices] == ["gpu-1", "gpu-2"]
                assert node.cdi() == {}

    asyncio.run(scenario())


# --- H10: NVIDIA#817, example driver#263: a second claim was prepared on a device that was still held ---


def test_h10_a_second_claim_on_a_prepared_device_is_refused_with_the_name_of_the_first() -> None:
    async def scenario() -> None:
        async with open_driver_node() as node, node.run_driver() as agent:
            holder = await node.create_claim("holder")
            await agent.prepare_ok(holder, "holder")
            await node.remove_claim("holder")  # by force: the node has not given it back
            second = await node.create_claim("second")
            refusal = await agent.expect_refusal(second, "second")
            assert f"device `gpu-0` of pool `{NODE}` is held by claim `default/holder`" in refusal
            assert holder in refusal
            await agent.unprepare_ok(holder, "holder")
            assert await agent.prepare_ok(second, "second")

    asyncio.run(scenario())


def test_h10_administrators_look_at_held_devices_and_hold_nothing() -> None:
    async def scenario() -> None:
        async with open_driver_node() as node, node.run_driver() as agent:
            api = node.server.api
            labels = {"resource.kubernetes.io/admin-access": "true"}
            await api.patch("/api/v1/namespaces/default", {"metadata": {"labels": labels}})
            result = {"request": "gpu", "driver": DRIVER, "pool": NODE, "device": "gpu-0"}
            look = await node.create_allocated_claim(
                "look",
                [result | {"adminAccess": True}],
                requests=[
                    {"name": "gpu", "exactly": {"deviceClassName": "gpu.example.com", "adminAccess": True}}
                ],
            )
            await agent.prepare_ok(look, "look")
            plain = await node.create_claim("plain")
            assert await agent.prepare_ok(plain, "plain")

    asyncio.run(scenario())


def test_h10_shares_of_one_device_are_distinguished() -> None:
    async def scenario() -> None:
        class Flipped(Gpu):
            shared = True

            def devices(self) -> list[Any]:
                return [device("gpu-0", shared=self.shared)]

        async with open_driver_node() as node:
            gpu = Flipped()
            async with node.run_driver(gpu) as agent:
                result = {"request": "gpu", "driver": DRIVER, "pool": NODE, "device": "gpu-0"}
                shares = [f"{number}" * 8 + "-1111-4111-8111-111111111111" for number in (1, 2)]
                uids = [
                    await node.create_allocated_claim(f"share-{number}", [result | {"shareID": share}])
                    for number, share in enumerate(shares)
                ]
                for number, uid in enumerate(uids):
                    await agent.prepare_ok(uid, f"share-{number}")
                    await node.remove_claim(f"share-{number}")
                gpu.shared = False
                gpu.changed()
                await wait_until(
                    node.server.slices, lambda found: not found[0].spec.devices[0].allow_multiple_allocations
                )
                whole = await node.create_claim("whole")
                assert "is held by claim `default/share-" in await agent.expect_refusal(whole, "whole")
                await agent.unprepare_ok(uids[0], "share-0")
                assert "is held by claim `default/share-1`" in await agent.expect_refusal(whole, "whole")
                await agent.unprepare_ok(uids[1], "share-1")
                assert await agent.prepare_ok(whole, "whole")

    asyncio.run(scenario())


# --- H13: enhancements#5261: a result named `request/subrequest`, and drivers compared it with `request` ---


@pytest.mark.req("K4816-090", "K4816-091")
def test_h13_a_result_of_an_alternative_is_understood() -> None:
    async def scenario() -> None:
        async with open_driver_node() as node:

            class Settled(Gpu):
                parameters = dict

            gpu = Settled()
            async with node.run_driver(gpu) as agent:
                alternatives = [
                    {"name": name, "deviceClassName": "gpu.example.com"} for name in ("large", "small")
                ]
                result = {"request": "gpu/small", "driver": DRIVER, "pool": NODE, "device": "gpu-0"}
                uid = await node.create_allocated_claim(
                    "c",
                    [result],
                    requests=[{"name": "gpu", "firstAvailable": alternatives}],
                    config=[
                        _setting("FromClaim", "claim for all"),
                        _setting("FromClaim", "claim for the request", "gpu"),
                        _setting("FromClaim", "claim for another", "gpu/large"),
                        _setting("FromClaim", "claim for the alternative", "gpu/small"),
                        _setting("FromClass", "class for the alternative", "gpu/small"),
                    ],
                )
                answer = await agent.prepare_ok(uid, "c")
            assert answer == [("gpu", NODE, "gpu-0", (f"{DRIVER}/claim={uid}-0",))]
            (got,) = gpu.received[0][1].devices
            assert isinstance(got, Got)
            assert (got.request, got.subrequest) == ("gpu", "small")
            assert [(each.source, each.parameters["is"]) for each in got.config] == [
                ("class", "class for the alternative"),
                ("claim", "claim for all"),
                ("claim", "claim for the request"),
                ("claim", "claim for the alternative"),
            ]
            assert got.parameters == {"is": "claim for the alternative"}

    asyncio.run(scenario())


def _setting(source: str, text: str, *requests: str) -> dict[str, Any]:
    opaque = {"driver": DRIVER, "parameters": {"is": text}}
    return {"source": source, "opaque": opaque} | ({"requests": list(requests)} if requests else {})
