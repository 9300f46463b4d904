"""Fencing a node against a real server with controllers: what goes, in which order, and what stays."""

from __future__ import annotations

from dray.api.core import Node, Pod
from dray.api.meta import ObjectMeta
from dray.api.preparation import Preparation, PreparationSpec, PreparedClaim
from dray.claims.node_loss import RetainedDevice
from dray.client.errors import NotFoundError
from dray.client.patches import MergePatch
from dray.cluster.live.fencing import NodeFencer, NodeHoldings
from dray.controllers.runner import ControllerOptions
from dray.placement.fencing import OUT_OF_SERVICE
from tests.contract.controlled import POD, World, by_name, by_template, claim, pod, template, world
from tests.contract.documents import device_class
from tests.contract.scheduled import Place, devices_of, node
from tests.contract.servers import reaching

WAY = "inside"
UPKEEP = ControllerOptions(upkeep=True)
FINALIZER = "resource.kubernetes.io/delete-protection"
DEVICE = "gpu.example.com/node-a/gpu-0"
READY = {"type": "Ready", "status": "True"}
LOST = {"type": "Ready", "status": "Unknown"}


def out_of_service(**more: str) -> dict[str, str]:
    return {"key": OUT_OF_SERVICE, "value": "nodeshutdown", "effect": "NoExecute", **more}


async def says(here: World, name: str, condition: dict[str, str]) -> None:
    """Let a node be ready, or not."""
    change = MergePatch({"status": {"conditions": [condition]}})
    await here.client.patch(Node, name, change, subresource="status")


async def prepared(here: World, name: str, where: str) -> None:
    """A node has the devices of a claim in its hands."""
    uid = (await here.claim(name)).metadata.uid
    held = PreparedClaim(namespace="default", name=name, uid=uid)
    spec = PreparationSpec(node_name=where, claim=held)
    await here.client.create(Preparation(metadata=ObjectMeta(name=f"{where}-{name}"), spec=spec))


async def seated(here: World, name: str = "p", where: str = "node-a") -> str:
    """A pod from a template runs on a node, with a device; its claim."""
    await here.make(template("t"), pod(name, by_template()))
    made = (await here.until_recorded(name))["gpu"]
    await here.allocate(made, name)
    await here.bind(name, where)
    await prepared(here, made, where)
    return made


async def carried_out(
    here: World, fencing: NodeFencer, seconds: float = 15.0
) -> tuple[NodeHoldings, list[RetainedDevice]]:
    """All steps of fencing a node."""
    assert await fencing.add_taint()
    found = await fencing.inspect_node()
    await fencing.remove_pods(found.pods)
    await fencing.delete_preparations(found.preparations)
    await fencing.annotate_node()
    return found, await fencing.wait_until_free(found.stakes, seconds, lambda _waiting: None)


async def is_gone(here: World, name: str) -> bool:
    try:
        await here.pod(name)
    except NotFoundError:
        return True
    return False


async def test_the_devices_of_running_pods_are_free_when_their_node_is_fenced(tmp_path):
    async with world(WAY, tmp_path) as here, here.controlled(choices=UPKEEP):
        await here.make(node("node-a"))
        name = await seated(here)
        await here.end("p", "Running")
        fencing = NodeFencer(here.client, "node-a")
        before = await fencing.inspect_node()
        staked = [(DEVICE, f"default/{name}")]
        assert [(each.device, each.claim) for each in before.stakes] == staked
        assert not await is_gone(here, "p"), "looking changes nothing"
        found, kept = await carried_out(here, fencing)
        # The controllers may have removed the pod already; then what it had is in quarantine.
        assert [(each.device, each.claim) for each in found.stakes] == staked
        assert (kept, fencing.removed_count) == ([], 1)
        assert await is_gone(here, "p")
        report = await here.client.get_json("/dray/ledger", entries="true")
        assert (report["entries"], report["agrees"]) == ([], True)


async def test_a_claim_that_a_pod_elsewhere_uses_stays_with_it(tmp_path):
    async with world(WAY, tmp_path) as here, here.controlled(choices=UPKEEP):
        shared = claim("c")
        shared["metadata"]["finalizers"] = [FINALIZER]
        await here.make(node("node-a"), node("node-b"), shared)
        await here.make(pod("here", by_name("c")), pod("there", by_name("c")))
        await here.allocate("c", "here", "there")
        for name, where in (("here", "node-a"), ("there", "node-b")):
            await here.bind(name, where)
            await prepared(here, "c", where)
        _, (kept,) = await carried_out(here, NodeFencer(here.client, "node-a"))
        assert (kept.expected, kept.why) == (True, "the claim is reserved for pod there")
        assert kept.claimed.nodes == ("node-b",)
        assert not await is_gone(here, "there")


async def test_finalizers_keep_a_pod_and_not_its_devices(tmp_path):
    async with world(WAY, tmp_path) as here, here.controlled(choices=UPKEEP):
        await here.make(node("node-a"))
        await seated(here)
        await here.client.patch(
            POD, "p", MergePatch({"metadata": {"finalizers": ["a.example/b"]}}), "default"
        )
        fencing = NodeFencer(here.client, "node-a")
        _, kept = await carried_out(here, fencing)
        assert kept == []
        assert ([each.metadata.name for each in fencing.remaining_pods], fencing.removed_count) == (["p"], 0)
        assert (await here.pod("p")).status.phase == "Failed"


async def test_pods_that_ended_are_left_to_be_read(tmp_path):
    async with world(WAY, tmp_path) as here, here.controlled(choices=UPKEEP):
        await here.make(node("node-a"), pod("done"))
        await here.bind("done", "node-a")
        await here.end("done")
        found, _ = await carried_out(here, NodeFencer(here.client, "node-a"))
        assert found.pods == ()
        assert (await here.pod("done")).status.phase == "Succeeded"


async def test_a_pod_that_was_just_being_bound_is_removed_too(tmp_path):
    async with world(WAY, tmp_path) as here:
        await here.make(node("node-a"), pod("late"), pod("tolerant", tolerations=[{"operator": "Exists"}]))
        fencing = NodeFencer(here.client, "node-a")
        assert await fencing.add_taint()
        await fencing.inspect_node()
        await here.bind("late", "node-a")
        await here.bind("tolerant", "node-a")
        assert await fencing.wait_until_free((), 0.0, lambda _waiting: None) == []
        assert await is_gone(here, "late")
        assert (await here.pod("tolerant")).metadata.deletion_timestamp is None


async def test_what_a_fenced_node_had_is_given_to_a_pod_elsewhere(tmp_path):
    async with reaching(WAY, tmp_path) as reach:
        here = Place(reach)
        async with here.controlled(choices=UPKEEP), here.scheduling():
            fabric = devices_of("fabric", "nic-0", allNodes=True)
            await here.make(device_class(), fabric, template("t"), node("node-a", labels={"rack": "1"}))
            await here.make(pod("first", by_template()))
            await here.until_bound("first")
            await prepared(here, (await here.recorded("first"))["gpu"] or "", "node-a")
            await here.make(node("node-b"), pod("second", by_template()))
            await here.until_refused("second")
            fencing = NodeFencer(here.client, "node-a")
            assert (await carried_out(here, fencing))[1] == []
            (second,) = await here.until_bound("second")
            assert second.spec.node_name == "node-b"
            await here.make(pod("third", nodeSelector={"rack": "1"}))
            await here.until_refused("third", OUT_OF_SERVICE)
            assert (await fencing.unfence(), await fencing.unfence()) == (True, False)
            await here.until_bound("third")


async def test_pods_that_cannot_leave_a_node_out_of_service_are_removed(tmp_path):
    async with world(WAY, tmp_path) as here, here.controlled(choices=UPKEEP):
        await here.make(node("node-a", taints=[out_of_service(effect="NoSchedule")]))
        await says(here, "node-a", READY)
        name = await seated(here)
        await here.delete("p", grace_seconds=30)
        await here.stays(lambda: is_gone(here, "p"))
        await says(here, "node-a", LOST)
        await here.until(lambda: is_gone(here, "p"))
        await here.until(here.claims, lambda claims: claims == [])
        (told,) = await here.until(lambda: here.told("NodeLost"))
        assert told == "the pod is deleted: node node-a is out of service"
        (held,) = (await here.client.get_json("/dray/ledger", node="node-a"))["entries"]
        assert [each["quarantined"] for each in held["holders"]] == [True], f"{name}: nobody said it is free"


async def test_a_node_out_of_service_loses_its_pods_without_anybody_deleting_them(tmp_path):
    async with world(WAY, tmp_path) as here, here.controlled(choices=UPKEEP):
        await here.make(node("node-a"), pod("p"), pod("stays", tolerations=[{"operator": "Exists"}]))
        for name in ("p", "stays"):
            await here.bind(name, "node-a")
        await says(here, "node-a", LOST)
        await here.client.patch(Node, "node-a", MergePatch({"spec": {"taints": [out_of_service()]}}))
        await here.until(lambda: is_gone(here, "p"))
        (told,) = await here.until(lambda: here.told("TaintManagerEviction"))
        assert OUT_OF_SERVICE in told
        assert (await here.client.get(Pod, "stays", "default")).metadata.deletion_timestamp is None
