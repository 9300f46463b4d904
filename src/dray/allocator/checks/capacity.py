"""Capacity checks: what a share of a device consumes, and whether that much is left.

Theory of operation: for every capacity of a device the requested amount is rounded up to what its policy
allows; without a request the policy's default counts, or the whole capacity. All arithmetic is on integer
nanos, so it is exact. A device that is not shareable consumes nothing, but must have the requested amounts.
"""

from __future__ import annotations

from collections.abc import Mapping

from dray.allocator.partial_solution import PartialSolution
from dray.allocator.refusals import Refusal, RefusalReason, Shortage
from dray.api.resource import CapacityRequestPolicy, Device, DeviceCapacity
from dray.values.quantity import NANOS_PER_UNIT

RequestedAmounts = tuple[tuple[str, int], ...]
"""Capacity name and nanos, as requested."""

_MAX_NANOS = (2**63 - 1) * NANOS_PER_UNIT


def compute_consumption(device: Device, amounts: RequestedAmounts) -> dict[str, int] | Refusal:
    """What one share takes of each capacity, in nanos; a refusal when the device can never give it."""
    requested = dict(amounts)
    for name in requested:
        if name not in device.capacity:
            return Refusal(RefusalReason.CAPACITY_MISSING, name)
    consumed: dict[str, int] = {}
    refusal: Refusal | None = None
    for name, capacity in device.capacity.items():
        total = capacity.value
        if (
            capacity.request_policy is None
            and total is not None
            and 0 <= requested.get(name, 0) <= total.nanos
        ):
            # The fast path: nearly every capacity of every shareable device.
            consumed[name] = requested.get(name, total.nanos)
            continue
        taken = _check_total(name, capacity, _round_amount(name, capacity, requested.get(name)))
        if not isinstance(taken, Refusal):
            consumed[name] = taken
        elif taken.reason is RefusalReason.CAPACITY_UNREPRESENTABLE:
            # This ends the whole search, so it must not depend on which capacity comes first.
            return taken
        else:
            refusal = refusal or taken
    return refusal or consumed


def _check_total(name: str, capacity: DeviceCapacity, taken: int | Refusal) -> int | Refusal:
    """The amount, if the device has that much."""
    total = capacity.value.nanos if capacity.value is not None else 0
    if isinstance(taken, Refusal) or 0 <= taken <= total:
        return taken
    reason = RefusalReason.CAPACITY_SHORT if taken > total else RefusalReason.CAPACITY_UNREPRESENTABLE
    return Refusal(reason, Shortage(name, taken, total))


def _round_amount(name: str, capacity: DeviceCapacity, requested: int | None) -> int | Refusal:
    policy = capacity.request_policy
    default = policy.default.nanos if policy is not None and policy.default is not None else None
    if requested is None:
        whole = capacity.value.nanos if capacity.value is not None else 0
        taken: int | Refusal = whole if default is None else default
    else:
        taken = requested if policy is None else _round_by_policy(name, policy, requested)
    if policy is None or isinstance(taken, Refusal):
        return taken
    # The default may violate its own policy; an equal amount that rounding by steps led to may not.
    stepped = requested is not None and policy.valid_range is not None and policy.valid_range.step is not None
    return taken if taken == default and not stepped else _check_policy(name, policy, taken)


def _round_by_policy(name: str, policy: CapacityRequestPolicy, requested: int) -> int | Refusal:
    """The smallest allowed amount that is enough; the requested amount where there is none."""
    limits = policy.valid_range
    if limits is None or limits.min is None:
        return next((v.nanos for v in policy.valid_values if v.nanos >= requested), requested)
    least = limits.min.nanos
    if requested <= least:
        return least
    step = limits.step.nanos if limits.step is not None else 0
    if step <= 0:
        return requested
    rounded = least + -(-(requested - least) // step) * step
    return (
        rounded
        if rounded <= _MAX_NANOS
        else Refusal(RefusalReason.CAPACITY_UNREPRESENTABLE, Shortage(name, rounded, _MAX_NANOS))
    )


def _check_policy(name: str, policy: CapacityRequestPolicy, taken: int) -> int | Refusal:
    """The amount, if the policy allows it."""
    limits = policy.valid_range
    if limits is None:
        values = [value.nanos for value in policy.valid_values]
        if not values or taken in values:
            return taken
        return Refusal(RefusalReason.CAPACITY_POLICY, Shortage(name, taken, max(values)))
    if limits.max is not None and taken > limits.max.nanos:
        return Refusal(RefusalReason.CAPACITY_POLICY, Shortage(name, taken, limits.max.nanos))
    least, step = limits.min, limits.step
    if least is not None and step is not None and step.nanos > 0 and (taken - least.nanos) % step.nanos:
        below = taken - (taken - least.nanos) % step.nanos
        return Refusal(RefusalReason.CAPACITY_POLICY, Shortage(name, taken, below))
    return taken


def check(
    solution: PartialSolution, candidate: int, consumed: Mapping[str, int], left: Mapping[str, int]
) -> Refusal | None:
    """Refuse a share for which existing shares and this attempt leave too little."""
    amounts = solution.share_amounts
    for name, amount in consumed.items():
        rest = left[name] - amounts.get((candidate, name), 0) if amounts else left[name]
        if amount > rest:
            return Refusal(RefusalReason.CAPACITY_SHORT, Shortage(name, amount, rest))
    return None


def take(solution: PartialSolution, candidate: int, consumed: Mapping[str, int]) -> None:
    """Record what a share takes."""
    amounts = solution.share_amounts
    for name, amount in consumed.items():
        key = (candidate, name)
        solution.assign(amounts, key, amounts.get(key, 0) + amount)
