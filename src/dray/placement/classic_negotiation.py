"""What the scheduler writes into classic claims (KEP-3063), as values: one write of one claim's status each.

Theory of operation: scheduler and driver agree through the status of the claim. While it is pending, the
scheduler proposes: nodes that would do for the pod, and the one it would like. The driver declines nodes, or
allocates for the one that was selected. Several claims are allocated one after the other: what is allocated
in vain must be given back, and what its driver had said about other nodes is forgotten with it. All drivers
are asked about the nodes at once, and those that say nothing go first; so the answers of the others stay. A
claim that is allocated gets the pod as its user before the pod is bound; one that keeps its pod from running
anywhere is given back, and its driver frees it.

Nodes are proposed through a *window* of at most `MOST_NODES` names. As long as one of them is neither
declined nor unfit otherwise, the window stays; nodes that come are added while there is room. When all are
declined it moves on, around the ring of all nodes that would do, in the order of their names: a driver whose
resource is on one node of thousands is found after a few turns.

Rules for this file: an action was decided on one version of its claim. Whoever performs it writes exactly
`outcome` with that version; when the server says that it was overtaken, the pod is decided again.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final

from msgspec.structs import replace

from dray.api.classic import (
    ClassicClaim,
    ClassicClaimStatus,
    DriverSchedulingStatus,
    SchedulerSchedulingStatus,
    SchedulingStatus,
)
from dray.api.classic.resource_claim import REALLOCATE
from dray.api.core import Pod
from dray.api.validation.limits import NODES_PER_CLASSIC_LIST
from dray.claims import reservation
from dray.placement.rejections import Verdict

MOST_NODES: Final = NODES_PER_CLASSIC_LIST
"""How many nodes a claim can name at once."""


@dataclass(frozen=True, slots=True)
class Propose:
    """Tell the driver which nodes would do, and which one is wanted."""

    claim: ClassicClaim
    potential_nodes: tuple[str, ...]
    selected_node: str


@dataclass(frozen=True, slots=True)
class ReserveClassic:
    """Let a pod use a claim that is allocated."""

    claim: ClassicClaim
    pod: Pod


@dataclass(frozen=True, slots=True)
class UnreserveClassic:
    """Take a pod off that got no node after all."""

    claim: ClassicClaim
    pod: Pod


@dataclass(frozen=True, slots=True)
class GiveBack:
    """Have the driver free what nobody uses, so that it can be allocated for another node."""

    claim: ClassicClaim


ClassicAction = Propose | ReserveClassic | UnreserveClassic | GiveBack


@dataclass(frozen=True, slots=True)
class Ready:
    """All classic claims of a pod are allocated where it is going; with these writes they are its own."""

    actions: tuple[ReserveClassic, ...] = ()


@dataclass(frozen=True, slots=True)
class Wait:
    """Drivers are to act first: what to write now, and what the pod waits for."""

    actions: tuple[Propose, ...]
    verdict: Verdict


def outcome(action: ClassicAction) -> ClassicClaim:
    """The claim as an action wants it."""
    claim = action.claim
    return replace(claim, status=_status(action, claim.status))


def _status(action: ClassicAction, now: ClassicClaimStatus) -> ClassicClaimStatus:
    match action:
        case Propose(_, potential, selected):
            offered = SchedulerSchedulingStatus(selected_node=selected, potential_nodes=potential)
            return replace(now, scheduling=replace(now.scheduling or SchedulingStatus(), scheduler=offered))
        case ReserveClassic(claim, pod):
            if reservation.classic_reserved(claim, pod):
                return now
            return replace(now, reserved_for=(*now.reserved_for, reservation.user_of(pod)))
        case UnreserveClassic(_, pod):
            left = tuple(user for user in now.reserved_for if user.uid != pod.metadata.uid)
            return replace(now, reserved_for=left)
        case GiveBack(_):
            return replace(now, phase=REALLOCATE, reserved_for=())


def offer_of(claim: ClassicClaim) -> SchedulerSchedulingStatus:
    """What the scheduler has proposed so far."""
    scheduling = claim.status.scheduling
    return SchedulerSchedulingStatus() if scheduling is None else scheduling.scheduler


def declined_by(claim: ClassicClaim) -> tuple[str, ...]:
    """The nodes where the driver cannot allocate."""
    return () if claim.status.scheduling is None else claim.status.scheduling.driver.unsuitable_nodes


@dataclass(frozen=True, slots=True)
class Proposal:
    """What the drivers of a pod's pending claims are told: the nodes, the one that is wanted, and of whom."""

    nodes: tuple[str, ...]
    node: str
    asked: ClassicClaim
    """The claim that is to be allocated for the node now."""
    actions: tuple[Propose, ...]
    """What is not written yet."""


def proposal(pending: Sequence[ClassicClaim], feasible: Sequence[str], chosen: str) -> Proposal:
    """What to tell the drivers of claims that are pending; `feasible` are the nodes that do, best first.

    All claims of a pod get the same window and the same node: only a node that suits all of them helps.
    """
    before = next((offer for offer in map(_potential, pending) if offer), ())
    declined = {name for claim in pending for name in declined_by(claim)}
    nodes = window(feasible, chosen, before, declined)
    node = _wanted(pending, feasible, chosen, nodes)
    if node not in nodes:
        nodes = (node, *nodes)[:MOST_NODES]
    asked = _next(pending, node)
    offers = [(claim, _offer(nodes, node if claim is asked else "")) for claim in pending]
    actions = (
        Propose(claim, nodes, offer.selected_node) for claim, offer in offers if offer_of(claim) != offer
    )
    return Proposal(nodes, node, asked, tuple(actions))


def _potential(claim: ClassicClaim) -> tuple[str, ...]:
    return offer_of(claim).potential_nodes


def _offer(nodes: tuple[str, ...], selected: str) -> SchedulerSchedulingStatus:
    return SchedulerSchedulingStatus(selected_node=selected, potential_nodes=nodes)


def _wanted(
    pending: Sequence[ClassicClaim], feasible: Sequence[str], chosen: str, nodes: Sequence[str]
) -> str:
    """The node to ask for: the one that was asked for already while it will do, because a driver may be at
    work there; else the best of those that are proposed."""
    would_do = set(feasible)
    asked = [offer_of(claim).selected_node for claim in pending]
    standing = next((name for name in asked if name in would_do), None)
    if standing is not None:
        return standing
    proposed = set(nodes)
    return chosen if chosen in proposed else next(name for name in feasible if name in proposed)


def _next(pending: Sequence[ClassicClaim], node: str) -> ClassicClaim:
    """The claim to allocate for the node now: one at work there, else one of a silent driver, else any."""
    at_work = (claim for claim in pending if offer_of(claim).selected_node == node)
    silent = (claim for claim in pending if not _has_answered(claim))
    return next(chain(at_work, silent, pending))


def _has_answered(claim: ClassicClaim) -> bool:
    scheduling = claim.status.scheduling
    return scheduling is not None and scheduling.driver != DriverSchedulingStatus()


def window(
    feasible: Sequence[str], chosen: str, before: Sequence[str], declined: Iterable[str]
) -> tuple[str, ...]:
    """The nodes to propose, given those proposed before and those that were declined."""
    would_do, known = set(feasible), set(declined)
    # What was declined stays in the list: a driver that is no longer asked about a node forgets its answer.
    kept = tuple(name for name in before if name in would_do or name in known)
    held = set(kept)
    fresh = tuple(name for name in feasible if name not in held)
    if len(kept) + len(fresh) <= MOST_NODES:
        return (*kept, *fresh) if fresh else kept
    if not held.isdisjoint(would_do):
        return kept
    ring = sorted(would_do)
    start = bisect_right(ring, before[-1]) if before else ring.index(chosen)
    return tuple((ring[start:] + ring[:start])[:MOST_NODES])
