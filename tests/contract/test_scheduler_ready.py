"""The scheduler against a real server: devices that have to become ready before pods are bound."""

from __future__ import annotations

import operator
from functools import partial
from typing import Any

from dray.api.resource import ResourceClaim
from dray.client.client import DeleteOptions
from dray.client.object_refs import get_kind
from dray.client.patches import MergePatch
from tests.contract.controlled import by_name, pod
from tests.contract.scheduled import Place, asks, devices_in, devices_of, exactly, impatient, place, way
from tests.support.manual_time import ManualTime

__all__ = ["impatient", "way"]

EVENT = get_kind("Event")
SLOW = {"bindingConditions": ["attached"], "bindingFailureConditions": ["broken"]}


def free(name: str) -> dict[str, Any]:
    return asks(exactly(), name=name, made=False)


async def say(here: Place, name: str, condition: str, message: str = "") -> None:
    """What a driver says about the device of a claim."""
    said = {
        "type": condition,
        "status": "True",
        "reason": "Said",
        "message": message,
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    (found,) = devices_in(await here.claim(name))
    pool, device = found.split("/")
    row = {"driver": "gpu.example.com", "pool": pool, "device": device, "conditions": [said]}
    change = MergePatch({"status": {"devices": [row]}})
    await here.client.patch(ResourceClaim, name, change, "default", subresource="status")


async def until_held(here: Place, name: str) -> ResourceClaim:
    found: ResourceClaim = await here.until(lambda: here.claim(name), lambda claim: claim.status.reserved_for)
    return found


async def until_waiting(here: Place, name: str) -> tuple[str, str, str]:
    """Wait until a pod that waits for devices says so; type, reason and note of its event."""
    await here.until(lambda: here.pod(name), lambda pod: pod.status.nominated_node_name)
    listing = await here.until(lambda: here.client.list(EVENT, "default"), lambda found: found.items)
    (event,) = listing.items
    return event["type"], event["reason"], event["message"]


async def test_a_pod_is_bound_when_its_devices_are_ready(way, tmp_path):
    async with place(way, tmp_path) as here, here.scheduling():
        await here.cluster(1, devices=0)
        await here.make(devices_of("node-a", {"name": "gpu-0", **SLOW}), free("c"), pod("p", by_name("c")))
        held = await until_held(here, "c")
        assert held.status.allocation is not None
        assert held.status.allocation.allocation_timestamp
        said = "claim default/c: device gpu.example.com/node-a/gpu-0 waits for attached on node node-a"
        assert await until_waiting(here, "p") == ("Normal", "BindingConditionsPending", said)
        waiting = await here.pod("p")
        assert (waiting.spec.node_name, waiting.status.nominated_node_name) == ("", "node-a")
        assert not waiting.status.conditions
        await say(here, "c", "attached")
        await here.until_bound("p")


async def test_devices_that_will_not_become_ready_go_back(tmp_path):
    async with place("inside", tmp_path) as here, here.scheduling():
        await here.cluster(1, devices=0)
        await here.make(devices_of("node-a", {"name": "gpu-0", **SLOW}), free("c"), pod("p", by_name("c")))
        before = await until_held(here, "c")
        await until_waiting(here, "p")
        await say(here, "c", "broken", "no link")
        await here.until_refused("p", "claim default/c: device gpu.example.com/node-a/gpu-0: broken: no link")
        # It is tried again, from the start.
        after = await here.until(
            lambda: here.claim("c"),
            lambda claim: (
                claim.metadata.resource_version != before.metadata.resource_version
                and claim.status.reserved_for
                and not claim.status.devices
            ),
        )
        assert devices_in(after) == ["node-a/gpu-0"]
        await say(here, "c", "attached")
        await here.until_bound("p")


async def test_nobody_waits_for_devices_longer_than_allowed(tmp_path):
    time = ManualTime()
    async with place("inside", tmp_path) as here:
        client, _ = here.intercept_client(time.time_source)
        async with here.scheduling(client, max_binding_wait=600.0):
            await here.cluster(1, devices=0)
            await here.make(
                devices_of("node-a", {"name": "gpu-0", **SLOW}), free("c"), pod("p", by_name("c"))
            )
            held = await until_held(here, "c")
            await time.advance(599)
            assert await here.stays(lambda: here.claim("c"), 0.05) == held
            await time.advance(2)
            await here.until(lambda: here.claim("c"), lambda claim: claim.status.allocation is None)
            said = "waits for attached for more than 600 seconds"
            await here.until(lambda: turned(here, time, "p"), lambda text: said in str(text))


async def turned(here: Place, time: ManualTime, name: str) -> str | None:
    await time.advance(0.01)
    return await here.why(name)


async def test_pods_that_wait_for_devices_keep_nobody_from_being_placed(tmp_path):
    async with place("inside", tmp_path) as here, here.scheduling(max_in_flight=1):
        await here.cluster(1, devices=0)
        slow = [{"name": f"gpu-{n}", **SLOW} for n in range(3)]
        await here.make(devices_of("node-a", *slow), *(free(f"c{n}") for n in range(3)))
        await here.make(*(pod(f"p-{n}", by_name(f"c{n}")) for n in range(3)), pod("quick"))
        await here.until_bound("quick")
        for n in range(3):
            await until_held(here, f"c{n}")
            await say(here, f"c{n}", "attached")
        await here.until_bound("p-0", "p-1", "p-2")


async def users(here: Place, name: str) -> int:
    return len((await here.claim(name)).status.reserved_for)


async def test_all_pods_that_wait_for_the_same_devices_are_woken(tmp_path):
    async with place("inside", tmp_path) as here, here.scheduling() as scheduler:
        await here.cluster(1, devices=0)
        await here.make(devices_of("node-a", {"name": "gpu-0", **SLOW}), free("c"))
        names = [f"p-{n}" for n in range(4)]
        for count, name in enumerate(names, 1):
            await here.make(pod(name, by_name("c")))
            await here.until(lambda: users(here, "c"), partial(operator.eq, count))
        await say(here, "c", "attached")
        await here.until_bound(*names)
        assert len(scheduler._binder.reservations.locks) == 0


async def test_a_claim_that_vanishes_while_its_pod_waits_for_devices(tmp_path):
    async with place("inside", tmp_path) as here, here.scheduling() as scheduler:
        await here.cluster(1, devices=0)
        await here.make(devices_of("node-a", {"name": "gpu-0", **SLOW}), free("c"), pod("p", by_name("c")))
        await until_held(here, "c")
        change = MergePatch({"metadata": {"finalizers": None}})
        await here.client.patch(ResourceClaim, "c", change, "default")
        await until_waiting(here, "p")
        await here.client.delete(ResourceClaim, "c", "default", DeleteOptions(grace_seconds=0))
        await here.until_refused("p", "claim default/c does not exist")
        assert scheduler._queue.in_flight == 0


async def test_devices_that_a_scheduler_before_reserved_go_back_too_when_they_fail(tmp_path):
    async with place("inside", tmp_path) as here:
        async with here.scheduling():
            await here.cluster(1, devices=0)
            await here.make(
                devices_of("node-a", {"name": "gpu-0", **SLOW}), free("c"), pod("p", by_name("c"))
            )
            await until_held(here, "c")
        await say(here, "c", "broken", "no link")
        async with here.scheduling():
            await here.until(lambda: here.claim("c"), lambda claim: not claim.status.devices)
            await until_held(here, "c")
            await say(here, "c", "attached")
            await here.until_bound("p")
