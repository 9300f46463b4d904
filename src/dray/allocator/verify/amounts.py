"""What a share should consume, with fractions: the policy's rule as a sentence, not as an algorithm."""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction

from dray.api.resource import CapacityRequestPolicy, CapacityRequestPolicyRange, Device, DeviceCapacity
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


def _unasked(capacity: DeviceCapacity) -> Fraction | None:
    """The default of the policy; where there is none the whole, as far as the policy allows it."""
    policy = capacity.request_policy
    if policy is None or policy.default is None:
        return _if_allowed(policy, exact(capacity.value))
    return exact(policy.default)


def _rounded(capacity: DeviceCapacity, asked: Fraction) -> Fraction | None:
    """The smallest amount the policy allows that is not less than what is asked."""
    policy = capacity.request_policy
    if policy is None:
        return asked
    limits = policy.valid_range
    if limits is not None and limits.min is not None:
        amount = _on_grid(limits, asked)
    else:
        amount = next((exact(v) for v in policy.valid_values if exact(v) >= asked), asked)
    # Only who asks for the very default may have it against the policy, not who comes to it by steps.
    is_default = policy.default is not None and amount == exact(policy.default)
    stepped = limits is not None and limits.step is not None
    return amount if is_default and not stepped else _if_allowed(policy, amount)


def _if_allowed(policy: CapacityRequestPolicy | None, amount: Fraction) -> Fraction | None:
    """The amount when the range or the values of a policy allow it."""
    if policy is None:
        return amount
    limits = policy.valid_range
    if limits is None:
        return amount if not policy.valid_values or amount in map(exact, policy.valid_values) else None
    too_much = limits.max is not None and amount > exact(limits.max)
    off_grid = (
        limits.min is not None
        and exact(limits.step) > 0
        and (amount - exact(limits.min)) % exact(limits.step) != 0
    )
    return None if too_much or off_grid else amount


def _on_grid(limits: CapacityRequestPolicyRange, asked: Fraction) -> Fraction:
    if limits.min is None:
        return asked
    least, step = exact(limits.min), exact(limits.step)
    if asked <= least or step <= 0:
        return max(asked, least)
    return least + math.ceil((asked - least) / step) * step
