"""Classic claims (KEP-3063): where they are, where they could be, and what their drivers must do first.

Theory of operation: this plugin knows nothing of what a claim stands for; its driver does. PreFilter holds a
pod back while a claim of mode `Immediate` is not allocated and while a claim is being freed or deleted.
Filter keeps to the nodes where allocated claims are available, and away from nodes that drivers declined for
claims that are pending; a node nobody has said anything about will do. When nodes are left,
`decide_next_step` says what comes before the pod may be bound: `ClassicClaimsReady` with the reservations to
make, or `WaitForDrivers` with the proposals to write (PreScore and Reserve of the specification, in one write
for each claim) and what the pod waits for. When no node is left, `post_filter` picks one claim that is in the
way and that nobody uses, to be given back.

    ClassicResources().opinion(subject, snapshot) -> Opinion | Verdict | None
    next_step(subject, feasible, chosen) -> Ready | Wait
    post_filter(subject, verdicts, turn=0) -> tuple[GiveBack, ...]

A pod of both paths gets its devices only after `ClassicClaimsReady`, on a node that every classic claim is
available on.

Rules for this file: a verdict of Filter names in its `wake_signals` every claim that refuses the node; this
is what `post_filter` reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from dray.api.classic import ClassicResourceClaim
from dray.api.classic.resource_claim import ALLOCATED, DELAYED, IMMEDIATE, REALLOCATE
from dray.api.core import Pod
from dray.claims import reservation
from dray.placement.classic_negotiation import (
    ClassicClaimsReady,
    RequestReallocation,
    ReserveClassic,
    WaitForDrivers,
    build_proposal,
    get_unsuitable_nodes,
)
from dray.placement.framework import PreFilterResult
from dray.placement.pending_pod import PendingPod
from dray.placement.rejections import PluginRejection, Signal, Topic
from dray.values.node_selectors import NodeSelector

if TYPE_CHECKING:
    from dray.placement.snapshot import ClusterSnapshot, NodeState

NAME: Final = "ClassicResources"


@dataclass(frozen=True, slots=True)
class ClassicResources:
    """Judges nodes by the classic claims of a pod."""

    name: str = NAME

    def pre_filter(
        self, pending_pod: PendingPod, snapshot: ClusterSnapshot
    ) -> PreFilterResult | PluginRejection | None:
        """PreFilter and Filter."""
        for claim in pending_pod.classic_claims:
            why = _explain_wait(claim, pending_pod.pod)
            if why:
                return PluginRejection(
                    NAME, f"claim {format_full_name(claim)} {why}", frozenset({_build_signal(claim)})
                )
        reaches = [reach for reach in map(_read_claim_nodes, pending_pod.classic_claims) if reach is not None]
        return PreFilterResult(filter=_build_filter(reaches), by_node=True) if reaches else None


def format_full_name(claim: ClassicResourceClaim) -> str:
    """Namespace and name of a claim."""
    return f"{claim.metadata.namespace}/{claim.metadata.name}"


def _build_signal(claim: ClassicResourceClaim) -> Signal:
    return Signal(Topic.CLAIM, format_full_name(claim))


def _explain_wait(claim: ClassicResourceClaim, pod: Pod) -> str:
    """Why no node can do now; empty when some might."""
    if claim.metadata.deletion_timestamp is not None and not reservation.is_classic_reserved_for(claim, pod):
        return "is being deleted"
    if claim.status.phase == REALLOCATE:
        return "is being freed by its driver, to be allocated again"
    if claim.status.phase != ALLOCATED and claim.spec.allocation_mode == IMMEDIATE:
        return "is not allocated yet; its driver does so without waiting for a pod"
    return ""


@dataclass(frozen=True, slots=True)
class _ClaimNodes:
    """On which nodes a claim is, or could be, and what the others are told."""

    claim: str
    selector: NodeSelector | None
    declined: frozenset[str]
    outside: str

    def explain_refusal(self, name: str, labels: Mapping[str, str]) -> str:
        """Why not this node; empty when it will do."""
        if name in self.declined:
            return f"the driver of claim {self.claim} cannot allocate it for this node"
        if self.selector is not None and not self.selector.matches(name, labels):
            return f"claim {self.claim} {self.outside}"
        return ""


_OUTSIDE_REASONS: Final = {
    (True, IMMEDIATE): "was allocated before this pod was known, and is not available on this node",
    (True, DELAYED): "is allocated, and not available on this node",
}
_OUTSIDE_DEFAULT: Final = "cannot be made available on this node"


def _read_claim_nodes(claim: ClassicResourceClaim) -> _ClaimNodes | None:
    """What a claim has to say about nodes, if anything."""
    allocated = claim.status.phase == ALLOCATED
    selector = claim.status.get_reachable_nodes()
    declined = frozenset() if allocated else frozenset(get_unsuitable_nodes(claim))
    if selector is None and not declined:
        return None
    outside = _OUTSIDE_REASONS.get((allocated, claim.spec.allocation_mode), _OUTSIDE_DEFAULT)
    return _ClaimNodes(format_full_name(claim), selector, declined, outside)


def _build_filter(claim_nodes: Sequence[_ClaimNodes]) -> Callable[[NodeState], PluginRejection | None]:
    known: dict[tuple[str, ...], PluginRejection] = {}

    def judge(seat: NodeState) -> PluginRejection | None:
        name, labels = seat.node.metadata.name, seat.node.metadata.labels
        words = tuple([reach.explain_refusal(name, labels) for reach in claim_nodes])
        if not any(words):
            return None
        verdict = known.get(words)
        if verdict is None:
            verdict = known[words] = _build_rejection(claim_nodes, words)
        return verdict

    return judge


def _build_rejection(claim_nodes: Sequence[_ClaimNodes], reasons: tuple[str, ...]) -> PluginRejection:
    claims = {
        Signal(Topic.CLAIM, reach.claim) for reach, said in zip(claim_nodes, reasons, strict=True) if said
    }
    # A node that comes, or gets another label, may be one where the claim is.
    return PluginRejection(NAME, "; ".join(filter(None, reasons)), frozenset({*claims, Signal(Topic.NODES)}))


def decide_next_step(
    pending_pod: PendingPod, feasible: Sequence[str], chosen: str
) -> ClassicClaimsReady | WaitForDrivers:
    """What comes before the pod may be bound to the chosen node; `feasible` are all that do, best first."""
    pending = [claim for claim in pending_pod.classic_claims if claim.status.phase != ALLOCATED]
    if not pending:
        return ClassicClaimsReady(
            tuple(
                ReserveClassic(claim, pending_pod.pod)
                for claim in pending_pod.classic_claims
                if not reservation.is_classic_reserved_for(claim, pending_pod.pod)
            )
        )
    told = build_proposal(pending, feasible, chosen)
    text = (
        f"waiting for the driver of claim {format_full_name(told.next_claim)} to allocate it "
        f"for node {told.node}"
    )
    return WaitForDrivers(told.actions, PluginRejection(NAME, text, frozenset(map(_build_signal, pending))))


def post_filter(
    pending_pod: PendingPod, rejections: Iterable[PluginRejection], rotation: int = 0
) -> tuple[RequestReallocation, ...]:
    """The claim to give back when no node is left; `rotation` picks one when several would do.

    One at a time: while a driver is freeing one, nothing else is given back.
    """
    if any(claim.status.phase == REALLOCATE for claim in pending_pod.classic_claims):
        return ()
    blamed = {signal for verdict in rejections if verdict.plugin == NAME for signal in verdict.wake_signals}
    candidates = [
        claim
        for claim in pending_pod.classic_claims
        if _build_signal(claim) in blamed and _can_reallocate(claim, pending_pod.pod)
    ]
    return (RequestReallocation(candidates[rotation % len(candidates)]),) if candidates else ()


def _can_reallocate(claim: ClassicResourceClaim, pod: Pod) -> bool:
    """Whether a claim is allocated, could be allocated elsewhere, and nobody else uses it."""
    return (
        claim.status.phase == ALLOCATED
        and claim.spec.allocation_mode == DELAYED
        and claim.metadata.deletion_timestamp is None
        and all(user.uid == pod.metadata.uid for user in claim.status.reserved_for)
    )
