"""What a share takes, said again with fractions and by counting steps."""

from __future__ import annotations

from fractions import Fraction

from dray.api.resource import CapacityRequestPolicy, Device, DeviceCapacity
from dray.values.quantity import Quantity

LARGEST = 2**63 - 1


class Unrepresentable(Exception):  # noqa: N818
    """An amount that no int64 can hold, or that is below nothing."""


def consumed_by(device: Device, asked: dict[str, Fraction]) -> dict[str, Fraction] | None:
    """What one allocation takes of each capacity; None when the device can never give it."""
    if any(name not in device.capacity for name in asked):
        return None
    taken = {name: _taken(capacity, asked.get(name)) for name, capacity in device.capacity.items()}
    if any(amount is not None and amount < 0 for amount in taken.values()):
        raise Unrepresentable
    found = {}
    for name, amount in taken.items():
        if amount is None or amount > _exact(device.capacity[name].value):
            return None
        found[name] = amount
    return found


def _taken(capacity: DeviceCapacity, asked: Fraction | None) -> Fraction | None:
    rule = capacity.request_policy
    if rule is None:
        return _exact(capacity.value) if asked is None else asked
    if asked is None and rule.default is not None:
        return _exact(rule.default)
    amount = _exact(capacity.value) if asked is None else _rounded(rule, asked)
    stepped = rule.valid_range is not None and rule.valid_range.step is not None
    if asked is not None and not stepped and rule.default is not None and amount == _exact(rule.default):
        return amount
    return amount if _is_allowed(rule, amount) else None


def _rounded(rule: CapacityRequestPolicy, asked: Fraction) -> Fraction:
    limits = rule.valid_range
    if limits is None or limits.min is None:
        return [*(_exact(value) for value in rule.valid_values if _exact(value) >= asked), asked][0]
    amount, step = _exact(limits.min), _exact(limits.step)
    if step:
        while amount < asked:
            amount += step
        if amount > LARGEST:
            raise Unrepresentable
    return max(amount, asked)


def _is_allowed(rule: CapacityRequestPolicy, amount: Fraction) -> bool:
    limits = rule.valid_range
    if limits is None:
        return not rule.valid_values or amount in [_exact(value) for value in rule.valid_values]
    if limits.max is not None and amount > _exact(limits.max):
        return False
    steps = _exact(limits.step)
    return limits.min is None or not steps or (amount - _exact(limits.min)) / steps % 1 == 0


def _exact(amount: Quantity | None) -> Fraction:
    return Fraction(amount.nanos, 10**9) if amount is not None else Fraction(0)
