"""Negotiation of classic claims (KEP-3063): what the scheduler writes into their status, as values.

Theory of operation: scheduler and driver agree through the status of the claim. While the claim is pending,
the scheduler proposes feasible nodes for the pod, and selects one of them. The driver declines nodes, or
allocates for the selected one. Several claims are allocated one after the other: a claim that was allocated
in vain must be deallocated, and the answers of its driver about other nodes are lost with that. So all
drivers get the nodes at once, and claims whose drivers decline nothing are allocated first, which keeps the
answers of the others. An allocated claim is reserved for the pod before the pod is bound; one that keeps its
pod from running anywhere is deallocated by its driver.

Nodes are proposed through a *window* of at most `MAX_NODES` names. As long as one of them is neither declined
nor infeasible otherwise, the window stays, and new nodes are added up to its size. When all are declined it
moves on, around the ring of all feasible nodes in the order of their names: a driver whose resource is on one
node of thousands is found after a few moves.

An action is decided on one version of its claim. The scheduler writes exactly `apply_action` with that
version; on a conflict the pod is decided again.
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
    """Propose feasible nodes to the driver, and the selected one."""

    claim: ClassicResourceClaim
    potential_nodes: tuple[str, ...]
    selected_node: str


@dataclass(frozen=True, slots=True)
class ReserveClassic:
    """Reserve an allocated claim for a pod."""

    claim: ClassicResourceClaim
    pod: Pod


@dataclass(frozen=True, slots=True)
class UnreserveClassic:
    """Remove the reservation of a pod that got no node after all."""

    claim: ClassicResourceClaim
    pod: Pod


@dataclass(frozen=True, slots=True)
class RequestReallocation:
    """Have the driver deallocate an unused claim, so that it can be allocated for another node."""

    claim: ClassicResourceClaim


ClassicAction = ProposeNodes | ReserveClassic | UnreserveClassic | RequestReallocation


@dataclass(frozen=True, slots=True)
class ClassicClaimsReady:
    """All classic claims of a pod are allocated for its node; these writes reserve them."""

    actions: tuple[ReserveClassic, ...] = ()


@dataclass(frozen=True, slots=True)
class WaitForDrivers:
    """Drivers must act first: what to write now, and what the pod waits for."""

    actions: tuple[ProposeNodes, ...]
    rejection: PluginRejection


def apply_action(action: ClassicAction) -> ClassicResourceClaim:
    """The claim after an action."""
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
    """The proposal to the drivers of a pod's pending claims: nodes, the selected one, and for which claim."""

    nodes: tuple[str, ...]
    node: str
    next_claim: ClassicResourceClaim
    """The claim that is to be allocated for the node now."""
    actions: tuple[ProposeNodes, ...]
    """What is not written yet."""


def build_proposal(
    pending: Sequence[ClassicResourceClaim], feasible: Sequence[str], chosen: str
) -> NodeProposal:
    """The proposal to the drivers of pending claims; `feasible` are the feasible nodes, best first.

    All claims of a pod get the same window and the same node: only a node that fits all of them helps.
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
    """The node to select: the one selected before while it is feasible, because a driver may be working on
    it; else the best of the proposed ones."""
    would_do = set(feasible)
    asked = [get_scheduler_status(claim).selected_node for claim in pending]
    standing = next((name for name in asked if name in would_do), None)
    if standing is not None:
        return standing
    proposed = set(nodes)
    return chosen if chosen in proposed else next(name for name in feasible if name in proposed)


def _choose_claim(pending: Sequence[ClassicResourceClaim], node: str) -> ClassicResourceClaim:
    """The claim to allocate for the node now: one in progress, else of a driver that declined nothing."""
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
    # Declined nodes stay in the list: a driver drops its answer about a node that is no longer proposed.
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
