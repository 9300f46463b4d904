"""The scheduler against a real server, over both transports: which node pods get, and which devices."""

from __future__ import annotations

import pytest

from dray.api.resource import ResourceClaim
from dray.client.patches import MergePatch
from dray.placement.pending_pod import PendingPod, resolve_pending_pod
from dray.placement.scheduling_cycle import Unschedulable
from dray.placement.unschedulable_message import explain_unschedulable
from dray.scheduler.queued_pod import QueuedPod
from tests.contract.controlled import EVENT, POD, by_name, by_template, pod
from tests.contract.documents import allocation
from tests.contract.scheduled import (
    NODE,
    Place,
    asks,
    attribute,
    devices_in,
    devices_of,
    exactly,
    first_of,
    impatient,
    node,
    place,
    way,
)

__all__ = ["impatient", "way"]


def model(name: str, device: str = "gpu-0") -> dict[str, object]:
    return {"name": device, "attributes": {"model": {"string": name}}}


BEST_FIRST = first_of("gpu", ("large", attribute("model", "large")), ("small", attribute("model", "small")))


async def test_a_pod_with_a_template_gets_node_and_device(way, tmp_path):
    async with place(way, tmp_path) as here, here.controlled(), here.scheduling():
        await here.cluster(2, devices=0)
        await here.make(devices_of("node-b", "gpu-0"), asks(exactly()), pod("p", by_template()))
        (bound,) = await here.until_bound("p")
        assert bound.spec.node_name == "node-b"
        made = await here.claim_of("p")
        assert devices_in(made) == ["node-b/gpu-0"]
        assert [each.uid for each in made.status.reserved_for] == [bound.metadata.uid]
        assert {each.type: each.status for each in bound.status.conditions}["PodScheduled"] == "True"
        await here.until(
            lambda: here.told("Scheduled"),
            lambda told: told == ["Successfully assigned default/p to node-b"],
        )


@pytest.mark.req("K4816-073", "K4816-074")
async def test_pods_that_share_a_claim_share_its_devices(way, tmp_path):
    async with place(way, tmp_path) as here, here.controlled(), here.scheduling():
        await here.cluster(3, devices=1)
        names = [f"p-{number}" for number in range(6)]
        await here.make(asks(exactly(), name="c", made=False), *(pod(each, by_name("c")) for each in names))
        bound = await here.until_bound(*names)
        found = await here.claim("c")
        (device,) = devices_in(found)
        assert {each.spec.node_name for each in bound} == {device.split("/")[0]}
        assert {each.name for each in found.status.reserved_for} == set(names)


async def test_the_257th_consumer_waits_until_one_leaves(tmp_path):
    async with place("inside", tmp_path) as here, here.scheduling():
        await here.cluster(1, devices=1)
        await here.make(asks(exactly(), name="c", made=False))
        users = [
            {"apiGroup": "jobs.example.com", "resource": "gangs", "name": f"g{n}", "uid": f"g{n}"}
            for n in range(256)
        ]
        await reserve(here, users)
        await here.make(pod("p", by_name("c")))
        await here.until_refused("p", "claim default/c has 256 consumers already, the most a claim can have")
        await reserve(here, users[:-1])
        await here.until_bound("p")
        assert len((await here.claim("c")).status.reserved_for) == 256


async def reserve(here: Place, users: list[dict[str, str]]) -> None:
    change = MergePatch({"status": {"allocation": allocation(), "reservedFor": users}})
    await here.client.patch(ResourceClaim, "c", change, "default", subresource="status")


async def test_several_claims_get_their_devices_on_one_node(way, tmp_path):
    async with place(way, tmp_path) as here, here.controlled(), here.scheduling():
        await here.cluster(2, devices=2)
        await here.make(node("node-c"), devices_of("node-c", "gpu-0", "gpu-1", "gpu-2", "gpu-3"))
        await here.make(asks(exactly(), name="named", made=False), asks(exactly(), exactly("second")))
        await here.make(pod("p", by_template("one"), by_name("named", "two"), by_template("three")))
        assert await here.until_refused("p") is not None
        await here.make(devices_of("more", "gpu-0", nodeName="node-c"))
        (bound,) = await here.until_bound("p")
        assert bound.spec.node_name == "node-c"
        held = await here.held()
        assert sorted(map(len, held.values())) == [1, 2, 2]
        assert len({device for devices in held.values() for device in devices}) == 5


@pytest.mark.req("K4816-063", "K4816-064", "K4816-065", "K4816-068", "K4816-082")
async def test_a_node_with_a_better_alternative_is_preferred(way, tmp_path):
    async with place(way, tmp_path) as here, here.controlled(), here.scheduling():
        await here.cluster(0)
        for name, kind in (("node-a", "small"), ("node-b", "large"), ("node-c", "small")):
            await here.make(node(name), devices_of(name, model(kind), model(kind, "gpu-1")))
        await here.make(asks(BEST_FIRST), *(pod(f"p-{n}", by_template()) for n in range(3)))
        bound = await here.until_bound("p-0", "p-1", "p-2")
        nodes = sorted(each.spec.node_name for each in bound)
        assert nodes[:2] in (["node-a", "node-b"], ["node-b", "node-b"])
        assert nodes.count("node-b") == 2
        for each in bound:
            allocated = (await here.claim_of(each.metadata.name)).status.allocation
            assert allocated is not None
            (result,) = allocated.devices.results
            assert result.request == ("gpu/large" if each.spec.node_name == "node-b" else "gpu/small")


@pytest.mark.req("K4816-075")
async def test_what_devices_prefer_does_not_outweigh_what_a_pod_forbids(tmp_path):
    async with place("inside", tmp_path) as here, here.controlled(), here.scheduling():
        await here.cluster(0)
        await here.make(node("node-a", labels={"kind": "wanted"}), devices_of("node-a", model("small")))
        await here.make(node("node-b"), devices_of("node-b", model("large")))
        await here.make(asks(BEST_FIRST), pod("p", by_template(), nodeSelector={"kind": "wanted"}))
        assert (await here.until_bound("p"))[0].spec.node_name == "node-a"


@pytest.mark.req("K4816-072", "K4816-074")
async def test_a_claim_that_has_its_devices_keeps_its_pods_where_they_are(tmp_path):
    """Although another node would have a better alternative, were it asked again."""
    async with place("inside", tmp_path) as here, here.scheduling():
        await here.cluster(0)
        await here.make(node("node-a"), devices_of("node-a", model("small")))
        await here.make(asks(BEST_FIRST, name="c", made=False), pod("p", by_name("c")))
        await here.until_bound("p")
        await here.make(node("node-b"), devices_of("node-b", model("large")))
        await here.make(*(pod(f"q-{n}", by_name("c")) for n in range(4)))
        bound = await here.until_bound(*(f"q-{n}" for n in range(4)))
        assert {each.spec.node_name for each in bound} == {"node-a"}


async def test_pods_of_other_schedulers_are_left_alone_and_their_devices_too(way, tmp_path):
    async with place(way, tmp_path) as here, here.scheduling():
        await here.cluster(1, devices=2)
        await here.make(*(asks(exactly(), name=name, made=False) for name in ("theirs", "ours", "late")))
        await here.make(pod("their-pod", by_name("theirs"), schedulerName="another"))
        await here.allocate("theirs", "their-pod", device="gpu-0")
        await here.make(pod("our-pod", by_name("ours")), pod("late-pod", by_name("late")))
        await here.until(lambda: bound_of(here, "our-pod", "late-pod"), lambda found: found == 1)
        held = await here.held()
        assert held["theirs"] == ["node-a/gpu-0"]
        assert sorted(held["ours"] + held["late"]) == ["node-a/gpu-1"]
        left = await here.stays(lambda: here.pod("their-pod"), 0.1)
        assert not left.spec.node_name
        assert not left.status.conditions


async def bound_of(here: Place, *names: str) -> int:
    return sum([bool((await here.pod(name)).spec.node_name) for name in names])


async def test_a_pod_with_gates_waits_until_they_are_gone(way, tmp_path):
    async with place(way, tmp_path) as here, here.controlled(), here.scheduling():
        await here.cluster(1, devices=1)
        await here.make(asks(exactly()), pod("p", by_template(), schedulingGates=[{"name": "example.com/g"}]))
        await here.until_recorded("p")
        await here.make(pod("q"))
        await here.until_bound("q")
        assert not (await here.pod("p")).spec.node_name
        await here.client.patch(POD, "p", MergePatch({"spec": {"schedulingGates": None}}), "default")
        await here.until_bound("p")


async def test_the_pod_with_the_highest_priority_gets_freed_devices(tmp_path):
    async with place("inside", tmp_path) as here, here.controlled(), here.scheduling():
        await here.cluster(1, devices=1)
        await here.make(asks(exactly()), pod("first", by_template()))
        await here.until_bound("first")
        ranks = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass"}
        for value in (1, 3, 2):
            await here.make(
                {**ranks, "metadata": {"name": f"rank-{value}"}, "value": value},
                pod(f"p-{value}", by_template(), priorityClassName=f"rank-{value}"),
            )
        for value in (1, 2, 3):
            await here.until_refused(f"p-{value}")
        for last, value in (("first", 3), ("p-3", 2), ("p-2", 1)):
            await here.delete(last)
            await here.until_bound(f"p-{value}")
            assert await bound_of(here, *(f"p-{each}" for each in range(1, value))) == 0


async def test_a_refusal_is_written_once_as_condition_and_event(way, tmp_path):
    async with place(way, tmp_path) as here, here.controlled(), here.scheduling() as scheduler:
        await here.cluster(2, devices=1)
        await here.make(asks(exactly(count=2), name="c", made=False), pod("p", by_name("c")))
        text = await here.until_refused("p", "no node can satisfy claim")
        entry = scheduler._queue.get((await here.pod("p")).metadata.uid)
        assert entry is not None
        subject = resolve_pending_pod(entry.pod, scheduler._placer.claim_lookup)
        assert isinstance(subject, PendingPod)
        refused = scheduler._placer.run_cycle(subject)
        assert isinstance(refused, Unschedulable)
        assert explain_unschedulable(refused, scheduler._options.admission) == text
        await here.until(lambda: here.told("FailedScheduling"), lambda told: told == [text])
        # Nothing about it changes: it is tried again, and not told again.
        before = await here.pod("p")
        tries = entry.attempts
        await here.make(devices_of("elsewhere", "gpu-0", nodeName="nowhere"))
        await here.until(lambda: attempts(entry), lambda count: count > tries)
        assert await here.stays(lambda: here.pod("p"), 0.2) == before
        events = (await here.client.list(EVENT, "default")).items
        failed = [each for each in events if each.get("reason") == "FailedScheduling"]
        assert [each["message"] for each in failed] == [text]
        assert all(each["type"] == "Warning" for each in failed)


async def attempts(entry: QueuedPod) -> int:
    return entry.attempts


@pytest.mark.parametrize("shared", [False, True])
async def test_devices_that_keep_their_only_pod_from_every_node_are_given_back(tmp_path, shared):
    """The node they are on is closed; they go back unless somebody else uses them."""
    async with place("inside", tmp_path) as here, here.scheduling():
        await here.cluster(2, devices=1)
        await here.make(asks(exactly(), name="c", made=False), pod("other", schedulerName="another"))
        await here.allocate("c", *(["other"] if shared else []))
        await here.client.patch(NODE, "node-a", MergePatch({"spec": {"unschedulable": True}}))
        await here.make(pod("p", by_name("c")))
        if shared:
            await here.until_refused("p", "node-b: claim default/c has its devices elsewhere")
            assert devices_in(await here.stays(lambda: here.claim("c"))) == ["node-a/gpu-0"]
        else:
            assert (await here.until_bound("p"))[0].spec.node_name == "node-b"
            assert devices_in(await here.claim("c")) == ["node-b/gpu-0"]
