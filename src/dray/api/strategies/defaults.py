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
from dray.api.field_patterns import attribute_of, struct_in
from dray.api.resource.claim import EXACT_COUNT

T = TypeVar("T", bound=msgspec.Struct)

NOW = "now"
"""Stands in the table for the time the object arrives."""

_EQUAL = "Equal"


@dataclass(frozen=True, slots=True)
class Default:
    """One field that is filled in when it is unset."""

    field: str
    value: str | int
    when: Callable[[Any], bool] = lambda _holder: True
    about: str = "always"


def _counts(holder: Any) -> bool:
    return bool(holder.allocation_mode == EXACT_COUNT)


def _of_asks(prefix: str) -> tuple[Default, ...]:
    asks = (f"{prefix}.devices.requests[].exactly", f"{prefix}.devices.requests[].firstAvailable[]")
    return tuple(
        row
        for ask in asks
        for row in (
            Default(f"{ask}.allocationMode", EXACT_COUNT),
            Default(f"{ask}.count", 1, _counts, "when `allocationMode` is `ExactCount`"),
            Default(f"{ask}.tolerations[].operator", _EQUAL),
        )
    )


def _of_webhooks(*more: Default) -> tuple[Default, ...]:
    timed = "when `timeoutSeconds` is not given"
    return (
        Default("webhooks[].clientConfig.service.port", webhooks.USUAL_PORT),
        Default("webhooks[].rules[].scope", webhooks.ALL),
        Default("webhooks[].failurePolicy", webhooks.FAIL),
        Default("webhooks[].matchPolicy", webhooks.EQUIVALENT),
        Default("webhooks[].timeoutSeconds", webhooks.USUAL_SECONDS, _timed, timed),
        *more,
    )


def _timed(holder: Any) -> bool:
    """Zero seconds are a mistake that is told, not a wish for the usual."""
    return bool(holder.timeout_seconds != 0)


DEFAULTS: Mapping[type, tuple[Default, ...]] = {
    resource.ResourceClaim: (
        *_of_asks("spec"),
        Default("status.allocation.devices.results[].tolerations[].operator", _EQUAL),
    ),
    resource.ResourceClaimTemplate: _of_asks("spec.spec"),
    resource.ResourceSlice: (Default("spec.devices[].taints[].timeAdded", NOW),),
    resource.DeviceTaintRule: (Default("spec.taint.timeAdded", NOW),),
    admission.ValidatingWebhookConfiguration: _of_webhooks(),
    admission.MutatingWebhookConfiguration: _of_webhooks(
        Default("webhooks[].reinvocationPolicy", webhooks.NEVER)
    ),
    classic.ClassicClaim: (
        Default("spec.allocationMode", DELAYED),
        Default("status.phase", PENDING),
        Default("status.userLimit", 1),
    ),
}


def with_defaults(obj: T, *, now: str, stored: T | None = None) -> T:
    """The object with every unset field of the table filled in; the same object when none was unset.

    Parts that are the very same in an object that is stored have been filled in before.
    """
    plan = _plan(type(obj))
    filled: T = plan.fill(obj, now, stored) if plan is not None else obj
    return filled


class _Plan:
    """The rows of the table that concern one struct, and the way to the parts that others concern.

    One walk fills all rows: an object is read once, and rebuilt only where something was unset.
    """

    __slots__ = ("_branches", "_rows", "way")

    def __init__(self, cls: type, rows: Sequence[tuple[tuple[str, ...], Default]]) -> None:
        own = [(steps[0], row) for steps, row in rows if len(steps) == 1]
        self._rows = tuple((attribute_of(cls, name), row.value, row.when) for name, row in own)
        below: dict[str, list[tuple[tuple[str, ...], Default]]] = {}
        for steps, row in rows:
            if len(steps) > 1:
                below.setdefault(steps[0], []).append((steps[1:], row))
        branches = []
        for step, further in below.items():
            name = step.removesuffix("[]")
            plan = _Plan(struct_in(cls, name), further)
            branches.append((attribute_of(cls, name), step != name, plan))
        self._branches = tuple(branches)
        self.way = self._branches[0][0] if len(branches) == 1 and not own else None

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
        if self.way is not None and not any(map(operator.attrgetter(self.way), holders)):
            return holders
        filled = tuple([self.fill(holder, now) for holder in holders])
        same = all(map(operator.is_, filled, holders))
        return holders if same else filled


@lru_cache(maxsize=64)
def _plan(cls: type) -> _Plan | None:
    rows = DEFAULTS.get(cls)
    return _Plan(cls, [(tuple(row.field.split(".")), row) for row in rows]) if rows else None
