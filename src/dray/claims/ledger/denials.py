"""Denials of the ledger: the rule, the device, the conflicting holders and what is left, as messages.

This module must not contain decisions; `grants` decides what is denied.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from dray.claims.ledger.rows import CounterSetId, DeviceId, Holding
from dray.values.quantity import Quantity


class DenialReason(Enum):
    """The rules of the ledger, as machine-readable reasons."""

    HELD = "DeviceHeld"
    SHARED = "DeviceShared"
    QUARANTINED = "DeviceQuarantined"
    DEDICATED = "DeviceDedicated"
    UNPUBLISHED = "DeviceNotPublished"
    CAPACITY = "CapacityExceeded"
    COUNTER = "CounterExceeded"
    UNKNOWN_COUNTER = "CounterNotPublished"
    TWICE = "DeviceTwice"
    SHARE_ID = "ShareIDInUse"
    UNRECORDED = "DeviceNotRecorded"
    CLAIM = "ClaimNotAllocated"
    AWAITED = "NodeNotHeard"


@dataclass(frozen=True, slots=True)
class Denial:
    """One rule that an allocation breaks; `position` is the place in its results."""

    reason: DenialReason
    device: DeviceId | None
    message: str
    position: int = 0


RESULTS_PATH: Final = "status.allocation.devices.results"


def build_allocation_causes(denials: Iterable[Denial]) -> list[dict[str, str]]:
    """The causes of a 409 for an allocation: each with the result it is about."""
    return [
        {
            "reason": denial.reason.value,
            "message": denial.message,
            "field": f"{RESULTS_PATH}[{denial.position}]",
        }
        for denial in denials
    ]


def deny_held(device: DeviceId, holdings: Sequence[Holding], position: int) -> Denial:
    """Another claim has the device, or a node still has it prepared."""
    live = [holding for holding in holdings if not holding.gone]
    if not live:
        return Denial(
            DenialReason.QUARANTINED, device, f"device {device} is {_format_quarantine(holdings)}", position
        )
    whole = next((holding for holding in live if holding.is_whole), None)
    if whole is not None:
        return Denial(DenialReason.HELD, device, f"device {device} is held by claim {whole.holder}", position)
    claims = _format_claims(live)
    message = f"device {device} is shared by {claims}; a device as a whole needs all shares to be given back"
    return Denial(DenialReason.SHARED, device, message, position)


def _format_quarantine(holdings: Iterable[Holding]) -> str:
    gone = next(holding for holding in holdings if holding.gone)
    node = min(gone.prepared.values(), default="")
    return (
        f"quarantined on node {node}: claim {gone.holder} was removed while prepared; "
        f"confirm release or run `dray fence node {node}`"
    )


def _format_claims(holdings: Iterable[Holding]) -> str:
    names = list(dict.fromkeys(str(holding.holder) for holding in holdings))
    return f"claim{'s' if len(names) > 1 else ''} {', '.join(names)}"


def deny_unpublished(device: DeviceId, position: int) -> Denial:
    """The device is not published, so what a share may take is unknown."""
    message = f"device {device} is not published by any slice, so nothing is known of what a share may take"
    return Denial(DenialReason.UNPUBLISHED, device, message, position)


def deny_withdrawn(device: DeviceId, position: int) -> Denial:
    """Devices of the pool draw from counters, and this one is not published."""
    message = (
        f"device {device} is not published by any slice now, so what it draws from the counters of its pool "
        "is not known; wait for the driver to publish it"
    )
    return Denial(DenialReason.UNPUBLISHED, device, message, position)


def deny_dedicated(device: DeviceId, holdings: Sequence[Holding], position: int) -> Denial:
    """The device is not published as shareable."""
    users = f"; it is still in use by {_format_claims(holdings)}, who got shares before" if holdings else ""
    message = f"device {device} does not allow multiple allocations{users}"
    return Denial(DenialReason.DEDICATED, device, message, position)


def deny_capacity(
    device: DeviceId,
    name: str,
    requested: Quantity,
    total: Quantity | None,
    holdings: Sequence[Holding],
    position: int,
) -> Denial:
    """A capacity does not have that much left."""
    if total is None:
        message = f"capacity {name} of device {device} is not published: {requested} asked"
        return Denial(DenialReason.CAPACITY, device, message, position)
    shares = [(holding, (holding.amounts or {}).get(name)) for holding in holdings]
    taken = [(holding, amount) for holding, amount in shares if amount is not None]
    left = Quantity(total.nanos - sum(amount.nanos for _, amount in taken), total.form)
    listed = ", ".join(f"{_format_holder(holding)} {amount}" for holding, amount in taken)
    message = (
        f"capacity {name} of device {device}: {requested} asked, {left} left of {total}"
        f"{f', shares: {listed}' if listed else ''}"
    )
    return Denial(DenialReason.CAPACITY, device, message, position)


def _format_holder(holding: Holding) -> str:
    nodes = ", ".join(sorted(set(holding.prepared.values())))
    return f"{holding.holder} (quarantined on node {nodes})" if holding.gone else str(holding.holder)


def deny_counter(
    device: DeviceId,
    counter_set: CounterSetId,
    name: str,
    requested: Quantity,
    total: Quantity,
    left: Quantity,
) -> Denial:
    """A counter does not have that much left."""
    message = (
        f"counter {name} of set {counter_set}: device {device} draws {requested}, {left} left of {total}; "
        "devices that overlap with it are in use"
    )
    return Denial(DenialReason.COUNTER, device, message)


def deny_unknown_counter(device: DeviceId, counter_set: CounterSetId, name: str) -> Denial:
    """The counter set is not published."""
    what = f"counter {name} of set {counter_set}" if name else f"counter set {counter_set}"
    message = f"device {device} draws from {what}, which is not published; wait for the driver to publish it"
    return Denial(DenialReason.UNKNOWN_COUNTER, device, message)


def deny_duplicate(device: DeviceId, position: int) -> Denial:
    """One allocation names the same device or share twice."""
    return Denial(DenialReason.TWICE, device, f"device {device} is named twice in this allocation", position)


def deny_share_id(device: DeviceId, share: str, holding: Holding, position: int) -> Denial:
    """Two shares cannot have one id."""
    message = (
        f"share id {share} of device {device} is in use by claim {_format_holder(holding)}; draw another one"
    )
    return Denial(DenialReason.SHARE_ID, device, message, position)


def deny_unrecorded(device: DeviceId) -> Denial:
    """The claim names the device, but the ledger does not have it for the claim."""
    message = f"the ledger does not know that the claim has device {device}; see `dray doctor ledger`"
    return Denial(DenialReason.UNRECORDED, device, message)
