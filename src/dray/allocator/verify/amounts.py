"""What a share should consume, as fractions: the rule of the policy, stated instead of computed stepwise."""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction

from dray.api.resource import CapacityRequestPolicy, CapacityRequestPolicyRange, Device, DeviceCapacity
from dray.values.quantity import NANOS_PER_UNIT, Quantity


def to_fraction(amount: Quantity | None) -> Fraction:
    """An amount as a fraction; zero for a missing one."""
    return Fraction(amount.nanos if amount is not None else 0, NANOS_PER_UNIT)


def derive_consumption(device: Device, requested: Mapping[str, Quantity]) -> dict[str, Fraction] | None:
    """What one allocation of a device consumes; None when the device can never give the requested amounts."""
    if not requested.keys() <= device.capacity.keys():
        return None
    found: dict[str, Fraction] = {}
    for name, capacity in device.capacity.items():
        amount = (
            _compute_default(capacity)
            if name not in requested
            else _round_amount(capacity, to_fraction(requested[name]))
        )
        if amount is None or not 0 <= amount <= to_fraction(capacity.value):
            return None
        found[name] = amount
    return found


def _compute_default(capacity: DeviceCapacity) -> Fraction | None:
    """The default of the policy; where there is none the whole, as far as the policy allows it."""
    policy = capacity.request_policy
    if policy is None or policy.default is None:
        return _keep_if_allowed(policy, to_fraction(capacity.value))
    return to_fraction(policy.default)


def _round_amount(capacity: DeviceCapacity, requested: Fraction) -> Fraction | None:
    """The smallest amount the policy allows that is not less than what is requested."""
    policy = capacity.request_policy
    if policy is None:
        return requested
    limits = policy.valid_range
    if limits is not None and limits.min is not None:
        amount = _round_to_grid(limits, requested)
    else:
        amount = next((to_fraction(v) for v in policy.valid_values if to_fraction(v) >= requested), requested)
    # Only a request for exactly the default may violate the policy, not one that steps lead to.
    is_default = policy.default is not None and amount == to_fraction(policy.default)
    stepped = limits is not None and limits.step is not None
    return amount if is_default and not stepped else _keep_if_allowed(policy, amount)


def _keep_if_allowed(policy: CapacityRequestPolicy | None, amount: Fraction) -> Fraction | None:
    """The amount when the range or the values of a policy allow it."""
    if policy is None:
        return amount
    limits = policy.valid_range
    if limits is None:
        return amount if not policy.valid_values or amount in map(to_fraction, policy.valid_values) else None
    too_much = limits.max is not None and amount > to_fraction(limits.max)
    off_grid = (
        limits.min is not None
        and to_fraction(limits.step) > 0
        and (amount - to_fraction(limits.min)) % to_fraction(limits.step) != 0
    )
    return None if too_much or off_grid else amount


def _round_to_grid(limits: CapacityRequestPolicyRange, requested: Fraction) -> Fraction:
    if limits.min is None:
        return requested
    least, step = to_fraction(limits.min), to_fraction(limits.step)
    if requested <= least or step <= 0:
        return max(requested, least)
    return least + math.ceil((requested - least) / step) * step
