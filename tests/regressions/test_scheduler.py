"""Faults that schedulers have had elsewhere, by their row in the list of regressions: promises and their end.

S18 is a matter of how requests are counted and is tested with the resources of pods. S19 and S20 speak of
extended resources that become claims, which dray does not build: their fields are unknown fields, so there is
nothing of theirs to clean up or to accept.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from typing import Any

import pytest

from dray.allocator.inventory.usage import DeviceUsage
from dray.api.resource import ResourceClaim
from dray.client.errors import InternalServerError
from dray.client.patches import MergePatch
from dray.client.transport import TransportRequest
from dray.scheduler.assume_cache import ClaimAssumeCache, parse_claim_version
from dray.scheduler.queue import QueueTiming
from dray.scheduler.scheduling_loop import Scheduler
from tests.contract.controlled import by_name, by_template, pod
from tests.contract.documents import allocation, consumer
from tests.contract.intercepted_transport import RequestGate
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
)

__all__ = ["impatient"]

WAY = "inside"

LATER = QueueTiming(initial_backoff=0.8)
"""Who fails is not tried again while the others are looked at."""


def watched(scheduler: Scheduler) -> list[str]:
    """Look at the book of claims after every change; what was wrong with it."""
    faults: list[str] = []
    versions: dict[str, int] = {}
    overlay = scheduler._cache
    book: ClaimAssumeCache = overlay.claims
    told = book._on_changed

    def looked(before: ResourceClaim | None, now: ResourceClaim | None) -> None:
        told(before, now)
        held = Counter(device for claim in book for device in devices_in(claim))
        faults.extend(f"{device} belongs to {count}" for device, count in held.items() if count > 1)
        for stored in book._stored.values():
            if parse_claim_version(stored) < versions.get(stored.metadata.uid, 0):
                faults.append(f"{stored.metadata.name} is older than it was")
            versions[stored.metadata.uid] = parse_claim_version(stored)
            if stored.status.allocation is not None and book.has_pending_allocation(stored):
                faults.append(f"{stored.metadata.name} is promised what it has")
        taken = {pool: used.devices for pool, used in overlay._usage.pools.items()}
        if taken != {pool: used.devices for pool, used in DeviceUsage.from_claims(book).pools.items()}:
            faults.append(f"{taken} is not what claims hold")

    book._on_changed = looked
    return faults


def in_any_order(seed: int) -> Any:
    """Let each request, answer or event take its time."""
    chance = random.Random(seed)

    async def dawdle(_request: TransportRequest) -> None:
        await asyncio.sleep(chance.choice((0, 0, 0.001, 0.004)))

    return dawdle


@pytest.mark.parametrize("transactions", [True, False])
@pytest.mark.parametrize("seed", range(3))
async def test_s01_no_device_is_promised_twice_however_answers_and_events_come(tmp_path, seed, transactions):
    async with place(WAY, tmp_path) as here, here.controlled():
        client, transport = here.intercept_client(transactions=transactions)
        transport.before = transport.after = transport.event = in_any_order(seed)
        async with here.scheduling(client, max_in_flight=16) as scheduler:
            faults = watched(scheduler)
            await here.cluster(4, devices=4)
            await here.make(asks(exactly()))
            names = [f"p-{number}" for number in range(24)]
            await asyncio.gather(*(here.make(pod(name, by_template())) for name in names))
            pods = await here.until(lambda: settled(here, names), lambda found: found is not None)
            bound = [each.metadata.name for each in pods if each.spec.node_name]
            assert len(bound) == 16
            held = [device for devices in (await here.held()).values() for device in devices]
            assert len(set(held)) == len(held) == 16
            # Those that were refused get what the others give back.
            await asyncio.gather(*(here.delete(name) for name in bound))
            await here.until_bound(*(name for name in names if name not in bound))
            assert faults == []
            assert scheduler._binder.reservations.conflicts == 0
            # The last response may come after its pod was seen with a node.
            await here.until(lambda: pending(scheduler), lambda count: count == 0)


async def pending(scheduler: Scheduler) -> int:
    return scheduler._cache.claims.count_pending_allocations()


async def settled(here: Place, names: list[str]) -> Any:
    """The pods, when each of them is bound or refused."""
    pods = [await here.pod(name) for name in names]
    done = all(
        each.spec.node_name or any(c.type == "PodScheduled" for c in each.status.conditions) for each in pods
    )
    return pods if done else None


async def test_s02_shares_that_others_hold_are_counted(tmp_path):
    """Also those a scheduler finds when it starts, and those it is told of later."""
    shared = {"name": "nic", "allowMultipleAllocations": True, "capacity": {"bw": {"value": "10"}}}
    async with place(WAY, tmp_path) as here:
        await here.cluster(1, devices=0)
        await here.make(devices_of("node-a", shared))
        shares = {}
        for number, name in enumerate(("early", "late")):
            asked = exactly("nic", capacity={"requests": {"bw": "4"}})
            await here.make(asks(asked, name=name, made=False))
            share: Any = {
                "consumedCapacity": {"bw": "4"},
                "shareID": f"{number:08}-0000-4000-8000-000000000000",
            }
            shares[name] = allocation("nic", request="nic", **share)
        await write_allocation(here, "early", shares["early"])
        async with here.scheduling():
            for amount in ("7", "6", "2"):
                asked = exactly("nic", capacity={"requests": {"bw": amount}})
                await here.make(asks(asked, name=f"c{amount}", made=False))
            await here.make(pod("seven", by_name("c7")))
            await here.until_refused("seven", "c7")
            await write_allocation(here, "late", shares["late"])
            await here.make(pod("six", by_name("c6")), pod("two", by_name("c2")))
            await here.until_refused("six", "c6")
            await here.until_bound("two")


async def write_allocation(here: Place, name: str, given: dict[str, Any], *consumers: Any) -> None:
    status = {"status": {"allocation": given, "reservedFor": list(consumers)}}
    await here.client.patch(ResourceClaim, name, MergePatch(status), "default", subresource="status")


async def test_s03_a_claim_with_devices_and_one_without_on_several_nodes(tmp_path):
    """One claim reaches both nodes, the other has alternatives and is scored."""
    async with place(WAY, tmp_path) as here:
        await here.cluster(0)
        for name, model in (("node-a", "small"), ("node-b", "large")):
            await here.make(node(name, labels={"zone": "z"}))
            await here.make(devices_of(name, {"name": "gpu-0", "attributes": {"model": {"string": model}}}))
        zone = {"key": "zone", "operator": "In", "values": ["z"]}
        where = {"nodeSelectorTerms": [{"matchExpressions": [zone]}]}
        await here.make(asks(exactly(), name="far", made=False))
        await write_allocation(here, "far", allocation("far-0", node="rack") | {"nodeSelector": where})
        either = first_of(
            "gpu", ("large", attribute("model", "large")), ("small", attribute("model", "small"))
        )
        await here.make(asks(either, name="near", made=False))
        async with here.scheduling():
            await here.make(pod("p", by_name("far", "far"), by_name("near", "near")))
            (bound,) = await here.until_bound("p")
            assert bound.spec.node_name == "node-b"
            assert devices_in(await here.claim("near")) == ["node-b/gpu-0"]
            assert devices_in(await here.claim("far")) == ["rack/far-0"]


async def test_s04_pods_that_share_a_pending_claim_build_on_one_promise(tmp_path):
    async with place(WAY, tmp_path) as here:
        client, transport = here.intercept_client()
        transport.before = gate = RequestGate("PUT", "/resourceclaims/c/status")
        async with here.scheduling(client) as scheduler:
            await here.cluster(3, devices=1)
            await here.make(asks(exactly(), name="c", made=False))
            names = [f"p-{number}" for number in range(5)]
            await here.make(*(pod(name, by_name("c")) for name in names))
            await here.until(lambda: in_flight(scheduler), lambda count: count == 5)
            assert scheduler._cache.claims.count_pending_allocations() == 1
            gate.open()
            bound = await here.until_bound(*names)
            found = await here.claim("c")
            assert len({each.spec.node_name for each in bound}) == 1
            assert {each.name for each in found.status.reserved_for} == set(names)
            assert len(devices_in(found)) == 1
            # One after the other would be five writes; whoever waits is written with the first.
            assert transport.count("PUT", "/resourceclaims/c/status") <= 2
            assert b'attempts_total{profile="default-scheduler",result="error"}' not in metrics(scheduler)


async def in_flight(scheduler: Scheduler) -> int:
    return scheduler._queue.in_flight


def metrics(scheduler: Scheduler) -> bytes:
    return scheduler.metrics.render()


async def test_s05_who_shares_a_promise_goes_where_it_is(tmp_path):
    async with place(WAY, tmp_path) as here:
        client, transport = here.intercept_client()
        transport.before = gate = RequestGate("PUT", "/resourceclaims/c/status")
        async with here.scheduling(client) as scheduler:
            await here.cluster(5, devices=0)
            await here.make(devices_of("node-c", "gpu-0"), asks(exactly(), name="c", made=False))
            await here.make(pod("p", by_name("c")), pod("q", by_name("c")))
            await here.until(lambda: in_flight(scheduler), lambda count: count == 2)
            gate.open()
            assert [each.spec.node_name for each in await here.until_bound("p", "q")] == ["node-c"] * 2


async def test_s05_an_allocation_without_a_selector_reaches_every_node(tmp_path):
    async with place(WAY, tmp_path) as here:
        client, transport = here.intercept_client()
        transport.before = gate = RequestGate("PUT", "/resourceclaims/c/status")
        async with here.scheduling(client) as scheduler:
            await here.cluster(2, devices=0)
            await here.make(devices_of("net", "ip-0", allNodes=True), asks(exactly(), name="c", made=False))
            for name in ("a", "b"):
                await here.make(
                    pod(name, by_name("c"), nodeSelector={"kubernetes.io/hostname": f"node-{name}"})
                )
            for name in ("a", "b"):
                labels = MergePatch({"metadata": {"labels": {"kubernetes.io/hostname": f"node-{name}"}}})
                await here.client.patch(NODE, f"node-{name}", labels)
            await here.until(lambda: in_flight(scheduler), lambda count: count == 2)
            gate.open()
            bound = await here.until_bound("a", "b")
            assert [each.spec.node_name for each in bound] == ["node-a", "node-b"]
            found = (await here.claim("c")).status.allocation
            assert found is not None
            assert found.node_selector is None


async def test_s06_a_member_whose_binding_fails_lets_go_once(tmp_path):
    """The claim stays with the others, and the device is not given to somebody else meanwhile."""
    async with place(WAY, tmp_path) as here:
        client, transport = here.intercept_client()
        failing = ["/pods/p/binding"]

        async def fail(request: TransportRequest) -> None:
            if failing and request.path.endswith(failing[0]):
                failing.pop()
                raise InternalServerError(500, {"message": "the binding was not to be"})

        transport.before = fail
        async with here.scheduling(client) as scheduler:
            faults = watched(scheduler)
            await here.cluster(1, devices=1)
            await here.make(asks(exactly(), name="c", made=False), asks(exactly(), name="other", made=False))
            await here.make(pod("p", by_name("c")), pod("q", by_name("c")))
            await here.until_bound("p", "q")
            assert not failing
            await here.make(pod("r", by_name("other")))
            await here.until_refused("r", "other")
            found = await here.claim("c")
            assert {each.name for each in found.status.reserved_for} == {"p", "q"}
            assert scheduler._cache.claims.count_pending_allocations() == 0
            assert faults == []


async def test_s06_a_member_that_fails_leaves_the_promise_to_the_others(tmp_path):
    """The first of two fails to write what both build on; until the second has, nobody gets the device."""
    async with place(WAY, tmp_path) as here:
        client, transport = here.intercept_client()
        first, second = (RequestGate("PUT", "/resourceclaims/c/status", most=1) for _ in range(2))

        async def fail_the_first(request: TransportRequest) -> None:
            if first.reached.is_set():
                await second(request)
                return
            await first(request)
            if first.reached.is_set():
                raise InternalServerError(500, {"message": "the write was not to be"})

        transport.before = fail_the_first
        async with here.scheduling(client, queue_timing=LATER) as scheduler:
            await here.cluster(1, devices=1)
            await here.make(asks(exactly(), name="c", made=False), asks(exactly(), name="other", made=False))
            await here.make(pod("p", by_name("c")), pod("q", by_name("c")))
            await here.until(lambda: in_flight(scheduler), lambda count: count == 2)
            first.open()
            await second.reached.wait()
            other = scheduler._queue.get((await here.pod("q")).metadata.uid)
            assert other is not None
            assert other.attempts == 1
            await here.make(pod("r", by_name("other")))
            await here.until_refused("r", "other")
            assert scheduler._cache.claims.count_pending_allocations() == 1
            second.open()
            await here.until_bound("p", "q")
            assert scheduler._binder.reservations.conflicts == 0


async def test_s07_a_peer_that_commits_first_is_no_failure(tmp_path):
    async with place(WAY, tmp_path) as here:
        client, transport = here.intercept_client()
        transport.before = gate = RequestGate("PUT", "/resourceclaims/c/status", most=1)
        async with here.scheduling(client) as scheduler:
            await here.cluster(1, devices=2)
            peer = await here.make(pod("peer", schedulerName="another"))
            await here.make(asks(exactly(), name="c", made=False), pod("p", by_name("c")))
            await gate.reached.wait()
            await write_allocation(here, "c", allocation("gpu-1"), consumer(peer))
            gate.open()
            (bound,) = await here.until_bound("p")
            found = await here.claim("c")
            assert devices_in(found) == ["node-a/gpu-1"]
            assert [each.name for each in found.status.reserved_for] == ["peer", "p"]
            assert scheduler._binder.reservations.conflicts == 1
            assert b'attempts_total{profile="default-scheduler",result="error"}' not in metrics(scheduler)
            assert bound.spec.node_name == "node-a"


async def test_s07_an_older_version_never_comes_back(tmp_path):
    """The watch of claims stands still; what was written is known from the answers, and stays known."""
    async with place(WAY, tmp_path) as here:
        client, transport = here.intercept_client()
        async with here.scheduling(client) as scheduler:
            faults = watched(scheduler)
            await here.cluster(1, devices=2)
            await here.make(*(asks(exactly(), name=f"c{n}", made=False) for n in range(3)))
            await here.until(lambda: known(scheduler), lambda count: count == 3)
            transport.event = late = RequestGate("GET", "/resourceclaims")
            mark = MergePatch({"metadata": {"annotations": {"a": "b"}}})
            await here.client.patch(ResourceClaim, "c0", mark, "default")
            await here.make(pod("p0", by_name("c0")))
            await here.until_bound("p0")
            await here.make(pod("p1", by_name("c1")))
            await here.until_bound("p1")
            late.open()
            await here.make(pod("p2", by_name("c2")))
            await here.until_refused("p2", "c2")
            assert faults == []
            assert scheduler._binder.reservations.conflicts == 1  # the mark was not known


async def known(scheduler: Scheduler) -> int:
    return len(list(scheduler._cache.claims))


async def test_s08_an_attempt_that_breaks_leaves_no_promise(tmp_path):
    async with place(WAY, tmp_path) as here:
        client, transport = here.intercept_client()
        broken = ["/resourceclaims/c/status"]

        async def breaks(request: TransportRequest) -> None:
            if broken and request.path.endswith(broken[0]):
                broken.pop()
                raise RuntimeError("a mistake in the program")

        transport.before = breaks
        async with here.scheduling(client, max_in_flight=1) as scheduler:
            await here.cluster(1, devices=1)
            await here.make(asks(exactly(), name="c", made=False), asks(exactly(), name="d", made=False))
            await here.make(pod("p", by_name("c")))
            await here.until(lambda: gone(broken))
            await here.delete("p")
            await here.make(pod("q", by_name("d")))
            await here.until_bound("q")
            assert devices_in(await here.claim("d")) == ["node-a/gpu-0"]
            assert scheduler._cache.claims.count_pending_allocations() == 0


async def gone(left: list[str]) -> bool:
    return not left
