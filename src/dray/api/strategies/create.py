"""Create strategy of every kind: how an API server completes a new object, and what it refuses about it.

Theory of operation: defaults are filled in, fields whose gate is off are dropped, then the rules of the kind
are asked, in this order. An object that a server has stored before (`stored`) keeps the fields of closed
gates, as they stay in a store. A status is judged with the object, as when it is written.

Rules for this file: no rule of the API is written here, and objects are not looked up in other objects.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dray.api.fields import FieldError
from dray.api.kinds import Kind
from dray.api.resource import ResourceClaim, ResourceSlice
from dray.api.strategies.defaults import apply_defaults
from dray.api.strategies.gated_fields import DroppedField, FeatureGateFilter
from dray.api.validation import validate_stored


@dataclass(frozen=True, slots=True)
class CreateStrategyResult:
    """An object as a server would store it, what it loses on the way, and why it would be refused."""

    object: Any
    dropped: tuple[DroppedField, ...] = ()
    errors: tuple[FieldError, ...] = ()


def apply_create_strategy(
    kind: Kind, obj: Any, gates: FeatureGateFilter, *, now: str, stored: bool = False
) -> CreateStrategyResult:
    """Judge a decoded object in the order of a server; it has its name and namespace already."""
    filled = apply_defaults(obj, now=now)
    kept = gates.drop_disabled_fields(kind, filled, filled if stored else None)
    return CreateStrategyResult(kept.object, kept.dropped, tuple(validate_stored(kept.object)))


def is_from_server(obj: Any) -> bool:
    """Whether only a server can have made an object what it is: it has an identity, or devices.

    Slices always count as such. They say what hardware is there, and without their counters and conditions
    the same hardware would be given out twice.
    """
    if obj.metadata.uid or obj.metadata.resource_version or isinstance(obj, ResourceSlice):
        return True
    return isinstance(obj, ResourceClaim) and obj.status.allocation is not None
