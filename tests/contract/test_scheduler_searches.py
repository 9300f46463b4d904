"""The scheduler against a real server while a search takes very long."""

from __future__ import annotations

import asyncio
from functools import partial
from math import log2

from dray.client.leases import LEASE_KIND, LeaseTiming
from dray.placement.device_searches import MAX_TIME_FACTOR
from dray.scheduler.options import LEASE_NAME, LEASE_NAMESPACE
from dray.scheduler.scheduling_loop import Scheduler
from tests.brute.hard import WANTED, hard_constraints, hard_devices
from tests.contract.controlled import by_name, pod
from tests.contract.scheduled import (
    DRIVER,
    Document,
    Place,
    asks,
    devices_of,
    exactly,
    impatient,
    node,
    place,
    way,
)

__all__ = ["impatient", "way"]

TWO_SECONDS = LeaseTiming(lease_duration=2.0, renew_deadline=1.5, retry_period=0.2)
AN_HOUR = 3600.0
EASY = 'device.attributes["gpu.example.com"].kind == "easy"'
HARD = 'device.attributes["gpu.example.com"].kind == "hard"'


def hard_claim(name: str) -> Document:
    asked = exactly("gpu", HARD, count=WANTED)
    return asks(asked, name=name, made=False, constraints=hard_constraints(DRIVER))


async def make_cluster(here: Place, easy: int) -> None:
    """A node whose devices are hard to choose from, and one with some that are not."""
    await here.cluster(0)
    hard = hard_devices(kind={"string": "hard"})
    await here.make(node("node-hard"), devices_of("node-hard", *hard))
    others = [{"name": f"gpu-{n}", "attributes": {"kind": {"string": "easy"}}} for n in range(easy)]
    await here.make(node("node-easy"), devices_of("node-easy", *others))


async def is_searching(scheduler: Scheduler) -> bool:
    return scheduler._placer.search_worker.waiting > 0


async def waits_for_changes(scheduler: Scheduler) -> bool:
    return scheduler._queue.count_pending()["unschedulable"] > 0


async def lease_of(here: Place) -> Document:
    found = await here.client.get(LEASE_KIND, LEASE_NAME, LEASE_NAMESPACE)
    spec: Document = found["spec"]
    return spec


async def test_a_search_without_end_keeps_nobody_from_leading_and_placing(way, tmp_path):
    async with (
        place(way, tmp_path) as here,
        here.scheduling(
            leader_elect=True, identity="only", lease_timing=TWO_SECONDS, search_seconds=AN_HOUR
        ) as scheduler,
    ):
        await make_cluster(here, easy=10)
        await here.make(hard_claim("hard"), pod("hard", by_name("hard")))
        await here.until(partial(is_searching, scheduler), bool)
        first = await lease_of(here)
        for number in range(10):
            await here.make(asks(exactly("gpu", EASY), name=f"c{number}", made=False))
            await here.make(pod(f"p{number}", by_name(f"c{number}")))
        await here.until_bound(*(f"p{number}" for number in range(10)))
        renewals = {first["renewTime"]}
        while len(renewals) < 12:  # for longer than the lease holds
            lease = await here.until(partial(lease_of, here), lambda now: now["renewTime"] not in renewals)
            renewals.add(lease["renewTime"])
        last = await lease_of(here)
        assert (last["holderIdentity"], last["leaseTransitions"]) == ("only", 0)
        assert last["acquireTime"] == first["acquireTime"]
        await here.until_refused("hard", "devices for claim default/hard are still being searched for")
        assert await is_searching(scheduler)
        assert scheduler._placer.searches.ending_counts["GaveUp"] == 0
        assert not (await here.pod("hard")).spec.node_name


async def test_a_search_that_was_given_up_says_how_far_it_came_and_is_not_made_again(tmp_path):
    async with place("inside", tmp_path) as here, here.scheduling(search_seconds=0.05) as scheduler:
        await make_cluster(here, easy=0)
        await here.make(hard_claim("hard"), pod("hard", by_name("hard")))
        await here.until_refused("hard", "gave up after", f"of {WANTED} devices found", "--search-timeout")
        await here.until(partial(waits_for_changes, scheduler), bool)
        searches = scheduler._placer.searches
        times, worked = searches.ending_counts["GaveUp"], searches.total_seconds
        assert times <= 1 + log2(MAX_TIME_FACTOR)  # once with every doubling of the time
        await here.make(hard_claim("same"), pod("same", by_name("same")))
        await here.until_refused("same", "gave up after")
        assert searches.ending_counts["GaveUp"] == times
        assert searches.total_seconds == worked


async def test_a_pod_that_is_deleted_while_it_is_searched_for_costs_no_more(tmp_path):
    async with place("inside", tmp_path) as here, here.scheduling(search_seconds=AN_HOUR) as scheduler:
        await make_cluster(here, easy=1)
        await here.make(hard_claim("hard"), pod("hard", by_name("hard")))
        await here.until(partial(is_searching, scheduler), bool)
        await here.delete("hard")
        await here.until(partial(is_searching, scheduler), lambda still: not still)
        assert scheduler._placer.searches.unfinished == 0


async def test_devices_that_come_while_a_search_goes_on_are_found(tmp_path):
    async with place("inside", tmp_path) as here, here.scheduling(search_seconds=AN_HOUR) as scheduler:
        await make_cluster(here, easy=1)
        await here.make(hard_claim("hard"), pod("hard", by_name("hard")))
        await here.until(partial(is_searching, scheduler), bool)
        free = [
            {"name": f"gpu-{n}", "attributes": {"kind": {"string": "hard"}, **{x: {"int": n} for x in "abc"}}}
            for n in range(WANTED)
        ]
        await here.make(node("node-free"), devices_of("node-free", *free))
        (bound,) = await here.until_bound("hard")
        assert bound.spec.node_name == "node-free"
        await asyncio.sleep(0)
        assert not await is_searching(scheduler)
