"""What a lost node had, and what became of it: free, rightly kept by somebody else, or not free yet.

Theory of operation: at stake is every device that the node has in its hands, and every device of a claim that
a pod of the node may use. A device is free of a claim when the ledger does not name the claim for it any
more; somebody else may have it by then. A claim keeps a device rightly when it has a consumer that was not on
the node, when another node has the device in its hands, or when somebody allocated the claim by hand.
Everything else is only not done yet.

Rules for this file: pure; the ledger, claims and pods are read by whoever asks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from dray.api.core import Pod
from dray.api.resource import ConsumerReference, ResourceClaim
from dray.claims import claim_names, reservation


@dataclass(frozen=True, slots=True, order=True)
class Stake:
    """A device, and the claim that has it."""

    device: str
    claim: str
    uid: str
    """Of the claim."""
    nodes: tuple[str, ...] = ()
    """Who has the device in its hands for the claim."""
    quarantined: bool = False
    """Whether the claim is gone, and only those nodes keep the device."""

    @property
    def key(self) -> tuple[str, str]:
        """The same device and claim, whatever else changed."""
        return self.device, self.uid


@dataclass(frozen=True, slots=True)
class Kept:
    """A device that is not free, and why; `rightly` when nobody needs to do anything about it."""

    stake: Stake
    why: str
    rightly: bool


@dataclass(frozen=True, slots=True)
class Scene:
    """What is there now, to judge by."""

    node: str
    claims: Mapping[str, ResourceClaim]
    """By uid."""
    pods: Mapping[str, Pod]
    """Those of the node, by uid: they were removed, or are still there."""


def in_ledger(entries: Iterable[Mapping[str, Any]]) -> list[Stake]:
    """Who has which device, from what the server tells of its ledger."""
    return [
        Stake(entry["device"], each["claim"], each["uid"], tuple(each["nodes"]), each["quarantined"])
        for entry in entries
        for each in entry["holders"]
    ]


def at_stake(ledger: Iterable[Stake], scene: Scene) -> list[Stake]:
    """What of the ledger a node or one of its pods has."""
    theirs = {
        uid
        for uid, claim in scene.claims.items()
        if any(consumer.uid in scene.pods for consumer in claim.status.reserved_for)
    }
    return sorted(each for each in ledger if scene.node in each.nodes or each.uid in theirs)


def kept(stakes: Iterable[Stake], ledger: Iterable[Stake], scene: Scene) -> list[Kept]:
    """What of these is not free now; everything else is."""
    now = {each.key: each for each in ledger}
    return [_judged(now[each.key], scene) for each in stakes if each.key in now]


def _judged(stake: Stake, scene: Scene) -> Kept:
    if scene.node in stake.nodes:
        return Kept(stake, f"node {scene.node} has it in its hands again; is it really switched off?", False)
    if stake.quarantined:
        return Kept(stake, f"node {', '.join(stake.nodes)} has it in its hands", True)
    claim = scene.claims.get(stake.uid)
    if claim is None:
        return Kept(stake, "the claim is gone, and the ledger follows", False)
    elsewhere = [_named(each) for each in claim.status.reserved_for if each.uid not in scene.pods]
    if elsewhere:
        return Kept(stake, f"the claim is reserved for {_few(elsewhere)}", True)
    if claim.status.reserved_for:
        return Kept(stake, _not_released(claim, scene), False)
    if claim_names.FINALIZER not in claim.metadata.finalizers:
        why = "somebody allocated the claim by hand; it keeps its devices until it is deleted"
        return Kept(stake, why, True)
    return Kept(
        stake, "the claim is reserved for nobody, and is about to be released; does a controller run?", False
    )


def _not_released(claim: ResourceClaim, scene: Scene) -> str:
    users = claim.status.reserved_for
    there = [_named(each) for each in users if not reservation.is_over(scene.pods[each.uid])]
    if there:
        return f"the claim is reserved for {_few(there)}, which came to node {scene.node} again"
    ended = _few([_named(each) for each in users])
    return f"the claim is still reserved for {ended}, which ended; does a controller run?"


def _named(consumer: ConsumerReference) -> str:
    return f"{'pod' if reservation.is_pod(consumer) else consumer.resource} {consumer.name}"


def _few(names: list[str], most: int = 3) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{', '.join(sorted(names)[:most])}{more}"
