"""Default values per kind, as a table.

Theory of operation: each row names a kind, a field and the value it gets when it is unset. A condition tests
the struct that holds the field. Rows of a kind are applied in order, so that a later one may depend on an
earlier one (`count` on `allocationMode`).
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeVar

import msgspec

from dray.api import admission, classic, resource
from dray.api.admission import webhook_configuration as webhooks
from dray.api.classic.resource_claim import DELAYED, PENDING
from dray.api.field_patterns import get_attribute_name, get_nested_struct
from dray.api.resource.claim import EXACT_COUNT

T = TypeVar("T", bound=msgspec.Struct)

NOW = "now"
"""Stands in the table for the time at which the object arrives."""

_EQUAL = "Equal"


@dataclass(frozen=True, slots=True)
class FieldDefault:
    """The default of one field."""

    field: str
    value: str | int
    when: Callable[[Any], bool] = lambda _holder: True
    about: str = "always"


def _is_exact_count(holder: Any) -> bool:
    return bool(holder.allocation_mode == EXACT_COUNT)


def _list_request_defaults(prefix: str) -> tuple[FieldDefault, ...]:
    requests = (f"{prefix}.devices.requests[].exactly", f"{prefix}.devices.requests[].firstAvailable[]")
    return tuple(
        row
        for request in requests
        for row in (
            FieldDefault(f"{request}.allocationMode", EXACT_COUNT),
            FieldDefault(f"{request}.count", 1, _is_exact_count, "when `allocationMode` is `ExactCount`"),
            FieldDefault(f"{request}.tolerations[].operator", _EQUAL),
        )
    )


def _list_webhook_defaults(*more: FieldDefault) -> tuple[FieldDefault, ...]:
    timed = "when `timeoutSeconds` is not given"
    return (
        FieldDefault("webhooks[].clientConfig.service.port", webhooks.DEFAULT_PORT),
        FieldDefault("webhooks[].rules[].scope", webhooks.ALL),
        FieldDefault("webhooks[].failurePolicy", webhooks.FAIL),
        FieldDefault("webhooks[].matchPolicy", webhooks.EQUIVALENT),
        FieldDefault(
            "webhooks[].timeoutSeconds", webhooks.DEFAULT_TIMEOUT_SECONDS, _has_nonzero_timeout, timed
        ),
        *more,
    )


def _has_nonzero_timeout(holder: Any) -> bool:
    """Zero seconds is an error to report, not a field to default."""
    return bool(holder.timeout_seconds != 0)


DEFAULTS: Mapping[type, tuple[FieldDefault, ...]] = {
    resource.ResourceClaim: (
        *_list_request_defaults("spec"),
        FieldDefault("status.allocation.devices.results[].tolerations[].operator", _EQUAL),
    ),
    resource.ResourceClaimTemplate: _list_request_defaults("spec.spec"),
    resource.ResourceSlice: (FieldDefault("spec.devices[].taints[].timeAdded", NOW),),
    resource.DeviceTaintRule: (FieldDefault("spec.taint.timeAdded", NOW),),
    admission.ValidatingWebhookConfiguration: _list_webhook_defaults(),
    admission.MutatingWebhookConfiguration: _list_webhook_defaults(
        FieldDefault("webhooks[].reinvocationPolicy", webhooks.NEVER)
    ),
    classic.ClassicResourceClaim: (
        FieldDefault("spec.allocationMode", DELAYED),
        FieldDefault("status.phase", PENDING),
        FieldDefault("status.userLimit", 1),
    ),
}


def apply_defaults(obj: T, *, now: str, stored: T | None = None) -> T:
    """Return the object with every default of the table applied; the same object when nothing was unset.

    Parts that are identical to those of a stored object already have their defaults and are skipped.
    """
    plan = _get_plan(type(obj))
    filled: T = plan.fill(obj, now, stored) if plan is not None else obj
    return filled


class _DefaultsPlan:
    """The rows of the table for one struct, and the plans of the structs below it.

    One walk applies all rows: an object is read once, and rebuilt only where a field was unset.
    """

    __slots__ = ("_branches", "_rows", "only_branch")

    def __init__(self, cls: type, rows: Sequence[tuple[tuple[str, ...], FieldDefault]]) -> None:
        own = [(steps[0], row) for steps, row in rows if len(steps) == 1]
        self._rows = tuple((get_attribute_name(cls, name), row.value, row.when) for name, row in own)
        below: dict[str, list[tuple[tuple[str, ...], FieldDefault]]] = {}
        for steps, row in rows:
            if len(steps) > 1:
                below.setdefault(steps[0], []).append((steps[1:], row))
        branches = []
        for step, further in below.items():
            name = step.removesuffix("[]")
            plan = _DefaultsPlan(get_nested_struct(cls, name), further)
            branches.append((get_attribute_name(cls, name), step != name, plan))
        self._branches = tuple(branches)
        self.only_branch = self._branches[0][0] if len(branches) == 1 and not own else None

    def fill(self, holder: Any, now: str, stored: Any = None) -> Any:
        for attribute, value, when in self._rows:
            if not getattr(holder, attribute) and when(holder):
                given = now if value is NOW else value
                holder = msgspec.structs.replace(holder, **{attribute: given})
        for attribute, many, plan in self._branches:
            old = getattr(holder, attribute)
            if not old or (stored is not None and old is getattr(stored, attribute)):
                continue
            new = plan.fill_all(old, now) if many else plan.fill(old, now)
            if new is not old:
                holder = msgspec.structs.replace(holder, **{attribute: new})
        return holder

    def fill_all(self, holders: tuple[Any, ...], now: str) -> tuple[Any, ...]:
        # Most devices have nothing to default; a slice has many of them.
        if self.only_branch is not None and not any(map(operator.attrgetter(self.only_branch), holders)):
            return holders
        filled = tuple([self.fill(holder, now) for holder in holders])
        same = all(map(operator.is_, filled, holders))
        return holders if same else filled


@lru_cache(maxsize=64)
def _get_plan(cls: type) -> _DefaultsPlan | None:
    rows = DEFAULTS.get(cls)
    return _DefaultsPlan(cls, [(tuple(row.field.split(".")), row) for row in rows]) if rows else None
