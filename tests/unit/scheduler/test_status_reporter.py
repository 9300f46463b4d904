"""Pods are told why they wait: when, in which words, and how often."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, cast

import pytest
from msgspec.structs import replace

from dray.api.core import Pod, PodCondition
from dray.client.client import Client
from dray.client.errors import (
    ConflictError,
    ForbiddenError,
    NotFoundError,
    ServerTimeoutError,
    ServerUnreachableError,
)
from dray.client.events import EventRecorder
from dray.client.patches import StrategicMergePatch
from dray.client.rest_client import ClientOptions
from dray.explain import Steps
from dray.placement.rejections import PluginRejection
from dray.placement.scheduling_cycle import Unschedulable, place_pod
from dray.placement.unschedulable_message import explain_unschedulable, summarize_unschedulable
from dray.scheduler import status_reporter
from dray.scheduler.queued_pod import QueuedPod, QueuedPodState
from dray.scheduler.status_reporter import (
    MAX_REPORT_LAG_SECONDS,
    REPORT_DELAY_SECONDS,
    SchedulingStatusReporter,
)
from tests.contract.turned import Turned
from tests.property.test_placement_law import OPEN
from tests.unit.placement.claim_objects import claim, cluster, devices_only, wanting
from tests.unit.scheduler.waiting import pod


class Scene:
    """A teller with a clock that is turned by hand, one pod, and what was written and recorded."""

    def __init__(self) -> None:
        self.time = Turned()
        self.pod: Pod | None = replace(pod(), metadata=replace(pod().metadata, resource_version="7"))
        self.written: list[dict[str, Any]] = []
        self.recorded: list[str] = []
        self.failures: list[Exception] = []
        self.options = ClientOptions(time_source=self.time.time_source)
        self.teller = SchedulingStatusReporter(
            cast(Client, self), cast(EventRecorder, self), OPEN, lambda _pod: self.pod
        )
        assert self.pod is not None
        self.entry = QueuedPod(self.pod, queued_at=0.0, eligible_since=0.0, state=QueuedPodState.WAITING)

    async def patch(self, _kind: object, _name: str, change: StrategicMergePatch, *_: str, **__: str) -> None:
        if self.failures:
            raise self.failures.pop(0)
        self.written.append(cast(dict[str, Any], change.document))

    def record(self, _about: object, _reason: str, note: str, **_: object) -> None:
        self.recorded.append(note)

    def says(self, text: str, status: str = "False", since: str = "then") -> None:
        """The pod has this condition."""
        assert self.pod is not None
        said = PodCondition(
            type="PodScheduled",
            status=status,
            reason="Unschedulable",
            message=text,
            last_transition_time=since,
        )
        self.pod = replace(self.pod, status=replace(self.pod.status, conditions=(said,)))


def played(play: Callable[[Scene], Coroutine[Any, Any, None]]) -> Scene:
    async def run() -> Scene:
        scene = Scene()
        running = asyncio.create_task(scene.teller.run())
        await scene.time.turn(0)
        await play(scene)
        running.cancel()
        await asyncio.wait([running])
        assert running.cancelled()
        return scene

    return asyncio.run(run())


NO = PluginRejection("Stub", "no room")


def test_a_pod_is_told_when_it_has_waited_a_while() -> None:
    async def play(scene: Scene) -> None:
        scene.teller.enqueue(scene.entry, NO)
        await scene.time.turn(REPORT_DELAY_SECONDS / 2)
        assert scene.written == []
        await scene.time.turn(REPORT_DELAY_SECONDS / 2)

    scene = played(play)
    (written,) = scene.written
    assert written["metadata"] == {"uid": "uid-a", "resourceVersion": "7"}
    (said,) = written["status"]["conditions"]
    assert (said["type"], said["status"], said["reason"], said["message"]) == (
        "PodScheduled",
        "False",
        "Unschedulable",
        "no room",
    )
    assert scene.recorded == ["no room"]
    assert scene.entry.message == "no room"


@pytest.mark.parametrize(("held", "told"), [(True, ["no room"]), (False, [])])
def test_a_pod_that_is_being_tried_is_told_only_when_it_is_held_up_there(held: bool, told: list[str]) -> None:
    async def play(scene: Scene) -> None:
        scene.entry.state = QueuedPodState.TRYING
        scene.teller.enqueue(scene.entry, NO, in_flight=held)
        await scene.time.turn(1)

    assert played(play).recorded == told


def test_the_last_refusal_counts_and_does_not_start_the_wait_anew() -> None:
    async def play(scene: Scene) -> None:
        scene.teller.enqueue(scene.entry, NO)
        await scene.time.turn(REPORT_DELAY_SECONDS - 0.1)
        scene.teller.enqueue(scene.entry, PluginRejection("Stub", "something else"))
        await scene.time.turn(0.1)

    assert played(play).recorded == ["something else"]


def test_a_pod_that_has_its_node_meanwhile_is_not_told() -> None:
    async def play(scene: Scene) -> None:
        scene.teller.enqueue(scene.entry, NO)
        scene.teller.forget(scene.entry.uid)
        await scene.time.turn(1)
        scene.teller.enqueue(scene.entry, NO)
        scene.entry.state = QueuedPodState.DONE
        await scene.time.turn(1)
        scene.entry.state = QueuedPodState.WAITING
        assert scene.pod is not None
        scene.pod = replace(scene.pod, spec=replace(scene.pod.spec, node_name="n"))
        scene.teller.enqueue(scene.entry, NO)
        await scene.time.turn(1)
        scene.pod = None
        scene.teller.enqueue(scene.entry, NO)
        await scene.time.turn(1)

    scene = played(play)
    assert (scene.written, scene.recorded) == ([], [])


def test_what_a_pod_says_already_is_not_said_again() -> None:
    async def play(scene: Scene) -> None:
        scene.says("no room")
        scene.teller.enqueue(scene.entry, NO)
        await scene.time.turn(1)

    scene = played(play)
    assert (scene.written, scene.recorded) == ([], [])


@pytest.mark.parametrize(("status", "since"), [("False", "then"), ("True", "2026-01-01T00:00:00Z")])
def test_since_when_it_waits_stays(status: str, since: str) -> None:
    async def play(scene: Scene) -> None:
        scene.says("something else", status)
        scene.teller.enqueue(scene.entry, NO)
        await scene.time.turn(REPORT_DELAY_SECONDS)

    (written,) = played(play).written
    assert written["status"]["conditions"][0]["lastTransitionTime"] == since


def test_a_newer_version_is_waited_for() -> None:
    async def play(scene: Scene) -> None:
        scene.failures = [ConflictError(409, {})]
        scene.teller.enqueue(scene.entry, NO)
        await scene.time.turn(REPORT_DELAY_SECONDS)
        assert scene.written == []
        assert scene.pod is not None
        scene.pod = replace(scene.pod, metadata=replace(scene.pod.metadata, resource_version="8"))
        await scene.time.turn(1)

    (written,) = played(play).written
    assert written["metadata"]["resourceVersion"] == "8"


@pytest.mark.parametrize(
    "failure", [ServerUnreachableError("no answer"), ConflictError(409, {}), ServerTimeoutError(504, {})]
)
def test_what_nobody_heard_is_said_again(failure: Exception) -> None:
    async def play(scene: Scene) -> None:
        scene.failures = [failure] * 4
        scene.teller.enqueue(scene.entry, NO)
        await scene.time.turn(REPORT_DELAY_SECONDS)
        assert scene.recorded == []
        for _ in range(40):
            await scene.time.turn(0.1)

    assert played(play).recorded == ["no room"]


@pytest.mark.parametrize("failure", [NotFoundError(404, {}), ForbiddenError(403, {})])
def test_what_may_not_be_said_is_said_with_the_next_refusal(failure: Exception) -> None:
    async def play(scene: Scene) -> None:
        scene.failures = [failure]
        scene.teller.enqueue(scene.entry, NO)
        for _ in range(40):
            await scene.time.turn(0.1)
        assert scene.recorded == []
        scene.teller.enqueue(scene.entry, NO)
        await scene.time.turn(1)

    assert played(play).recorded == ["no room"]


def refused() -> Unschedulable:
    _, profile = devices_only()
    found = place_pod(cluster({"a": ()}), wanting(claim()), profile)
    assert isinstance(found, Unschedulable)
    return found


def test_a_refusal_is_told_in_the_words_of_the_explanation() -> None:
    async def play(scene: Scene) -> None:
        scene.teller.enqueue(scene.entry, refused())
        await scene.time.turn(1)

    assert played(play).recorded == [explain_unschedulable(refused(), OPEN)]


def test_an_explanation_that_fails_harms_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> str:
        raise KeyError("a mistake in the program")

    broken: list[str] = []

    async def play(scene: Scene) -> None:
        monkeypatch.setattr(status_reporter, "build_explanation", fails)
        scene.teller.on_failure = lambda entry, _why: broken.append(entry.name)
        scene.teller.enqueue(scene.entry, refused())
        await scene.time.turn(1)
        scene.teller.enqueue(scene.entry, NO)
        await scene.time.turn(1)

    assert played(play).recorded == ["no room"]
    assert broken == ["ns/a"]


def test_when_many_wait_to_be_told_the_others_are_told_briefly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status_reporter, "MAX_FULL_REPORTS", 1)

    async def play(scene: Scene) -> None:
        other = QueuedPod(pod("b"), queued_at=0.0, eligible_since=0.0, state=QueuedPodState.WAITING)
        scene.teller.enqueue(scene.entry, NO)
        scene.teller.enqueue(other, refused())
        scene.teller.forget(scene.entry.uid)
        assert scene.pod is not None
        scene.pod = other.pod
        await scene.time.turn(1)

    assert played(play).recorded == [summarize_unschedulable(refused())] == ["a: no devices for claim ml/c"]


def test_whoever_waits_too_long_for_words_is_told_briefly() -> None:
    async def play(scene: Scene) -> None:
        scene.teller.enqueue(scene.entry, refused())
        scene.time.clock.advance(REPORT_DELAY_SECONDS + MAX_REPORT_LAG_SECONDS + 1)
        await scene.time.turn(1)

    assert played(play).recorded == [summarize_unschedulable(refused())]


def test_others_work_between_the_steps_of_an_explanation(monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[float] = []

    async def play(scene: Scene) -> None:
        def slow(*_: object, **_more: object) -> Steps[str]:
            for _step in range(3):
                steps.append(scene.time.clock.monotonic())
                scene.time.clock.advance(0.1)
                yield
            return "at last"

        monkeypatch.setattr(status_reporter, "build_explanation", slow)
        scene.teller.enqueue(scene.entry, refused())
        for _ in range(40):
            await scene.time.turn(0.05)

    assert played(play).recorded == ["at last"]
    first, second, third = steps
    # Each step takes 0.1 seconds, and four times as long nobody explains anything.
    assert second - first > 0.49
    assert third - second > 0.49


def test_whoever_explains_rests() -> None:
    async def play(scene: Scene) -> None:
        other = QueuedPod(pod("b"), queued_at=0.0, eligible_since=0.0, state=QueuedPodState.WAITING)
        patch = scene.patch

        async def slow(*arguments: Any, **more: Any) -> None:
            scene.time.clock.advance(0.1)
            await patch(*arguments, **more)

        scene.patch = slow  # type: ignore[method-assign]
        scene.teller.enqueue(scene.entry, NO)
        scene.teller.enqueue(other, PluginRejection("Stub", "neither"))
        await scene.time.turn(REPORT_DELAY_SECONDS)
        assert scene.recorded == ["no room"]
        scene.pod = other.pod
        await scene.time.turn(0.39)
        assert scene.recorded == ["no room"]
        await scene.time.turn(0.02)
        assert scene.recorded == ["no room", "neither"]

    played(play)
