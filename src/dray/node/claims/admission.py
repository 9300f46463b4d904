"""May a pod have its claims on this node: rules on what the API says, before anybody is called.

Theory of operation: each entry of the pod stands for a claim, for nothing (no claim was needed), or for a
claim that is not there. The rules are walked in order for every claim; the first that objects speaks. What
they let through is brought to one form: for each claim the drivers that have a part in it, and the devices
they are to prepare. Classic claims have one driver, and only that driver knows the devices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from dray.api.classic import ClassicClaim
from dray.api.classic.resource_claim import ALLOCATED
from dray.api.core import Node, Pod, PodResourceClaim
from dray.api.resource import ResourceClaim
from dray.claims.claim_names import is_owned
from dray.claims.reservation import classic_reserved, is_reserved
from dray.node.claims.outcomes import Reason, Refusal
from dray.node.claims.plan import Wanted
from dray.node.claims.record import DeviceKey, DriverPart
from dray.values.node_selectors import NodeSelector

MIRROR: Final = "kubernetes.io/config.mirror"
SOURCE: Final = "kubernetes.io/config.source"
"""Annotations of pods that a node runs by itself, and that the API only mirrors."""


@dataclass(frozen=True, slots=True)
class Absent:
    """A claim that an entry stands for and that is not there."""

    reason: Reason
    message: str


Claim = ResourceClaim | ClassicClaim
Found = Claim | Absent | None
"""What an entry stands for; None when it needs no claim."""


def is_static(pod: Pod) -> bool:
    """Whether a pod comes from the node itself and not from the API."""
    notes = pod.metadata.annotations
    return MIRROR in notes or notes.get(SOURCE, "api") != "api"


def admit(pod: Pod, found: Mapping[str, Found], node: Node) -> tuple[Wanted, ...] | Refusal:
    """What a pod's claims ask of which driver, or why the pod must not run with them here.

    `found` has what every entry of the pod stands for.
    """
    entries = pod.spec.resource_claims
    if entries and is_static(pod):
        why = "a pod that the node runs by itself cannot have claims: nobody reserves devices for it"
        return Refusal(Reason.STATIC_POD, why)
    claims: dict[str, tuple[Claim, list[str]]] = {}
    for entry in entries:
        claim = found[entry.name]
        if claim is None:
            continue
        if isinstance(claim, Absent):
            return Refusal(claim.reason, claim.message)
        for rule in _RULES:
            why, reason = rule(Asked(pod, entry, claim, node))
            if why:
                return Refusal(reason, why)
        claims.setdefault(claim.metadata.uid, (claim, []))[1].append(entry.name)
    return tuple(_wanted(claim, names) for claim, names in claims.values())


@dataclass(frozen=True, slots=True)
class Asked:
    """A claim that an entry of a pod stands for, on a node."""

    pod: Pod
    entry: PodResourceClaim
    claim: Claim
    node: Node

    @property
    def named(self) -> str:
        return f"claim {self.claim.metadata.namespace}/{self.claim.metadata.name}"


def _owned(asked: Asked) -> tuple[str, Reason]:
    why = ""
    if asked.entry.resource_claim_name is None and not is_owned(asked.claim.metadata, asked.pod):
        why = (
            f"{asked.named} stands where the claim of entry `{asked.entry.name}` should be, "
            "but it belongs to another pod; delete it or rename the pod"
        )
    return why, Reason.CLAIM_NOT_OWNED


def _staying(asked: Asked) -> tuple[str, Reason]:
    gone = asked.claim.metadata.deletion_timestamp is not None
    why = f"{asked.named} is being deleted; a pod cannot begin to use it" if gone else ""
    return why, Reason.CLAIM_DELETED


def _allocated(asked: Asked) -> tuple[str, Reason]:
    claim, why = asked.claim, ""
    if isinstance(claim, ResourceClaim):
        if claim.status.allocation is None:
            why = f"{asked.named} is not allocated; a scheduler allocates it before it binds the pod"
    elif claim.status.phase != ALLOCATED or not claim.status.driver_name:
        phase = claim.status.phase or "Pending"
        why = f"{asked.named} is not allocated: its phase is `{phase}`, expected `{ALLOCATED}` with a driver"
    return why, Reason.NOT_ALLOCATED


def _reserved(asked: Asked) -> tuple[str, Reason]:
    claim, pod, why = asked.claim, asked.pod, ""
    for_pod = is_reserved(claim, pod) if isinstance(claim, ResourceClaim) else classic_reserved(claim, pod)
    if not for_pod:
        others = _few(sorted(each.name for each in claim.status.reserved_for))
        why = f"{asked.named} is not reserved for this pod, but for {others}; delete the pod to try again"
    return why, Reason.NOT_RESERVED


def _few(names: list[str], most: int = 3) -> str:
    """Names for a sentence: nobody, the first ones, how many more."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return (", ".join(names[:most]) or "nobody") + more


def _here(asked: Asked) -> tuple[str, Reason]:
    name, labels = asked.node.metadata.name, asked.node.metadata.labels
    nodes = _nodes(asked.claim)
    why = ""
    if nodes is not None and not nodes.matches(name, labels):
        why = f"{asked.named} is allocated on another node: its node selector does not match node {name}"
    return why, Reason.OTHER_NODE


_RULES: Final[tuple[Callable[[Asked], tuple[str, Reason]], ...]] = (
    _owned,
    _staying,
    _allocated,
    _reserved,
    _here,
)
"""In the order in which they speak: each says why not, or nothing."""


def _nodes(claim: Claim) -> NodeSelector | None:
    """Where the devices of a claim can be used; None is everywhere."""
    if isinstance(claim, ClassicClaim):
        return claim.status.reachable()
    return claim.status.allocation.node_selector if claim.status.allocation is not None else None


def _wanted(claim: Claim, entries: Iterable[str]) -> Wanted:
    meta = claim.metadata
    classic = isinstance(claim, ClassicClaim)
    return Wanted(meta.uid, meta.namespace, meta.name, classic, tuple(entries), parts_of(claim))


def parts_of(claim: Claim) -> tuple[DriverPart, ...]:
    """What each driver has to do for a claim, nothing asked yet; empty when it is not allocated."""
    if isinstance(claim, ClassicClaim):
        driver = claim.status.driver_name
        return (DriverPart(driver=driver),) if driver else ()
    devices: dict[str, list[DeviceKey]] = {}
    for result in claim.status.allocation.devices.results if claim.status.allocation is not None else ():
        key = DeviceKey(
            pool=result.pool,
            device=result.device,
            request=result.request,
            share_id=result.share_id,
            admin=bool(result.admin_access),
        )
        devices.setdefault(result.driver, []).append(key)
    return tuple(DriverPart(driver=driver, wanted=tuple(keys)) for driver, keys in devices.items())
