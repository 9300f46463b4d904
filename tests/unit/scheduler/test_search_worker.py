"""The search worker: turns of other tasks, waking of pods, and searches that no pod waits for."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from dray.allocator.search.resumable import TimeLimit
from dray.placement.device_searches import DeviceQuery, DeviceSearches
from dray.placement.pending_pod import PendingPod
from dray.placement.plugins.dynamic_resources import DynamicResources
from dray.placement.scheduling_cycle import Unschedulable, place_pod
from dray.scheduler.search_worker import RECHECK_SECONDS, TIME_SLICE_SECONDS, SearchWorker
from tests.brute import builders as make
from tests.unit.placement.claim_objects import claim, cluster, devices_only, models, wanting

MANY = claim(make.request("r", 30))
RANKED = claim(make.first_of("r", ("many", make.asking(30)), ("few", make.asking(2))))


class Ticking:
    """A clock that goes on by as much as a slice has whenever it is read."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += TIME_SLICE_SECONDS
        return self.now


class WorkerFixture:
    """A plugin whose decisions have no time, and a worker."""

    def __init__(self, busy: Callable[[], bool] = lambda: False) -> None:
        self.clock = Ticking()
        self.plugin: DynamicResources
        self.plugin, self.profile = devices_only(DeviceSearches(TimeLimit(self.clock, 1000.0), 1e-9))
        self.searches = self.plugin.searches
        self.worker = SearchWorker(self.searches, self.clock, busy)
        self.snapshot = cluster({"a": models(*"x" * 30), "b": models(*"x" * 31), "c": models(*"x" * 32)})

    def ask(self, subject: PendingPod) -> DeviceQuery:
        """Decide a pod, which leads to nothing yet."""
        found = place_pod(self.snapshot, subject, self.profile)
        assert isinstance(found, Unschedulable)
        assert found.unfinished
        return self.plugin.get_query(subject, self.snapshot)

    async def wait(self, subject: PendingPod, is_stale: Callable[[], bool] = lambda: False) -> None:
        await self.worker.wait(self.ask(subject), is_stale)


def played(
    play: Callable[[WorkerFixture], Awaitable[None]], busy: Callable[[], bool] = lambda: False
) -> WorkerFixture:
    """Run something beside a worker."""

    async def run() -> WorkerFixture:
        fixture = WorkerFixture(busy)
        working = asyncio.create_task(fixture.worker.run())
        try:
            async with asyncio.timeout(30):
                await play(fixture)
        finally:
            working.cancel()
        return fixture

    return asyncio.run(run())


def test_a_pod_is_woken_as_soon_as_devices_are_found() -> None:
    async def play(fixture: WorkerFixture) -> None:
        await fixture.wait(wanting(MANY))
        assert fixture.searches.ending_counts == {"Solved": 1}
        assert fixture.searches.unfinished == 0, "nobody waits for the other nodes"

    played(play)


def test_where_nodes_are_ranked_all_searches_are_waited_for() -> None:
    async def play(fixture: WorkerFixture) -> None:
        await fixture.wait(wanting(RANKED))
        assert fixture.searches.ending_counts == {"Solved": 3}

    played(play)


def test_pods_that_ask_the_same_share_their_searches() -> None:
    async def play(fixture: WorkerFixture) -> None:
        async with asyncio.TaskGroup() as tasks:
            for name in "pqr":
                tasks.create_task(fixture.wait(wanting(RANKED, name=name)))
            await asyncio.sleep(0)
            assert fixture.worker.waiting == 3
        assert fixture.worker.waiting == 0
        assert fixture.searches.ending_counts == {"Solved": 3}

    played(play)


def test_nobody_works_for_a_pod_that_does_not_wait_any_more() -> None:
    async def play(fixture: WorkerFixture) -> None:
        waiting = asyncio.create_task(fixture.wait(wanting(RANKED)))
        while not fixture.searches.total_seconds:
            await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait([waiting])
        spent = fixture.searches.total_seconds
        for _ in range(50):
            await asyncio.sleep(0)
        assert fixture.searches.total_seconds == spent
        assert (fixture.searches.unfinished, fixture.worker.waiting) == (0, 0)

    played(play)


def test_what_a_decision_left_behind_is_forgotten_unless_somebody_waits() -> None:
    async def play(fixture: WorkerFixture) -> None:
        waiting = asyncio.create_task(fixture.wait(wanting(RANKED)))
        await asyncio.sleep(0)
        fixture.ask(wanting(MANY, name="q"))
        fixture.worker.drop_unwanted_searches()
        assert fixture.searches.list_open_queries() == (
            fixture.plugin.get_query(wanting(RANKED), fixture.snapshot),
        )
        await waiting

    played(play)


def test_a_pod_is_woken_when_what_it_was_judged_by_is_old() -> None:
    asked: list[float] = []

    async def play(fixture: WorkerFixture) -> None:
        def is_stale() -> bool:
            asked.append(fixture.searches.total_seconds)
            return len(asked) > 1

        await fixture.wait(wanting(RANKED), is_stale)
        assert fixture.searches.ending_counts["Solved"] < 3

    played(play)
    first, second = asked
    assert first >= RECHECK_SECONDS
    assert second - first >= RECHECK_SECONDS


def test_pods_that_can_be_placed_get_as_much_time_as_a_slice_had() -> None:
    turns: list[float] = []

    async def play(fixture: WorkerFixture) -> None:
        async def place_others() -> None:
            while True:
                turns.append(fixture.searches.total_seconds)
                await asyncio.sleep(0)

        others = asyncio.create_task(place_others())
        await fixture.wait(wanting(RANKED))
        others.cancel()

    played(play)
    alone = len(turns)
    turns.clear()
    played(play, busy=lambda: True)
    assert len(turns) > 1.5 * alone
