"""Who is to be placed: a pod, what it needs of a node, and its claims.

Theory of operation: entries of the pod are resolved to claims as they are now. What keeps a pod from being
looked at (a claim that is not there yet, one on its way out, one without room) is a verdict that wakes on
that claim. `PreEnqueue` is this question asked alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from dray.api.classic import ClassicResourceClaim
from dray.api.core import Pod, PodResourceClaim
from dray.api.resource import ResourceClaim
from dray.claims import claim_names, reservation
from dray.placement.rejections import PluginRejection, Signal, Topic
from dray.placement.resource_requests import ResourceRequests, compute_requests

PLUGIN_NAME = "DynamicResources"


@dataclass(frozen=True, slots=True)
class PodClaimLookup:
    """Claims of both groups by namespace and name, as they are now."""

    get_claim: Callable[[str, str], ResourceClaim | None]
    get_classic_claim: Callable[[str, str], ClassicResourceClaim | None] = lambda _namespace, _name: None


@dataclass(frozen=True, slots=True, eq=False)
class PendingPod:
    """A pod with what it needs and its claims, each once, in the order of its entries."""

    pod: Pod
    requests: ResourceRequests
    claims: tuple[ResourceClaim, ...] = ()
    classic_claims: tuple[ClassicResourceClaim, ...] = ()
    attempts: int = 0
    """How often it was tried before; searches that were given up get more patience each time."""
    search_seconds: float = 0.0
    """Seconds of search work in this attempt so far."""
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
    """A pod ready to be placed, or what it waits for."""
    claims: dict[str, ResourceClaim] = {}
    classic: dict[str, ClassicResourceClaim] = {}
    for entry in pod.spec.resource_claims:
        found = _resolve_claim(pod, entry, lookup)
        if isinstance(found, PluginRejection):
            return found
        if isinstance(found, ResourceClaim):
            claims.setdefault(found.metadata.name, found)
        elif found is not None:
            classic.setdefault(found.metadata.name, found)
    return PendingPod(
        pod, requests or compute_requests(pod), tuple(claims.values()), tuple(classic.values()), attempts
    )


def _resolve_claim(
    pod: Pod, entry: PodResourceClaim, lookup: PodClaimLookup
) -> ResourceClaim | ClassicResourceClaim | PluginRejection | None:
    """The claim an entry stands for, None when it needs none, or what is in the way."""
    if entry.template is not None:
        return _find_usable_claim(pod, claim_names.build_classic_name(pod, entry), lookup, generated=True)
    if entry.resource_claim_name is not None:
        return _find_usable_claim(pod, entry.resource_claim_name, lookup, generated=False)
    known, name = claim_names.find_recorded_name(pod, entry)
    if not known:
        template = entry.resource_claim_template_name
        text = f"entry {entry.name}: its claim has not been made from template {template} yet"
        return PluginRejection(
            PLUGIN_NAME, text, frozenset({Signal(Topic.POD, _format_full_name(pod, pod.metadata.name))})
        )
    return None if name is None else _find_usable_claim(pod, name, lookup, generated=True)


def _find_usable_claim(
    pod: Pod, name: str, lookup: PodClaimLookup, *, generated: bool
) -> ResourceClaim | ClassicResourceClaim | PluginRejection:
    """A claim by name, if the pod may use it."""
    namespace = pod.metadata.namespace
    claim = lookup.get_claim(namespace, name)
    found: ResourceClaim | ClassicResourceClaim | None = claim or lookup.get_classic_claim(namespace, name)
    wakes = frozenset({Signal(Topic.CLAIM, _format_full_name(pod, name))})
    if found is None:
        return PluginRejection(PLUGIN_NAME, f"claim {_format_full_name(pod, name)} does not exist", wakes)
    if generated and not claim_names.is_owned_by(found.metadata, pod):
        return PluginRejection(
            PLUGIN_NAME, f"claim {_format_full_name(pod, name)} exists and does not belong to this pod", wakes
        )
    if isinstance(found, ResourceClaim):
        why = reservation.explain_unreservable(found, pod)
    else:
        why = reservation.explain_classic_unreservable(found, pod)
    return PluginRejection(PLUGIN_NAME, why, wakes) if why else found


def _format_full_name(pod: Pod, name: str) -> str:
    return f"{pod.metadata.namespace}/{name}"
