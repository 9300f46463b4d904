"""The snapshot worker: changes of nodes are in the snapshot before a pod asks for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from dray.placement.snapshot import ClusterSnapshot
from dray.scheduler.cache import MANY_POOLS, SchedulerCache
from dray.scheduler.snapshot_worker import DELAY_SECONDS, NODES_AT_ONCE, SnapshotWorker
from tests.property.test_placement_law import OPEN
from tests.unit.placement.claim_objects import claim, having
from tests.unit.placement.pods_and_nodes import node


class SnapshotWatch(SchedulerCache):
    """A cache that tells when its snapshot is complete, and how many nodes each update added."""

    def __init__(self) -> None:
        super().__init__(OPEN)
        self.added: list[int] = []
        self.complete = asyncio.Event()

    def update_snapshot(self, max_nodes: int | None = None) -> ClusterSnapshot:
        before = len(self.last_snapshot.node_states)
        found = super().update_snapshot(max_nodes)
        self.added.append(len(found.node_states) - before)
        if not self.has_changes:
            self.complete.set()
        return found


def run_worker(change: Callable[[SnapshotWatch], None]) -> tuple[SnapshotWatch, list[float]]:
    """Run a worker until its cache has no changes; the cache, and how long the worker slept."""
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    async def main() -> SnapshotWatch:
        cache = SnapshotWatch()
        worker = asyncio.ensure_future(SnapshotWorker(cache, sleep).run())
        change(cache)
        await asyncio.wait_for(cache.complete.wait(), 10)
        worker.cancel()
        return cache

    return asyncio.run(main()), slept


def add_nodes(count: int) -> Callable[[SchedulerCache], None]:
    def add(cache: SchedulerCache) -> None:
        for number in range(count):
            cache.update_node(node(f"node-{number}"))

    return add


def test_nodes_that_joined_are_in_the_snapshot_without_a_decision() -> None:
    cache, slept = run_worker(add_nodes(3))
    assert cache.added == [3]
    assert slept == [DELAY_SECONDS]


def test_many_nodes_are_taken_over_in_portions() -> None:
    cache, _slept = run_worker(add_nodes(2 * NODES_AT_ONCE + 1))
    assert cache.added == [NODES_AT_ONCE, NODES_AT_ONCE, 1]


def test_allocations_on_many_nodes_are_taken_over_too() -> None:
    cache, told = SchedulerCache(OPEN), list[int]()
    cache.on_nodes_changed = lambda: told.append(1)
    for number in range(MANY_POOLS + 1):
        assert not told
        cache.claims.add(having(claim(name=f"c-{number}"), f"pool-{number}/d"))
    assert told == [1]
    cache.update_snapshot()
    cache.claims.add(having(claim(name="another"), "pool/d"))
    assert told == [1]
