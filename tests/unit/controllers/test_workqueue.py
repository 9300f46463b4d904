"""The work queue: nothing is lost, nothing is processed twice at once, and failures back off."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from dray.client.errors import ServerUnreachableError
from dray.client.timing import TimeSource
from dray.clock import ManualClock
from dray.controllers.metrics import METRIC_DEFINITIONS, register_queue_metrics
from dray.controllers.workqueue import INITIAL_BACKOFF, MAX_BACKOFF, WorkQueue
from dray.telemetry.metrics import MetricsRegistry


class Bench:
    """A queue with a clock that stands still, and work that is noted."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.metrics = MetricsRegistry(METRIC_DEFINITIONS)
        tempo = TimeSource(self.clock, asyncio.sleep, lambda: 1.0)
        self.queue: WorkQueue[str] = WorkQueue("resource_claim", tempo, self.metrics)
        register_queue_metrics(self.metrics, lambda: [self.queue])
        self.done: list[str] = []
        self.failed: list[str] = []

    def number(self, name: str) -> float:
        for line in self.metrics.render().decode().splitlines():
            if line.startswith(name + "{"):
                return float(line.rpartition(" ")[2])
        return 0.0

    async def run(self, work: Callable[[str], Awaitable[None]], then: Callable[[], Awaitable[None]]) -> None:
        task = asyncio.create_task(
            self.queue.run(work, lambda key, failed: self.failed.append(f"{key}: {failed}"), 3)
        )
        await then()
        task.cancel()
        await asyncio.wait([task])

    async def note(self, key: str) -> None:
        self.done.append(key)


async def settled() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def test_what_is_added_often_before_its_turn_is_done_once():
    async def check() -> None:
        bench = Bench()
        for key in ("a", "b", "a", "a"):
            bench.queue.add(key)
        assert len(bench.queue) == 2
        await bench.run(bench.note, settled)
        assert bench.done == ["a", "b"]
        assert bench.queue.is_idle

    asyncio.run(check())


def test_a_key_is_never_worked_on_twice_at_once_and_no_change_is_lost():
    async def check() -> None:
        bench = Bench()
        gate, at_once, most = asyncio.Event(), 0, 0

        async def work(key: str) -> None:
            nonlocal at_once, most
            at_once += 1
            most = max(most, at_once)
            await gate.wait()
            bench.done.append(key)
            at_once -= 1

        async def then() -> None:
            bench.queue.add("a")
            await settled()
            for _ in range(5):
                bench.queue.add("a")
            await settled()
            gate.set()
            await settled()

        await bench.run(work, then)
        assert bench.done == ["a", "a"]
        assert most == 1

    asyncio.run(check())


def test_several_keys_are_worked_on_at_once_but_not_more_than_there_are_workers():
    async def check() -> None:
        bench = Bench()
        gate, begun = asyncio.Event(), []

        async def work(key: str) -> None:
            begun.append(key)
            await gate.wait()

        async def then() -> None:
            for key in "abcde":
                bench.queue.add(key)
            await settled()
            assert begun == ["a", "b", "c"]
            assert bench.number("workqueue_depth") == 2
            bench.clock.advance(2)
            assert bench.number("workqueue_unfinished_work_seconds") == 6
            assert bench.number("workqueue_longest_running_processor_seconds") == 2
            gate.set()
            await settled()

        await bench.run(work, then)
        assert begun == list("abcde")
        assert bench.number("workqueue_work_duration_seconds_sum") == 6

    asyncio.run(check())


@pytest.mark.req("K4816-117", "K3063-179", "K3063-180")
def test_waits_after_failures_grow_up_to_a_longest_and_are_counted():
    async def check() -> None:
        bench = Bench()

        async def work(key: str) -> None:
            bench.done.append(key)
            raise ServerUnreachableError("no answer")

        async def then() -> None:
            bench.queue.add("a")
            await settled()
            wait = INITIAL_BACKOFF
            waits: list[float] = []
            while len(waits) < 14:
                bench.clock.advance(wait - 0.01)
                bench.queue.add_due()
                assert not len(bench.queue)
                bench.clock.advance(0.011)
                bench.queue.add_due()
                assert len(bench.queue) == 1
                await settled()
                waits.append(wait)
                wait = min(wait * 2, MAX_BACKOFF)
            assert waits[-1] == MAX_BACKOFF

        await bench.run(work, then)
        assert bench.failed[0] == "a: no answer"
        assert bench.number("workqueue_retries_total") == len(bench.done) == 15
        assert bench.number("workqueue_adds_total") == 15
        assert bench.number("workqueue_queue_duration_seconds_count") == 15

    asyncio.run(check())


def test_an_event_ends_the_wait_after_a_failure():
    async def check() -> None:
        bench = Bench()

        async def then() -> None:
            bench.queue.add_rate_limited("a")
            bench.queue.add("a")
            await settled()
            assert bench.done == ["a"]
            bench.clock.advance(60)
            bench.queue.add_due()
            await settled()
            assert bench.done == ["a"]

        await bench.run(bench.note, then)

    asyncio.run(check())


def test_the_earlier_of_two_times_counts():
    async def check() -> None:
        bench = Bench()

        async def then() -> None:
            bench.queue.add_after("a", 10)
            bench.queue.add_after("a", 5)
            bench.queue.add_after("a", 20)
            bench.clock.advance(5)
            bench.queue.add_due()
            await settled()
            assert bench.done == ["a"]
            bench.clock.advance(60)
            bench.queue.add_due()
            await settled()
            assert bench.done == ["a"]

        await bench.run(bench.note, then)

    asyncio.run(check())


def test_what_went_well_begins_with_short_waits_again():
    async def check() -> None:
        bench = Bench()
        for _ in range(6):
            bench.queue.add_rate_limited("a")
        bench.queue.forget("a")
        bench.queue.add("a")
        await bench.run(bench.note, settled)
        bench.queue.add_rate_limited("a")
        bench.clock.advance(INITIAL_BACKOFF)
        bench.queue.add_due()
        assert len(bench.queue) == 1

    asyncio.run(check())


def test_broken_work_ends_the_queue():
    async def check() -> None:
        bench = Bench()

        async def work(key: str) -> None:
            raise ZeroDivisionError

        bench.queue.add("a")
        with pytest.raises(ExceptionGroup):
            await bench.queue.run(work, lambda key, failed: None, 1)

    asyncio.run(check())


class _CountingQueue(WorkQueue[str]):
    """Counts how often an idle worker is woken."""

    woken = 0

    async def _wait_for_work(self) -> None:
        await super()._wait_for_work()
        self.woken += 1


def test_a_key_wakes_one_of_the_idle_workers():
    async def check() -> None:
        bench = Bench()
        queue = _CountingQueue("resource_claim", TimeSource(bench.clock, asyncio.sleep), bench.metrics)
        bench.queue = queue

        async def add_one_after_the_other() -> None:
            await settled()
            for number in range(5):
                queue.add(f"key-{number}")
                await settled()

        await bench.run(bench.note, add_one_after_the_other)
        assert bench.done == [f"key-{number}" for number in range(5)]
        assert queue.woken == 5

    asyncio.run(check())


def test_a_worker_that_is_cancelled_after_it_was_woken_leaves_the_key_to_another():
    async def check() -> None:
        queue = Bench().queue
        workers = [asyncio.create_task(queue._take()) for _ in range(2)]
        await settled()
        queue.add("a")
        workers[0].cancel()
        await settled()
        assert workers[0].cancelled()
        assert await workers[1] == "a"

    asyncio.run(check())
