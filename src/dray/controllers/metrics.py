"""What the controllers count and time; names and labels are those of Kubernetes and of the KEPs.

Rules for this file: a metric is a row of the table. KEP-3063 and KEP-4816 name the counters of creations
differently; both names are told, from one number.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Protocol

from dray.api.resource import ResourceClaim
from dray.claims import claim_names
from dray.client.informers.informer import Informer
from dray.telemetry.metrics import Labels, Measure, Metrics, Sort, table

DEPTH = "workqueue_depth"
ADDS = "workqueue_adds_total"
RETRIES = "workqueue_retries_total"
QUEUE_SECONDS = "workqueue_queue_duration_seconds"
WORK_SECONDS = "workqueue_work_duration_seconds"
UNFINISHED = "workqueue_unfinished_work_seconds"
LONGEST = "workqueue_longest_running_processor_seconds"

CREATED = "resourceclaim_controller_create_total"
FAILED = "resourceclaim_controller_create_failures_total"
CREATES = "resourceclaim_controller_creates_total"
OLD_CREATED = "resource_controller_create_total"
OLD_FAILED = "resource_controller_create_failures_total"
CLAIMS = "resourceclaim_controller_resource_claims"
ALLOCATED = "resourceclaim_controller_allocated_resource_claims"

EVICTIONS = "device_taint_eviction_controller_pod_deletions_total"
EVICTION_SECONDS = "device_taint_eviction_controller_pod_deletion_duration_seconds"

_QUEUE = (0.000_001, 0.000_01, 0.000_1, 0.001, 0.01, 0.1, 1, 10)
_WAIT = (0.005, 0.025, 0.1, 0.5, 1, 2, 10, 30, 60, 120, 180, 240)

MEASURES = table(
    Measure(DEPTH, Sort.GAUGE, "Keys that wait to be worked on", ("name",)),
    Measure(ADDS, Sort.COUNTER, "Keys that were added", ("name",)),
    Measure(RETRIES, Sort.COUNTER, "Keys that were tried again after a failure", ("name",)),
    Measure(QUEUE_SECONDS, Sort.HISTOGRAM, "Time a key waited before it was worked on", ("name",), _QUEUE),
    Measure(WORK_SECONDS, Sort.HISTOGRAM, "Time the work on a key took", ("name",), _QUEUE),
    Measure(UNFINISHED, Sort.GAUGE, "Seconds spent on work that is not finished, all together", ("name",)),
    Measure(LONGEST, Sort.GAUGE, "Seconds spent on the oldest work that is not finished", ("name",)),
    Measure(CREATED, Sort.COUNTER, "Claims that were to be created for pods, with or without success"),
    Measure(FAILED, Sort.COUNTER, "Claims that could not be created for pods"),
    Measure(CREATES, Sort.COUNTER, "Creations of claims for pods", ("status", "admin_access")),
    Measure(OLD_CREATED, Sort.COUNTER, "The same as resourceclaim_controller_create_total"),
    Measure(OLD_FAILED, Sort.COUNTER, "The same as resourceclaim_controller_create_failures_total"),
    Measure(
        CLAIMS,
        Sort.GAUGE,
        "Claims, by admin access, allocation, alternatives and where they come from",
        ("admin_access", "allocated", "prioritized_list", "source"),
    ),
    Measure(ALLOCATED, Sort.GAUGE, "Claims that have devices", ("prioritized_list",)),
    Measure(EVICTIONS, Sort.COUNTER, "Pods that were deleted because of a taint of a device"),
    Measure(
        EVICTION_SECONDS,
        Sort.HISTOGRAM,
        "Time from the moment a pod had to go to its deletion",
        (),
        _WAIT,
    ),
)


def created(metrics: Metrics, *, well: bool, admin: bool) -> None:
    """Count one attempt to create a claim."""
    for name in (CREATED, OLD_CREATED):
        metrics.count(name)
    if not well:
        for name in (FAILED, OLD_FAILED):
            metrics.count(name)
    metrics.count(CREATES, "success" if well else "failure", _word(admin))


class Queue(Protocol):
    """What is told of a queue."""

    @property
    def name(self) -> str: ...

    def __len__(self) -> int: ...

    def ages(self) -> list[float]: ...


def tell_queues(metrics: Metrics, queues: Callable[[], Iterable[Queue]]) -> None:
    """Tell how much waits and how long work takes whenever somebody reads."""
    metrics.ask(DEPTH, lambda: [((queue.name,), len(queue)) for queue in queues()])
    metrics.ask(UNFINISHED, lambda: [((queue.name,), sum(queue.ages())) for queue in queues()])
    metrics.ask(LONGEST, lambda: [((queue.name,), max(queue.ages(), default=0.0)) for queue in queues()])


class ClaimCounts:
    """How many claims there are of which sort, counted as they come, change and go.

    Counting them whenever somebody reads would hold everything up in a cluster with many.
    """

    def __init__(self, claims: Informer[ResourceClaim]) -> None:
        self.by_sort: Counter[Labels] = Counter()
        claims.listen(self._came, self._changed, self._went)

    def _came(self, claim: ResourceClaim) -> None:
        self.by_sort[_labels(claim)] += 1

    def _changed(self, old: ResourceClaim, new: ResourceClaim) -> None:
        # What a claim asks for never changes.
        if (old.status.allocation is None) != (new.status.allocation is None) or _made(old) != _made(new):
            self._went(old)
            self._came(new)

    def _went(self, claim: ResourceClaim) -> None:
        labels = _labels(claim)
        self.by_sort[labels] -= 1
        if not self.by_sort[labels]:
            del self.by_sort[labels]

    def allocated(self) -> list[tuple[Labels, float]]:
        """How many have devices, without and with alternatives."""
        found: Counter[str] = Counter()
        for (_, allocated, alternatives, _), count in self.by_sort.items():
            if allocated == "true":
                found[alternatives] += count
        return [((word,), found[word]) for word in ("false", "true")]


def tell_claims(metrics: Metrics, counts: Callable[[], ClaimCounts | None]) -> None:
    """Tell how many claims there are whenever somebody reads."""

    def everything() -> Iterable[tuple[Labels, float]]:
        now = counts()
        return [] if now is None else now.by_sort.items()

    def allocated() -> Iterable[tuple[Labels, float]]:
        now = counts()
        return [] if now is None else now.allocated()

    metrics.ask(CLAIMS, everything)
    metrics.ask(ALLOCATED, allocated)


def _labels(claim: ResourceClaim) -> Labels:
    return (
        _word(has_admin_access(claim)),
        _word(claim.status.allocation is not None),
        _word(has_alternatives(claim)),
        "resource_claim_template" if _made(claim) else "",
    )


def _made(claim: ResourceClaim) -> bool:
    """Whether a claim was made from a template."""
    return claim_names.ENTRY_ANNOTATION in claim.metadata.annotations


def has_admin_access(claim: ResourceClaim) -> bool:
    return any(each.exactly is not None and each.exactly.admin_access for each in claim.spec.devices.requests)


def has_alternatives(claim: ResourceClaim) -> bool:
    return any(each.first_available for each in claim.spec.devices.requests)


def _word(value: bool) -> str:
    return "true" if value else "false"
