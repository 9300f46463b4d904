"""Features that are switched on, off and on again, in one component and in all, while pods use them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.contract.api import path
from tests.e2e.gated import Restarts
from tests.e2e.use_case_cluster import claim, named, node, pod, request, template

req = pytest.mark.req

Document = dict[str, Any]

GPU = "gpu.example.com"
ALTERNATIVES = "DRAPrioritizedList"
SHARES = "DRAConsumableCapacity"
LISTS = "DRAListTypeAttributes"
PRIORITIES = "DRAResourceSlicePriority"


def device_class(name: str, expression: str = "true") -> Document:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": name},
        "spec": {"selectors": [{"cel": {"expression": expression}}]},
    }


def inventory(name: str, *devices: Document, slices: int = 1, driver: str = GPU, **spec: Any) -> Document:
    """Devices of node `n`, in the pool `n`."""
    pool = {"name": "n", "generation": 1, "resourceSliceCount": slices, **spec.pop("pool", {})}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": name},
        "spec": {"driver": driver, "nodeName": "n", "pool": pool, "devices": list(devices), **spec},
    }


def template_of(name: str, *requests: Document) -> Document:
    asked = claim(name, *requests)
    return asked | {"kind": "ResourceClaimTemplate", "spec": {"spec": asked["spec"]}}


def off(*gates: str) -> str:
    return ",".join(f"{gate}=false" for gate in gates)


# --- KEP-4816: alternatives ---

EITHER = {
    "name": "gpu",
    "firstAvailable": [{"name": "big", "deviceClassName": "big"}, {"name": "any", "deviceClassName": GPU}],
}


@req("K4816-088", "K4816-089", "K4816-095", "K4816-096", "K4816-098", "K4816-101", "K4816-102")
@req("K4816-106", "K4816-107", "K4816-108", "K4816-109")
async def test_alternatives_off_in_the_scheduler_then_in_the_server_and_on_again(tmp_path: Path) -> None:
    again = Restarts(tmp_path)
    async with again.running() as cluster:
        await cluster.make(node("n"), device_class(GPU), device_class("big", "false"))
        await cluster.make(inventory("s", *({"name": f"gpu-{number}"} for number in range(8))))
        await cluster.make(template_of("either", EITHER))
        await cluster.make(template_of("plain", request("gpu", GPU)))
        await cluster.make(pod("first", template("either")))
        assert await cluster.bound("first") == "n"
        assert await cluster.got("first") == ["gpu/any gpu-0"]
        kept = await cluster.kept()
    async with again.running(scheduler=off(ALTERNATIVES)) as cluster:
        await cluster.are_kept(kept)
        await cluster.make(pod("second", template("either")), pod("plain-1", template("plain")))
        assert await cluster.bound("plain-1") == "n"
        why = await cluster.pending("second", ALTERNATIVES)
        assert "`firstAvailable`" in why
        (status,) = (await cluster.get(path("pods", "second")))["status"]["resourceClaimStatuses"]
        waiting = status["resourceClaimName"]
        unallocated = await cluster.get(path("resourceclaims", waiting))
        assert "allocation" not in unallocated.get("status", {})
    for scheduler in (off(ALTERNATIVES), ""):
        async with again.running(server=off(ALTERNATIVES), scheduler=scheduler) as cluster:
            await cluster.are_kept(kept)
            said = await cluster.ask("POST", path("resourceclaims"), claim("new", EITHER))
            assert (said.code, said.reason) == (422, "Invalid")
            number = 2 if scheduler else 3
            await cluster.make(pod(f"third-{number}", template("either")))
            await cluster.told(f"third-{number}", "exactly one of `exactly` or `firstAvailable` is required")
            await cluster.make(pod(f"plain-{number}", template("plain")))
            assert await cluster.bound(f"plain-{number}") == "n"
    async with again.running() as cluster:
        await cluster.are_kept(kept)
        for name in ("second", "third-2", "third-3"):
            assert await cluster.bound(name) == "n"
        assert (await cluster.get(path("resourceclaims", waiting)))["metadata"]["uid"] == (
            unallocated["metadata"]["uid"]
        )
        await cluster.make(claim("new", EITHER), pod("last", named("new")))
        assert await cluster.bound("last") == "n"


# --- KEP-5075: shares ---


def nic(name: str = "nic", **more: Any) -> Document:
    amount = {"value": "10G", "requestPolicy": {"default": "1G"}}
    return {"name": name, "allowMultipleAllocations": True, "capacity": {"bandwidth": amount}, **more}


def part(amount: str) -> Document:
    return request("nic", GPU, capacity={"requests": {"bandwidth": amount}})


@req("K5075-156", "K5075-158", "K5075-162", "K5075-163")
async def test_shares_off_everywhere_and_on_again(tmp_path: Path) -> None:
    again = Restarts(tmp_path)
    async with again.running() as cluster:
        await cluster.make(node("n"), device_class(GPU), inventory("s", nic()))
        await cluster.make(template_of("share-5g", part("5G")), template_of("share-2g", part("2G")))
        await cluster.make(pod("first", template("share-5g")))
        assert await cluster.bound("first") == "n"
        kept = await cluster.kept()
        assert b'"consumedCapacity":{"bandwidth":"5G"}' in next(iter(kept.values()))
    async with again.running(off(SHARES)) as cluster:
        await cluster.are_kept(kept)
        # what is left of the device is nobody's while nobody may share it
        await cluster.make(pod("second", template("share-2g")))
        await cluster.pending("second", "the only device: in use by default/first-")
        said = await cluster.ask("POST", path("resourceclaimtemplates"), template_of("new", part("2G")))
        assert said.code == 201
        assert "capacity" not in said.document["spec"]["spec"]["devices"]["requests"][0]["exactly"]
        assert SHARES in said.warnings
        await cluster.ends("second")
    async with again.running() as cluster:
        await cluster.are_kept(kept)
        await cluster.make(template_of("share-8g", part("8G")), template_of("again", part("2G")))
        await cluster.make(pod("much", template("share-8g")), pod("little", template("again")))
        assert await cluster.bound("little") == "n"
        await cluster.pending("much", "8G")
        (held,) = [body for where, body in (await cluster.kept()).items() if where not in kept]
        assert b'"consumedCapacity":{"bandwidth":"2G"}' in held
        await cluster.are_kept(kept)


@req("K5075-150", "K5075-151")
async def test_shares_known_to_one_of_server_and_scheduler(tmp_path: Path) -> None:
    again = Restarts(tmp_path)
    async with again.running(scheduler=off(SHARES)) as cluster:
        await cluster.make(node("n"), device_class(GPU), inventory("s", nic("nic-0"), nic("nic-1")))
        await cluster.make(claim("part", part("2G")), pod("part", named("part")))
        await cluster.make(claim("whole", request("nic", GPU)), pod("whole", named("whole")))
        assert await cluster.bound("whole") == "n"
        (whole,) = await cluster.results("whole")
        assert {"shareID", "consumedCapacity"}.isdisjoint(whole)
        assert "capacity requests" in await cluster.pending("part", SHARES)
        kept = await cluster.kept()
    async with again.running(server=off(SHARES)) as cluster:
        await cluster.are_kept(kept)
        # a claim that was stored with its amount is what it was
        assert await cluster.bound("part") == "n"
        # a new one is not: the share that the scheduler gives it would be the whole device for the server
        await cluster.make(claim("new", part("2G")), pod("new", named("new")))
        await cluster.pending("new", "nic-1 is shared by claim default/part")
    async with again.running() as cluster:
        await cluster.are_kept(kept)
        assert await cluster.bound("new") == "n"


@req("K5075-152")
async def test_the_scheduler_goes_on_without_shares_when_the_server_does_not_know_them(
    tmp_path: Path,
) -> None:
    async with Restarts(tmp_path).running(server=off(SHARES)) as cluster:
        await cluster.make(node("n"), device_class(GPU), inventory("s", nic("nic-0"), nic("nic-1")))
        for name in ("p0", "p1"):
            await cluster.make(claim(name, part("2G")), pod(name, named(name)))
        assert [await cluster.bound(name) for name in ("p0", "p1")] == ["n", "n"]
        results = [*await cluster.results("p0"), *await cluster.results("p1")]
        assert [sorted(result) for result in results] == [["device", "driver", "pool", "request"]] * 2
        await cluster.make(claim("p2", part("2G")), pod("p2", named("p2")))
        await cluster.pending("p2", "2 in use")


# --- KEP-5491: lists ---


def rooted(name: str, *roots: str) -> Document:
    attribute = {"string": roots[0]} if len(roots) == 1 else {"list": {"string": list(roots)}}
    return {"name": name, "attributes": {"example.com/root": attribute}}


def aligned(name: str) -> Document:
    constraint = {"requests": ["a", "b"], "matchAttribute": "example.com/root"}
    return claim(name, request("a", "cpu"), request("b", "card"), constraints=[constraint])


@req("K5491-038", "K5491-039", "K5491-044", "K5491-045")
async def test_lists_off_in_the_scheduler_then_in_the_server_and_on_again(tmp_path: Path) -> None:
    again = Restarts(tmp_path)
    async with again.running() as cluster:
        await cluster.make(
            node("n"),
            *(device_class(name, f'device.driver == "{name}.example.com"') for name in ("cpu", "card")),
        )
        cpus = (rooted("cpu-0", "r1", "r2"), rooted("cpu-1", "r1", "r3"), rooted("cpu-2", "r9"))
        await cluster.make(inventory("cpus", *cpus, driver="cpu.example.com"))
        cards = (rooted("card-0", "r2"), rooted("card-1", "r3"), rooted("card-2", "r9"))
        await cluster.make(inventory("cards", *cards, driver="card.example.com"))
        await cluster.make(aligned("first"), pod("first", named("first")))
        assert await cluster.bound("first") == "n"
        assert await cluster.devices("first") == ["a cpu-0", "b card-0"]
        kept = await cluster.kept()
    async with again.running(scheduler=off(LISTS)) as cluster:
        await cluster.are_kept(kept)
        # one pair has plain values, which are as good as ever; then there is none that could match
        await cluster.make(aligned("second"), pod("second", named("second")))
        assert await cluster.bound("second") == "n"
        assert await cluster.devices("second") == ["a cpu-2", "b card-2"]
        await cluster.make(aligned("third"), pod("third", named("third")))
        await cluster.pending("third", "example.com/root")
        # devices that were given for lists are not given again
        await cluster.ends("first")
        await cluster.until_free("first")
        await cluster.make(pod("next", named("first")))
        await cluster.pending("next", "example.com/root")
        await cluster.ends("next")
    async with again.running(off(LISTS)) as cluster:
        said = await cluster.ask("POST", path("resourceslices"), inventory("new", rooted("x", "r1", "r2")))
        assert (said.code, said.reason) == (422, "Invalid")
        assert "example.com/root" in said.message
        await cluster.pending("third", "example.com/root")
    async with again.running() as cluster:
        assert await cluster.bound("third") == "n"
        assert await cluster.devices("third") in (["a cpu-0", "b card-0"], ["a cpu-1", "b card-1"])
        await cluster.make(inventory("again", rooted("x", "r1", "r2"), pool={"name": "again"}))
        assert "list" in str((await cluster.get(path("resourceslices", "again")))["spec"])


# --- KEP-5773: order ---


def ordered(first: int | None, last: int | None) -> list[Document]:
    """Two slices, of which the later by name is to come first."""
    priorities: list[Document] = [{} if each is None else {"priority": each} for each in (last, first)]
    return [
        inventory(f"{name}-slice", {"name": f"{name}-gpu"}, slices=2, **priority)
        for name, priority in zip("ab", priorities, strict=True)
    ]


@req("K5773-033", "K5773-034", "K5773-035", "K5773-038", "K5773-039")
async def test_priorities_on_off_and_on_again(tmp_path: Path) -> None:
    again = Restarts(tmp_path)

    async def first_of(cluster: Any, name: str) -> str:
        await cluster.make(claim(name, request("gpu", GPU)), pod(name, named(name)))
        await cluster.bound(name)
        (device,) = await cluster.devices(name)
        await cluster.ends(name)
        await cluster.until_free(name)
        return str(device)

    async with again.running() as cluster:
        await cluster.make(node("n"), device_class(GPU))
        for document in ordered(first=7, last=None):
            said = await cluster.ask("POST", path("resourceslices"), document)
            assert (said.code, said.warnings) == (201, "")
        assert await first_of(cluster, "p0") == "gpu b-gpu"
        await cluster.make(claim("held", request("gpu", GPU)), pod("held", named("held")))
        await cluster.bound("held")
        kept = await cluster.kept()
        await cluster.make(inventory("c", {"name": "c-gpu"}, pool={"name": "c", "priority": 9}))
        assert await first_of(cluster, "p1") == "gpu c-gpu"
    async with again.running(scheduler=off(PRIORITIES)) as cluster:
        await cluster.are_kept(kept)
        assert await first_of(cluster, "p2") == "gpu c-gpu"
        said = await cluster.ask(
            "POST",
            path("resourceslices"),
            inventory("d", {"name": "d-gpu"}, pool={"name": "d", "priority": 99}),
        )
        assert (said.code, said.warnings) == (201, "")
        assert await first_of(cluster, "p3") == "gpu c-gpu"
    async with again.running(off(PRIORITIES)) as cluster:
        await cluster.are_kept(kept)
        said = await cluster.ask(
            "POST",
            path("resourceslices"),
            inventory("e", {"name": "e-gpu"}, pool={"name": "e", "priority": 999}),
        )
        assert "priority" not in said.document["spec"]["pool"]
        assert PRIORITIES in said.warnings
        assert await first_of(cluster, "p4") == "gpu c-gpu"
    async with again.running() as cluster:
        await cluster.are_kept(kept)
        assert await first_of(cluster, "p5") == "gpu d-gpu"
