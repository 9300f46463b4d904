"""Device taint eviction: which pods must be evicted because of taints on their devices, and when.

Theory of operation: a taint of effect `NoExecute` evicts the pods that use the device, unless the allocation
has a toleration for it, which it got from the request. A toleration may be limited to a number of seconds
from the moment the taint was added. Of several that match the shortest counts, as for taints of nodes; an
unlimited one counts only when no other matches. The earliest eviction wins.

This module only compares times: the controller brings the current one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from dray.api.core import Pod
from dray.api.devices.taint_rules import get_rule_name
from dray.api.resource import DeviceRequestAllocationResult, DeviceTaint, ResourceClaim
from dray.api.tolerations import compute_toleration_end
from dray.claims import reservation

NO_EXECUTE: Final = "NoExecute"

DevicePath = tuple[str, str, str]
"""Driver, pool, device."""


@dataclass(frozen=True, slots=True)
class DeviceEviction:
    """A pod that must be evicted: when at the earliest, and for which taint of which device."""

    pod: Pod
    at: datetime
    claim: str
    device: DevicePath
    taint: DeviceTaint

    @property
    def why(self) -> str:
        """The reason as text."""
        value = f"={self.taint.value}" if self.taint.value else ""
        rule = f" from rule {get_rule_name(self.taint)}" if get_rule_name(self.taint) else ""
        return (
            f"device {'/'.join(self.device)} of claim {self.claim} has the taint {self.taint.key}{value}:"
            f"{self.taint.effect}{rule}, and the request does not tolerate it"
        )


def find_device_eviction(
    pod: Pod, claims: Iterable[ResourceClaim], get_taints: Callable[[DevicePath], Iterable[DeviceTaint]]
) -> DeviceEviction | None:
    """The earliest eviction of a pod; None when it may stay."""
    if (
        pod.metadata.deletion_timestamp is not None
        or not pod.spec.node_name
        or reservation.is_pod_finished(pod)
    ):
        return None
    return min(_iter_evictions(pod, claims, get_taints), key=lambda each: each.at, default=None)


def _iter_evictions(
    pod: Pod, claims: Iterable[ResourceClaim], get_taints: Callable[[DevicePath], Iterable[DeviceTaint]]
) -> Iterator[DeviceEviction]:
    for claim in claims:
        allocation = claim.status.allocation
        if allocation is None or not reservation.is_reserved_for(claim, pod):
            continue
        for result in allocation.devices.results:
            place = result.driver, result.pool, result.device
            for taint in get_taints(place):
                until = compute_eviction_time(taint, result)
                if until is not None:
                    yield DeviceEviction(pod, until, claim.metadata.name, place, taint)


def compute_eviction_time(taint: DeviceTaint, result: DeviceRequestAllocationResult) -> datetime | None:
    """When a taint evicts the users of a device; None when it does not."""
    if taint.effect != NO_EXECUTE:
        return None
    return compute_toleration_end(taint, result.tolerations)
