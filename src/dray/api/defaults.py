"""What an object says when it does not say anything: defaults, as a table.

Theory of operation: each row names a kind, a field and what fills it when it is unset. A condition
looks at the struct that holds the field. Rows of a kind are applied in order, so that a later one may
rest on an earlier one (`count` on `allocationMode`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeVar

import msgspec

from dray.api import classic, resource
from dray.api.classic.resourceclaim import DELAYED, PENDING
from dray.api.paths import attribute_of, changed
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


DEFAULTS: Mapping[type, tuple[Default, ...]] = {
    resource.ResourceClaim: (
        *_of_asks("spec"),
        Default("status.allocation.devices.results[].tolerations[].operator", _EQUAL),
    ),
    resource.ResourceClaimTemplate: _of_asks("spec.spec"),
    resource.ResourceSlice: (Default("spec.devices[].taints[].timeAdded", NOW),),
    classic.ClassicClaim: (
        Default("spec.allocationMode", DELAYED),
        Default("status.phase", PENDING),
        Default("status.userLimit", 1),
    ),
}


def with_defaults(obj: T, *, now: str) -> T:
    """The object with every unset field of the table filled in; the same object when none was unset."""
    for row in DEFAULTS.get(type(obj), ()):
        obj = changed(obj, row.field, _filling(type(obj), row, now))
    return obj


@lru_cache(maxsize=256)
def _filling(cls: type, row: Default, now: str) -> Callable[[Any], Any]:
    """The change that fills one row's field in whatever struct holds it."""
    wire_name = row.field.rpartition(".")[2]
    value = now if row.value is NOW else row.value

    def fill(holder: Any) -> Any:
        attribute = attribute_of(type(holder), wire_name)
        if getattr(holder, attribute) or not row.when(holder):
            return holder
        return msgspec.structs.replace(holder, **{attribute: value})

    return fill
