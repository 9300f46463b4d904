"""Rules across claims: no device twice, no capacity or counter overdrawn.

Theory of operation: usage is counted from allocations alone, existing and new ones. Admin
access uses nothing, so it is left out of every sum but that of shares made right now. A result with a share
id or consumed amounts is a share; any other holds its device as a whole.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from fractions import Fraction

from dray.allocator.verify.amounts import derive_consumption, to_fraction
from dray.allocator.verify.available_devices import AvailableDevice, AvailableDevices
from dray.allocator.verify.claim_case import ClaimCase, ResultPart, get_device_path
from dray.allocator.verify.findings import AllocationFinding, AllocationRule, VerificationInput
from dray.api.resource import Device, DeviceRequestAllocationResult, ResourceSlice

NewResult = tuple[ClaimCase, ResultPart, AvailableDevice]
"""A new part of an allocation, and the device it is of."""


def list_new_results(cases: Sequence[ClaimCase]) -> list[NewResult]:
    """Every new part whose device exists; other rules report the others."""
    return [
        (case, part, lent)
        for case in cases
        for part in case.parts
        if (lent := case.find_device(part)) is not None
    ]


def list_held_results(inputs: VerificationInput) -> list[DeviceRequestAllocationResult]:
    """The results of existing allocations."""
    allocations = [claim.status.allocation for claim in inputs.held if claim.status.allocation is not None]
    return [result for one in allocations for result in one.devices.results if not result.admin_access]


def check_exclusive_use(
    new_results: Sequence[NewResult], held: Sequence[DeviceRequestAllocationResult]
) -> Iterator[AllocationFinding]:
    """A device that is not shared has one holder; one that somebody holds as a whole has no other."""
    whole = {get_device_path(result) for result in held if not _is_share(result)}
    shared = {get_device_path(result) for result in held if _is_share(result)}
    new = Counter(lent.path for _case, part, lent in new_results if not part.is_admin)
    for case, part, lent in new_results:
        if part.is_admin:
            continue
        if lent.path in whole or (lent.path in shared and not lent.is_shared):
            yield case.build_finding(AllocationRule.IN_USE, f"device {lent} is in use already")
        if new[lent.path] > 1 and not lent.is_shared:
            yield case.build_finding(
                AllocationRule.IN_USE, f"device {lent} is given out {new[lent.path]} times"
            )


def _is_share(result: DeviceRequestAllocationResult) -> bool:
    return result.share_id is not None or bool(result.consumed_capacity)


def check_admin_access(new_results: Sequence[NewResult]) -> Iterator[AllocationFinding]:
    """Admin access is marked where it was asked for, and does not take devices of its own claim twice."""
    own = Counter((case.name, lent.path) for case, _part, lent in new_results)
    for case, part, lent in new_results:
        if bool(part.result.admin_access) != part.is_admin:
            asked = "asks" if part.is_admin else "does not ask"
            yield case.build_finding(
                AllocationRule.ADMIN,
                f"request `{part.result.request}` {asked} for admin access, {lent} differs",
            )
        if part.is_admin and not lent.is_shared and own[case.name, lent.path] > 1:
            yield case.build_finding(
                AllocationRule.ADMIN, f"device {lent} is twice in the claim, once with admin access"
            )


def check_share_ids(
    new_results: Sequence[NewResult], held: Sequence[DeviceRequestAllocationResult]
) -> Iterator[AllocationFinding]:
    """No two shares have one id."""
    ids = Counter(result.share_id for result in (*held, *(part.result for _, part, _ in new_results)))
    for case, part, lent in new_results:
        share = part.result.share_id
        if share is not None and ids[share] > 1:
            yield case.build_finding(
                AllocationRule.SHARE_ID, f"share id `{share}` of device {lent} is used twice"
            )


def check_capacity(
    new_results: Sequence[NewResult], held: Sequence[DeviceRequestAllocationResult]
) -> Iterator[AllocationFinding]:
    """All shares of a device together consume no more than it has.

    A device that was shared before counts, too: admin access to it must find enough left.
    """
    shared = {
        lent.path: (case, lent)
        for case, _, lent in new_results
        if lent.is_shared
        or any(get_device_path(result) == lent.path and _is_share(result) for result in held)
    }
    for place, (case, lent) in shared.items():
        new = [part for _, part, other in new_results if other.path == place]
        old = [result for result in held if get_device_path(result) == place]
        for name, capacity in lent.device.capacity.items():
            used = sum((_get_consumed(result, name) for result in old), Fraction(0))
            if lent.is_shared:
                used += sum((_get_consumed(part.result, name) for part in new), Fraction(0))
            else:
                used += max(_derive_consumption(part, lent, name) for part in new)
            if used > to_fraction(capacity.value):
                text = (
                    f"shares of device {lent} consume {used} of `{name}`, there is "
                    f"{to_fraction(capacity.value)}"
                )
                yield case.build_finding(AllocationRule.CAPACITY, text)


def _derive_consumption(part: ResultPart, device: AvailableDevice, name: str) -> Fraction:
    return (derive_consumption(device.device, part.requested_amounts) or {}).get(name, Fraction(0))


def _get_consumed(result: DeviceRequestAllocationResult, name: str) -> Fraction:
    return max(to_fraction(result.consumed_capacity.get(name)), Fraction(0))


def check_counters(
    new_results: Sequence[NewResult],
    held: Sequence[DeviceRequestAllocationResult],
    available: AvailableDevices,
) -> Iterator[AllocationFinding]:
    """Devices draw from the counters of their pool once each, and no counter is overdrawn."""
    drawing = [stake for stake in new_results if not stake[1].is_admin and stake[2].device.consumes_counters]
    for pool in {(lent.driver, lent.pool) for _, _, lent in drawing}:
        slices = available.pools[pool]
        # A claim does not tell on which node its device is, so every device of that name draws.
        before = [
            device
            for item in slices
            for device in item.spec.devices
            if any(get_device_path(result) == (*pool, device.name) for result in held)
        ]
        new = {
            lent.device.name: (case, lent.device)
            for case, _, lent in drawing
            if (lent.driver, lent.pool) == pool and all(lent.device.name != old.name for old in before)
        }
        if not new:
            continue
        everyone = [*before, *(device for _, device in new.values())]
        for (group, name), total in _collect_totals(slices).items():
            used = sum((_sum_drawn(device, group, name) for device in everyone), Fraction(0))
            if used > total:
                text = (
                    f"pool {'/'.join(pool)}: {used} of counter `{group}/{name}` are drawn, there is {total}"
                )
                yield next(iter(new.values()))[0].build_finding(AllocationRule.COUNTERS, text)


def _collect_totals(slices: Sequence[ResourceSlice]) -> dict[tuple[str, str], Fraction]:
    return {
        (group.name, name): to_fraction(counter.value)
        for item in slices
        for group in item.spec.shared_counters
        for name, counter in group.counters.items()
    }


def _sum_drawn(device: Device, group: str, name: str) -> Fraction:
    return sum(
        (
            max(to_fraction(part.counters[name].value), Fraction(0))
            for part in device.consumes_counters
            if part.counter_set == group and name in part.counters
        ),
        Fraction(0),
    )


def check_all(
    inputs: VerificationInput, available: AvailableDevices, cases: Sequence[ClaimCase]
) -> Iterator[AllocationFinding]:
    """Every rule across claims."""
    stakes, held = list_new_results(cases), list_held_results(inputs)
    yield from check_exclusive_use(stakes, held)
    yield from check_admin_access(stakes)
    yield from check_share_ids(stakes, held)
    yield from check_capacity(stakes, held)
    yield from check_counters(stakes, held, available)
