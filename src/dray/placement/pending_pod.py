"""Who is to be placed: a pod, what it needs of a node, and its claims.

Theory of operation: entries of the pod are resolved to claims as they are now. What keeps a pod from being
looked at (a claim that is not there yet, one on its way out, one without room) is a verdict that wakes on
that claim. `PreEnqueue` is this question asked alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from dray.api.classic import ClassicClaim
from dray.api.core import Pod, PodResourceClaim
from dray.api.resource import ResourceClaim
from dray.claims import claim_names, reservation
from dray.placement.rejections import Signal, Topic, Verdict
from dray.placement.resource_requests import Needs, needs_of

PLUGIN = "DynamicResources"


@dataclass(frozen=True, slots=True)
class ClaimsSeen:
    """Claims of both groups by namespace and name, as they are now."""

    claim: Callable[[str, str], ResourceClaim | None]
    classic: Callable[[str, str], ClassicClaim | None] = lambda _namespace, _name: None


@dataclass(frozen=True, slots=True, eq=False)
class Subject:
    """A pod with what it needs and its claims, each once, in the order of its entries."""

    pod: Pod
    needs: Needs
    claims: tuple[ResourceClaim, ...] = ()
    classic: tuple[ClassicClaim, ...] = ()
    attempts: int = 0
    """How often it was tried before; searches that were given up get more patience each time."""
    worked: float = 0.0
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


def subject_of(
    pod: Pod, seen: ClaimsSeen, needs: Needs | None = None, attempts: int = 0
) -> Subject | Verdict:
    """A pod ready to be placed, or what it waits for."""
    claims: dict[str, ResourceClaim] = {}
    classic: dict[str, ClassicClaim] = {}
    for entry in pod.spec.resource_claims:
        found = _resolved(pod, entry, seen)
        if isinstance(found, Verdict):
            return found
        if isinstance(found, ResourceClaim):
            claims.setdefault(found.metadata.name, found)
        elif found is not None:
            classic.setdefault(found.metadata.name, found)
    return Subject(pod, needs or needs_of(pod), tuple(claims.values()), tuple(classic.values()), attempts)


def _resolved(
    pod: Pod, entry: PodResourceClaim, seen: ClaimsSeen
) -> ResourceClaim | ClassicClaim | Verdict | None:
    """The claim an entry stands for, None when it needs none, or what is in the way."""
    if entry.template is not None:
        return _usable(pod, claim_names.classic_name(pod, entry), seen, made=True)
    if entry.resource_claim_name is not None:
        return _usable(pod, entry.resource_claim_name, seen, made=False)
    known, name = claim_names.recorded(pod, entry)
    if not known:
        template = entry.resource_claim_template_name
        text = f"entry {entry.name}: its claim has not been made from template {template} yet"
        return Verdict(PLUGIN, text, frozenset({Signal(Topic.POD, _full(pod, pod.metadata.name))}))
    return None if name is None else _usable(pod, name, seen, made=True)


def _usable(pod: Pod, name: str, seen: ClaimsSeen, *, made: bool) -> ResourceClaim | ClassicClaim | Verdict:
    """A claim by name, if the pod may use it."""
    namespace = pod.metadata.namespace
    claim = seen.claim(namespace, name)
    found: ResourceClaim | ClassicClaim | None = claim or seen.classic(namespace, name)
    wakes = frozenset({Signal(Topic.CLAIM, _full(pod, name))})
    if found is None:
        return Verdict(PLUGIN, f"claim {_full(pod, name)} does not exist", wakes)
    if made and not claim_names.is_owned(found.metadata, pod):
        return Verdict(PLUGIN, f"claim {_full(pod, name)} exists and does not belong to this pod", wakes)
    if isinstance(found, ResourceClaim):
        why = reservation.why_not(found, pod)
    else:
        why = reservation.classic_why_not(found, pod)
    return Verdict(PLUGIN, why, wakes) if why else found


def _full(pod: Pod, name: str) -> str:
    return f"{pod.metadata.namespace}/{name}"
