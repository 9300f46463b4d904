"""The status reporter: when, with which text, and how often it writes why a pod waits."""

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
from tests.property.test_placement_law import OPEN
from tests.support.manual_time import ManualTime
from tests.unit.placement.claim_objects import claim, cluster, devices_only, wanting
from tests.unit.scheduler.queue_fixture import pod


class ReporterFixture:
    """A reporter with a clock that is turned by hand, one pod, and what was written and recorded."""

    def __init__(self) -> None:
        self.time = ManualTime()
        self.pod: Pod | None = replace(pod(), metadata=replace(pod().metadata, resource_version="7"))
        self.written: list[dict[str, Any]] = []
        self.recorded: list[str] = []
        self.failures: list[Exception] = []
        self.options = ClientOptions(time_source=self.time.time_source)
        self.reporter = SchedulingStatusReporter(
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


def played(play: Callable[[ReporterFixture], Coroutine[Any, Any, None]]) -> ReporterFixture:
    async def run() -> ReporterFixture:
        fixture = ReporterFixture()
        running = asyncio.create_task(fixture.reporter.run())
        await fixture.time.advance(0)
        await play(fixture)
        running.cancel()
        await asyncio.wait([running])
        assert running.cancelled()
        return fixture

    return asyncio.run(run())


NO = PluginRejection("Stub", "no fixture")


def test_a_pod_gets_its_condition_after_it_has_waited_a_while() -> None:
    async def play(fixture: ReporterFixture) -> None:
        fixture.reporter.enqueue(fixture.entry, NO)
        await fixture.time.advance(REPORT_DELAY_SECONDS / 2)
        assert fixture.written == []
        await fixture.time.advance(REPORT_DELAY_SECONDS / 2)

    fixture = played(play)
    (written,) = fixture.written
    assert written["metadata"] == {"uid": "uid-a", "resourceVersion": "7"}
    (said,) = written["status"]["conditions"]
    assert (said["type"], said["status"], said["reason"], said["message"]) == (
        "PodScheduled",
        "False",
        "Unschedulable",
        "no fixture",
    )
    assert fixture.recorded == ["no fixture"]
    assert fixture.entry.message == "no fixture"


@pytest.mark.parametrize(("held", "told"), [(True, ["no fixture"]), (False, [])])
def test_a_pod_in_flight_gets_a_condition_only_when_it_waits_there(held: bool, told: list[str]) -> None:
    async def play(fixture: ReporterFixture) -> None:
        fixture.entry.state = QueuedPodState.TRYING
        fixture.reporter.enqueue(fixture.entry, NO, in_flight=held)
        await fixture.time.advance(1)

    assert played(play).recorded == told


def test_the_last_refusal_counts_and_does_not_start_the_wait_anew() -> None:
    async def play(fixture: ReporterFixture) -> None:
        fixture.reporter.enqueue(fixture.entry, NO)
        await fixture.time.advance(REPORT_DELAY_SECONDS - 0.1)
        fixture.reporter.enqueue(fixture.entry, PluginRejection("Stub", "something else"))
        await fixture.time.advance(0.1)

    assert played(play).recorded == ["something else"]


def test_a_pod_that_has_its_node_meanwhile_gets_no_condition() -> None:
    async def play(fixture: ReporterFixture) -> None:
        fixture.reporter.enqueue(fixture.entry, NO)
        fixture.reporter.forget(fixture.entry.uid)
        await fixture.time.advance(1)
        fixture.reporter.enqueue(fixture.entry, NO)
        fixture.entry.state = QueuedPodState.DONE
        await fixture.time.advance(1)
        fixture.entry.state = QueuedPodState.WAITING
        assert fixture.pod is not None
        fixture.pod = replace(fixture.pod, spec=replace(fixture.pod.spec, node_name="n"))
        fixture.reporter.enqueue(fixture.entry, NO)
        await fixture.time.advance(1)
        fixture.pod = None
        fixture.reporter.enqueue(fixture.entry, NO)
        await fixture.time.advance(1)

    fixture = played(play)
    assert (fixture.written, fixture.recorded) == ([], [])


def test_what_a_pod_says_already_is_not_said_again() -> None:
    async def play(fixture: ReporterFixture) -> None:
        fixture.says("no fixture")
        fixture.reporter.enqueue(fixture.entry, NO)
        await fixture.time.advance(1)

    fixture = played(play)
    assert (fixture.written, fixture.recorded) == ([], [])


@pytest.mark.parametrize(("status", "since"), [("False", "then"), ("True", "2026-01-01T00:00:00Z")])
def test_since_when_it_waits_stays(status: str, since: str) -> None:
    async def play(fixture: ReporterFixture) -> None:
        fixture.says("something else", status)
        fixture.reporter.enqueue(fixture.entry, NO)
        await fixture.time.advance(REPORT_DELAY_SECONDS)

    (written,) = played(play).written
    assert written["status"]["conditions"][0]["lastTransitionTime"] == since


def test_a_newer_version_is_waited_for() -> None:
    async def play(fixture: ReporterFixture) -> None:
        fixture.failures = [ConflictError(409, {})]
        fixture.reporter.enqueue(fixture.entry, NO)
        await fixture.time.advance(REPORT_DELAY_SECONDS)
        assert fixture.written == []
        assert fixture.pod is not None
        fixture.pod = replace(fixture.pod, metadata=replace(fixture.pod.metadata, resource_version="8"))
        await fixture.time.advance(1)

    (written,) = played(play).written
    assert written["metadata"]["resourceVersion"] == "8"


@pytest.mark.parametrize(
    "failure", [ServerUnreachableError("no answer"), ConflictError(409, {}), ServerTimeoutError(504, {})]
)
def test_a_report_that_could_not_be_written_is_written_again(failure: Exception) -> None:
    async def play(fixture: ReporterFixture) -> None:
        fixture.failures = [failure] * 4
        fixture.reporter.enqueue(fixture.entry, NO)
        await fixture.time.advance(REPORT_DELAY_SECONDS)
        assert fixture.recorded == []
        for _ in range(40):
            await fixture.time.advance(0.1)

    assert played(play).recorded == ["no fixture"]


@pytest.mark.parametrize("failure", [NotFoundError(404, {}), ForbiddenError(403, {})])
def test_what_may_not_be_said_is_said_with_the_next_refusal(failure: Exception) -> None:
    async def play(fixture: ReporterFixture) -> None:
        fixture.failures = [failure]
        fixture.reporter.enqueue(fixture.entry, NO)
        for _ in range(40):
            await fixture.time.advance(0.1)
        assert fixture.recorded == []
        fixture.reporter.enqueue(fixture.entry, NO)
        await fixture.time.advance(1)

    assert played(play).recorded == ["no fixture"]


def refused() -> Unschedulable:
    _, profile = devices_only()
    found = place_pod(cluster({"a": ()}), wanting(claim()), profile)
    assert isinstance(found, Unschedulable)
    return found


def test_the_condition_has_the_text_of_the_explanation() -> None:
    async def play(fixture: ReporterFixture) -> None:
        fixture.reporter.enqueue(fixture.entry, refused())
        await fixture.time.advance(1)

    assert played(play).recorded == [explain_unschedulable(refused(), OPEN)]


def test_an_explanation_that_fails_harms_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> str:
        raise KeyError("a mistake in the program")

    broken: list[str] = []

    async def play(fixture: ReporterFixture) -> None:
        monkeypatch.setattr(status_reporter, "build_explanation", fails)
        fixture.reporter.on_failure = lambda entry, _why: broken.append(entry.name)
        fixture.reporter.enqueue(fixture.entry, refused())
        await fixture.time.advance(1)
        fixture.reporter.enqueue(fixture.entry, NO)
        await fixture.time.advance(1)

    assert played(play).recorded == ["no fixture"]
    assert broken == ["ns/a"]


def test_beyond_a_number_of_pending_reports_the_others_are_summaries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status_reporter, "MAX_FULL_REPORTS", 1)

    async def play(fixture: ReporterFixture) -> None:
        other = QueuedPod(pod("b"), queued_at=0.0, eligible_since=0.0, state=QueuedPodState.WAITING)
        fixture.reporter.enqueue(fixture.entry, NO)
        fixture.reporter.enqueue(other, refused())
        fixture.reporter.forget(fixture.entry.uid)
        assert fixture.pod is not None
        fixture.pod = other.pod
        await fixture.time.advance(1)

    assert played(play).recorded == [summarize_unschedulable(refused())] == ["a: no devices for claim ml/c"]


def test_a_report_that_is_late_is_a_summary() -> None:
    async def play(fixture: ReporterFixture) -> None:
        fixture.reporter.enqueue(fixture.entry, refused())
        fixture.time.clock.advance(REPORT_DELAY_SECONDS + MAX_REPORT_LAG_SECONDS + 1)
        await fixture.time.advance(1)

    assert played(play).recorded == [summarize_unschedulable(refused())]


def test_others_work_between_the_steps_of_an_explanation(monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[float] = []

    async def play(fixture: ReporterFixture) -> None:
        def slow(*_: object, **_more: object) -> Steps[str]:
            for _step in range(3):
                steps.append(fixture.time.clock.monotonic())
                fixture.time.clock.advance(0.1)
                yield
            return "at last"

        monkeypatch.setattr(status_reporter, "build_explanation", slow)
        fixture.reporter.enqueue(fixture.entry, refused())
        for _ in range(40):
            await fixture.time.advance(0.05)

    assert played(play).recorded == ["at last"]
    first, second, third = steps
    # Each step takes 0.1 seconds, and four times as long nobody explains anything.
    assert second - first > 0.49
    assert third - second > 0.49


def test_the_reporter_pauses_between_steps() -> None:
    async def play(fixture: ReporterFixture) -> None:
        other = QueuedPod(pod("b"), queued_at=0.0, eligible_since=0.0, state=QueuedPodState.WAITING)
        patch = fixture.patch

        async def slow(*arguments: Any, **more: Any) -> None:
            fixture.time.clock.advance(0.1)
            await patch(*arguments, **more)

        fixture.patch = slow  # type: ignore[method-assign]
        fixture.reporter.enqueue(fixture.entry, NO)
        fixture.reporter.enqueue(other, PluginRejection("Stub", "neither"))
        await fixture.time.advance(REPORT_DELAY_SECONDS)
        assert fixture.recorded == ["no fixture"]
        fixture.pod = other.pod
        await fixture.time.advance(0.39)
        assert fixture.recorded == ["no fixture"]
        await fixture.time.advance(0.02)
        assert fixture.recorded == ["no fixture", "neither"]

    played(play)


@pytest.mark.parametrize("before", ["", "another"])
def test_a_pod_that_waits_for_its_devices_is_not_unschedulable(before: str) -> None:
    async def play(fixture: ReporterFixture) -> None:
        assert fixture.pod is not None
        fixture.pod = replace(fixture.pod, status=replace(fixture.pod.status, nominated_node_name=before))
        fixture.entry.state = QueuedPodState.TRYING
        fixture.reporter.enqueue(fixture.entry, NO, in_flight=True, node="node-a")
        await fixture.time.advance(REPORT_DELAY_SECONDS)

    fixture = played(play)
    (written,) = fixture.written
    assert written["status"] == {"nominatedNodeName": "node-a"}
    assert fixture.recorded == ["no fixture on node node-a"]


def test_a_nomination_is_written_once_and_removed_with_the_next_refusal() -> None:
    async def play(fixture: ReporterFixture) -> None:
        assert fixture.pod is not None
        fixture.says("no fixture")
        fixture.pod = replace(fixture.pod, status=replace(fixture.pod.status, nominated_node_name="node-a"))
        fixture.entry.state = QueuedPodState.TRYING
        fixture.reporter.enqueue(fixture.entry, NO, in_flight=True, node="node-a")
        await fixture.time.advance(REPORT_DELAY_SECONDS)
        assert fixture.written == []
        fixture.entry.state = QueuedPodState.WAITING
        fixture.reporter.enqueue(fixture.entry, NO)
        await fixture.time.advance(2 * REPORT_DELAY_SECONDS)

    (written,) = played(play).written
    assert written["status"]["nominatedNodeName"] is None
    assert written["status"]["conditions"][0]["message"] == "no fixture"
