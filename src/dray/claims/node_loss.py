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
class ClaimedDevice:
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
class RetainedDevice:
    """A device that is not free, and why; `expected` when nobody needs to do anything about it."""

    claimed: ClaimedDevice
    why: str
    expected: bool


@dataclass(frozen=True, slots=True)
class NodeLossState:
    """What is there now, to judge by."""

    node: str
    claims: Mapping[str, ResourceClaim]
    """By uid."""
    pods: Mapping[str, Pod]
    """Those of the node, by uid: they were removed, or are still there."""


def parse_ledger_entries(entries: Iterable[Mapping[str, Any]]) -> list[ClaimedDevice]:
    """Who has which device, from what the server tells of its ledger."""
    return [
        ClaimedDevice(entry["device"], each["claim"], each["uid"], tuple(each["nodes"]), each["quarantined"])
        for entry in entries
        for each in entry["holders"]
    ]


def find_affected_devices(ledger: Iterable[ClaimedDevice], state: NodeLossState) -> list[ClaimedDevice]:
    """What of the ledger a node or one of its pods has."""
    theirs = {
        uid
        for uid, claim in state.claims.items()
        if any(consumer.uid in state.pods for consumer in claim.status.reserved_for)
    }
    return sorted(each for each in ledger if state.node in each.nodes or each.uid in theirs)


def find_retained_devices(
    affected: Iterable[ClaimedDevice], ledger: Iterable[ClaimedDevice], state: NodeLossState
) -> list[RetainedDevice]:
    """What of these is not free now; everything else is."""
    now = {each.key: each for each in ledger}
    return [_assess_device(now[each.key], state) for each in affected if each.key in now]


def _assess_device(claimed: ClaimedDevice, state: NodeLossState) -> RetainedDevice:
    if state.node in claimed.nodes:
        return RetainedDevice(
            claimed, f"node {state.node} has it in its hands again; is it really switched off?", False
        )
    if claimed.quarantined:
        return RetainedDevice(claimed, f"node {', '.join(claimed.nodes)} has it in its hands", True)
    claim = state.claims.get(claimed.uid)
    if claim is None:
        return RetainedDevice(claimed, "the claim is gone, and the ledger follows", False)
    elsewhere = [_format_consumer(each) for each in claim.status.reserved_for if each.uid not in state.pods]
    if elsewhere:
        return RetainedDevice(claimed, f"the claim is reserved for {_format_names(elsewhere)}", True)
    if claim.status.reserved_for:
        return RetainedDevice(claimed, _explain_reservation(claim, state), False)
    if claim_names.FINALIZER not in claim.metadata.finalizers:
        why = "somebody allocated the claim by hand; it keeps its devices until it is deleted"
        return RetainedDevice(claimed, why, True)
    return RetainedDevice(
        claimed,
        "the claim is reserved for nobody, and is about to be released; does a controller run?",
        False,
    )


def _explain_reservation(claim: ResourceClaim, state: NodeLossState) -> str:
    users = claim.status.reserved_for
    there = [
        _format_consumer(each) for each in users if not reservation.is_pod_finished(state.pods[each.uid])
    ]
    if there:
        return f"the claim is reserved for {_format_names(there)}, which came to node {state.node} again"
    ended = _format_names([_format_consumer(each) for each in users])
    return f"the claim is still reserved for {ended}, which ended; does a controller run?"


def _format_consumer(consumer: ConsumerReference) -> str:
    return f"{'pod' if reservation.is_pod_consumer(consumer) else consumer.resource} {consumer.name}"


def _format_names(names: list[str], most: int = 3) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{', '.join(sorted(names)[:most])}{more}"
