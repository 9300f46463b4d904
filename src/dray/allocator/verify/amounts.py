"""What a share should consume, with fractions: the policy's rule as a sentence, not as an algorithm."""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction

from dray.api.resource import CapacityRequestPolicyRange, Device, DeviceCapacity
from dray.values.quantity import NANOS, Quantity


def exact(amount: Quantity | None) -> Fraction:
    """An amount as a fraction; what is not said is nothing."""
    return Fraction(amount.nanos if amount is not None else 0, NANOS)


def due(device: Device, asked: Mapping[str, Quantity]) -> dict[str, Fraction] | None:
    """What one allocation of a device consumes; None when the device can never give what is asked."""
    if not asked.keys() <= device.capacity.keys():
        return None
    found: dict[str, Fraction] = {}
    for name, capacity in device.capacity.items():
        amount = _unasked(capacity) if name not in asked else _rounded(capacity, exact(asked[name]))
        if amount is None or not 0 <= amount <= exact(capacity.value):
            return None
        found[name] = amount
    return found


def _unasked(capacity: DeviceCapacity) -> Fraction:
    """The default of the policy; the whole where there is none."""
    policy = capacity.request_policy
    return exact(capacity.value if policy is None or policy.default is None else policy.default)


def _rounded(capacity: DeviceCapacity, asked: Fraction) -> Fraction | None:
    """The smallest amount the policy allows that is not less than what is asked."""
    policy = capacity.request_policy
    if policy is None:
        return asked
    if policy.valid_values:
        enough = [exact(value) for value in policy.valid_values if exact(value) >= asked]
        default = exact(policy.default) if policy.default is not None else None
        return min(enough, default=asked if asked == default else None)
    if policy.valid_range is None:
        return asked
    amount = _on_grid(policy.valid_range, asked)
    most = policy.valid_range.max
    too_much = most is not None and amount > exact(most)
    return None if too_much and (policy.default is None or amount != exact(policy.default)) else amount


def _on_grid(limits: CapacityRequestPolicyRange, asked: Fraction) -> Fraction:
    if limits.min is None:
        return asked
    least, step = exact(limits.min), exact(limits.step)
    if asked <= least or step <= 0:
        return max(asked, least)
    return least + math.ceil((asked - least) / step) * step
