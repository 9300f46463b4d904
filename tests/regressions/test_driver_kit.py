"""Rows H04 to H10 and H13: what driver frameworks and drivers got wrong elsewhere."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from dray.client.client import Client
from dray.driver import Got, Kit, KitChoices, device
from dray.driver.serve import sockets_of
from dray.errors import InputError
from dray.wire.sockets import LONGEST
from tests.contract.api import path
from tests.unit.driver.onnode import DRIVER, NODE, Gpu, on_node
from tests.unit.driver.served import until

LONG = f"{'a' * 51}.example.com"
POD_UID = "0f2b8c1e-5a64-4be0-9a06-3f7a5a2d8c11"


# --- H04: #139166, #139623: a long driver name and a pod's uid made a path that no socket can have ---


def test_h04_long_names_and_pod_uids_give_paths_that_sockets_can_have() -> None:
    plugins, registry = Path("/var/lib/kubelet/plugins"), Path("/var/lib/kubelet/plugins_registry")
    assert len(LONG) == 63
    found = [
        sockets_of(name, plugins, registry, instance)
        for name in (LONG, LONG.replace("a", "b"), DRIVER)
        for instance in ("", POD_UID, POD_UID.replace("0", "1"))
    ]
    paths = [each for sockets in found for each in (sockets.registration, sockets.endpoint)]
    assert max(len(os.fsencode(each)) for each in paths) <= LONGEST
    assert len(set(paths)) == len(paths)
    assert sockets_of(LONG, plugins, registry, POD_UID) == found[1]
    assert {each.parent for each in paths if each.parent != registry} > {plugins / DRIVER}


def test_h04_a_driver_with_a_long_name_is_served_in_a_deep_directory() -> None:
    async def scene() -> None:
        async with on_node() as node:

            class Long(Gpu):
                name = LONG

            deep = node.root / ("d" * 30)
            node.way = node.served.way(LONG)
            async with node.running(
                Long(), plugins=deep / "p", registry=deep / "r", instance=POD_UID
            ) as line:
                registered = await line.registry.call(
                    "GetInfo", line.registry.service.message("InfoRequest")(), timeout=20
                )
                assert registered.name == LONG
                assert len(registered.endpoint) <= LONGEST
                assert Path(registered.endpoint).is_socket()
                assert (await line.prepare(("0" * 8, "none")))["0" * 8].error

    asyncio.run(scene())


# --- H05: #127194: without a client the helper started, and failed at the first claim ---


def test_h05_without_a_client_a_driver_does_not_start() -> None:
    async def scene() -> None:
        missing: Any = None
        with pytest.raises(InputError, match="needs a client of the API server"):
            Kit(Gpu(), missing, KitChoices(node=NODE))

    asyncio.run(scene())


# --- H06: #141105: an old socket that could not be removed was told as "address already in use" ---


def test_h06_an_old_socket_that_cannot_be_removed_is_told_as_that(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene() -> None:
        async with on_node() as node:
            async with node.running():
                pass
            home = node.choices.plugins / DRIVER
            unlink = Path.unlink

            def denied(self: Path, missing_ok: bool = False) -> None:
                if self == home / "dra.sock":
                    raise PermissionError(13, "Permission denied")
                unlink(self, missing_ok=missing_ok)

            _leave_socket(home / "dra.sock")
            monkeypatch.setattr(Path, "unlink", denied)
            kit = Kit(Gpu(), Client(node.way), node.choices)
            with pytest.raises(InputError, match=r"dra\.sock` cannot be removed: Permission denied"):
                await kit.run()

    asyncio.run(scene())


def test_h06_something_else_at_the_path_of_a_socket_stays_and_is_told() -> None:
    async def scene() -> None:
        async with on_node() as node:
            home = node.choices.plugins / DRIVER
            home.mkdir(parents=True, mode=0o700)
            (home / "dra.sock").write_text("mine")
            kit = Kit(Gpu(), Client(node.way), node.choices)
            with pytest.raises(InputError, match="is in the way and is not a socket"):
                await kit.run()
            assert (home / "dra.sock").read_text() == "mine"

    asyncio.run(scene())


def test_h06_the_socket_of_a_process_that_was_killed_is_no_obstacle() -> None:
    async def scene() -> None:
        async with on_node() as node:
            home = node.choices.plugins / DRIVER
            home.mkdir(parents=True, mode=0o700)
            _leave_socket(home / "dra.sock")
            async with node.running() as line:
                assert await line.ok(await node.claim("c"), "c")

    asyncio.run(scene())


def _leave_socket(path: Path) -> None:
    import socket

    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))


# --- H07: NVIDIA#1162, #1188: a Prepare that came late brought a claim back after Unprepare ---


def test_h07_a_prepare_that_comes_after_unprepare_is_refused() -> None:
    async def scene() -> None:
        async with on_node() as node:
            gpu = Gpu()
            async with node.running(gpu) as line:
                uid = await node.claim("c")
                await line.ok(uid, "c")
                await line.given_back(uid, "c")
                assert "this call comes too late" in await line.refused(uid, "c")
            async with node.running(gpu) as line:  # it is not forgotten with the process
                assert "this call comes too late" in await line.refused(uid, "c")
            assert gpu.calls == [("prepare", "c"), ("unprepare", "c")]
            assert node.cdi() == {}

    asyncio.run(scene())


def test_h07_a_pod_that_came_since_gets_the_claim_prepared() -> None:
    async def scene() -> None:
        async with on_node() as node, node.running() as line:
            uid = await node.claim("c", users=["first"])
            await line.ok(uid, "c")
            await line.given_back(uid, "c")
            await node.reserve("c", "second")
            assert await line.ok(uid, "c")

    asyncio.run(scene())


def test_h07_pods_that_joined_after_prepare_count_as_those_that_left() -> None:
    async def scene() -> None:
        async with on_node() as node, node.running() as line:
            uid = await node.claim("c", users=["first"])
            await line.ok(uid, "c")
            await node.reserve("c", "second", "third")
            await line.given_back(uid, "c")
            assert "this call comes too late" in await line.refused(uid, "c")

    asyncio.run(scene())


def test_h07_a_group_that_has_a_claim_reserved_sends_one_pod_after_the_other() -> None:
    async def scene() -> None:
        async with on_node() as node, node.running() as line:
            uid = await node.claim("c")
            group = {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "g", "uid": "u-1"}
            where = path("resourceclaims", "c", sub="status")
            await node.served.api.patch(where, {"status": {"reservedFor": [group]}})
            for _ in range(2):
                await line.ok(uid, "c")
                await line.given_back(uid, "c")

    asyncio.run(scene())


def test_h07_after_a_reboot_nothing_is_late() -> None:
    async def scene() -> None:
        async with on_node() as node:
            async with node.running() as line:
                uid = await node.claim("c")
                await line.ok(uid, "c")
                await line.given_back(uid, "c")
            async with node.running(boot_id="boot-2") as line:
                assert await line.ok(uid, "c")

    asyncio.run(scene())


# --- H08: NVIDIA#1278: a claim that went while the driver was down stayed "prepared" for good ---


def test_h08_what_was_prepared_for_a_claim_that_is_gone_is_given_back_at_the_start() -> None:
    async def scene() -> None:
        async with on_node() as node:
            async with node.running() as line:
                gone, there = await node.claim("gone"), await node.claim("there", "gpu-1")
                await line.ok(gone, "gone")
                await line.ok(there, "there")
            await node.remove_claim("gone")
            gpu = Gpu()
            async with node.running(gpu) as line:
                entries = node.state / "prepared"
                await until(lambda: _now(list(entries.iterdir())), lambda files: len(files) == 1)
                assert gpu.calls == [("unprepare", "gone")]
                assert list(node.cdi()) == [f"{DRIVER}_{there}.json"]
                again = await node.claim("again", "gpu-0")
                assert await line.ok(again, "again")

    asyncio.run(scene())


def test_h08_what_the_agent_says_it_holds_is_left_to_the_agent() -> None:
    async def scene() -> None:
        async with on_node() as node:
            async with node.running() as line:
                uid = await node.claim("c")
                await line.ok(uid, "c")
            await node.served.api.create(
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
            async with node.running(gpu) as line:
                where = "/apis/dray.dev/v1alpha1/preparations"
                await until(lambda: _now([each for each in node.way.asked if each.path.startswith(where)]))
                assert gpu.calls == []
                assert len(node.cdi()) == 1
                await line.given_back(uid, "c")

    asyncio.run(scene())


async def _now(value: Any) -> Any:
    return value


# --- H09: NVIDIA#340, #342: Unprepare asked for the claim and failed when it was gone ---


def test_h09_a_claim_is_given_back_when_it_is_gone_and_when_the_api_is() -> None:
    async def scene() -> None:
        async with on_node() as node:
            gpu = Gpu()
            async with node.running(gpu) as line:
                gone, cut = await node.claim("gone"), await node.claim("cut", "gpu-1", "gpu-2")
                await line.ok(gone, "gone")
                await line.ok(cut, "cut")
                await node.remove_claim("gone")
                await line.given_back(gone, "gone")
                node.way.inner = None
                await line.given_back(cut, "cut")
                assert [each for each in gpu.calls if each[0] == "unprepare"] == [
                    ("unprepare", "gone"),
                    ("unprepare", "cut"),
                ]
                assert [got.device for got in gpu.asked[-1][1].devices] == ["gpu-1", "gpu-2"]
                assert node.cdi() == {}

    asyncio.run(scene())


# --- H10: NVIDIA#817, example driver#263: a second claim was prepared on a device that was still held ---


def test_h10_a_second_claim_on_a_held_device_is_refused_and_told_who_holds_it() -> None:
    async def scene() -> None:
        async with on_node() as node, node.running() as line:
            holder = await node.claim("holder")
            await line.ok(holder, "holder")
            await node.remove_claim("holder")  # by force: the node has not given it back
            second = await node.claim("second")
            refusal = await line.refused(second, "second")
            assert f"device `gpu-0` of pool `{NODE}` is held by claim `default/holder`" in refusal
            assert holder in refusal
            await line.given_back(holder, "holder")
            assert await line.ok(second, "second")

    asyncio.run(scene())


def test_h10_administrators_look_at_held_devices_and_hold_nothing() -> None:
    async def scene() -> None:
        async with on_node() as node, node.running() as line:
            api = node.served.api
            labels = {"resource.kubernetes.io/admin-access": "true"}
            await api.patch("/api/v1/namespaces/default", {"metadata": {"labels": labels}})
            result = {"request": "gpu", "driver": DRIVER, "pool": NODE, "device": "gpu-0"}
            look = await node.allocated(
                "look",
                [result | {"adminAccess": True}],
                requests=[
                    {"name": "gpu", "exactly": {"deviceClassName": "gpu.example.com", "adminAccess": True}}
                ],
            )
            await line.ok(look, "look")
            plain = await node.claim("plain")
            assert await line.ok(plain, "plain")

    asyncio.run(scene())


def test_h10_shares_of_one_device_are_told_apart() -> None:
    async def scene() -> None:
        class Flipped(Gpu):
            shared = True

            def devices(self) -> list[Any]:
                return [device("gpu-0", shared=self.shared)]

        async with on_node() as node:
            gpu = Flipped()
            async with node.running(gpu) as line:
                result = {"request": "gpu", "driver": DRIVER, "pool": NODE, "device": "gpu-0"}
                shares = [f"{number}" * 8 + "-1111-4111-8111-111111111111" for number in (1, 2)]
                uids = [
                    await node.allocated(f"share-{number}", [result | {"shareID": share}])
                    for number, share in enumerate(shares)
                ]
                for number, uid in enumerate(uids):
                    await line.ok(uid, f"share-{number}")
                    await node.remove_claim(f"share-{number}")
                gpu.shared = False
                gpu.changed()
                await until(
                    node.served.slices, lambda found: not found[0].spec.devices[0].allow_multiple_allocations
                )
                whole = await node.claim("whole")
                assert "is held by claim `default/share-" in await line.refused(whole, "whole")
                await line.given_back(uids[0], "share-0")
                assert "is held by claim `default/share-1`" in await line.refused(whole, "whole")
                await line.given_back(uids[1], "share-1")
                assert await line.ok(whole, "whole")

    asyncio.run(scene())


# --- H13: enhancements#5261: a result named `request/subrequest`, and drivers compared it with `request` ---


@pytest.mark.req("K4816-090", "K4816-091")
def test_h13_a_result_of_an_alternative_is_understood() -> None:
    async def scene() -> None:
        async with on_node() as node:

            class Settled(Gpu):
                parameters = dict

            gpu = Settled()
            async with node.running(gpu) as line:
                alternatives = [
                    {"name": name, "deviceClassName": "gpu.example.com"} for name in ("large", "small")
                ]
                result = {"request": "gpu/small", "driver": DRIVER, "pool": NODE, "device": "gpu-0"}
                uid = await node.allocated(
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
                answer = await line.ok(uid, "c")
            assert answer == [("gpu", NODE, "gpu-0", (f"{DRIVER}/claim={uid}-0",))]
            (got,) = gpu.asked[0][1].devices
            assert isinstance(got, Got)
            assert (got.request, got.subrequest) == ("gpu", "small")
            assert [(each.source, each.parameters["is"]) for each in got.config] == [
                ("class", "class for the alternative"),
                ("claim", "claim for all"),
                ("claim", "claim for the request"),
                ("claim", "claim for the alternative"),
            ]
            assert got.parameters == {"is": "claim for the alternative"}

    asyncio.run(scene())


def _setting(source: str, text: str, *requests: str) -> dict[str, Any]:
    opaque = {"driver": DRIVER, "parameters": {"is": text}}
    return {"source": source, "opaque": opaque} | ({"requests": list(requests)} if requests else {})
