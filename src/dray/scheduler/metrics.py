"""The metrics of the scheduler: how long pods wait, how attempts end, which plugins refuse, where time goes.

Names, labels and buckets are those of kube-scheduler where it has them, so that dashboards and alerts work
unchanged. Labels never hold names of pods, nodes or claims; plugins, phases and results are few, `profile` is
the scheduler's own name, and attempts beyond the fifteenth are counted together.

Rules for this file: a metric is a row of the table. Values that the queue has anyway are collected at scrape
time.
"""

from __future__ import annotations

from enum import StrEnum

from dray.placement.framework import Phase
from dray.scheduler.queue import SchedulingQueue
from dray.scheduler.queued_pod import QueuedPod
from dray.telemetry.metrics import MetricDefinition, MetricsRegistry, MetricType, build_metric_table


def _build_exponential_buckets(first: float, count: int, factor: float = 2.0) -> tuple[float, ...]:
    return tuple(float(f"{first * factor**step:.6g}") for step in range(count))


PENDING_PODS = "scheduler_pending_pods"
INCOMING_PODS = "scheduler_queue_incoming_pods_total"
ATTEMPTS = "scheduler_schedule_attempts_total"
ATTEMPT_SECONDS = "scheduler_scheduling_attempt_duration_seconds"
ALGORITHM_SECONDS = "scheduler_scheduling_algorithm_duration_seconds"
SLI_SECONDS = "scheduler_pod_scheduling_sli_duration_seconds"
POD_ATTEMPTS = "scheduler_pod_scheduling_attempts"
PLUGIN_SECONDS = "scheduler_plugin_execution_duration_seconds"
UNSCHEDULABLE_PODS = "scheduler_unschedulable_pods"
IN_FLIGHT_PODS = "dray_scheduler_in_flight_pods"
SEARCHES = "dray_scheduler_searches_total"
SEARCH_SECONDS = "dray_scheduler_search_seconds_total"
UNFINISHED_SEARCHES = "dray_scheduler_unfinished_searches"
PODS_AWAITING_SEARCH = "dray_scheduler_pods_awaiting_search"
NODE_GROUPS = "dray_scheduler_node_groups"
CACHE_ENTRIES = "dray_scheduler_cache_entries"
CONFLICTS = "dray_scheduler_conflicts_total"
LEDGER = "dray_scheduler_ledger"
DUPLICATES = "dray_scheduler_duplicates_total"
DUPLICATE_DEVICES = "dray_scheduler_duplicate_devices"

METRIC_DEFINITIONS = build_metric_table(
    MetricDefinition(
        PENDING_PODS, MetricType.GAUGE, "Pods that want a node, by the queue they are in", ("queue",)
    ),
    MetricDefinition(
        INCOMING_PODS,
        MetricType.COUNTER,
        "Pods that came into a queue, by what brought them: the topic of a signal, or what happened to them",
        ("queue", "event"),
    ),
    MetricDefinition(
        ATTEMPTS, MetricType.COUNTER, "Attempts to place a pod, by how they ended", ("result", "profile")
    ),
    MetricDefinition(
        ATTEMPT_SECONDS,
        MetricType.HISTOGRAM,
        "Time of an attempt, from taking the pod until it is bound or put back",
        ("result", "profile"),
        _build_exponential_buckets(0.001, 15),
    ),
    MetricDefinition(
        ALGORITHM_SECONDS,
        MetricType.HISTOGRAM,
        "Time to decide one pod",
        (),
        _build_exponential_buckets(0.001, 15),
    ),
    MetricDefinition(
        SLI_SECONDS,
        MetricType.HISTOGRAM,
        "Time from when a pod could first be tried until it was bound, by the attempts it took",
        ("attempts",),
        _build_exponential_buckets(0.01, 20),
    ),
    MetricDefinition(
        POD_ATTEMPTS,
        MetricType.HISTOGRAM,
        "Attempts it took to bind a pod",
        (),
        _build_exponential_buckets(1, 5),
    ),
    MetricDefinition(
        PLUGIN_SECONDS,
        MetricType.HISTOGRAM,
        "Time a plugin took in a phase, of the attempts that are timed",
        ("plugin", "extension_point", "status"),
        _build_exponential_buckets(0.00001, 20, factor=1.5),
    ),
    MetricDefinition(
        UNSCHEDULABLE_PODS,
        MetricType.GAUGE,
        "Pods that a plugin refused; a pod that several refused counts for each",
        ("plugin", "profile"),
    ),
    MetricDefinition(IN_FLIGHT_PODS, MetricType.GAUGE, "Pods that are being decided or written"),
    MetricDefinition(SEARCHES, MetricType.COUNTER, "Searches for devices, by how they ended", ("outcome",)),
    MetricDefinition(SEARCH_SECONDS, MetricType.COUNTER, "Seconds of work on searches for devices"),
    MetricDefinition(
        UNFINISHED_SEARCHES, MetricType.GAUGE, "Searches for devices that go on between decisions"
    ),
    MetricDefinition(PODS_AWAITING_SEARCH, MetricType.GAUGE, "Pods that wait for such searches"),
    MetricDefinition(
        NODE_GROUPS, MetricType.GAUGE, "Groups of nodes that are alike, each of which is judged once"
    ),
    MetricDefinition(
        CACHE_ENTRIES, MetricType.GAUGE, "What is remembered of devices, nodes and claims", ("cache",)
    ),
    MetricDefinition(
        CONFLICTS, MetricType.COUNTER, "Writes that met a newer object, or a ledger that objected"
    ),
    MetricDefinition(
        LEDGER,
        MetricType.GAUGE,
        "Who keeps the ledger of devices (1): the server, the guard, or none",
        ("kept_by",),
    ),
    MetricDefinition(
        DUPLICATES,
        MetricType.COUNTER,
        "Allocations that were taken back because another claim had the same devices",
    ),
    MetricDefinition(
        DUPLICATE_DEVICES, MetricType.GAUGE, "Devices that several claims have as a whole at the same time"
    ),
)
"""Every metric of the scheduler; those of the process come from the Prometheus client."""

MAX_ATTEMPTS_LABEL = 15


class AttemptResult(StrEnum):
    """How an attempt ended."""

    SCHEDULED = "scheduled"
    UNSCHEDULABLE = "unschedulable"
    ERROR = "error"


SUCCESS = "Success"
"""The status of a plugin that answered, whatever the answer."""


class SchedulerMetrics(MetricsRegistry):
    """The metrics of one scheduler."""

    def __init__(self, profile: str) -> None:
        super().__init__(METRIC_DEFINITIONS)
        self.profile = profile

    def track_queue(self, queue: SchedulingQueue) -> None:
        """Collect the state of a queue at scrape time."""
        self.add_callback(
            PENDING_PODS, lambda: [((name,), count) for name, count in queue.count_pending().items()]
        )
        self.add_callback(UNSCHEDULABLE_PODS, lambda: queue.count_unschedulable().items())
        self.add_callback(IN_FLIGHT_PODS, lambda: [((), queue.in_flight)])

    def count_incoming(self, queued: QueuedPod, event: str) -> None:
        """Count a pod that came into a queue."""
        self.count(INCOMING_PODS, queued.state.value, event)

    def record_attempt(self, result: AttemptResult, seconds: float) -> None:
        """Record how an attempt ended, and how long it took."""
        self.count(ATTEMPTS, result.value, self.profile)
        self.observe(ATTEMPT_SECONDS, seconds, result.value, self.profile)

    def record_bound(self, queued: QueuedPod, now: float) -> None:
        """Record a bound pod; `now` is of the clock that the queue reads."""
        attempts = str(queued.attempts) if queued.attempts < MAX_ATTEMPTS_LABEL else f"{MAX_ATTEMPTS_LABEL}+"
        self.observe(SLI_SECONDS, now - queued.eligible_since, attempts)
        self.observe(POD_ATTEMPTS, queued.attempts)

    def record_plugin_time(self, plugin: str, phase: Phase, seconds: float, status: str = SUCCESS) -> None:
        """Record the time a plugin took in a phase."""
        self.observe(PLUGIN_SECONDS, seconds, plugin, phase.value, status)
