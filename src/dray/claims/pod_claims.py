"""Resolution of the entries of a pod to the claims it may use.

Theory of operation: the scheduler, the live explanation and the placement of manifests resolve entries with
`resolve_claim`, each with its own lookup. A claim that the pod cannot use is an `UnusableClaim`, whose
problem tells the caller what could change it; the caller words what only it can know, such as why a claim is
missing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto

from dray.api.classic import ClassicResourceClaim
from dray.api.core import Pod, PodResourceClaim
from dray.api.resource import ResourceClaim
from dray.claims import reservation
from dray.claims.actions import AnyClaim
from dray.claims.claim_names import EntryClaim, find_entry_claim, is_owned_by


@dataclass(frozen=True, slots=True)
class PodClaimLookup:
    """Claims of both API groups by namespace and name, as they are now."""

    get_claim: Callable[[str, str], ResourceClaim | None]
    get_classic_claim: Callable[[str, str], ClassicResourceClaim | None] = lambda _namespace, _name: None


class ClaimProblem(Enum):
    """Why a pod cannot use the claim of an entry."""

    NOT_RECORDED = auto()
    """The claim of its template was not created, or is not recorded in the status of the pod."""
    NOT_FOUND = auto()
    NOT_OWNED = auto()
    NOT_RESERVABLE = auto()


@dataclass(frozen=True, slots=True)
class UnusableClaim:
    """A claim that a pod cannot use; it has no name while it is not recorded."""

    problem: ClaimProblem
    text: str
    name: str = ""


def resolve_claim(
    pod: Pod, entry: PodResourceClaim, lookup: PodClaimLookup
) -> AnyClaim | UnusableClaim | None:
    """The claim of an entry, None when it needs none, or why the pod cannot use it."""
    used = find_entry_claim(pod, entry)
    if used is None:
        template = entry.resource_claim_template_name
        text = f"entry {entry.name}: its claim has not been made from template {template} yet"
        return UnusableClaim(ClaimProblem.NOT_RECORDED, text)
    if used.name is None:
        return None
    namespace, name = pod.metadata.namespace, used.name
    claim: AnyClaim | None = lookup.get_claim(namespace, name) or lookup.get_classic_claim(namespace, name)
    if claim is None:
        return UnusableClaim(ClaimProblem.NOT_FOUND, f"claim {namespace}/{name} does not exist", name)
    if not is_usable_by(claim, used, pod):
        text = f"claim {namespace}/{name} exists and does not belong to this pod"
        return UnusableClaim(ClaimProblem.NOT_OWNED, text, name)
    if isinstance(claim, ResourceClaim):
        text = reservation.explain_unreservable(claim, pod)
    else:
        text = reservation.explain_classic_unreservable(claim, pod)
    return UnusableClaim(ClaimProblem.NOT_RESERVABLE, text, name) if text else claim


def is_usable_by(claim: AnyClaim, used: EntryClaim, pod: Pod) -> bool:
    """Whether a claim is for everyone, or was created for this pod."""
    return not used.generated or is_owned_by(claim.metadata, pod)
