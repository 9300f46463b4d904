"""Waiting for the next pod: as long as needed and no longer."""

from __future__ import annotations

import asyncio

import pytest

from dray.client.timing import TimeSource
from dray.clock import ManualClock
from dray.scheduler.queue import SchedulingQueue
from tests.unit.scheduler.queue_fixture import DEVICES, QueueFixture, pod


def test_next_waits_for_a_pod_to_come():
    async def check() -> str:
        queue = SchedulingQueue(TimeSource(ManualClock()))
        waits = asyncio.create_task(queue.pop())
        await asyncio.sleep(0)
        assert not waits.done()
        queue.add(pod())
        return (await waits).name

    assert asyncio.run(check()) == "ns/a"


def test_next_sleeps_until_the_first_backoff_is_over():
    fixture = QueueFixture()
    for name in "ab":
        fixture.queue.add(pod(name))
        fixture.queue.requeue(fixture.take(), frozenset(), retry=True)
        fixture.clock.advance(0.25)

    async def check() -> list[tuple[str, float]]:
        return [((await fixture.queue.pop()).name, fixture.clock.monotonic()) for _ in range(2)]

    assert asyncio.run(check()) == [("ns/a", 1), ("ns/b", 1.25)]


def test_next_sleeps_no_longer_than_anybody_waits():
    fixture = QueueFixture()
    fixture.waiting("a", DEVICES)
    fixture.queue.add(pod("gone"))
    fixture.queue.requeue(fixture.take(), frozenset(), retry=True)
    fixture.queue.remove("uid-gone")
    assert asyncio.run(fixture.queue.pop()).name == "ns/a"
    assert fixture.clock.monotonic() == 300


def test_a_signal_ends_the_sleep_of_next():
    async def never(_seconds: float) -> None:
        await asyncio.Event().wait()

    async def check() -> str:
        clock = ManualClock()
        queue = SchedulingQueue(TimeSource(clock, never))
        queue.add(pod())
        queue.requeue(await queue.pop(), frozenset({DEVICES}))
        waits = asyncio.create_task(queue.pop())
        await asyncio.sleep(0.01)
        clock.advance(2)
        queue.notify(DEVICES)
        return (await asyncio.wait_for(waits, 5)).name

    assert asyncio.run(check()) == "ns/a"


def test_every_taker_gets_a_pod_of_its_own():
    async def check() -> set[str]:
        queue = SchedulingQueue(TimeSource(ManualClock()))
        takers = [asyncio.create_task(queue.pop()) for _ in range(3)]
        await asyncio.sleep(0)
        for name in "abc":
            queue.add(pod(name))
        return {entry.name for entry in await asyncio.gather(*takers)}

    assert asyncio.run(check()) == {"ns/a", "ns/b", "ns/c"}


def test_next_can_be_given_up():
    async def check() -> None:
        queue = SchedulingQueue(TimeSource())
        queue.add(pod())
        queue.requeue(await queue.pop(), frozenset({DEVICES}))
        waits = asyncio.create_task(queue.pop())
        await asyncio.sleep(0.01)
        waits.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waits
        await asyncio.sleep(0.01)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(check())
