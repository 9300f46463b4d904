"""Conflicts between stored claims: a device, a capacity or a counter that was given away more than once.

The guard admits none, but some may be older than the guard, or were written while it was not registered.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from dray.claims.ledger.published_devices import PublishedPool
from dray.claims.ledger.rows import CounterSetId, DeviceId, Holder, Holding
from dray.values.quantity import ZERO, Quantity


@dataclass(frozen=True, slots=True)
class AllocationConflict:
    """Something that stored claims have more of than there is."""

    holders: tuple[Holder, ...]
    message: str


class ConflictTracker:
    """The conflicts there are now; `on_found` is called with each new one."""

    def __init__(self) -> None:
        self.on_found: Callable[[AllocationConflict], None] | None = None
        self._by_place: dict[str, AllocationConflict] = {}

    def __len__(self) -> int:
        return len(self._by_place)

    def list_conflicts(self) -> list[AllocationConflict]:
        """The conflicts in the order of their devices."""
        return [self._by_place[place] for place in sorted(self._by_place)]

    def record(self, place: str, found: AllocationConflict | None) -> None:
        """Record the conflict of a place, or that it has none any more."""
        known = self._by_place.get(place)
        if found is None:
            self._by_place.pop(place, None)
        elif found != known:
            self._by_place[place] = found
            if self.on_found is not None:
                self.on_found(found)


def find_device_conflict(
    device: DeviceId, stored: Sequence[Holding], pool: PublishedPool
) -> AllocationConflict | None:
    """The conflict of a device, if its holders have more than there is."""
    holders = tuple({held.holder.uid: held.holder for held in stored}.values())
    if len(holders) < 2:
        return None
    names = " and ".join(map(str, holders))
    if any(held.is_whole for held in stored):
        message = f"device {device} is held by claims {names}, and at least one of them has it as a whole"
        return AllocationConflict(holders, message)
    facts = pool.devices.get(device.device)
    for name, total in ({} if facts is None else facts.capacity).items():
        taken = sum((held.amounts or {}).get(name, ZERO).nanos for held in stored)
        if taken > total.nanos:
            message = (
                f"claims {names} have {Quantity(taken, total.form)} of capacity {name} of device {device}, "
                f"which has {total}"
            )
            return AllocationConflict(holders, message)
    return None


def find_counter_conflict(
    counter_set: CounterSetId,
    drawn: Sequence[tuple[Sequence[Holder], Mapping[str, Quantity]]],
    totals: Mapping[str, Quantity],
) -> AllocationConflict | None:
    """The conflict of a counter set: `drawn` is what each device draws, with the claims that hold it."""
    for name, total in totals.items():
        taken = sum(amounts.get(name, ZERO).nanos for _, amounts in drawn)
        if taken > total.nanos:
            holders = tuple({holder.uid: holder for each, _ in drawn for holder in each}.values())
            names = " and ".join(map(str, holders))
            message = (
                f"devices of claims {names} draw {Quantity(taken, total.form)} from counter {name} of set "
                f"{counter_set}, which has {total}"
            )
            return AllocationConflict(holders, message)
    return None
