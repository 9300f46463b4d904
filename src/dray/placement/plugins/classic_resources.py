"""Classic claims (KEP-3063): filters nodes by them, and decides what their drivers must do first.

Theory of operation: only the driver interprets a classic claim. PreFilter rejects a pod while a claim of mode
`Immediate` is not allocated and while a claim is being freed or deleted. Filter keeps to the nodes where
allocated claims are available, and away from nodes that drivers declined for claims that are pending; a node
that no driver declined is feasible. When nodes are left, `decide_next_step` returns what comes before the pod
may be bound: `ClassicClaimsReady` with the reservations to make, or `WaitForDrivers` with the proposals to
write (PreScore and Reserve of the specification, in one write for each claim) and what the pod waits for.
When no node is left, `post_filter` picks one unused claim that blocks nodes, to be deallocated.

A pod of both paths gets its devices only after `ClassicClaimsReady`, on a node that every classic claim is
available on.

A rejection of Filter names in its `wake_signals` every claim that refuses the node; this
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
    """The plugin for the classic claims of a pod."""

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
    """Why no node is feasible now; empty when some may be."""
    if claim.metadata.deletion_timestamp is not None and not reservation.is_classic_reserved_for(claim, pod):
        return "is being deleted"
    if claim.status.phase == REALLOCATE:
        return "is being freed by its driver, to be allocated again"
    if claim.status.phase != ALLOCATED and claim.spec.allocation_mode == IMMEDIATE:
        return "is not allocated yet; its driver does so without waiting for a pod"
    return ""


@dataclass(frozen=True, slots=True)
class _ClaimNodes:
    """The nodes where a claim is or could be available, and the rejection of the others."""

    claim: str
    selector: NodeSelector | None
    declined: frozenset[str]
    outside: str

    def explain_refusal(self, name: str, labels: Mapping[str, str]) -> str:
        """Why a node is not feasible; empty when it is."""
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
    """The availability of a claim, if it restricts nodes."""
    allocated = claim.status.phase == ALLOCATED
    selector = claim.status.get_reachable_nodes()
    declined = frozenset() if allocated else frozenset(get_unsuitable_nodes(claim))
    if selector is None and not declined:
        return None
    outside = _OUTSIDE_REASONS.get((allocated, claim.spec.allocation_mode), _OUTSIDE_DEFAULT)
    return _ClaimNodes(format_full_name(claim), selector, declined, outside)


def _build_filter(claim_nodes: Sequence[_ClaimNodes]) -> Callable[[NodeState], PluginRejection | None]:
    known: dict[tuple[str, ...], PluginRejection] = {}

    def filter_node(node_state: NodeState) -> PluginRejection | None:
        name, labels = node_state.node.metadata.name, node_state.node.metadata.labels
        words = tuple([reach.explain_refusal(name, labels) for reach in claim_nodes])
        if not any(words):
            return None
        rejection = known.get(words)
        if rejection is None:
            rejection = known[words] = _build_rejection(claim_nodes, words)
        return rejection

    return filter_node


def _build_rejection(claim_nodes: Sequence[_ClaimNodes], reasons: tuple[str, ...]) -> PluginRejection:
    claims = {
        Signal(Topic.CLAIM, reach.claim) for reach, said in zip(claim_nodes, reasons, strict=True) if said
    }
    # A new node, or one with another label, may be one where the claim is available.
    return PluginRejection(NAME, "; ".join(filter(None, reasons)), frozenset({*claims, Signal(Topic.NODES)}))


def decide_next_step(
    pending_pod: PendingPod, feasible: Sequence[str], chosen: str
) -> ClassicClaimsReady | WaitForDrivers:
    """The step before binding the pod to the chosen node; `feasible` are all feasible nodes, best first."""
    pending = [claim for claim in pending_pod.classic_claims if claim.status.phase != ALLOCATED]
    if not pending:
        return ClassicClaimsReady(
            tuple(
                ReserveClassic(claim, pending_pod.pod)
                for claim in pending_pod.classic_claims
                if not reservation.is_classic_reserved_for(claim, pending_pod.pod)
            )
        )
    reported = build_proposal(pending, feasible, chosen)
    text = (
        f"waiting for the driver of claim {format_full_name(reported.next_claim)} to allocate it "
        f"for node {reported.node}"
    )
    return WaitForDrivers(
        reported.actions, PluginRejection(NAME, text, frozenset(map(_build_signal, pending)))
    )


def post_filter(
    pending_pod: PendingPod, rejections: Iterable[PluginRejection], rotation: int = 0
) -> tuple[RequestReallocation, ...]:
    """The claim to deallocate when no node is left; `rotation` picks one of several.

    One at a time: nothing else is deallocated while a driver is working on one.
    """
    if any(claim.status.phase == REALLOCATE for claim in pending_pod.classic_claims):
        return ()
    blamed = {
        signal for rejection in rejections if rejection.plugin == NAME for signal in rejection.wake_signals
    }
    candidates = [
        claim
        for claim in pending_pod.classic_claims
        if _build_signal(claim) in blamed and _can_reallocate(claim, pending_pod.pod)
    ]
    return (RequestReallocation(candidates[rotation % len(candidates)]),) if candidates else ()


def _can_reallocate(claim: ClassicResourceClaim, pod: Pod) -> bool:
    """Whether a claim is allocated, could be allocated elsewhere, and is used by no other pod."""
    return (
        claim.status.phase == ALLOCATED
        and claim.spec.allocation_mode == DELAYED
        and claim.metadata.deletion_timestamp is None
        and all(user.uid == pod.metadata.uid for user in claim.status.reserved_for)
    )
