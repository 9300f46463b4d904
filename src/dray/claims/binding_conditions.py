"""Binding conditions: whether the devices of a claim are ready for a pod to be bound to its node.

A device may name conditions that its driver reports when it is attached or otherwise ready, and conditions
that mean it never will be. A pod waits until all of the first are true on every device; when one
of the second is true, or the wait takes too long, the devices are released so that the pod can try elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from dray.api.resource import DeviceRequestAllocationResult, ResourceClaim

MAX_WAIT_SECONDS: Final = 600.0
"""Seconds a pod waits for its devices to become ready."""


@dataclass(frozen=True, slots=True)
class DeviceWait:
    """A device is not ready: the conditions that are not true yet."""

    device: str
    conditions: tuple[str, ...]

    def __str__(self) -> str:
        return f"device {self.device} waits for {', '.join(self.conditions)}"


@dataclass(frozen=True, slots=True)
class DeviceFailure:
    """A device will not become ready: the failed condition and its message."""

    device: str
    condition: str
    message: str

    def __str__(self) -> str:
        return f"device {self.device}: {self.condition}" + (f": {self.message}" if self.message else "")


def has_binding_conditions(claim: ResourceClaim) -> bool:
    """Whether any device of a claim has conditions to wait for."""
    allocation = claim.status.allocation
    return allocation is not None and any(result.binding_conditions for result in allocation.devices.results)


def check_readiness(claim: ResourceClaim) -> DeviceWait | DeviceFailure | None:
    """What the devices of a claim still wait for; None when all are ready."""
    if claim.status.allocation is None:
        return None
    waits: DeviceWait | None = None
    for result in claim.status.allocation.devices.results:
        if not result.binding_conditions:
            continue
        device = f"{result.driver}/{result.pool}/{result.device}"
        statuses = _read_conditions(claim, result)
        for name in result.binding_failure_conditions:
            if name in statuses and statuses[name][0] == "True":
                return DeviceFailure(device, name, statuses[name][1])
        missing = tuple(
            name for name in result.binding_conditions if statuses.get(name, ("", ""))[0] != "True"
        )
        if missing and waits is None:
            waits = DeviceWait(device, missing)
    return waits


def explain_not_ready(claim: ResourceClaim) -> str:
    """What an allocated claim still waits for, as text; empty when its devices are ready."""
    state = check_readiness(claim)
    return "" if state is None else f"claim {claim.metadata.namespace}/{claim.metadata.name}: {state}"


def _read_conditions(
    claim: ResourceClaim, result: DeviceRequestAllocationResult
) -> dict[str, tuple[str, str]]:
    """What the driver reports of a device: status and message of each condition."""
    for reported in claim.status.devices:
        if (reported.driver, reported.pool, reported.device, reported.share_id) == (
            result.driver,
            result.pool,
            result.device,
            result.share_id,
        ):
            return {each.type: (each.status, each.message) for each in reported.conditions}
    return {}
