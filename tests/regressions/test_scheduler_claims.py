"""Faults that schedulers have had elsewhere, by their row in the list of regressions: claims come and go."""

from __future__ import annotations

import asyncio
from typing import Any

from dray.api.resource import DeviceClass, ResourceClaim
from dray.claims.claim_names import POD_CLAIM_NAME_ANNOTATION
from dray.client.client import DeleteOptions
from dray.client.patches import MergePatch
from dray.placement.scheduling_cycle import Unschedulable
from dray.scheduler.metrics import AttemptResult
from dray.scheduler.queued_pod import QueuedPod
from tests.contract.controlled import POD, by_name, by_template, pod
from tests.contract.documents import claim, owner
from tests.contract.intercepted_transport import RequestGate
from tests.contract.scheduled import Place, asks, devices_in, devices_of, exactly, impatient, node, place

__all__ = ["impatient"]

WAY = "inside"


async def test_s09_pods_that_ended_hold_neither_capacity_nor_devices(tmp_path):
    async with place(WAY, tmp_path) as here, here.controlled(), here.scheduling():
        await here.cluster(0)
        await here.make(node("node-a", capacity={"cpu": "1", "pods": "1"}), devices_of("node-a", "gpu-0"))
        await here.make(asks(exactly()))
        for name, phase in (("p", "Succeeded"), ("q", "Failed"), ("r", "")):
            await here.make(pod(name, by_template()))
            await here.until_bound(name)
            assert devices_in(await here.claim_of(name)) == ["node-a/gpu-0"]
            if phase:
                await here.end(name, phase)


async def test_s10_the_claim_of_an_entry_is_the_one_the_status_names(tmp_path):
    """Claims that are called like the entry, or like pod and entry, are somebody else's."""
    async with place(WAY, tmp_path) as here, here.controlled(), here.scheduling():
        await here.cluster(1, devices=1)
        await here.make(asks(exactly()), claim("gpu"), claim("p-gpu"), pod("p", by_template("gpu")))
        await here.until_bound("p")
        made = await here.claim_of("p", "gpu")
        assert made.metadata.name not in ("gpu", "p-gpu")
        assert await here.held() == {"gpu": [], "p-gpu": [], made.metadata.name: ["node-a/gpu-0"]}


async def test_s11_a_pod_that_was_there_before_its_driver_is_tried_again(tmp_path):
    async with place(WAY, tmp_path) as here, here.controlled(), here.scheduling():
        await here.cluster(1, devices=0)
        await here.make(asks(exactly()), pod("p", by_template()))
        await here.until_refused("p")
        await here.make(devices_of("node-a", "gpu-0"))
        await here.until_bound("p")


async def test_s12_a_claim_that_was_recorded_lets_its_pod_be_tried(tmp_path):
    async with place(WAY, tmp_path) as here, here.scheduling():
        await here.cluster(1, devices=1)
        waiting = await here.make(asks(exactly()), pod("p", by_template()))
        await here.until_refused("p", "entry gpu: its claim has not been made from template t yet")
        made = claim("p-gpu-x", ownerReferences=[owner(waiting, controller=True)])
        made["metadata"]["annotations"] = {POD_CLAIM_NAME_ANNOTATION: "gpu"}
        await here.make(made)
        assert not (await here.stays(lambda: here.pod("p"), 0.1)).spec.node_name
        await record(here, "p", gpu="p-gpu-x")
        await here.until_bound("p")


async def record(here: Place, name: str, **entries: str) -> None:
    said = [{"name": entry, "resourceClaimName": name} for entry, name in entries.items()]
    change = MergePatch({"status": {"resourceClaimStatuses": said}})
    await here.client.patch(POD, name, change, "default", subresource="status")


async def test_s13_a_claim_that_is_gone_gives_its_devices_back(tmp_path):
    """It was never seen without them: somebody took its finalizer off."""
    async with place(WAY, tmp_path) as here, here.scheduling():
        await here.cluster(1, devices=1)
        await here.make(asks(exactly(), name="c", made=False), asks(exactly(), name="d", made=False))
        await here.make(pod("p", by_name("c")))
        await here.until_bound("p")
        await here.make(pod("q", by_name("d")))
        await here.until_refused("q", "d")
        await here.delete("p")
        await here.client.patch(ResourceClaim, "c", MergePatch({"metadata": {"finalizers": None}}), "default")
        await here.client.delete(ResourceClaim, "c", "default", DeleteOptions(grace_seconds=0))
        await here.until_bound("q")


async def test_s14_a_class_that_changes_while_a_pod_is_tried_has_it_tried_again(tmp_path):
    async with place(WAY, tmp_path) as here, here.scheduling() as scheduler:
        await here.cluster(1, devices=1)
        await select(here, 'device.driver == "nobody"')
        await here.make(asks(exactly(), name="c", made=False))
        refused, seen = scheduler._handle_unschedulable, asyncio.Event()
        scheduler._informers.classes.listen(updated=lambda _old, _new: seen.set())

        async def meanwhile(queued: QueuedPod, unplaceable: Unschedulable, since: int) -> AttemptResult:
            if not seen.is_set():
                await select(here, 'device.driver == "gpu.example.com"')
                await seen.wait()
            return await refused(queued, unplaceable, since)

        scheduler._handle_unschedulable = meanwhile  # type: ignore[method-assign]
        await here.make(pod("p", by_name("c")))
        await here.until_bound("p")


async def test_s14_a_class_that_changes_wakes_who_waits_for_it(tmp_path):
    async with place(WAY, tmp_path) as here, here.scheduling():
        await here.cluster(1, devices=1)
        await select(here, 'device.driver == "nobody"')
        await here.make(asks(exactly(), name="c", made=False), pod("p", by_name("c")))
        await here.until_refused("p", "gpu.example.com")
        await select(here, 'device.driver == "gpu.example.com"')
        await here.until_bound("p")


async def select(here: Place, expression: str) -> None:
    change = MergePatch({"spec": {"selectors": [{"cel": {"expression": expression}}]}})
    await here.client.patch(DeviceClass, "gpu.example.com", change)


SLOW = {"bindingConditions": ["attached"], "bindingFailureConditions": ["broken"]}


async def test_s15_a_claim_that_loses_its_devices_while_another_pod_reserves_it(tmp_path):
    async with place(WAY, tmp_path) as here:
        client, transport = here.intercept_client()
        async with here.scheduling(client) as scheduler:
            await here.cluster(1, devices=0)
            await here.make(devices_of("node-a", {"name": "gpu-0", **SLOW}))
            await here.make(asks(exactly(), name="c", made=False), pod("p", by_name("c")))
            await here.until(lambda: here.claim("c"), lambda found: found.status.reserved_for)
            transport.before = gate = RequestGate("PUT", "/resourceclaims/c/status", most=1)
            await here.make(pod("q", by_name("c")))
            await gate.reached.wait()
            nothing: dict[str, Any] = {"status": {"allocation": None, "reservedFor": None}}
            await here.client.patch(ResourceClaim, "c", MergePatch(nothing), "default", subresource="status")
            gate.open()
            found = await here.until(
                lambda: here.claim("c"), lambda found: len(found.status.reserved_for) == 2
            )
            assert devices_in(found) == ["node-a/gpu-0"]
            await attached(here, "c")
            await here.until_bound("p", "q")
            assert scheduler._cache.claims.count_pending_allocations() == 0


async def attached(here: Place, name: str, condition: str = "attached", device: str = "gpu-0") -> None:
    said = {
        "type": condition,
        "status": "True",
        "reason": "Said",
        "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    row = {"driver": "gpu.example.com", "pool": "node-a", "device": device, "conditions": [said]}
    change = MergePatch({"status": {"devices": [row]}})
    await here.client.patch(ResourceClaim, name, change, "default", subresource="status")


async def test_s16_a_claim_whose_owner_is_not_its_controller(tmp_path):
    async with place(WAY, tmp_path) as here, here.scheduling():
        await here.cluster(1, devices=1)
        waiting = await here.make(asks(exactly()), pod("p", by_template()))
        await here.make(claim("p-gpu-x", ownerReferences=[owner(waiting)]))
        await record(here, "p", gpu="p-gpu-x")
        await here.until_bound("p")
        assert devices_in(await here.claim("p-gpu-x")) == ["node-a/gpu-0"]


async def test_s17_a_pod_that_has_its_node_never_gets_the_condition(tmp_path):
    """What was to be said about a failure arrives after the pod was bound."""
    async with place(WAY, tmp_path) as here:
        client, transport = here.intercept_client()
        transport.before = gate = RequestGate("PATCH", "/pods/p/status")
        async with here.scheduling(client):
            await here.cluster(1, devices=0)
            await here.make(asks(exactly(), name="c", made=False), pod("p", by_name("c")))
            await gate.reached.wait()
            await here.make(devices_of("node-a", "gpu-0"))
            await here.until_bound("p")
            before = await here.pod("p")
            gate.open()
            await here.stays(lambda: here.pod("p"), 0.2)
            said = {each.type: each.status for each in before.status.conditions}
            assert said["PodScheduled"] == "True"
            assert await here.told("FailedScheduling") == []
