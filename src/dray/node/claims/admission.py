"""Admission of a pod's claims to this node: their lookup, and rules that precede any driver call.

Theory of operation: each entry of `spec.resourceClaims` resolves to a claim, to none (no claim is needed), or
to a claim that does not exist. A node may only get single claims by name. The pod's status has the name of a
claim generated for the pod; other clients may have removed it from there, and then the agent's own record is
the second source. Names are unique across both API groups of claims, so a claim that one group does not have
is looked up in the other.

The rules are checked in order for every claim, and the first failure is the answer. Admitted claims have one
form: for each claim its drivers, and the devices each of them prepares. Classic claims have one driver, and
only that driver knows the devices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from dray.api.classic import ClassicResourceClaim
from dray.api.classic.resource_claim import ALLOCATED
from dray.api.core import Node, Pod, PodResourceClaim
from dray.api.resource import ResourceClaim
from dray.claims.claim_names import build_classic_name, find_recorded_name, is_owned_by
from dray.claims.reservation import is_classic_reserved_for, is_reserved_for
from dray.client.client import Client
from dray.client.errors import KindNotServedError, NotFoundError
from dray.node.claims.outcomes import ClaimsRefused, NotReadyReason
from dray.node.claims.plan import AdmittedClaim
from dray.node.claims.record import ClaimsRecord, DriverPart, RecordedDevice
from dray.values.node_selectors import NodeSelector

MIRROR_ANNOTATION: Final = "kubernetes.io/config.mirror"
SOURCE_ANNOTATION: Final = "kubernetes.io/config.source"
"""Annotations of mirror pods, which stand for static pods in the API."""

_NOT_FOUND_ERRORS: Final = (NotFoundError, KindNotServedError)


@dataclass(frozen=True, slots=True)
class MissingClaim:
    """An entry whose claim does not exist."""

    reason: NotReadyReason
    message: str


Claim = ResourceClaim | ClassicResourceClaim
ClaimLookup = Claim | MissingClaim | None
"""What an entry resolves to; None when it needs no claim."""


async def find_claims(client: Client, pod: Pod, record: ClaimsRecord) -> dict[str, ClaimLookup]:
    """Look up the claim of each entry of a pod; raises the errors of the client."""
    return {entry.name: await _find_claim(client, pod, entry, record) for entry in pod.spec.resource_claims}


def resolve_claim_name(pod: Pod, entry: PodResourceClaim, record: ClaimsRecord) -> str | MissingClaim | None:
    """Return the name of an entry's claim; None when it needs none."""
    if entry.resource_claim_name is not None:
        return entry.resource_claim_name
    if entry.template is not None:
        return build_classic_name(pod, entry)
    is_recorded, name = find_recorded_name(pod, entry)
    if is_recorded:
        return name
    for recorded in record.find_used_by(pod.metadata.uid):
        if any(user.uid == pod.metadata.uid and entry.name in user.entries for user in recorded.users):
            return recorded.name
    why = (
        f"no claim exists yet for entry `{entry.name}` (template `{entry.resource_claim_template_name}`), "
        "or the pod's status does not name it any more"
    )
    return MissingClaim(NotReadyReason.CLAIM_NOT_MADE, why)


async def _find_claim(client: Client, pod: Pod, entry: PodResourceClaim, record: ClaimsRecord) -> ClaimLookup:
    name = resolve_claim_name(pod, entry, record)
    if not isinstance(name, str):
        return name
    namespace = pod.metadata.namespace
    claim: Claim | None = None
    if entry.template is None:
        claim = await _get_or_none(client, ResourceClaim, name, namespace)
    if claim is None and entry.resource_claim_template_name is None:
        claim = await _get_or_none(client, ClassicResourceClaim, name, namespace)
    if claim is None:
        why = f"claim {namespace}/{name} of entry `{entry.name}` does not exist"
        return MissingClaim(NotReadyReason.CLAIM_MISSING, why)
    return claim


async def _get_or_none(
    client: Client, kind: type[ResourceClaim] | type[ClassicResourceClaim], name: str, namespace: str
) -> Claim | None:
    try:
        return await client.get(kind, name, namespace)
    except _NOT_FOUND_ERRORS:
        return None


def is_static(pod: Pod) -> bool:
    """Return whether a pod comes from a file of the node and not from the API."""
    annotations = pod.metadata.annotations
    return MIRROR_ANNOTATION in annotations or annotations.get(SOURCE_ANNOTATION, "api") != "api"


def admit_claims(
    pod: Pod, found: Mapping[str, ClaimLookup], node: Node
) -> tuple[AdmittedClaim, ...] | ClaimsRefused:
    """Return the claims of a pod with their drivers and devices, or why it must not run with them here.

    `found` has the lookup of every entry of the pod.
    """
    entries = pod.spec.resource_claims
    if entries and is_static(pod):
        why = "a static pod cannot have claims: no scheduler reserves devices for it"
        return ClaimsRefused(NotReadyReason.STATIC_POD, why)
    claims: dict[str, tuple[Claim, list[str]]] = {}
    for entry in entries:
        claim = found[entry.name]
        if claim is None:
            continue
        if isinstance(claim, MissingClaim):
            return ClaimsRefused(claim.reason, claim.message)
        for rule in _RULES:
            why, reason = rule(ClaimAdmissionRequest(pod, entry, claim, node))
            if why:
                return ClaimsRefused(reason, why)
        claims.setdefault(claim.metadata.uid, (claim, []))[1].append(entry.name)
    return tuple(_build_admitted_claim(claim, names) for claim, names in claims.values())


@dataclass(frozen=True, slots=True)
class ClaimAdmissionRequest:
    """The arguments of an admission rule: a pod's claim, by one of its entries, on a node."""

    pod: Pod
    entry: PodResourceClaim
    claim: Claim
    node: Node

    @property
    def description(self) -> str:
        return f"claim {self.claim.metadata.namespace}/{self.claim.metadata.name}"


def _check_owner(request: ClaimAdmissionRequest) -> tuple[str, NotReadyReason]:
    why = ""
    if request.entry.resource_claim_name is None and not is_owned_by(request.claim.metadata, request.pod):
        why = (
            f"{request.description} has the name of the claim for entry `{request.entry.name}`, "
            "but it belongs to another pod; delete it or rename the pod"
        )
    return why, NotReadyReason.CLAIM_NOT_OWNED


def _check_not_deleted(request: ClaimAdmissionRequest) -> tuple[str, NotReadyReason]:
    gone = request.claim.metadata.deletion_timestamp is not None
    why = f"{request.description} is being deleted; a pod cannot begin to use it" if gone else ""
    return why, NotReadyReason.CLAIM_DELETED


def _check_allocated(request: ClaimAdmissionRequest) -> tuple[str, NotReadyReason]:
    claim, why = request.claim, ""
    if isinstance(claim, ResourceClaim):
        if claim.status.allocation is None:
            why = f"{request.description} is not allocated; a scheduler allocates it before it binds the pod"
    elif claim.status.phase != ALLOCATED or not claim.status.driver_name:
        phase = claim.status.phase or "Pending"
        why = (
            f"{request.description} is not allocated: its phase is `{phase}`, expected "
            f"`{ALLOCATED}` with a driver"
        )
    return why, NotReadyReason.NOT_ALLOCATED


def _check_reserved(request: ClaimAdmissionRequest) -> tuple[str, NotReadyReason]:
    claim, pod, why = request.claim, request.pod, ""
    for_pod = (
        is_reserved_for(claim, pod)
        if isinstance(claim, ResourceClaim)
        else is_classic_reserved_for(claim, pod)
    )
    if not for_pod:
        others = _summarize_names(sorted(each.name for each in claim.status.reserved_for))
        why = (
            f"{request.description} is not reserved for this pod, but for {others}; delete "
            "the pod to try again"
        )
    return why, NotReadyReason.NOT_RESERVED


def _summarize_names(names: list[str], limit: int = 3) -> str:
    """Join names for a message: the first few and how many more."""
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return (", ".join(names[:limit]) or "no pod") + more


def _check_node(request: ClaimAdmissionRequest) -> tuple[str, NotReadyReason]:
    name, labels = request.node.metadata.name, request.node.metadata.labels
    nodes = _get_node_selector(request.claim)
    why = ""
    if nodes is not None and not nodes.matches(name, labels):
        why = (
            f"{request.description} is allocated on another node: its node selector does not "
            f"match node {name}"
        )
    return why, NotReadyReason.OTHER_NODE


_RULES: Final[tuple[Callable[[ClaimAdmissionRequest], tuple[str, NotReadyReason]], ...]] = (
    _check_owner,
    _check_not_deleted,
    _check_allocated,
    _check_reserved,
    _check_node,
)
"""Checked in this order; each returns why the claim is refused, or nothing."""


def _get_node_selector(claim: Claim) -> NodeSelector | None:
    """Return the nodes on which the devices of a claim can be used; None means all."""
    if isinstance(claim, ClassicResourceClaim):
        return claim.status.get_reachable_nodes()
    return claim.status.allocation.node_selector if claim.status.allocation is not None else None


def _build_admitted_claim(claim: Claim, entries: Iterable[str]) -> AdmittedClaim:
    meta = claim.metadata
    classic = isinstance(claim, ClassicResourceClaim)
    return AdmittedClaim(
        meta.uid, meta.namespace, meta.name, classic, tuple(entries), build_driver_parts(claim)
    )


def build_driver_parts(claim: Claim) -> tuple[DriverPart, ...]:
    """Build the part of each driver in a claim, in the first stage; empty when it is not allocated."""
    if isinstance(claim, ClassicResourceClaim):
        driver = claim.status.driver_name
        return (DriverPart(driver=driver),) if driver else ()
    devices: dict[str, list[RecordedDevice]] = {}
    for result in claim.status.allocation.devices.results if claim.status.allocation is not None else ():
        key = RecordedDevice(
            pool=result.pool,
            device=result.device,
            request=result.request,
            share_id=result.share_id,
            admin=bool(result.admin_access),
        )
        devices.setdefault(result.driver, []).append(key)
    return tuple(DriverPart(driver=driver, wanted=tuple(keys)) for driver, keys in devices.items())
