"""Validation of capacities, and of the policies for the amounts that a share may take.

A policy is a set of values or a range with an optional step; the grid of a range starts at its minimum. All
arithmetic is exact, so fractions are treated like whole numbers. The remaining rules serve programs that read
a policy with 64 bits: with fractions every bound is a whole number of thousandths, and with a step every
bound fits 64 bits.

Where Kubernetes has no rule (negative amounts, a default that is no valid amount) the errors are dray's own.
"""

from __future__ import annotations

from collections.abc import Iterator

from dray.api import limits
from dray.api.fields import (
    AboveMaximum,
    BelowMinimum,
    FieldError,
    FieldPath,
    OffGrid,
    duplicate,
    forbidden,
    invalid,
    required,
    too_many,
)
from dray.api.resource import CapacityRequestPolicy, CapacityRequestPolicyRange, DeviceCapacity
from dray.api.validation.field_rules import FieldErrors
from dray.values.quantity import Quantity

_NON_NEGATIVE = "must be greater than or equal to 0"
_BOTH = 'exactly one policy can be specified, cannot specify "validValues" and "validRange" at the same time'


def validate_capacity(item: DeviceCapacity, path: FieldPath, *, shared: bool) -> FieldErrors:
    """Check an amount of a device; only devices that are shared may have a policy."""
    policy, value = item.request_policy, item.value
    if value is None:
        yield required(path.child("value"))
    elif value.sign < 0:
        yield invalid(path.child("value"), str(value), _NON_NEGATIVE)
    if policy is None:
        return
    if not shared:
        yield forbidden(path.child("requestPolicy"), "allowMultipleAllocations must be true")
    elif value is not None:
        yield from validate_request_policy(policy, value, path.child("requestPolicy"))


def validate_request_policy(policy: CapacityRequestPolicy, total: Quantity, path: FieldPath) -> FieldErrors:
    """Check which parts of a total a share may take, and its default."""
    default, values, bounds = policy.default, policy.valid_values, policy.valid_range
    if values and bounds is not None:
        yield forbidden(path, _BOTH)
    elif default is None:
        if values or bounds is not None:
            field = "validValues" if values else "validRange"
            yield required(path.child("default"), f"required when {field} is defined")
    elif values:
        yield from _validate_values(values, default, total, path.child("validValues"))
    elif bounds is not None:
        yield from _validate_range(bounds, default, total, path.child("validRange"))
    if default is not None:
        yield from _validate_default(default, total, path.child("default"))


def _validate_default(default: Quantity, total: Quantity, path: FieldPath) -> FieldErrors:
    if default.sign < 0:
        yield invalid(path, str(default), _NON_NEGATIVE)
    elif default > total:
        yield _report_above(path, default, "default is larger than capacity value", total)


def _validate_values(
    values: tuple[Quantity, ...], default: Quantity, total: Quantity, path: FieldPath
) -> FieldErrors:
    if len(values) > limits.VALID_VALUES:
        yield too_many(path, len(values), limits.VALID_VALUES)
        return
    seen: set[Quantity] = set()
    for position, value in enumerate(values):
        place = path.index(position)
        if position and value < values[position - 1]:
            yield invalid(place, str(value), "values must be sorted in ascending order")
        if value in seen:
            yield duplicate(place, str(value))
        if value.sign < 0:
            yield invalid(place, str(value), _NON_NEGATIVE)
        if value > total:
            yield _report_above(place, value, "option is larger than capacity value", total)
        seen.add(value)
    if default not in seen:
        yield invalid(path, str(default), "default value is not valid according to the requestPolicy")


def _validate_range(
    bounds: CapacityRequestPolicyRange, default: Quantity, total: Quantity, path: FieldPath
) -> FieldErrors:
    least, most, step = bounds.min, bounds.max, bounds.step
    if least is None:
        yield required(path.child("min"), "required when validRange is defined")
        return
    if least.sign < 0:
        yield invalid(path.child("min"), str(least), _NON_NEGATIVE)
    if least > total:
        yield _report_above(path.child("min"), least, "min is larger than capacity value", total)
    if default < least:
        yield invalid(
            path.child("default"),
            str(default),
            f"default is less than min: {least}",
            BelowMinimum(str(least)),
        )
    if most is not None:
        yield from _validate_maximum(most, least, default, total, path)
    unreadable = list(_validate_representable(bounds, default, path))
    yield from unreadable
    if step is not None and least.sign >= 0 and not unreadable:
        yield from _validate_step(step, bounds, default, total, path.child("step"))


def _validate_maximum(
    maximum: Quantity, minimum: Quantity, default: Quantity, total: Quantity, path: FieldPath
) -> FieldErrors:
    if minimum > maximum:
        yield _report_above(path.child("max"), minimum, "min is larger than max", maximum)
    if maximum > total:
        yield _report_above(path.child("max"), maximum, "max is larger than capacity value", total)
    if default > maximum:
        yield _report_above(path.child("default"), default, "default is more than max", maximum)


def _validate_representable(
    bounds: CapacityRequestPolicyRange, default: Quantity, path: FieldPath
) -> Iterator[FieldError]:
    """Find bounds that a program with 64 bits cannot compute with."""
    named = (("default", default), ("min", bounds.min), ("max", bounds.max), ("step", bounds.step))
    given = [(field, value) for field, value in named if value is not None]
    fractions = not all(value.is_integer for _, value in given)
    for field, value in given:
        if fractions and value.to_milli() is None:
            yield invalid(path.child(field), str(value), "value cannot be represented as a milli value")
        elif not fractions and bounds.step is not None and value > limits.MAX_STEP_VALUE:
            text = f"must not be larger than {limits.MAX_STEP_VALUE}"
            yield invalid(path.child(field), str(value), text)


def _validate_step(
    step: Quantity, bounds: CapacityRequestPolicyRange, default: Quantity, total: Quantity, path: FieldPath
) -> FieldErrors:
    least = bounds.min
    assert least is not None, "a range without minimum was refused before"
    if step.sign <= 0:
        yield invalid(path, str(step), "must be greater than zero")
        return
    if least + step > total:
        yield _report_above(path, step, f"one step {least + step} is larger than capacity value", total)
    for value in (default, bounds.max):
        if value is not None and (value - least).nanos % step.nanos:
            text = f"value is not a multiple of a given step ({step}) from ({least})"
            yield invalid(path, str(value), text, OffGrid(str(least), str(step)))


def _report_above(path: FieldPath, value: Quantity, problem: str, maximum: Quantity) -> FieldError:
    return invalid(path, str(value), f"{problem}: {maximum}", AboveMaximum(str(maximum)))
