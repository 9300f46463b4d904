"""A pod in the scheduling queue: its state, attempts and the reasons of its last refusal."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from dray.api.core import Pod
from dray.claims.reservation import FINISHED_PHASES
from dray.placement.rejections import Signal


class QueuedPodState(StrEnum):
    """The state of a pod in the queue. The first four are the queue names of Kubernetes' metrics."""

    ACTIVE = "active"
    """It is tried as soon as the pods before it are done."""
    BACKOFF = "backoff"
    """It failed a short while ago and waits out its backoff."""
    WAITING = "unschedulable"
    """It waits for a signal that could help it."""
    GATED = "gated"
    """It may not be tried yet."""
    TRYING = "trying"
    """It was taken and is being tried."""
    DONE = "done"
    """It is bound; the watch does not show the node on the pod yet."""
    GONE = "gone"
    """It needs no scheduling: deleted, finished, or bound by another writer."""


PENDING_STATES = (QueuedPodState.ACTIVE, QueuedPodState.BACKOFF, QueuedPodState.WAITING, QueuedPodState.GATED)
"""The states that are reported as the lengths of queues."""


@dataclass(slots=True, eq=False)
class QueuedPod:
    """A pod with its scheduling history. Only the queue changes its state; the loop sets `message` and
    `refusing_plugins`.

    Times are seconds of the monotonic clock.
    """

    pod: Pod
    queued_at: float
    """When it was added, or put back last: earlier pods go first."""
    eligible_since: float
    """When it was first allowed to be tried; the latency objective counts from here."""
    attempts: int = 0
    message: str = ""
    """Why it was not placed when it was tried last."""
    refusing_plugins: frozenset[str] = frozenset()
    """The plugins that refused it when it was tried last."""
    state: QueuedPodState = QueuedPodState.GONE
    taken_sequence: int = 0
    """The number of the last signal (see `SignalLog`) when it was taken."""
    changed_in_flight: bool = False
    """Whether the pod changed in a way that matters while it was tried."""
    skip_backoff: bool = False
    """Whether it does not wait out its backoff when it is woken."""
    signals: frozenset[Signal] = field(default=frozenset())
    """The signals it waits for."""
    heap_token: int = 0
    """Identifies its current heap entry; entries with older tokens are void."""

    @property
    def uid(self) -> str:
        """The uid of the pod."""
        return self.pod.metadata.uid

    @property
    def name(self) -> str:
        """Namespace and name of the pod."""
        return f"{self.pod.metadata.namespace}/{self.pod.metadata.name}"


def needs_no_scheduling(pod: Pod) -> bool:
    """Whether there is nothing left to schedule: the pod has a node, has run, or is being deleted."""
    return (
        bool(pod.spec.node_name)
        or pod.status.phase in FINISHED_PHASES
        or pod.metadata.deletion_timestamp is not None
    )


def has_scheduling_changes(old: Pod, new: Pod) -> bool:
    """Whether the pod asks for something else, so that old refusals may no longer hold.

    A status that services report is no such change: the scheduler itself writes there after every attempt.
    """
    return (
        old.spec != new.spec
        or old.metadata.labels != new.metadata.labels
        or old.metadata.annotations != new.metadata.annotations
    )


def has_claim_status_changes(old: Pod, new: Pod) -> bool:
    """Whether other claims are recorded for entries of the pod than before."""
    return old.status.resource_claim_statuses != new.status.resource_claim_statuses
