"""What an allocation takes of a device's capacities, as the policies say; all amounts are nanos."""

from __future__ import annotations

from collections.abc import Mapping

from dray.api.resource import CapacityRequestPolicy, CapacityRequestPolicyRange, Device, DeviceCapacity
from dray.simulation.vectors.answers import AnswerKind
from dray.simulation.vectors.reference.departures import Departure
from dray.simulation.vectors.reference.model_case import MAX_INT64, NANOS, ModelAbortError, ModelCase
from dray.values.quantity import Quantity

_MILLI = NANOS // 1000


def to_nanos(amount: Quantity | None) -> int:
    """An amount; what is not said is nothing."""
    return amount.nanos if amount is not None else 0


def compute_consumption(
    device: Device, asked: Mapping[str, Quantity], case: ModelCase
) -> dict[str, int] | None:
    """What one allocation takes of each capacity; None when the device can never give it."""
    if not asked.keys() <= device.capacity.keys():
        return None
    taken = {
        name: _compute_amount(capacity, asked.get(name), case) for name, capacity in device.capacity.items()
    }
    if any(amount < 0 for amount in taken.values()):
        raise ModelAbortError("negative")
    fits = all(
        taken[name] <= to_nanos(capacity.value) and _is_allowed(capacity.request_policy, taken[name], case)
        for name, capacity in device.capacity.items()
    )
    return taken if fits else None


def _compute_amount(capacity: DeviceCapacity, asked: Quantity | None, case: ModelCase) -> int:
    policy = capacity.request_policy
    if asked is None:
        return to_nanos(capacity.value if policy is None or policy.default is None else policy.default)
    if policy is None:
        return asked.nanos
    if policy.valid_range is not None:
        return _round_to_grid(policy.valid_range, asked.nanos, case)
    return next((v.nanos for v in policy.valid_values if v.nanos >= asked.nanos), asked.nanos)


def _round_to_grid(limits: CapacityRequestPolicyRange, asked: int, case: ModelCase) -> int:
    """The amount rounded up to `min + n*step`."""
    if limits.min is None:
        if not case.departs(Departure.NO_MIN):
            raise ModelAbortError("nil pointer", kind=AnswerKind.CRASH)
        return asked
    if asked < limits.min.nanos:
        return limits.min.nanos
    if limits.step is None:
        return asked
    unit = 1 if case.departs(Departure.EXACT_AMOUNTS) else _choose_unit(limits, case)
    least, wanted = _to_units(limits.min.nanos, unit), _to_units(asked, unit)
    if unit > 1 and (wanted * unit > MAX_INT64 * NANOS or (unit == _MILLI and asked % unit)):
        raise ModelAbortError("cannot be represented")
    step = _to_units(limits.step.nanos, unit)
    if step <= 0:
        if case.departs(Departure.ZERO_STEP):
            return asked
        raise (
            ModelAbortError("cannot be represented")
            if step
            else ModelAbortError("divide by zero", kind=AnswerKind.CRASH)
        )
    rounded = (least - (least - wanted) // step * step) * unit
    if rounded > MAX_INT64 * NANOS:
        raise ModelAbortError("cannot be represented")
    return rounded


def _is_on_grid(limits: CapacityRequestPolicyRange, amount: int, case: ModelCase) -> bool:
    if limits.step is None:
        return True
    if limits.min is None:
        if not case.departs(Departure.NO_MIN):
            raise ModelAbortError("nil pointer", kind=AnswerKind.CRASH)
        return True
    if limits.step.nanos <= 0:
        if limits.step.nanos == 0 and not case.departs(Departure.ZERO_STEP):
            raise ModelAbortError("divide by zero", kind=AnswerKind.CRASH)
        return True
    unit = 1 if case.departs(Departure.EXACT_AMOUNTS) else _choose_unit(limits, case)
    least, step = _to_units(limits.min.nanos, unit), _to_units(limits.step.nanos, unit)
    return (_to_units(amount, unit) - least) % step == 0


def _choose_unit(limits: CapacityRequestPolicyRange, case: ModelCase) -> int:
    """Whole units; thousandths when fractions are on and everything said can be written in them."""
    limits_set = [amount.nanos for amount in (limits.min, limits.max, limits.step) if amount is not None]
    fractions = case.is_feature_enabled("FractionalCapacityRange", default=True)
    return _MILLI if fractions and all(amount % _MILLI == 0 for amount in limits_set) else NANOS


def _to_units(amount: int, unit: int) -> int:
    return -(-amount // unit)


def _is_allowed(policy: CapacityRequestPolicy | None, amount: int, case: ModelCase) -> bool:
    """Whether a policy allows an amount; its default it always does."""
    if policy is None or (policy.default is not None and policy.default.nanos == amount):
        return True
    limits = policy.valid_range
    if limits is not None:
        within = limits.max is None or amount <= limits.max.nanos
        return within and _is_on_grid(limits, amount, case)
    return not policy.valid_values or amount in [value.nanos for value in policy.valid_values]
