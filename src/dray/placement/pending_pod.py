"""Pending pods: a pod with the resources it requests of a node and the claims it uses.

Theory of operation: the scheduler resolves the entries of a pod to claims as they are now (see
claims.pod_claims). A claim that the pod cannot use (missing, being deleted, with too many consumers) is a
rejection that wakes the pod when that claim changes. `PreEnqueue` asks only this. A pod with fields that we
do not understand and that would change its claims or its node is rejected, too.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from dray.api.classic import ClassicResourceClaim
from dray.api.core import Pod
from dray.api.resource import ResourceClaim
from dray.api.unknown_fields import explain_unknown_fields, list_unknown_fields
from dray.claims.pod_claims import ClaimProblem, PodClaimLookup, UnusableClaim, resolve_claim
from dray.placement.rejections import PluginRejection, Signal, Topic
from dray.placement.resource_requests import ResourceRequests, compute_requests

PLUGIN_NAME = "DynamicResources"


@dataclass(frozen=True, slots=True, eq=False)
class PendingPod:
    """A pod with its resource requests and its claims, each once, in the order of its entries."""

    pod: Pod
    requests: ResourceRequests
    claims: tuple[ResourceClaim, ...] = ()
    classic_claims: tuple[ClassicResourceClaim, ...] = ()
    attempts: int = 0
    """How often it was tried before; searches that were given up get more time on each attempt."""
    search_seconds: float = 0.0
    """Seconds that searches took in this attempt so far."""
    pending: tuple[ResourceClaim, ...] = field(init=False)
    """The claims that have no devices yet."""

    def __post_init__(self) -> None:
        waiting = tuple([claim for claim in self.claims if claim.status.allocation is None])
        object.__setattr__(self, "pending", waiting)

    @property
    def name(self) -> str:
        """Namespace and name of the pod."""
        return f"{self.pod.metadata.namespace}/{self.pod.metadata.name}"


def resolve_pending_pod(
    pod: Pod, lookup: PodClaimLookup, requests: ResourceRequests | None = None, attempts: int = 0
) -> PendingPod | PluginRejection:
    """Resolve the claims of a pod; a rejection when it cannot use one of them yet."""
    unknown = _list_unknown_fields(pod)
    if unknown:
        signal = Signal(Topic.POD, f"{pod.metadata.namespace}/{pod.metadata.name}")
        return PluginRejection(PLUGIN_NAME, explain_unknown_fields(unknown), frozenset({signal}))
    claims: dict[str, ResourceClaim] = {}
    classic: dict[str, ClassicResourceClaim] = {}
    for entry in pod.spec.resource_claims:
        found = resolve_claim(pod, entry, lookup)
        if isinstance(found, UnusableClaim):
            return PluginRejection(PLUGIN_NAME, found.text, frozenset({_build_wake_signal(pod, found)}))
        if isinstance(found, ResourceClaim):
            claims.setdefault(found.metadata.name, found)
        elif found is not None:
            classic.setdefault(found.metadata.name, found)
    return PendingPod(
        pod, requests or compute_requests(pod), tuple(claims.values()), tuple(classic.values()), attempts
    )


def _list_unknown_fields(pod: Pod) -> tuple[str, ...]:
    """The fields of a pod that change where it may go, or what it gets, in a way we do not understand."""
    groups = (
        ("spec.schedulingGroup", pod.spec.scheduling_group),
        ("spec.workloadRef", pod.spec.workload_ref),
    )
    return (*list_unknown_fields(pod), *(path for path, group in groups if group is not None))


def _build_wake_signal(pod: Pod, unusable: UnusableClaim) -> Signal:
    """A claim that is not recorded shows in the status of the pod, any other problem in the claim."""
    namespace = pod.metadata.namespace
    if unusable.problem is ClaimProblem.NOT_RECORDED:
        return Signal(Topic.POD, f"{namespace}/{pod.metadata.name}")
    return Signal(Topic.CLAIM, f"{namespace}/{unusable.name}")
