"""Taints of devices, lost nodes, accounts and leadership: the other controllers against a real server."""

from __future__ import annotations

import asyncio

from dray.api.core import Node
from dray.api.resource import ResourceSlice
from dray.client.errors import NotFoundError
from dray.client.leases import LEASE_KIND, LeaseTiming
from dray.client.object_refs import get_kind
from dray.client.patches import JsonPatch
from dray.controllers.runner import ControllerOptions
from tests.contract.controlled import World, by_name, by_template, claim, pod, template, world
from tests.contract.documents import namespace, node, resource_slice
from tests.contract.servers import way

__all__ = ["way"]

WAY = "inside"
ACCOUNT = get_kind("ServiceAccount")
TAINT = {"key": "gpu.example.com/broken", "value": "fan", "effect": "NoExecute"}


async def taint(here: World, effect: str = "NoExecute") -> None:
    change = {"op": "add", "path": "/spec/devices/0/taints", "value": [TAINT | {"effect": effect}]}
    await here.client.patch(ResourceSlice, "s", JsonPatch([change]))


async def placed(here: World, *, tolerations: list[dict] | None = None) -> None:
    """A pod that runs with a device."""
    given = claim("c")
    if tolerations is not None:
        given["spec"]["devices"]["requests"][0]["exactly"]["tolerations"] = tolerations
    await here.make(resource_slice("s", devices=1), given, pod("p", by_name("c")))
    await here.allocate("c", "p", tolerations=tolerations or [])
    await here.bind("p", "node-a")
    await here.end("p", "Running")


async def exists(here: World, name: str = "p") -> bool:
    try:
        found = await here.pod(name)
    except NotFoundError:
        return False
    return found.metadata.deletion_timestamp is None


async def test_a_pod_whose_device_breaks_is_evicted(way, tmp_path):
    async with world(way, tmp_path) as here, here.controlled() as controllers:
        await placed(here)
        await taint(here, "NoSchedule")
        await here.stays(lambda: exists(here))
        await taint(here)
        await here.until(lambda: exists(here), lambda there: not there)
        leaving = await here.pod("p")
        (condition,) = [each for each in leaving.status.conditions if each.type == "DisruptionTarget"]
        assert (condition.status, condition.reason) == ("True", "DeletionByDeviceTaintManager")
        (told,) = await here.until(lambda: here.told("DeviceTaintManagerEviction"))
        assert "device gpu.example.com/node-a/gpu-0 of claim c has the taint" in told
        numbers = controllers.metrics.render().decode()
        assert "device_taint_eviction_controller_pod_deletions_total 1.0" in numbers
        assert "device_taint_eviction_controller_pod_deletion_duration_seconds_count 1.0" in numbers


async def test_a_pod_that_is_bound_to_a_broken_device_is_evicted(tmp_path):
    async with world(WAY, tmp_path) as here, here.controlled():
        await here.make(resource_slice("s", devices=1), claim("c"), pod("p", by_name("c")))
        await taint(here)
        await here.allocate("c", "p")
        await here.stays(lambda: exists(here))
        await here.bind("p", "node-a")
        await here.until(lambda: exists(here), lambda there: not there)


async def test_a_taint_is_tolerated_for_as_long_as_was_asked(tmp_path):
    for_ever = {"key": TAINT["key"], "operator": "Exists", "effect": "NoExecute"}
    async with world(WAY, tmp_path) as here, here.controlled():
        await placed(here, tolerations=[for_ever | {"tolerationSeconds": 2}])
        await taint(here)
        await here.stays(lambda: exists(here), 0.5)
        await here.until(lambda: exists(here), lambda there: not there)
    async with world(WAY, tmp_path / "second") as here, here.controlled():
        await placed(here, tolerations=[for_ever])
        await taint(here)
        await here.stays(lambda: exists(here), 0.5)


async def test_a_taint_that_goes_in_time_spares_the_pod(tmp_path):
    brief = {"key": TAINT["key"], "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 1}
    async with world(WAY, tmp_path) as here, here.controlled():
        await placed(here, tolerations=[brief])
        await taint(here)
        await taint(here, "NoSchedule")
        await here.stays(lambda: exists(here), 1.5)


async def test_without_the_gate_taints_evict_nobody(tmp_path):
    async with world(WAY, tmp_path) as here, here.controlled(choices=ControllerOptions(device_taints=False)):
        await placed(here)
        await taint(here)
        await here.stays(lambda: exists(here), 0.5)


async def test_pods_of_a_lost_node_are_ended_and_their_claims_freed(tmp_path):
    async with world(WAY, tmp_path) as here:
        choices = ControllerOptions(upkeep=True, missing_node_grace=0.3)
        async with here.controlled(choices=choices):
            await here.make(node("node-a"), template("t"), pod("p", by_template()))
            names = await here.until_recorded("p")
            await here.allocate(names["gpu"], "p")
            await here.bind("p", "node-a")
            await here.stays(lambda: exists(here), 0.6)
            await here.client.delete(Node, "node-a")
            await here.until(here.claims, lambda claims: claims == [])
            assert not await exists(here)
            told = await here.until(lambda: here.told("NodeLost"))
            assert told == ["the pod is deleted: node node-a is gone"]


async def test_a_node_that_comes_back_in_time_keeps_its_pods(tmp_path):
    choices = ControllerOptions(upkeep=True, missing_node_grace=0.6)
    async with world(WAY, tmp_path) as here, here.controlled(choices=choices):
        await here.make(node("node-a"), pod("p"))
        await here.bind("p", "node-a")
        await here.client.delete(Node, "node-a")
        await asyncio.sleep(0.1)
        await here.make(node("node-a"))
        await here.stays(lambda: exists(here), 1.0)


async def test_every_namespace_has_its_account(tmp_path):
    async with world(WAY, tmp_path) as here:
        await here.make(namespace("early"))
        async with here.controlled(choices=ControllerOptions(upkeep=True)):
            await here.make(namespace("late"))

            async def homes() -> set[str]:
                accounts = (await here.client.list(ACCOUNT)).items
                return {
                    each["metadata"]["namespace"]
                    for each in accounts
                    if each["metadata"]["name"] == "default"
                }

            await here.until(homes, lambda found: {"early", "late", "default"} <= found)
            await here.client.delete(ACCOUNT, "default", "late")
            await here.until(homes, lambda found: "late" in found)
            await here.client.delete(get_kind("Namespace"), "late")
            await here.until(homes, lambda found: "late" not in found)


async def test_of_several_controllers_one_acts_and_the_next_takes_over(tmp_path):
    timing = LeaseTiming(3, 2, 0.1)
    async with world(WAY, tmp_path) as here:
        ann, bob = (
            ControllerOptions(identity=name, leader_elect=True, lease_timing=timing)
            for name in ("ann", "bob")
        )
        await here.make(template("t"))
        async with here.controlled(choices=bob, waiting=False) as second:
            async with here.controlled(choices=ann, waiting=False) as first:
                await here.until(lambda: _either(first, second))
                assert first.ready.is_set() != second.ready.is_set()
                await here.make(pod("p", by_template()))
                await here.until_recorded("p")
                assert len(await here.claims()) == 1
            await here.until(lambda: _one(second.ready.is_set()))
            await here.make(pod("q", by_template()))
            await here.until_recorded("q")
            lease = await here.client.get(LEASE_KIND, "dray-controller", "kube-system")
            assert lease["spec"]["holderIdentity"] == "bob"


async def _one(value: bool) -> bool:
    return value


async def _either(first, second) -> bool:
    return first.ready.is_set() or second.ready.is_set()
