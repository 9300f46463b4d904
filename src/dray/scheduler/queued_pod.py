"""A pod on its way to a node, and where in the waiting room it is."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from dray.api.core import Pod
from dray.claims.reservation import FINISHED_PHASES
from dray.placement.rejections import Signal


class QueuedPodState(StrEnum):
    """Where a pod is. The first four have the names that Kubernetes gives them in metrics."""

    ACTIVE = "active"
    """Its turn comes as soon as those before it are done."""
    BACKOFF = "backoff"
    """It failed a short while ago and is left alone until its time is up."""
    WAITING = "unschedulable"
    """It sleeps until something happens that could help it."""
    GATED = "gated"
    """It may not be tried yet."""
    TRYING = "trying"
    """Somebody took it, and has not yet said how it went."""
    DONE = "done"
    """It has its node; we only have not seen it on the pod yet."""
    GONE = "gone"
    """It is nobody's business here: deleted, finished, or bound by somebody."""


PENDING_STATES = (QueuedPodState.ACTIVE, QueuedPodState.BACKOFF, QueuedPodState.WAITING, QueuedPodState.GATED)
"""The places that are told as the lengths of queues."""


@dataclass(slots=True, eq=False)
class QueuedPod:
    """A pod with what was tried so far. Only the queue moves it; `message` and `refusing_plugins` are for the
    loop.

    Times are seconds of the monotonic clock.
    """

    pod: Pod
    queued_at: float
    """When it came, or when it was parked last: who came earlier goes first."""
    eligible_since: float
    """When it was first allowed to be tried; from then on its wait is ours."""
    attempts: int = 0
    message: str = ""
    """Why it was not placed, in words, when it was tried last."""
    refusing_plugins: frozenset[str] = frozenset()
    """Who refused it when it was tried last."""
    state: QueuedPodState = QueuedPodState.GONE
    taken_sequence: int = 0
    """The moment (see `Heard`) when it was taken to be tried."""
    changed_in_flight: bool = False
    """Whether the pod itself became another while it was tried."""
    skip_backoff: bool = False
    """Whether it need not wait out its backoff when it is woken."""
    signals: frozenset[Signal] = field(default=frozenset())
    """What it sleeps under."""
    heap_token: int = 0
    """Tells its row in a heap from older ones, which are void."""

    @property
    def uid(self) -> str:
        """What tells this pod from all others."""
        return self.pod.metadata.uid

    @property
    def name(self) -> str:
        """Namespace and name of the pod."""
        return f"{self.pod.metadata.namespace}/{self.pod.metadata.name}"


def needs_no_scheduling(pod: Pod) -> bool:
    """Whether there is nothing left to schedule: the pod has a node, has run, or is going away."""
    return (
        bool(pod.spec.node_name)
        or pod.status.phase in FINISHED_PHASES
        or pod.metadata.deletion_timestamp is not None
    )


def has_scheduling_changes(old: Pod, new: Pod) -> bool:
    """Whether somebody wants something else of the pod, so that old verdicts may no longer hold.

    What services report in the status is no such change: we write there ourselves after every attempt.
    """
    return (
        old.spec != new.spec
        or old.metadata.labels != new.metadata.labels
        or old.metadata.annotations != new.metadata.annotations
    )


def has_claim_status_changes(old: Pod, new: Pod) -> bool:
    """Whether claims were recorded for entries of the pod, or other ones than before."""
    return old.status.resource_claim_statuses != new.status.resource_claim_statuses
