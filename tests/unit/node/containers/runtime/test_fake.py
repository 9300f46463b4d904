"""The fake runtime: how long containers run, how they end, and that they cost next to nothing."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from dray.client.timing import TimeSource
from dray.clock import ManualClock
from dray.node.containers.runtime.base import ContainerExit, ContainerNotStarted, ContainerStarted
from dray.node.containers.runtime.fake import EXIT_CODE, RUN_SECONDS, FakeRuntime
from dray.wire.cdi import ContainerEdits
from tests.unit.node.containers.runtime.machine import Machine, check_started, run


class Hands:
    """A clock turned by hand, and those who sleep by it."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self._sleepers: list[tuple[float, asyncio.Event]] = []

    @property
    def tempo(self) -> TimeSource:
        return TimeSource(clock=self.clock, sleep=self.sleep)

    async def sleep(self, seconds: float) -> None:
        event = asyncio.Event()
        self._sleepers.append((self.clock.monotonic() + seconds, event))
        await event.wait()

    async def advance(self, seconds: float) -> None:
        for _ in range(10):
            await asyncio.sleep(0)
        self.clock.advance(seconds)
        for until, event in self._sleepers:
            if until <= self.clock.monotonic():
                event.set()


@pytest.mark.parametrize(("code", "reason"), [("0", "Completed"), ("3", "Error")])
def test_annotations_say_how_long_and_how_it_ends(machine: Machine, code: str, reason: str):
    async def scenario() -> None:
        hands = Hands()
        runtime = FakeRuntime(hands.tempo)
        start = hands.clock.now()
        launch = machine.launch(annotations={RUN_SECONDS: "60", EXIT_CODE: code})
        container = check_started(await runtime.start(launch))
        waiting = asyncio.create_task(runtime.wait(container))
        await hands.advance(59)
        assert [found.exit for found in await runtime.list_containers()] == [None]
        await hands.advance(1)
        expected = ContainerExit(int(code), 0, reason, start, start + timedelta(seconds=60))
        assert await waiting == expected
        assert [found.exit for found in await runtime.list_containers()] == [expected]

    run(scenario())


def test_a_container_ends_on_time_without_a_waiting_task(machine: Machine):
    async def scenario() -> None:
        hands = Hands()
        runtime = FakeRuntime(hands.tempo)
        container = check_started(await runtime.start(machine.launch(annotations={RUN_SECONDS: "1"})))
        hands.clock.advance(5)
        await runtime.stop(container, 0)
        assert (await runtime.wait(container)).code == 0

    run(scenario())


def test_a_stop_comes_before_the_time(machine: Machine):
    async def scenario() -> None:
        hands = Hands()
        runtime = FakeRuntime(hands.tempo)
        container = check_started(await runtime.start(machine.launch(annotations={RUN_SECONDS: "60"})))
        waiting = asyncio.create_task(runtime.wait(container))
        await asyncio.sleep(0)
        await runtime.stop(container, 30)
        assert (await waiting).code == 143

    run(scenario())


@pytest.mark.parametrize("annotations", [{RUN_SECONDS: "soon"}, {EXIT_CODE: "bad"}])
def test_annotations_that_are_no_numbers(machine: Machine, annotations: dict[str, str]):
    answer = run(FakeRuntime().start(machine.launch(annotations=annotations)))
    assert isinstance(answer, ContainerNotStarted)
    assert answer.reason == "CreateContainerConfigError"
    assert RUN_SECONDS in answer.message


def test_what_was_given_can_be_looked_at(machine: Machine):
    async def scenario() -> None:
        runtime = FakeRuntime()
        launches = [machine.launch(name=f"c{n}", edits=ContainerEdits(env=(f"GPU={n}",))) for n in range(3)]
        for launch in launches:
            assert await runtime.start(launch) == ContainerStarted(launch.id)
        assert list(runtime.launches) == launches
        await runtime.remove(launches[1].id)
        assert list(runtime.launches) == [launches[0], launches[2]]

    run(scenario())


def test_no_task_runs_without_a_wait(machine: Machine):
    async def scenario() -> None:
        runtime = FakeRuntime()
        for number in range(1000):
            await runtime.start(machine.launch(name=f"c{number}", annotations={RUN_SECONDS: "60"}))
        assert len(asyncio.all_tasks()) <= 2

    run(scenario())
