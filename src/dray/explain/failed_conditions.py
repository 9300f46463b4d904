"""Failed conditions: which condition of a false selector a device fails, on which value, and how closely.

Theory of operation: a selector is often several conditions joined by `&&`. Each of them is evaluated on its
own, and the first that is not true is what the device fails. When a condition reads exactly one attribute or
capacity, the value of the device says more than the condition.

Rules for this file: the allocator evaluates, and `selector_analysis` reads expressions.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import msgspec

from dray.allocator.inventory.device_profiles import DeviceProfile
from dray.api.devices.device_fields import find_attribute, find_capacity
from dray.api.devices.selector_analysis import analyze_selector
from dray.api.devices.selector_references import CAPACITY, FieldKey
from dray.explain.wording import to_single_line


class FailedCondition(msgspec.Struct, frozen=True):
    """The condition that a device fails, the field it reads, and the value of the device.

    `offset` is where the condition starts in the selector. `is_only_failure` says that the device meets every
    other of several conditions. `distance` sorts devices by how close they come: by the number of failed
    conditions, then by the distance of the value.
    """

    condition: str
    offset: int
    is_only_failure: bool
    subject: str
    value: str
    is_amount: bool
    distance: tuple[int, Any]


def find_failed_condition(profile: DeviceProfile, expression: str) -> FailedCondition:
    """How a device fails a selector that is false."""
    conditions = analyze_selector(expression).conditions
    failing = [one for one in conditions if profile.evaluate(one.text) is not True] if conditions[1:] else []
    condition, offset = (failing[0].text, failing[0].offset) if failing else (expression, 0)
    analysis = analyze_selector(condition)
    field_key = analysis.only_field
    value, amount = _find_value(profile, field_key) if field_key is not None else ("", None)
    return FailedCondition(
        condition=condition,
        offset=offset,
        is_only_failure=len(failing) == 1,
        subject=field_key[2] if field_key is not None else "",
        value=value,
        is_amount=field_key is not None and field_key[0] == CAPACITY,
        distance=(len(failing) or 1, -amount * analysis.direction if amount is not None else 0),
    )


def remove_condition(expression: str, condition: str) -> str | None:
    """A selector without one of its conditions; None when it has no other."""
    texts = [one.text for one in analyze_selector(expression).conditions]
    rest = [text for text in texts if text != condition]
    return " && ".join(rest) if rest and len(rest) < len(texts) else None


def _find_value(profile: DeviceProfile, field_key: FieldKey) -> tuple[str, int | None]:
    """The value of a device as text, and as a number where it is one."""
    if field_key[0] == CAPACITY:
        capacity = find_capacity(profile.driver, profile.device, field_key)
        amount = None if capacity is None else capacity.value
        return ("", None) if amount is None else (str(amount), amount.nanos)
    attribute = find_attribute(profile.driver, profile.device, field_key)
    typed = None if attribute is None else attribute.get_typed_values()
    if typed is None:
        return "", None
    single = typed[1][0] if len(typed[1]) == 1 else None
    number = single if isinstance(single, int) and not isinstance(single, bool) else None
    return format_values(typed[1]), number


def format_values(values: Collection[Any]) -> str:
    """Attribute values as text; several as a list in a fixed order."""
    texts = sorted(str(v).lower() if isinstance(v, bool) else to_single_line(str(v)) for v in values)
    return texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
