"""Validation of conditions, the form in which Kubernetes objects report observations."""

from __future__ import annotations

import re
from collections.abc import Sequence

from dray.api import limits
from dray.api.fields import FieldPath, duplicate, invalid, required, too_long
from dray.api.meta import Condition
from dray.api.validation.field_rules import (
    FieldErrors,
    validate_each,
    validate_name,
    validate_one_of,
)
from dray.values.names import check_qualified_name, count_bytes

_STATUSES = ("True", "False", "Unknown")
_REASON = re.compile(r"[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?")


def validate_conditions(items: Sequence[Condition], limit: int, path: FieldPath) -> FieldErrors:
    """Check a bounded list of conditions with distinct types."""
    yield from validate_each(items, limit, _validate_condition, path)
    seen: set[str] = set()
    for position, item in enumerate(items[: limit + 1]):
        if item.type in seen:
            yield duplicate(path.index(position), item.type)
        seen.add(item.type)


def _validate_condition(item: Condition, path: FieldPath) -> FieldErrors:
    yield from validate_name(item.type, check_qualified_name, path.child("type"))
    yield from validate_one_of(item.status, _STATUSES, path.child("status"))
    if item.observed_generation < 0:
        place = path.child("observedGeneration")
        yield invalid(place, item.observed_generation, "must be greater than or equal to zero")
    if item.last_transition_time is None:
        yield required(path.child("lastTransitionTime"), "must be set")
    yield from _validate_reason(item.reason, path.child("reason"))
    if count_bytes(item.message) > limits.CONDITION_MESSAGE_BYTES:
        yield too_long(path.child("message"), limits.CONDITION_MESSAGE_BYTES)


def is_condition_reason(reason: str) -> bool:
    """Whether a text is a reason: one word in CamelCase."""
    return count_bytes(reason) <= limits.CONDITION_REASON_BYTES and _REASON.fullmatch(reason) is not None


def _validate_reason(reason: str, path: FieldPath) -> FieldErrors:
    if not reason:
        yield required(path, "must be set")
    elif count_bytes(reason) > limits.CONDITION_REASON_BYTES:
        yield too_long(path, limits.CONDITION_REASON_BYTES)
    elif not _REASON.fullmatch(reason):
        text = "must be one word in CamelCase, such as `DeviceReady`; letters, digits and `_,:` are allowed"
        yield invalid(path, reason, text)
