"""The metrics of the scheduler: names, labels and values."""

from __future__ import annotations

import pytest
from prometheus_client.parser import text_string_to_metric_families

from dray.client.timing import TimeSource
from dray.clock import ManualClock
from dray.placement.framework import Phase
from dray.placement.rejections import Signal, Topic
from dray.scheduler import metrics
from dray.scheduler.metrics import METRIC_DEFINITIONS, AttemptResult, SchedulerMetrics
from dray.scheduler.queue import SchedulingQueue
from dray.telemetry.metrics import MetricType
from tests.unit.scheduler.queue_fixture import pod

DEVICES = Signal(Topic.DEVICES)


def value(numbers: SchedulerMetrics, name: str, **labels: str) -> float | None:
    for family in text_string_to_metric_families(numbers.render().decode()):
        for sample in family.samples:
            if (sample.name, sample.labels) == (name, labels):
                return float(sample.value)
    return None


class Place:
    """A queue whose numbers are told."""

    def __init__(self) -> None:
        self.clock, self.numbers = ManualClock(), SchedulerMetrics("dray")
        self.queue = SchedulingQueue(TimeSource(self.clock), on_enqueued=self.numbers.count_incoming)
        self.numbers.track_queue(self.queue)

    def pending(self) -> dict[str, float | None]:
        names = ("active", "backoff", "unschedulable", "gated")
        return {name: value(self.numbers, metrics.PENDING_PODS, queue=name) for name in names}


def test_pending_pods_are_counted_by_queue():
    place = Place()
    for name in "abcd":
        place.queue.add(pod(name))
    place.queue.add(pod("gated", gates=("wait",)))
    taken = [place.queue.pop_ready() for _ in range(3)]
    assert taken[0] is not None
    assert taken[1] is not None
    place.queue.requeue(taken[0], frozenset({DEVICES}))
    place.queue.requeue(taken[1], frozenset(), retry=True)
    assert place.pending() == {"active": 1, "backoff": 1, "unschedulable": 1, "gated": 1}
    assert value(place.numbers, metrics.IN_FLIGHT_PODS) == 1


def test_refused_pods_are_counted_by_plugin():
    place = Place()
    place.queue.add(pod("a"))
    entry = place.queue.pop_ready()
    assert entry is not None
    entry.refusing_plugins = frozenset({"DynamicResources"})
    place.queue.requeue(entry, frozenset({DEVICES}))
    assert value(place.numbers, metrics.UNSCHEDULABLE_PODS, plugin="DynamicResources", profile="dray") == 1
    place.queue.remove(entry.uid)
    assert value(place.numbers, metrics.UNSCHEDULABLE_PODS, plugin="DynamicResources", profile="dray") is None


def test_incoming_pods_are_counted_by_event():
    place = Place()
    place.queue.add(pod("a"))
    entry = place.queue.pop_ready()
    assert entry is not None
    place.queue.requeue(entry, frozenset({DEVICES}))
    place.queue.notify(DEVICES)
    place.clock.advance(1)
    place.queue.pop_ready()
    for queue, event in (
        ("active", "PodAdd"),
        ("unschedulable", "ScheduleAttemptFailure"),
        ("backoff", "devices"),
        ("active", "BackoffComplete"),
    ):
        assert value(place.numbers, metrics.INCOMING_PODS, queue=queue, event=event) == 1


def test_attempts_are_counted_and_timed_by_how_they_end():
    numbers = SchedulerMetrics("dray")
    numbers.record_attempt(AttemptResult.SCHEDULED, 0.003)
    numbers.record_attempt(AttemptResult.SCHEDULED, 0.5)
    numbers.record_attempt(AttemptResult.UNSCHEDULABLE, 0.001)
    labels = {"result": "scheduled", "profile": "dray"}
    assert value(numbers, metrics.ATTEMPTS, **labels) == 2
    assert value(numbers, f"{metrics.ATTEMPT_SECONDS}_bucket", le="0.004", **labels) == 1
    assert value(numbers, f"{metrics.ATTEMPT_SECONDS}_count", **labels) == 2
    assert value(numbers, metrics.ATTEMPTS, result="unschedulable", profile="dray") == 1


@pytest.mark.parametrize(("attempts", "label"), [(1, "1"), (14, "14"), (15, "15+"), (400, "15+")])
def test_the_wait_of_a_pod_begins_when_it_could_first_be_tried(attempts, label):
    place = Place()
    place.queue.add(pod("a", gates=("wait",)))
    place.clock.advance(100)
    place.queue.add(pod("a"))
    entry = place.queue.pop_ready()
    assert entry is not None
    entry.attempts = attempts
    place.clock.advance(3)
    place.numbers.record_bound(entry, place.clock.monotonic())
    assert value(place.numbers, f"{metrics.SLI_SECONDS}_sum", attempts=label) == 3
    assert value(place.numbers, f"{metrics.POD_ATTEMPTS}_sum") == attempts


@pytest.mark.parametrize("phase", [Phase.PRE_FILTER, Phase.FILTER, Phase.RESERVE])
def test_plugins_are_timed_by_phase(phase):
    numbers = SchedulerMetrics("dray")
    numbers.record_plugin_time("DynamicResources", phase, 0.0001)
    labels = {"plugin": "DynamicResources", "extension_point": phase.value, "status": "Success"}
    assert value(numbers, f"{metrics.PLUGIN_SECONDS}_count", **labels) == 1
    assert value(numbers, f"{metrics.PLUGIN_SECONDS}_sum", **labels) == pytest.approx(0.0001)


def test_the_names_are_those_of_kube_scheduler_or_our_own():
    assert {
        name: row.labels for name, row in METRIC_DEFINITIONS.items() if not name.startswith("dray_scheduler_")
    } == {
        "scheduler_pending_pods": ("queue",),
        "scheduler_queue_incoming_pods_total": ("queue", "event"),
        "scheduler_schedule_attempts_total": ("result", "profile"),
        "scheduler_scheduling_attempt_duration_seconds": ("result", "profile"),
        "scheduler_scheduling_algorithm_duration_seconds": (),
        "scheduler_pod_scheduling_sli_duration_seconds": ("attempts",),
        "scheduler_pod_scheduling_attempts": (),
        "scheduler_plugin_execution_duration_seconds": ("plugin", "extension_point", "status"),
        "scheduler_unschedulable_pods": ("plugin", "profile"),
    }


@pytest.mark.parametrize("row", METRIC_DEFINITIONS.values(), ids=lambda row: row.name)
def test_metric_definitions_are_complete(row):
    assert row.name.endswith("_total") == (row.type is MetricType.COUNTER)
    assert bool(row.buckets) == (row.type is MetricType.HISTOGRAM)
    assert list(row.buckets) == sorted(set(row.buckets))
    assert row.about[0].isupper()
    assert not row.about.endswith(".")
    assert not {"name", "namespace", "pod", "node", "claim"} & set(row.labels)
