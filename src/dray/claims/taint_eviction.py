"""Which pods must go because of taints on devices they use, and when.

Theory of operation: a taint of effect `NoExecute` ends the pods that use the device, unless the allocation
carries a toleration for it, which it got from the request. A toleration may last: a number of seconds counted
from the moment the taint was put on. Of several that match the shortest counts, as for taints of nodes; one
without an end counts only when no other does. What a pod must go for first is what it goes for.

Rules for this file: when it is now is asked by whoever carries it out; here times are only compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from dray.api.core import Pod
from dray.api.devices.taint_rules import get_rule_name
from dray.api.resource import DeviceRequestAllocationResult, DeviceTaint, ResourceClaim
from dray.api.tolerations import tolerates_taint
from dray.claims import reservation

NO_EXECUTE: Final = "NoExecute"
LONG_AGO: Final = datetime(1, 1, 1, tzinfo=UTC)
_NEVER: Final = datetime(9999, 1, 1, tzinfo=UTC)

DevicePath = tuple[str, str, str]
"""Driver, pool, device."""


@dataclass(frozen=True, slots=True)
class DeviceEviction:
    """A pod that must go, at the earliest at a moment, and for which taint of which device."""

    pod: Pod
    at: datetime
    claim: str
    device: DevicePath
    taint: DeviceTaint

    @property
    def why(self) -> str:
        """In words."""
        value = f"={self.taint.value}" if self.taint.value else ""
        rule = f" from rule {get_rule_name(self.taint)}" if get_rule_name(self.taint) else ""
        return (
            f"device {'/'.join(self.device)} of claim {self.claim} has the taint {self.taint.key}{value}:"
            f"{self.taint.effect}{rule}, and the request does not tolerate it"
        )


def find_device_eviction(
    pod: Pod, claims: Iterable[ResourceClaim], get_taints: Callable[[DevicePath], Iterable[DeviceTaint]]
) -> DeviceEviction | None:
    """The first reason for which a pod must go; None when it may stay."""
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
    """When users of a device must go for a taint; None when they need not."""
    if taint.effect != NO_EXECUTE:
        return None
    matching = [each for each in result.tolerations if tolerates_taint(each, taint)]
    since = _parse_time(taint.time_added)
    if not matching:
        return since
    lengths = [each.toleration_seconds for each in matching if each.toleration_seconds is not None]
    return None if not lengths else _add_seconds(since, max(min(lengths), 0))


def _parse_time(text: str | None) -> datetime:
    """A time as objects write it; a taint without one was there always."""
    return LONG_AGO if text is None else datetime.fromisoformat(text.replace("Z", "+00:00")).astimezone(UTC)


def _add_seconds(since: datetime, seconds: int) -> datetime:
    return since + timedelta(seconds=min(seconds, int((_NEVER - since).total_seconds())))
