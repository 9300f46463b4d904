"""The scheduler against a real server under failures: rivals, deletions, searches, new leaders."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from itertools import count
from typing import Any

import pytest

from dray.allocator.search.resumable import TimeLimit
from dray.api.resource import ResourceClaim
from dray.client.client import DeleteOptions
from dray.client.errors import ConflictError
from dray.client.leases import LeaseTiming
from dray.client.patches import MergePatch
from dray.client.transport import TransportRequest
from dray.placement import profile
from dray.scheduler.scheduling_loop import Scheduler
from tests.contract.controlled import by_name, by_template, pod
from tests.contract.intercepted_transport import RequestGate
from tests.contract.scheduled import (
    NODE,
    Place,
    asks,
    attribute,
    choices,
    devices_in,
    devices_of,
    exactly,
    gate_allocation,
    impatient,
    node,
    place,
    way,
)

__all__ = ["impatient", "way"]


def free(name: str) -> dict[str, Any]:
    return asks(exactly(), name=name, made=False)


# --- rivals ---


def called(name: str) -> profile.PlacementOptions:
    return profile.PlacementOptions(scheduler_name=name)


@pytest.mark.parametrize("transactions", [True, False])
async def test_who_loses_a_device_to_a_rival_gets_another(way, tmp_path, transactions):
    async with place(way, tmp_path) as here:
        client, transport = here.intercept_client(transactions=transactions)
        transport.before = gate = gate_allocation("slow", transactions=transactions)
        await here.cluster(1, devices=2)
        await here.make(free("slow"), free("fast"))
        async with (
            here.scheduling(client, placement=called("slow")) as loser,
            here.scheduling(placement=called("fast")),
        ):
            await here.make(pod("s", by_name("slow"), schedulerName="slow"))
            await gate.reached.wait()
            await here.make(pod("f", by_name("fast"), schedulerName="fast"))
            await here.until_bound("f")
            gate.open()
            await here.until_bound("s")
            held = await here.held()
            assert held == {"fast": ["node-a/gpu-0"], "slow": ["node-a/gpu-1"]}
            assert loser._binder.reservations.conflicts == 1
            assert loser._cache.claims.count_pending_allocations() == 0


async def test_schedulers_that_do_not_know_of_each_other_share_a_cluster(tmp_path):
    async with place("inside", tmp_path) as here, here.controlled():
        await here.cluster(4, devices=2)
        await here.make(asks(exactly()))
        names = [f"p-{n}" for n in range(12)]
        async with here.scheduling() as one, here.scheduling() as two:
            await asyncio.gather(*(here.make(pod(name, by_template())) for name in names))
            await here.until(lambda: here.held(), lambda held: sum(map(len, held.values())) == 8)
            pods = await here.until(lambda: all_of(here, names), lambda found: nodes(found) == 8)
            held = [device for found in (await here.held()).values() for device in found]
            assert len(set(held)) == 8
            for each in pods:
                if each.spec.node_name:
                    found = await here.claim_of(each.metadata.name)
                    assert [used.uid for used in found.status.reserved_for] == [each.metadata.uid]
                    assert devices_in(found)[0].startswith(f"{each.spec.node_name}/")
            bound = [each.metadata.name for each in pods if each.spec.node_name]
            await asyncio.gather(*(here.delete(name) for name in bound))
            await here.until_bound(*(name for name in names if name not in bound))
            for scheduler in (one, two):
                await here.until(partial(promised, scheduler), lambda count: count == 0)


async def test_who_is_overtaken_takes_back_only_what_was_its_own(tmp_path):
    """Two schedulers try one pod: what the faster one wrote for it stays, whatever the slower one decided."""
    async with place("inside", tmp_path) as here:
        slow_client, slow_way = here.intercept_client()
        fast_client, fast_way = here.intercept_client()
        slow_way.before = writes = RequestGate("PUT", "/resourceclaims/c/status", most=1)
        fast_way.before = binds = RequestGate("POST", "/pods/p/binding", most=1)
        await here.cluster(2, devices=1)
        await here.make(free("c"))
        async with AsyncExitStack() as ends:
            slow = await ends.enter_async_context(here.scheduling(slow_client))
            await here.make(pod("p", by_name("c")))
            await writes.reached.wait()
            chosen = slow._cache.claims.get("default", "c")
            assert chosen is not None
            (device,) = devices_in(chosen)
            cordon = MergePatch({"spec": {"unschedulable": True}})
            await here.client.patch(NODE, device.split("/")[0], cordon)
            await ends.enter_async_context(here.scheduling(fast_client))
            await binds.reached.wait()
            before = await here.claim("c")
            writes.open()
            await here.until(partial(conflicts, slow), lambda count: count == 1)
            await here.stays(lambda: here.claim("c"), 0.1)
            binds.open()
            (bound,) = await here.until_bound("p")
            after = await here.claim("c")
            assert devices_in(after) == devices_in(before) == [f"{bound.spec.node_name}/gpu-0"]
            assert [each.uid for each in after.status.reserved_for] == [bound.metadata.uid]


async def conflicts(scheduler: Scheduler) -> int:
    return scheduler._binder.reservations.conflicts


async def all_of(here: Place, names: list[str]) -> list[Any]:
    return [await here.pod(name) for name in names]


def nodes(pods: list[Any]) -> int:
    return sum(bool(each.spec.node_name) for each in pods)


async def promised(scheduler: Scheduler) -> int:
    return scheduler._cache.claims.count_pending_allocations()


async def test_a_ledger_that_objects_again_and_again_costs_no_device(tmp_path):
    async with place("inside", tmp_path) as here:
        client, transport = here.intercept_client()
        objections = 5

        async def object_(request: TransportRequest) -> None:
            nonlocal objections
            if request.method == "PUT" and request.path.endswith("/resourceclaims/c/status") and objections:
                objections -= 1
                raise ConflictError(409, {"message": "device gpu-0 is held by somebody"})

        transport.before = object_
        async with here.scheduling(client) as scheduler:
            await here.cluster(1, devices=1)
            await here.make(free("c"), pod("p", by_name("c")))
            await here.until_bound("p")
            assert objections == 0
            assert scheduler._binder.reservations.conflicts == 5
            assert await promised(scheduler) == 0


# --- searches ---


async def test_a_search_that_gave_up_is_reported_and_gets_more_time(tmp_path):
    """Every event of a search takes a second by the clock of this scheduler's searches."""
    seconds = count()
    async with place("inside", tmp_path) as here, here.scheduling() as scheduler:
        searches = scheduler._placer.searches
        searches.limit, searches.decision_seconds = TimeLimit(lambda: float(next(seconds)), 5.0), math.inf
        await here.cluster(1, devices=20)
        await here.make(asks(exactly(count=20), name="c", made=False), pod("p", by_name("c")))
        await here.until_bound("p")
        assert searches.ending_counts == {"GaveUp": 3, "Solved": 1}
        searches.limit = TimeLimit(lambda: float(next(seconds)), 1.0)
        await here.make(asks(exactly(count=20), name="d", made=False), pod("q", by_name("d")))
        await here.make(devices_of("more", *(f"gpu-{n}" for n in range(20)), nodeName="node-a"))
        await here.until_refused("q", "gave up after", "a longer --search-timeout may tell")
        searches.limit = TimeLimit(lambda: float(next(seconds)), 50.0)
        await here.make(node("node-b"))
        await here.until_bound("q")


async def test_a_pod_that_was_there_before_the_first_node_gets_it(tmp_path):
    async with place("inside", tmp_path) as here, here.scheduling():
        await here.make(pod("p"))
        await here.until_refused("p", "there are no nodes")
        await here.make(node("node-a"))
        await here.until_bound("p")


async def test_a_device_that_cannot_be_judged_spoils_its_own_node_only(way, tmp_path):
    async with place(way, tmp_path) as here, here.scheduling():
        await here.cluster(0)
        good = {"name": "gpu-0", "attributes": {"model": {"string": "large"}}}
        await here.make(node("node-a"), devices_of("node-a", "bare"))
        asked = exactly("gpu", attribute("model", "large"))
        await here.make(asks(asked, name="c", made=False), asks(asked, name="d", made=False))
        await here.make(pod("p", by_name("c")))
        await here.until_refused("p", "node-a", "bare")
        await here.make(node("node-b"), devices_of("node-b", good))
        assert (await here.until_bound("p"))[0].spec.node_name == "node-b"


# --- deletions in flight ---


@pytest.mark.parametrize("transactions", [True, False])
@pytest.mark.parametrize("what", ["pod", "claim"])
async def test_a_waiting_pod_gets_what_was_assumed_for_a_deleted_one(tmp_path, what, transactions):
    async with place("inside", tmp_path) as here:
        client, transport = here.intercept_client(transactions=transactions)
        finalizer = RequestGate("PATCH", "/resourceclaims/c", most=1)
        transport.before = gate = gate_allocation("c", transactions=True) if transactions else finalizer
        async with here.scheduling(client) as scheduler:
            await here.cluster(1, devices=1)
            await here.make(free("c"), free("d"), pod("p", by_name("c")))
            await gate.reached.wait()
            await here.make(pod("q", by_name("d")))
            await here.until_refused("q", "d")
            if what == "pod":
                await here.delete("p")
            else:
                await here.client.delete(ResourceClaim, "c", "default", DeleteOptions(grace_seconds=0))
                await here.until_bound("q")
            gate.open()
            if what == "claim":
                await here.until_refused("p", "claim default/c does not exist")
            elif transactions:
                await here.until_bound("q")
                assert devices_in(await here.claim("c")) == []
            else:
                # Its claim keeps the device until somebody takes the pod off it.
                await here.until(lambda: flying(scheduler), lambda count: count == 0)
                await here.client.delete(ResourceClaim, "c", "default", DeleteOptions(grace_seconds=0))
                await here.client.patch(
                    ResourceClaim,
                    "c",
                    MergePatch({"status": {"allocation": None, "reservedFor": None}}),
                    "default",
                    subresource="status",
                )
                await here.until_bound("q")
            assert await promised(scheduler) == 0


async def flying(scheduler: Scheduler) -> int:
    return scheduler._queue.in_flight


async def test_capacity_that_was_assumed_for_a_deleted_pod_is_free_again(tmp_path):
    async with place("inside", tmp_path) as here:
        client, transport = here.intercept_client()
        transport.before = gate = RequestGate("POST", "/pods/p/binding", most=1)
        async with here.scheduling(client):
            await here.make(node("node-a", capacity={"cpu": "1", "memory": "1Gi", "pods": "1"}), pod("p"))
            await gate.reached.wait()
            await here.make(pod("q"))
            await here.until_refused("q", "node-a")
            await here.delete("p")
            gate.open()
            await here.until_bound("q")


async def test_a_pod_whose_node_goes_away_meanwhile_gets_another(tmp_path):
    async with place("inside", tmp_path) as here:
        client, transport = here.intercept_client()
        transport.before = gate = RequestGate("PATCH", "/resourceclaims/c", most=1)
        async with here.scheduling(client) as scheduler:
            await here.cluster(1, devices=1)
            await here.make(free("c"), pod("p", by_name("c")))
            await gate.reached.wait()
            await here.make(node("node-b"), devices_of("node-b", "gpu-0"))
            await here.client.delete(NODE, "node-a")
            await here.until(lambda: knows(scheduler), lambda names: names == {"node-b"})
            gate.open()
            assert (await here.until_bound("p"))[0].spec.node_name == "node-b"
            assert devices_in(await here.claim("c")) == ["node-b/gpu-0"]


async def knows(scheduler: Scheduler) -> set[str]:
    return set(scheduler._cache._nodes)


# --- leaders ---

QUICK = LeaseTiming(lease_duration=0.6, renew_deadline=0.4, retry_period=0.05)


async def test_another_scheduler_takes_over_where_one_ends(way, tmp_path):
    async with place(way, tmp_path) as here, here.controlled(), AsyncExitStack() as ends:
        await here.cluster(2, devices=2)
        await here.make(asks(exactly()))
        await ends.enter_async_context(
            here.scheduling(leader_elect=True, identity="first", lease_timing=QUICK)
        )
        await here.make(pod("p", by_template()))
        await here.until_bound("p")
        async with here.scheduling(leader_elect=True, identity="second", lease_timing=QUICK) as second:
            await here.make(pod("q", by_template()))
            await here.until_bound("q")
            assert second._placer.cycle == 0
            await ends.aclose()
            await here.make(pod("r", by_template()))
            await here.until_bound("r")
            assert second._placer.cycle > 0
            held = [device for found in (await here.held()).values() for device in found]
            assert len(set(held)) == 3


class Enough(Exception):  # noqa: N818 - what is the case
    """The end of a test."""


@pytest.mark.parametrize("transactions", [True, False])
async def test_a_leader_that_is_deposed_again_and_again_goes_on(tmp_path, transactions):
    """Neither binding slots, nor pods, nor devices get lost when leadership ends in the middle."""
    async with place("inside", tmp_path) as here:
        await here.cluster(1, devices=3)
        client, transport = here.intercept_client(transactions=transactions)
        scheduler = Scheduler(client, choices(max_in_flight=1))
        try:
            async with asyncio.TaskGroup() as tasks:
                await scheduler._informers.start(tasks)
                for number in range(3):
                    transport.before = gate_allocation(f"c{number}", transactions=transactions)
                    await here.make(free(f"c{number}"), pod(f"p-{number}", by_name(f"c{number}")))
                    async with deposed(scheduler):
                        await transport.before.reached.wait()
                    assert await promised(scheduler) == 0
                    async with deposed(scheduler):
                        await here.until_bound(f"p-{number}")
                        await here.until(partial(flying, scheduler), lambda count: count == 0)
                raise Enough
        except* Enough:
            assert scheduler._placer.cycle >= 6


@asynccontextmanager
async def deposed(scheduler: Scheduler) -> AsyncIterator[None]:
    """A scheduler leads while the block lasts."""
    lead = asyncio.create_task(scheduler._lead())
    yield
    lead.cancel()
    await asyncio.wait([lead])
