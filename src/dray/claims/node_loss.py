"""Node loss: which devices of a lost node are free, kept by a claim for a reason, or not free yet.

Theory of operation: affected are all devices that the node has prepared, and all devices of claims that a pod
of the node may use. A device is free of a claim when the ledger no longer names the claim for it; another
claim may have it by then. A claim keeps a device for a reason when it has a consumer that was not on the
node, when another node has the device prepared, or when it was allocated by hand. Everything else is still in
progress.

This module is pure: the caller reads the ledger, claims and pods.
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
    """Nodes that have the device prepared for the claim."""
    quarantined: bool = False
    """Whether the claim is gone, and only those nodes keep the device: quarantine."""

    @property
    def key(self) -> tuple[str, str]:
        """The same device and claim, whatever else changed."""
        return self.device, self.uid


@dataclass(frozen=True, slots=True)
class RetainedDevice:
    """A device that is not free, and why; `expected` when no action is needed."""

    claimed: ClaimedDevice
    why: str
    expected: bool


@dataclass(frozen=True, slots=True)
class NodeLossState:
    """The current state of ledger, claims and pods."""

    node: str
    claims: Mapping[str, ResourceClaim]
    """By uid."""
    pods: Mapping[str, Pod]
    """Pods of the node by uid, removed or not."""


def parse_ledger_entries(entries: Iterable[Mapping[str, Any]]) -> list[ClaimedDevice]:
    """Holders of devices, from the ledger status of the server."""
    return [
        ClaimedDevice(entry["device"], each["claim"], each["uid"], tuple(each["nodes"]), each["quarantined"])
        for entry in entries
        for each in entry["holders"]
    ]


def find_affected_devices(ledger: Iterable[ClaimedDevice], state: NodeLossState) -> list[ClaimedDevice]:
    """The entries of the ledger that a node or one of its pods has."""
    theirs = {
        uid
        for uid, claim in state.claims.items()
        if any(consumer.uid in state.pods for consumer in claim.status.reserved_for)
    }
    return sorted(each for each in ledger if state.node in each.nodes or each.uid in theirs)


def find_retained_devices(
    affected: Iterable[ClaimedDevice], ledger: Iterable[ClaimedDevice], state: NodeLossState
) -> list[RetainedDevice]:
    """The entries that are not free now."""
    now = {each.key: each for each in ledger}
    return [_assess_device(now[each.key], state) for each in affected if each.key in now]


def _assess_device(claimed: ClaimedDevice, state: NodeLossState) -> RetainedDevice:
    if state.node in claimed.nodes:
        return RetainedDevice(
            claimed, f"node {state.node} has it prepared again; is it really switched off?", False
        )
    if claimed.quarantined:
        return RetainedDevice(claimed, f"node {', '.join(claimed.nodes)} has it prepared", True)
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
