"""What everybody together must keep: no device twice, no more than there is.

Theory of operation: who holds what is counted from allocations alone, those of others and the new ones. Admin
access holds nothing, so it is left out of every sum but that of shares made right now. A result with a share
id or consumed amounts is a share; any other holds its device as a whole.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from fractions import Fraction

from dray.allocator.verify.amounts import due, exact
from dray.allocator.verify.available_devices import Lending, Lent
from dray.allocator.verify.claim_case import Case, Part, place_of
from dray.allocator.verify.findings import Finding, Given, Rule
from dray.api.resource import Device, DeviceRequestAllocationResult, ResourceSlice

Stake = tuple[Case, Part, Lent]
"""A new part of an allocation, and the device it is of."""


def stakes_of(cases: Sequence[Case]) -> list[Stake]:
    """Every new part whose device exists; the others are found wanting elsewhere."""
    return [
        (case, part, lent) for case in cases for part in case.parts if (lent := case.lent(part)) is not None
    ]


def held_of(given: Given) -> list[DeviceRequestAllocationResult]:
    """What others hold."""
    allocations = [claim.status.allocation for claim in given.held if claim.status.allocation is not None]
    return [result for one in allocations for result in one.devices.results if not result.admin_access]


def use_is_exclusive(
    stakes: Sequence[Stake], held: Sequence[DeviceRequestAllocationResult]
) -> Iterator[Finding]:
    """A device that is not shared has one holder; one that somebody holds as a whole has no other."""
    whole = {place_of(result) for result in held if not _is_share(result)}
    shared = {place_of(result) for result in held if _is_share(result)}
    new = Counter(lent.place for _case, part, lent in stakes if not part.is_admin)
    for case, part, lent in stakes:
        if part.is_admin:
            continue
        if lent.place in whole or (lent.place in shared and not lent.is_shared):
            yield case.finding(Rule.IN_USE, f"device {lent} is in use already")
        if new[lent.place] > 1 and not lent.is_shared:
            yield case.finding(Rule.IN_USE, f"device {lent} is given out {new[lent.place]} times")


def _is_share(result: DeviceRequestAllocationResult) -> bool:
    return result.share_id is not None or bool(result.consumed_capacity)


def admin_is_marked(stakes: Sequence[Stake]) -> Iterator[Finding]:
    """Admin access is marked where it was asked for, and minds the devices of its own claim."""
    own = Counter((case.name, lent.place) for case, _part, lent in stakes)
    for case, part, lent in stakes:
        if bool(part.result.admin_access) != part.is_admin:
            asked = "asks" if part.is_admin else "does not ask"
            yield case.finding(
                Rule.ADMIN, f"request `{part.result.request}` {asked} for admin access, {lent} differs"
            )
        if part.is_admin and not lent.is_shared and own[case.name, lent.place] > 1:
            yield case.finding(Rule.ADMIN, f"device {lent} is twice in the claim, once with admin access")


def share_ids_are_unique(
    stakes: Sequence[Stake], held: Sequence[DeviceRequestAllocationResult]
) -> Iterator[Finding]:
    """No two shares have one id."""
    ids = Counter(result.share_id for result in (*held, *(part.result for _, part, _ in stakes)))
    for case, part, lent in stakes:
        share = part.result.share_id
        if share is not None and ids[share] > 1:
            yield case.finding(Rule.SHARE_ID, f"share id `{share}` of device {lent} is used twice")


def capacity_suffices(
    stakes: Sequence[Stake], held: Sequence[DeviceRequestAllocationResult]
) -> Iterator[Finding]:
    """All shares of a device together consume no more than it has.

    A device that was shared before counts, too: whoever looks at it with admin access must find room.
    """
    shared = {
        lent.place: (case, lent)
        for case, _, lent in stakes
        if lent.is_shared or any(place_of(result) == lent.place and _is_share(result) for result in held)
    }
    for place, (case, lent) in shared.items():
        new = [part for _, part, other in stakes if other.place == place]
        old = [result for result in held if place_of(result) == place]
        for name, capacity in lent.device.capacity.items():
            used = sum((_used(result, name) for result in old), Fraction(0))
            if lent.is_shared:
                used += sum((_used(part.result, name) for part in new), Fraction(0))
            else:
                used += max(_due(part, lent, name) for part in new)
            if used > exact(capacity.value):
                text = f"shares of device {lent} consume {used} of `{name}`, there is {exact(capacity.value)}"
                yield case.finding(Rule.CAPACITY, text)


def _due(part: Part, lent: Lent, name: str) -> Fraction:
    return (due(lent.device, part.asked) or {}).get(name, Fraction(0))


def _used(result: DeviceRequestAllocationResult, name: str) -> Fraction:
    return max(exact(result.consumed_capacity.get(name)), Fraction(0))


def counters_suffice(
    stakes: Sequence[Stake], held: Sequence[DeviceRequestAllocationResult], lending: Lending
) -> Iterator[Finding]:
    """Devices draw from the counters of their pool once each, and no counter falls below nothing."""
    drawing = [stake for stake in stakes if not stake[1].is_admin and stake[2].device.consumes_counters]
    for pool in {(lent.driver, lent.pool) for _, _, lent in drawing}:
        slices = lending.pools[pool]
        # A claim that holds a name does not tell on which node, so every device of that name draws.
        before = [
            device
            for item in slices
            for device in item.spec.devices
            if any(place_of(result) == (*pool, device.name) for result in held)
        ]
        new = {
            lent.device.name: (case, lent.device)
            for case, _, lent in drawing
            if (lent.driver, lent.pool) == pool and all(lent.device.name != old.name for old in before)
        }
        if not new:
            continue
        everyone = [*before, *(device for _, device in new.values())]
        for (group, name), total in _budget(slices).items():
            used = sum((_drawn(device, group, name) for device in everyone), Fraction(0))
            if used > total:
                text = (
                    f"pool {'/'.join(pool)}: {used} of counter `{group}/{name}` are drawn, there is {total}"
                )
                yield next(iter(new.values()))[0].finding(Rule.COUNTERS, text)


def _budget(slices: Sequence[ResourceSlice]) -> dict[tuple[str, str], Fraction]:
    return {
        (group.name, name): exact(counter.value)
        for item in slices
        for group in item.spec.shared_counters
        for name, counter in group.counters.items()
    }


def _drawn(device: Device, group: str, name: str) -> Fraction:
    return sum(
        (
            max(exact(part.counters[name].value), Fraction(0))
            for part in device.consumes_counters
            if part.counter_set == group and name in part.counters
        ),
        Fraction(0),
    )


def together(given: Given, lending: Lending, cases: Sequence[Case]) -> Iterator[Finding]:
    """Every rule about everybody."""
    stakes, held = stakes_of(cases), held_of(given)
    yield from use_is_exclusive(stakes, held)
    yield from admin_is_marked(stakes)
    yield from share_ids_are_unique(stakes, held)
    yield from capacity_suffices(stakes, held)
    yield from counters_suffice(stakes, held, lending)
