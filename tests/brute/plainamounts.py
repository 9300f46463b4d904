"""What a share takes, said again with fractions and by counting steps."""

from __future__ import annotations

from fractions import Fraction

from dray.api.resource import Device, DeviceCapacity
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
    if asked is None:
        return _exact(rule.default if rule is not None and rule.default is not None else capacity.value)
    if rule is None:
        return asked
    default = _exact(rule.default) if rule.default is not None else None
    if rule.valid_values:
        enough = [_exact(value) for value in rule.valid_values if _exact(value) >= asked]
        return min(enough) if enough else (asked if asked == default else None)
    if rule.valid_range is None:
        return asked
    amount = asked if rule.valid_range.min is None else _exact(rule.valid_range.min)
    if asked > amount:
        step = _exact(rule.valid_range.step)
        if step:
            while amount < asked:
                amount += step
            if amount > LARGEST:
                raise Unrepresentable
        else:
            amount = asked
    largest = rule.valid_range.max
    return None if largest is not None and amount > _exact(largest) and amount != default else amount


def _exact(amount: Quantity | None) -> Fraction:
    return Fraction(amount.nanos, 10**9) if amount is not None else Fraction(0)
