"""The metrics of the controllers; names and labels are those of Kubernetes and of the KEPs.

Rules for this file: a metric is a row of the table. KEP-3063 and KEP-4816 name the counters of creations
differently; both names are exposed, from one number.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Protocol

from dray.api.resource import ResourceClaim
from dray.claims import claim_names
from dray.client.informers.informer import Informer
from dray.telemetry.metrics import (
    LabelValues,
    MetricDefinition,
    MetricsRegistry,
    MetricType,
    build_metric_table,
)

DEPTH = "workqueue_depth"
ADDS = "workqueue_adds_total"
RETRIES = "workqueue_retries_total"
QUEUE_SECONDS = "workqueue_queue_duration_seconds"
WORK_SECONDS = "workqueue_work_duration_seconds"
UNFINISHED = "workqueue_unfinished_work_seconds"
LONGEST_RUNNING = "workqueue_longest_running_processor_seconds"

CREATED = "resourceclaim_controller_create_total"
FAILED = "resourceclaim_controller_create_failures_total"
CREATES = "resourceclaim_controller_creates_total"
OLD_CREATED = "resource_controller_create_total"
OLD_FAILED = "resource_controller_create_failures_total"
CLAIMS = "resourceclaim_controller_resource_claims"
ALLOCATED = "resourceclaim_controller_allocated_resource_claims"
STANDS_BACK = "dray_controller_stands_back"

EVICTIONS = "device_taint_eviction_controller_pod_deletions_total"
EVICTION_SECONDS = "device_taint_eviction_controller_pod_deletion_duration_seconds"

_QUEUE_BUCKETS = (0.000_001, 0.000_01, 0.000_1, 0.001, 0.01, 0.1, 1, 10)
_EVICTION_BUCKETS = (0.005, 0.025, 0.1, 0.5, 1, 2, 10, 30, 60, 120, 180, 240)

METRIC_DEFINITIONS = build_metric_table(
    MetricDefinition(DEPTH, MetricType.GAUGE, "Keys that wait to be worked on", ("name",)),
    MetricDefinition(ADDS, MetricType.COUNTER, "Keys that were added", ("name",)),
    MetricDefinition(RETRIES, MetricType.COUNTER, "Keys that were tried again after a failure", ("name",)),
    MetricDefinition(
        QUEUE_SECONDS,
        MetricType.HISTOGRAM,
        "Time a key waited before it was worked on",
        ("name",),
        _QUEUE_BUCKETS,
    ),
    MetricDefinition(
        WORK_SECONDS, MetricType.HISTOGRAM, "Time the work on a key took", ("name",), _QUEUE_BUCKETS
    ),
    MetricDefinition(
        UNFINISHED, MetricType.GAUGE, "Seconds spent on work that is not finished, all together", ("name",)
    ),
    MetricDefinition(
        LONGEST_RUNNING, MetricType.GAUGE, "Seconds spent on the oldest work that is not finished", ("name",)
    ),
    MetricDefinition(
        CREATED, MetricType.COUNTER, "Claims that were to be created for pods, with or without success"
    ),
    MetricDefinition(FAILED, MetricType.COUNTER, "Claims that could not be created for pods"),
    MetricDefinition(CREATES, MetricType.COUNTER, "Creations of claims for pods", ("status", "admin_access")),
    MetricDefinition(OLD_CREATED, MetricType.COUNTER, "The same as resourceclaim_controller_create_total"),
    MetricDefinition(
        OLD_FAILED, MetricType.COUNTER, "The same as resourceclaim_controller_create_failures_total"
    ),
    MetricDefinition(
        CLAIMS,
        MetricType.GAUGE,
        "Claims, by admin access, allocation, alternatives and where they come from",
        ("admin_access", "allocated", "prioritized_list", "source"),
    ),
    MetricDefinition(ALLOCATED, MetricType.GAUGE, "Claims that have devices", ("prioritized_list",)),
    MetricDefinition(
        STANDS_BACK, MetricType.GAUGE, "1 while kube-controller-manager keeps the claims, 0 otherwise"
    ),
    MetricDefinition(EVICTIONS, MetricType.COUNTER, "Pods that were deleted because of a taint of a device"),
    MetricDefinition(
        EVICTION_SECONDS,
        MetricType.HISTOGRAM,
        "Time from the moment a pod had to go to its deletion",
        (),
        _EVICTION_BUCKETS,
    ),
)


def count_creation(metrics: MetricsRegistry, *, succeeded: bool, admin_access: bool) -> None:
    """Count one attempt to create a claim."""
    for name in (CREATED, OLD_CREATED):
        metrics.count(name)
    if not succeeded:
        for name in (FAILED, OLD_FAILED):
            metrics.count(name)
    metrics.count(CREATES, "success" if succeeded else "failure", _format_bool(admin_access))


class ObservedQueue(Protocol):
    """The state of a work queue that metrics show."""

    @property
    def name(self) -> str: ...

    def __len__(self) -> int: ...

    def get_work_durations(self) -> list[float]: ...


def register_queue_metrics(metrics: MetricsRegistry, queues: Callable[[], Iterable[ObservedQueue]]) -> None:
    """Collect the depth and running work of the queues at scrape time."""
    metrics.add_callback(DEPTH, lambda: [((queue.name,), len(queue)) for queue in queues()])
    metrics.add_callback(
        UNFINISHED, lambda: [((queue.name,), sum(queue.get_work_durations())) for queue in queues()]
    )
    metrics.add_callback(
        LONGEST_RUNNING,
        lambda: [((queue.name,), max(queue.get_work_durations(), default=0.0)) for queue in queues()],
    )


class ClaimCounts:
    """The number of claims by their labels, updated as claims are added, changed and deleted.

    Counting them at scrape time would block the event loop in a cluster with many claims.
    """

    def __init__(self, claims: Informer[ResourceClaim]) -> None:
        self.by_labels: Counter[LabelValues] = Counter()
        claims.listen(self._on_added, self._on_updated, self._on_deleted)

    def _on_added(self, claim: ResourceClaim) -> None:
        self.by_labels[_build_labels(claim)] += 1

    def _on_updated(self, old: ResourceClaim, new: ResourceClaim) -> None:
        # What a claim asks for never changes.
        if (old.status.allocation is None) != (new.status.allocation is None) or _is_from_template(
            old
        ) != _is_from_template(new):
            self._on_deleted(old)
            self._on_added(new)

    def _on_deleted(self, claim: ResourceClaim) -> None:
        labels = _build_labels(claim)
        self.by_labels[labels] -= 1
        if not self.by_labels[labels]:
            del self.by_labels[labels]

    def count_allocated(self) -> list[tuple[LabelValues, float]]:
        """Count the allocated claims, without and with alternatives."""
        found: Counter[str] = Counter()
        for (_, allocated, alternatives, _), count in self.by_labels.items():
            if allocated == "true":
                found[alternatives] += count
        return [((word,), found[word]) for word in ("false", "true")]


def register_claim_metrics(metrics: MetricsRegistry, counts: Callable[[], ClaimCounts | None]) -> None:
    """Collect the number of claims at scrape time."""

    def list_claims() -> Iterable[tuple[LabelValues, float]]:
        now = counts()
        return [] if now is None else now.by_labels.items()

    def list_allocated() -> Iterable[tuple[LabelValues, float]]:
        now = counts()
        return [] if now is None else now.count_allocated()

    metrics.add_callback(CLAIMS, list_claims)
    metrics.add_callback(ALLOCATED, list_allocated)


def _build_labels(claim: ResourceClaim) -> LabelValues:
    return (
        _format_bool(has_admin_access(claim)),
        _format_bool(claim.status.allocation is not None),
        _format_bool(has_alternatives(claim)),
        "resource_claim_template" if _is_from_template(claim) else "",
    )


def _is_from_template(claim: ResourceClaim) -> bool:
    """Whether a claim was created from a template."""
    return claim_names.POD_CLAIM_NAME_ANNOTATION in claim.metadata.annotations


def has_admin_access(claim: ResourceClaim) -> bool:
    return any(each.exactly is not None and each.exactly.admin_access for each in claim.spec.devices.requests)


def has_alternatives(claim: ResourceClaim) -> bool:
    return any(each.first_available for each in claim.spec.devices.requests)


def _format_bool(value: bool) -> str:
    return "true" if value else "false"
