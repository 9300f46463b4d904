"""What an object says when it does not say anything: defaults, as a table.

Theory of operation: each row names a kind, a field and what fills it when it is unset. A condition
looks at the struct that holds the field. Rows of a kind are applied in order, so that a later one may
rest on an earlier one (`count` on `allocationMode`).
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
"""Stands in the table for the time the object arrives."""

_EQUAL = "Equal"


@dataclass(frozen=True, slots=True)
class FieldDefault:
    """One field that is filled in when it is unset."""

    field: str
    value: str | int
    when: Callable[[Any], bool] = lambda _holder: True
    about: str = "always"


def _is_exact_count(holder: Any) -> bool:
    return bool(holder.allocation_mode == EXACT_COUNT)


def _list_request_defaults(prefix: str) -> tuple[FieldDefault, ...]:
    asks = (f"{prefix}.devices.requests[].exactly", f"{prefix}.devices.requests[].firstAvailable[]")
    return tuple(
        row
        for ask in asks
        for row in (
            FieldDefault(f"{ask}.allocationMode", EXACT_COUNT),
            FieldDefault(f"{ask}.count", 1, _is_exact_count, "when `allocationMode` is `ExactCount`"),
            FieldDefault(f"{ask}.tolerations[].operator", _EQUAL),
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
    """Zero seconds are a mistake that is told, not a wish for the usual."""
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
    """The object with every unset field of the table filled in; the same object when none was unset.

    Parts that are the very same in an object that is stored have been filled in before.
    """
    plan = _get_plan(type(obj))
    filled: T = plan.fill(obj, now, stored) if plan is not None else obj
    return filled


class _DefaultsPlan:
    """The rows of the table that concern one struct, and the way to the parts that others concern.

    One walk fills all rows: an object is read once, and rebuilt only where something was unset.
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
        # Most devices have nothing that could be filled in; a slice has many of them.
        if self.only_branch is not None and not any(map(operator.attrgetter(self.only_branch), holders)):
            return holders
        filled = tuple([self.fill(holder, now) for holder in holders])
        same = all(map(operator.is_, filled, holders))
        return holders if same else filled


@lru_cache(maxsize=64)
def _get_plan(cls: type) -> _DefaultsPlan | None:
    rows = DEFAULTS.get(cls)
    return _DefaultsPlan(cls, [(tuple(row.field.split(".")), row) for row in rows]) if rows else None
