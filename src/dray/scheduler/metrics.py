"""What the scheduler counts and times: how long pods wait, how attempts end, who refuses, where time goes.

Names, labels and buckets are those of kube-scheduler where it has them, so that dashboards and alerts work
unchanged. Labels never hold names of pods, nodes or claims; plugins, phases and results are few, `profile` is
the scheduler's own name, and attempts beyond the fifteenth are told together.

Rules for this file: a metric is a row of the table. What the queue knows anyway is asked when somebody reads.
"""

from __future__ import annotations

from enum import StrEnum

from dray.placement.framework import Phase
from dray.scheduler.queue import Queue
from dray.scheduler.queued_pod import Entry
from dray.telemetry import metrics as numbers
from dray.telemetry.metrics import Measure, Sort


def _doubling(first: float, times: int, by: float = 2.0) -> tuple[float, ...]:
    return tuple(float(f"{first * by**step:.6g}") for step in range(times))


PENDING_PODS = "scheduler_pending_pods"
INCOMING = "scheduler_queue_incoming_pods_total"
ATTEMPTS = "scheduler_schedule_attempts_total"
ATTEMPT_SECONDS = "scheduler_scheduling_attempt_duration_seconds"
ALGORITHM_SECONDS = "scheduler_scheduling_algorithm_duration_seconds"
SLI_SECONDS = "scheduler_pod_scheduling_sli_duration_seconds"
POD_ATTEMPTS = "scheduler_pod_scheduling_attempts"
PLUGIN_SECONDS = "scheduler_plugin_execution_duration_seconds"
UNSCHEDULABLE = "scheduler_unschedulable_pods"
IN_FLIGHT = "dray_scheduler_in_flight_pods"
SEARCHES = "dray_scheduler_searches_total"
SEARCH_SECONDS = "dray_scheduler_search_seconds_total"
UNFINISHED = "dray_scheduler_unfinished_searches"
AWAITING = "dray_scheduler_pods_awaiting_search"
SHAPES = "dray_scheduler_node_groups"
REMEMBERED = "dray_scheduler_cache_entries"
CONFLICTS = "dray_scheduler_conflicts_total"

MEASURES = numbers.table(
    Measure(PENDING_PODS, Sort.GAUGE, "Pods that want a node, by the queue they are in", ("queue",)),
    Measure(
        INCOMING,
        Sort.COUNTER,
        "Pods that came into a queue, by what brought them: the topic of a signal, or what happened to them",
        ("queue", "event"),
    ),
    Measure(ATTEMPTS, Sort.COUNTER, "Attempts to place a pod, by how they ended", ("result", "profile")),
    Measure(
        ATTEMPT_SECONDS,
        Sort.HISTOGRAM,
        "Time of an attempt, from taking the pod until it is bound or put back",
        ("result", "profile"),
        _doubling(0.001, 15),
    ),
    Measure(ALGORITHM_SECONDS, Sort.HISTOGRAM, "Time to decide one pod", (), _doubling(0.001, 15)),
    Measure(
        SLI_SECONDS,
        Sort.HISTOGRAM,
        "Time from when a pod could first be tried until it was bound, by the attempts it took",
        ("attempts",),
        _doubling(0.01, 20),
    ),
    Measure(POD_ATTEMPTS, Sort.HISTOGRAM, "Attempts it took to bind a pod", (), _doubling(1, 5)),
    Measure(
        PLUGIN_SECONDS,
        Sort.HISTOGRAM,
        "Time a plugin took in a phase, of the attempts that are timed",
        ("plugin", "extension_point", "status"),
        _doubling(0.00001, 20, by=1.5),
    ),
    Measure(
        UNSCHEDULABLE,
        Sort.GAUGE,
        "Pods that a plugin refused; a pod that several refused counts for each",
        ("plugin", "profile"),
    ),
    Measure(IN_FLIGHT, Sort.GAUGE, "Pods that are being decided or written"),
    Measure(SEARCHES, Sort.COUNTER, "Searches for devices, by how they ended", ("outcome",)),
    Measure(SEARCH_SECONDS, Sort.COUNTER, "Seconds of work on searches for devices"),
    Measure(UNFINISHED, Sort.GAUGE, "Searches for devices that go on between decisions"),
    Measure(AWAITING, Sort.GAUGE, "Pods that wait for such searches"),
    Measure(SHAPES, Sort.GAUGE, "Groups of nodes that are alike, each of which is judged once"),
    Measure(REMEMBERED, Sort.GAUGE, "What is remembered of devices, nodes and claims", ("cache",)),
    Measure(CONFLICTS, Sort.COUNTER, "Writes that met a newer object, or a ledger that objected"),
)
"""Every metric of the scheduler; those of the process come from the Prometheus client."""

MOST_ATTEMPTS = 15


class Result(StrEnum):
    """How an attempt ended."""

    SCHEDULED = "scheduled"
    UNSCHEDULABLE = "unschedulable"
    ERROR = "error"


SUCCESS = "Success"
"""The status of a plugin that answered, whatever the answer."""


class Metrics(numbers.Metrics):
    """The numbers of one scheduler."""

    def __init__(self, profile: str) -> None:
        super().__init__(MEASURES)
        self.profile = profile

    def watch(self, queue: Queue) -> None:
        """Ask a queue how it is whenever somebody reads."""
        self.ask(PENDING_PODS, lambda: [((name,), count) for name, count in queue.lengths().items()])
        self.ask(UNSCHEDULABLE, lambda: queue.unschedulable().items())
        self.ask(IN_FLIGHT, lambda: [((), queue.in_flight)])

    def moved(self, entry: Entry, event: str) -> None:
        """A pod came into a queue; this is what a queue tells (`told`)."""
        self.count(INCOMING, entry.place.value, event)

    def attempted(self, result: Result, seconds: float) -> None:
        """An attempt ended."""
        self.count(ATTEMPTS, result.value, self.profile)
        self.observe(ATTEMPT_SECONDS, seconds, result.value, self.profile)

    def bound(self, entry: Entry, now: float) -> None:
        """A pod has its node; `now` is of the clock that the queue reads."""
        attempts = str(entry.attempts) if entry.attempts < MOST_ATTEMPTS else f"{MOST_ATTEMPTS}+"
        self.observe(SLI_SECONDS, now - entry.ready, attempts)
        self.observe(POD_ATTEMPTS, entry.attempts)

    def spent(self, plugin: str, phase: Phase, seconds: float, status: str = SUCCESS) -> None:
        """A plugin took its time in a phase."""
        self.observe(PLUGIN_SECONDS, seconds, plugin, phase.value, status)
