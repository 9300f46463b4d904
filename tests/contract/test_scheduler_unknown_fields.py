"""Beside a server that is newer than we are, nothing is allocated by rules that we do not know."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from dray.api.resource import ResourceSlice
from dray.client.client import Client
from dray.client.patches import MergePatch
from tests.contract.controlled import by_name, pod
from tests.contract.documents import device_class
from tests.contract.newer_transport import NewerTransport
from tests.contract.scheduled import (
    DRIVER,
    SCHEDULER,
    Place,
    asks,
    devices_of,
    exactly,
    impatient,
    node,
    place,
)

__all__ = ["impatient"]

UNKNOWN = "unknown to this dray"


@asynccontextmanager
async def newer_place(directory: Path) -> AsyncIterator[Place]:
    """A scheduler beside a newer server with a node `node-a`, and a class for its devices."""
    async with place("http", directory) as here:
        client = Client(NewerTransport(here.reach._transport(SCHEDULER)))
        here.reach._open.append(client)
        await here.make(device_class(), node("node-a"))
        async with here.scheduling(client):
            yield here


async def request_device(here: Place, name: str, request: str = "gpu", **more: str) -> None:
    """A pod with a claim of its own name."""
    await here.make(asks(exactly(request, **more), name=name, made=False), pod(name, by_name(name)))


async def test_a_slice_with_an_unknown_field_is_not_used_until_it_has_none(tmp_path):
    async with newer_place(tmp_path) as here:
        await here.make(devices_of("node-a", "gpu-0", "newer"))
        await request_device(here, "a")
        said = await here.until_refused("a", UNKNOWN)
        assert (
            f"pool {DRIVER}/node-a is not usable: `spec.devices[].tomorrow` is unknown to this dray" in said
        )
        assert await here.held() == {"a": []}
        await here.make(node("node-b"), devices_of("node-b", "gpu-7"))
        (bound,) = await here.until_bound("a")
        assert bound.spec.node_name == "node-b"
        await request_device(here, "b")
        await here.until_refused("b", "no node can satisfy")
        known = [{"name": "gpu-0"}, {"name": "gpu-1"}]
        change = MergePatch({"spec": {"devices": known}})
        await here.client.patch(ResourceSlice, f"node-a-{DRIVER}", change)
        await here.until_bound("b")
        assert await here.held() == {"a": ["node-b/gpu-7"], "b": ["node-a/gpu-0"]}


async def test_a_claim_with_an_unknown_field_is_not_allocated(tmp_path):
    async with newer_place(tmp_path) as here:
        await here.make(devices_of("node-a", "gpu-0"))
        await request_device(here, "like", "older")
        await here.until_bound("like")  # the same claim, but for the field
        await request_device(here, "a", "newer")
        said = await here.until_refused("a", UNKNOWN)
        assert said.startswith("claim default/a: `spec.devices.requests[0].tomorrow` is unknown to this dray")
        assert (await here.held())["a"] == []


async def test_a_name_of_an_object_is_no_unknown_field_of_its_spec(tmp_path):
    async with newer_place(tmp_path) as here:
        await here.make(devices_of("node-a", "gpu-0"))
        await request_device(here, "newer")  # the metadata has the field
        await here.until_bound("newer")


async def test_a_class_with_an_unknown_field_gives_nothing(tmp_path):
    async with newer_place(tmp_path) as here:
        strange = device_class() | {
            "metadata": {"name": "strange"},
            "spec": {"selectors": [{"cel": {"expression": "true"}}]},
        }
        await here.make(devices_of("node-a", "gpu-0"), strange)
        await request_device(here, "a", deviceClassName="strange")
        said = await here.until_refused("a", UNKNOWN)
        assert "device class `strange`: `spec.selectors[0].cel.tomorrow` is unknown to this dray" in said


async def test_a_pod_with_an_unknown_way_to_a_claim_is_not_placed(tmp_path):
    async with newer_place(tmp_path) as here:
        await here.make(devices_of("node-a", "gpu-0"), asks(exactly(), name="a", made=False))
        await here.make(pod("a", by_name("a", entry="newer")))
        said = await here.until_refused("a", UNKNOWN)
        assert "`spec.resourceClaims[0].tomorrow`" in said
        assert await here.held() == {"a": []}


async def test_a_pod_of_a_group_is_left_to_a_scheduler_of_groups(tmp_path):
    async with newer_place(tmp_path) as here:
        waiting = pod("a")
        waiting["spec"]["schedulingGroup"] = {"podGroupName": "g"}
        await here.make(waiting)
        await here.until_refused("a", "`spec.schedulingGroup` is not supported by this dray yet")
