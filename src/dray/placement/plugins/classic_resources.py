"""Classic claims (KEP-3063): where they are, where they could be, and what their drivers must do first.

Theory of operation: this plugin knows nothing of what a claim stands for; its driver does. PreFilter holds
a pod back while a claim of mode `Immediate` is not allocated and while a claim is being freed or deleted.
Filter keeps to the nodes where allocated claims are available, and away from nodes that drivers declined for
claims that are pending; a node nobody has said anything about will do. When nodes are left, `next_step` says
what comes before the pod may be bound: `Ready` with the reservations to make, or `Wait` with the proposals to
write (PreScore and Reserve of the specification, in one write for each claim) and what the pod waits for.
When no node is left, `post_filter` picks one claim that is in the way and that nobody uses, to be given back.

    ClassicResources().opinion(subject, snapshot) -> Opinion | Verdict | None
    next_step(subject, feasible, chosen) -> Ready | Wait
    post_filter(subject, verdicts, turn=0) -> tuple[GiveBack, ...]

A pod of both paths gets its devices only after `Ready`, on a node that every classic claim is available on.

Rules for this file: a verdict of Filter names in its `wakes` every claim that refuses the node; this is what
`post_filter` reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from dray.api.classic import ClassicClaim
from dray.api.classic.resource_claim import ALLOCATED, DELAYED, IMMEDIATE, REALLOCATE
from dray.api.core import Pod
from dray.claims import reservation
from dray.placement.classic_negotiation import GiveBack, Ready, ReserveClassic, Wait, declined_by, proposal
from dray.placement.framework import Opinion
from dray.placement.pending_pod import Subject
from dray.placement.rejections import Signal, Topic, Verdict
from dray.values.node_selectors import NodeSelector

if TYPE_CHECKING:
    from dray.placement.snapshot import Seat, Snapshot

NAME: Final = "ClassicResources"


@dataclass(frozen=True, slots=True)
class ClassicResources:
    """Judges nodes by the classic claims of a pod."""

    name: str = NAME

    def opinion(self, subject: Subject, snapshot: Snapshot) -> Opinion | Verdict | None:
        """PreFilter and Filter."""
        for claim in subject.classic:
            why = _why_wait(claim, subject.pod)
            if why:
                return Verdict(NAME, f"claim {full_name(claim)} {why}", frozenset({_signal(claim)}))
        reaches = [reach for reach in map(_reach, subject.classic) if reach is not None]
        return Opinion(filter=_filter(reaches), by_node=True) if reaches else None


def full_name(claim: ClassicClaim) -> str:
    """Namespace and name of a claim."""
    return f"{claim.metadata.namespace}/{claim.metadata.name}"


def _signal(claim: ClassicClaim) -> Signal:
    return Signal(Topic.CLAIM, full_name(claim))


def _why_wait(claim: ClassicClaim, pod: Pod) -> str:
    """Why no node can do now; empty when some might."""
    if claim.metadata.deletion_timestamp is not None and not reservation.classic_reserved(claim, pod):
        return "is being deleted"
    if claim.status.phase == REALLOCATE:
        return "is being freed by its driver, to be allocated again"
    if claim.status.phase != ALLOCATED and claim.spec.allocation_mode == IMMEDIATE:
        return "is not allocated yet; its driver does so without waiting for a pod"
    return ""


@dataclass(frozen=True, slots=True)
class _Reach:
    """On which nodes a claim is, or could be, and what the others are told."""

    claim: str
    selector: NodeSelector | None
    declined: frozenset[str]
    outside: str

    def refusal(self, name: str, labels: Mapping[str, str]) -> str:
        """Why not this node; empty when it will do."""
        if name in self.declined:
            return f"the driver of claim {self.claim} cannot allocate it for this node"
        if self.selector is not None and not self.selector.matches(name, labels):
            return f"claim {self.claim} {self.outside}"
        return ""


_OUTSIDE: Final = {
    (True, IMMEDIATE): "was allocated before this pod was known, and is not available on this node",
    (True, DELAYED): "is allocated, and not available on this node",
}
_NOT_HERE: Final = "cannot be made available on this node"


def _reach(claim: ClassicClaim) -> _Reach | None:
    """What a claim has to say about nodes, if anything."""
    allocated = claim.status.phase == ALLOCATED
    selector = claim.status.reachable()
    declined = frozenset() if allocated else frozenset(declined_by(claim))
    if selector is None and not declined:
        return None
    outside = _OUTSIDE.get((allocated, claim.spec.allocation_mode), _NOT_HERE)
    return _Reach(full_name(claim), selector, declined, outside)


def _filter(reaches: Sequence[_Reach]) -> Callable[[Seat], Verdict | None]:
    known: dict[tuple[str, ...], Verdict] = {}

    def judge(seat: Seat) -> Verdict | None:
        name, labels = seat.node.metadata.name, seat.node.metadata.labels
        words = tuple([reach.refusal(name, labels) for reach in reaches])
        if not any(words):
            return None
        verdict = known.get(words)
        if verdict is None:
            verdict = known[words] = _refused(reaches, words)
        return verdict

    return judge


def _refused(reaches: Sequence[_Reach], words: tuple[str, ...]) -> Verdict:
    claims = {Signal(Topic.CLAIM, reach.claim) for reach, said in zip(reaches, words, strict=True) if said}
    # A node that comes, or gets another label, may be one where the claim is.
    return Verdict(NAME, "; ".join(filter(None, words)), frozenset({*claims, Signal(Topic.NODES)}))


def next_step(subject: Subject, feasible: Sequence[str], chosen: str) -> Ready | Wait:
    """What comes before the pod may be bound to the chosen node; `feasible` are all that do, best first."""
    pending = [claim for claim in subject.classic if claim.status.phase != ALLOCATED]
    if not pending:
        return Ready(
            tuple(
                ReserveClassic(claim, subject.pod)
                for claim in subject.classic
                if not reservation.classic_reserved(claim, subject.pod)
            )
        )
    told = proposal(pending, feasible, chosen)
    text = f"waiting for the driver of claim {full_name(told.asked)} to allocate it for node {told.node}"
    return Wait(told.actions, Verdict(NAME, text, frozenset(map(_signal, pending))))


def post_filter(subject: Subject, verdicts: Iterable[Verdict], turn: int = 0) -> tuple[GiveBack, ...]:
    """The claim to give back when no node is left; `turn` picks one when several would do.

    One at a time: while a driver is freeing one, nothing else is given back.
    """
    if any(claim.status.phase == REALLOCATE for claim in subject.classic):
        return ()
    blamed = {signal for verdict in verdicts if verdict.plugin == NAME for signal in verdict.wakes}
    candidates = [
        claim for claim in subject.classic if _signal(claim) in blamed and _may_go_back(claim, subject.pod)
    ]
    return (GiveBack(candidates[turn % len(candidates)]),) if candidates else ()


def _may_go_back(claim: ClassicClaim, pod: Pod) -> bool:
    """Whether a claim is allocated, could be allocated elsewhere, and nobody else uses it."""
    return (
        claim.status.phase == ALLOCATED
        and claim.spec.allocation_mode == DELAYED
        and claim.metadata.deletion_timestamp is None
        and all(user.uid == pod.metadata.uid for user in claim.status.reserved_for)
    )
