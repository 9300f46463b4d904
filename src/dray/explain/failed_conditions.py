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


def has_field(profile: DeviceProfile, field_key: FieldKey) -> bool:
    """Whether a device has an attribute or capacity."""
    device = profile.device
    fields = device.capacity if field_key[0] == CAPACITY else device.attributes
    return any(name in fields for name in _list_names(profile, field_key))


def _list_names(profile: DeviceProfile, field_key: FieldKey) -> tuple[str, ...]:
    """The names under which a device may publish a field: its own domain may be omitted."""
    _, domain, name = field_key
    return (f"{domain}/{name}", name) if domain == profile.driver else (f"{domain}/{name}",)


def _find_value(profile: DeviceProfile, field_key: FieldKey) -> tuple[str, int | None]:
    """The value of a device as text, and as a number where it is one."""
    device = profile.device
    for name in _list_names(profile, field_key):
        if field_key[0] == CAPACITY:
            capacity = device.capacity.get(name)
            if capacity is not None and capacity.value is not None:
                return str(capacity.value), capacity.value.nanos
            continue
        typed = device.attributes[name].get_typed_values() if name in device.attributes else None
        if typed is not None:
            single = typed[1][0] if len(typed[1]) == 1 else None
            number = single if isinstance(single, int) and not isinstance(single, bool) else None
            return format_values(typed[1]), number
    return "", None


def format_values(values: Collection[Any]) -> str:
    """Attribute values as text; several as a list in a fixed order."""
    texts = sorted(str(v).lower() if isinstance(v, bool) else to_single_line(str(v)) for v in values)
    return texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
