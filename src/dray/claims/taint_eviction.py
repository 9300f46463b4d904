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
from dray.api.devices.taint_rules import rule_behind
from dray.api.resource import DeviceRequestAllocationResult, DeviceTaint, ResourceClaim
from dray.api.tolerations import tolerates
from dray.claims import reservation

NO_EXECUTE: Final = "NoExecute"
LONG_AGO: Final = datetime(1, 1, 1, tzinfo=UTC)
_NEVER: Final = datetime(9999, 1, 1, tzinfo=UTC)

Place = tuple[str, str, str]
"""Driver, pool, device."""


@dataclass(frozen=True, slots=True)
class Eviction:
    """A pod that must go, at the earliest at a moment, and for which taint of which device."""

    pod: Pod
    at: datetime
    claim: str
    place: Place
    taint: DeviceTaint

    @property
    def why(self) -> str:
        """In words."""
        value = f"={self.taint.value}" if self.taint.value else ""
        rule = f" from rule {rule_behind(self.taint)}" if rule_behind(self.taint) else ""
        return (
            f"device {'/'.join(self.place)} of claim {self.claim} has the taint {self.taint.key}{value}:"
            f"{self.taint.effect}{rule}, and the request does not tolerate it"
        )


def must_go(
    pod: Pod, claims: Iterable[ResourceClaim], taints_of: Callable[[Place], Iterable[DeviceTaint]]
) -> Eviction | None:
    """The first reason for which a pod must go; None when it may stay."""
    if pod.metadata.deletion_timestamp is not None or not pod.spec.node_name or reservation.is_over(pod):
        return None
    return min(_reasons(pod, claims, taints_of), key=lambda each: each.at, default=None)


def _reasons(
    pod: Pod, claims: Iterable[ResourceClaim], taints_of: Callable[[Place], Iterable[DeviceTaint]]
) -> Iterator[Eviction]:
    for claim in claims:
        allocation = claim.status.allocation
        if allocation is None or not reservation.is_reserved(claim, pod):
            continue
        for result in allocation.devices.results:
            place = result.driver, result.pool, result.device
            for taint in taints_of(place):
                until = endured_until(taint, result)
                if until is not None:
                    yield Eviction(pod, until, claim.metadata.name, place, taint)


def endured_until(taint: DeviceTaint, result: DeviceRequestAllocationResult) -> datetime | None:
    """When users of a device must go for a taint; None when they need not."""
    if taint.effect != NO_EXECUTE:
        return None
    matching = [each for each in result.tolerations if tolerates(each, taint)]
    since = _moment(taint.time_added)
    if not matching:
        return since
    lengths = [each.toleration_seconds for each in matching if each.toleration_seconds is not None]
    return None if not lengths else _after(since, max(min(lengths), 0))


def _moment(text: str | None) -> datetime:
    """A time as objects write it; a taint without one was there always."""
    return LONG_AGO if text is None else datetime.fromisoformat(text.replace("Z", "+00:00")).astimezone(UTC)


def _after(since: datetime, seconds: int) -> datetime:
    return since + timedelta(seconds=min(seconds, int((_NEVER - since).total_seconds())))
