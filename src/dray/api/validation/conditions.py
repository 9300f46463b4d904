"""Rules of conditions, the form in which all of Kubernetes reports what it observes."""

from __future__ import annotations

import re
from collections.abc import Sequence

from dray.api.fields import Path, duplicate, invalid, required, too_long
from dray.api.meta import Condition
from dray.api.validation import limits
from dray.api.validation.field_rules import Errors, each, named, one_of, size
from dray.values.names import qualified_name

_STATUSES = ("True", "False", "Unknown")
_REASON = re.compile(r"[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?")


def conditions(items: Sequence[Condition], limit: int, path: Path) -> Errors:
    """A bounded list of conditions, each of a type of its own."""
    yield from each(items, limit, _condition, path)
    seen: set[str] = set()
    for position, item in enumerate(items[: limit + 1]):
        if item.type in seen:
            yield duplicate(path.index(position).field("type"), item.type)
        seen.add(item.type)


def _condition(item: Condition, path: Path) -> Errors:
    yield from named(item.type, qualified_name, path.field("type"))
    yield from one_of(item.status, _STATUSES, path.field("status"))
    if item.observed_generation < 0:
        place = path.field("observedGeneration")
        yield invalid(place, item.observed_generation, "must be greater than or equal to zero")
    if item.last_transition_time is None:
        yield required(path.field("lastTransitionTime"), "must be set")
    yield from _reason(item.reason, path.field("reason"))
    if size(item.message) > limits.CONDITION_MESSAGE_BYTES:
        yield too_long(path.field("message"), limits.CONDITION_MESSAGE_BYTES)


def _reason(reason: str, path: Path) -> Errors:
    if not reason:
        yield required(path, "must be set")
    elif size(reason) > limits.CONDITION_REASON_BYTES:
        yield too_long(path, limits.CONDITION_REASON_BYTES)
    elif not _REASON.fullmatch(reason):
        text = "must be one word in CamelCase, such as `DeviceReady`; letters, digits and `_,:` are allowed"
        yield invalid(path, reason, text)
