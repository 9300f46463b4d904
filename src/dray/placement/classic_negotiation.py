"""What the scheduler writes into classic claims (KEP-3063), as values: one write of one claim's status each.

Theory of operation: scheduler and driver agree through the status of the claim. While it is pending, the
scheduler proposes: nodes that would do for the pod, and the one it would like. The driver declines nodes, or
allocates for the one that was selected. Several claims are allocated one after the other: what is allocated
in vain must be given back, and what its driver had said about other nodes is forgotten with it. All drivers
are asked about the nodes at once, and those that say nothing go first; so the answers of the others stay. A
claim that is allocated gets the pod as its user before the pod is bound; one that keeps its pod from running
anywhere is given back, and its driver frees it.

Nodes are proposed through a *window* of at most `MAX_NODES` names. As long as one of them is neither
declined nor unfit otherwise, the window stays; nodes that come are added while there is room. When all are
declined it moves on, around the ring of all nodes that would do, in the order of their names: a driver whose
resource is on one node of thousands is found after a few turns.

Rules for this file: an action was decided on one version of its claim. Whoever performs it writes exactly
`apply_action` with that version; when the server says that it was overtaken, the pod is decided again.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final

from msgspec.structs import replace

from dray.api.classic import (
    ClassicClaimStatus,
    ClassicResourceClaim,
    DriverSchedulingStatus,
    SchedulerSchedulingStatus,
    SchedulingStatus,
)
from dray.api.classic.resource_claim import REALLOCATE
from dray.api.core import Pod
from dray.api.limits import NODES_PER_CLASSIC_LIST
from dray.claims import reservation
from dray.placement.rejections import PluginRejection

MAX_NODES: Final = NODES_PER_CLASSIC_LIST
"""How many nodes a claim can name at once."""


@dataclass(frozen=True, slots=True)
class ProposeNodes:
    """Tell the driver which nodes would do, and which one is wanted."""

    claim: ClassicResourceClaim
    potential_nodes: tuple[str, ...]
    selected_node: str


@dataclass(frozen=True, slots=True)
class ReserveClassic:
    """Let a pod use a claim that is allocated."""

    claim: ClassicResourceClaim
    pod: Pod


@dataclass(frozen=True, slots=True)
class UnreserveClassic:
    """Take a pod off that got no node after all."""

    claim: ClassicResourceClaim
    pod: Pod


@dataclass(frozen=True, slots=True)
class RequestReallocation:
    """Have the driver free what nobody uses, so that it can be allocated for another node."""

    claim: ClassicResourceClaim


ClassicAction = ProposeNodes | ReserveClassic | UnreserveClassic | RequestReallocation


@dataclass(frozen=True, slots=True)
class ClassicClaimsReady:
    """All classic claims of a pod are allocated where it is going; with these writes they are its own."""

    actions: tuple[ReserveClassic, ...] = ()


@dataclass(frozen=True, slots=True)
class WaitForDrivers:
    """Drivers are to act first: what to write now, and what the pod waits for."""

    actions: tuple[ProposeNodes, ...]
    rejection: PluginRejection


def apply_action(action: ClassicAction) -> ClassicResourceClaim:
    """The claim as an action wants it."""
    claim = action.claim
    return replace(claim, status=_update_status(action, claim.status))


def _update_status(action: ClassicAction, status: ClassicClaimStatus) -> ClassicClaimStatus:
    match action:
        case ProposeNodes(_, potential, selected):
            offered = SchedulerSchedulingStatus(selected_node=selected, potential_nodes=potential)
            return replace(
                status, scheduling=replace(status.scheduling or SchedulingStatus(), scheduler=offered)
            )
        case ReserveClassic(claim, pod):
            if reservation.is_classic_reserved_for(claim, pod):
                return status
            return replace(status, reserved_for=(*status.reserved_for, reservation.build_classic_user(pod)))
        case UnreserveClassic(_, pod):
            left = tuple(user for user in status.reserved_for if user.uid != pod.metadata.uid)
            return replace(status, reserved_for=left)
        case RequestReallocation(_):
            return replace(status, phase=REALLOCATE, reserved_for=())


def get_scheduler_status(claim: ClassicResourceClaim) -> SchedulerSchedulingStatus:
    """What the scheduler has proposed so far."""
    scheduling = claim.status.scheduling
    return SchedulerSchedulingStatus() if scheduling is None else scheduling.scheduler


def get_unsuitable_nodes(claim: ClassicResourceClaim) -> tuple[str, ...]:
    """The nodes where the driver cannot allocate."""
    return () if claim.status.scheduling is None else claim.status.scheduling.driver.unsuitable_nodes


@dataclass(frozen=True, slots=True)
class NodeProposal:
    """What the drivers of a pod's pending claims are told: the nodes, the one that is wanted, and of whom."""

    nodes: tuple[str, ...]
    node: str
    next_claim: ClassicResourceClaim
    """The claim that is to be allocated for the node now."""
    actions: tuple[ProposeNodes, ...]
    """What is not written yet."""


def build_proposal(
    pending: Sequence[ClassicResourceClaim], feasible: Sequence[str], chosen: str
) -> NodeProposal:
    """What to tell the drivers of claims that are pending; `feasible` are the nodes that do, best first.

    All claims of a pod get the same window and the same node: only a node that suits all of them helps.
    """
    before = next((offer for offer in map(_get_potential_nodes, pending) if offer), ())
    declined = {name for claim in pending for name in get_unsuitable_nodes(claim)}
    nodes = build_node_window(feasible, chosen, before, declined)
    node = _choose_node(pending, feasible, chosen, nodes)
    if node not in nodes:
        nodes = (node, *nodes)[:MAX_NODES]
    asked = _choose_claim(pending, node)
    offers = [(claim, _build_scheduler_status(nodes, node if claim is asked else "")) for claim in pending]
    actions = (
        ProposeNodes(claim, nodes, offer.selected_node)
        for claim, offer in offers
        if get_scheduler_status(claim) != offer
    )
    return NodeProposal(nodes, node, asked, tuple(actions))


def _get_potential_nodes(claim: ClassicResourceClaim) -> tuple[str, ...]:
    return get_scheduler_status(claim).potential_nodes


def _build_scheduler_status(nodes: tuple[str, ...], selected: str) -> SchedulerSchedulingStatus:
    return SchedulerSchedulingStatus(selected_node=selected, potential_nodes=nodes)


def _choose_node(
    pending: Sequence[ClassicResourceClaim], feasible: Sequence[str], chosen: str, nodes: Sequence[str]
) -> str:
    """The node to ask for: the one that was asked for already while it will do, because a driver may be at
    work there; else the best of those that are proposed."""
    would_do = set(feasible)
    asked = [get_scheduler_status(claim).selected_node for claim in pending]
    standing = next((name for name in asked if name in would_do), None)
    if standing is not None:
        return standing
    proposed = set(nodes)
    return chosen if chosen in proposed else next(name for name in feasible if name in proposed)


def _choose_claim(pending: Sequence[ClassicResourceClaim], node: str) -> ClassicResourceClaim:
    """The claim to allocate for the node now: one at work there, else one of a silent driver, else any."""
    at_work = (claim for claim in pending if get_scheduler_status(claim).selected_node == node)
    silent = (claim for claim in pending if not _has_answered(claim))
    return next(chain(at_work, silent, pending))


def _has_answered(claim: ClassicResourceClaim) -> bool:
    scheduling = claim.status.scheduling
    return scheduling is not None and scheduling.driver != DriverSchedulingStatus()


def build_node_window(
    feasible: Sequence[str], chosen: str, before: Sequence[str], declined: Iterable[str]
) -> tuple[str, ...]:
    """The nodes to propose, given those proposed before and those that were declined."""
    would_do, known = set(feasible), set(declined)
    # What was declined stays in the list: a driver that is no longer asked about a node forgets its answer.
    kept = tuple(name for name in before if name in would_do or name in known)
    held = set(kept)
    fresh = tuple(name for name in feasible if name not in held)
    if len(kept) + len(fresh) <= MAX_NODES:
        return (*kept, *fresh) if fresh else kept
    if not held.isdisjoint(would_do):
        return kept
    ring = sorted(would_do)
    start = bisect_right(ring, before[-1]) if before else ring.index(chosen)
    return tuple((ring[start:] + ring[:start])[:MAX_NODES])
