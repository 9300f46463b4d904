"""Create strategy of every kind: defaults, disabled fields and validation of a new object, in a server's
order.

Theory of operation: defaults are applied, fields behind disabled gates are dropped, then the object is
validated. An object that a server has stored before (`stored`) keeps the fields of disabled gates, as they
stay in a store. A status is validated with the object, as when it is written.

Rules for this file: no validation rule is written here, and no other object is looked up.
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
    """An object as a server would store it, the fields it loses, and the reasons to refuse it."""

    object: Any
    dropped: tuple[DroppedField, ...] = ()
    errors: tuple[FieldError, ...] = ()


def apply_create_strategy(
    kind: Kind, obj: Any, gates: FeatureGateFilter, *, now: str, stored: bool = False
) -> CreateStrategyResult:
    """Apply the create strategy to a decoded object that already has its name and namespace."""
    filled = apply_defaults(obj, now=now)
    filtered = gates.drop_disabled_fields(kind, filled, filled if stored else None)
    return CreateStrategyResult(filtered.object, filtered.dropped, tuple(validate_stored(filtered.object)))


def is_from_server(obj: Any) -> bool:
    """Whether only a server can have written an object: it has a uid, or an allocation.

    Slices always count as such. They describe hardware that exists, and without their counters and conditions
    the same hardware would be allocated twice.
    """
    if obj.metadata.uid or obj.metadata.resource_version or isinstance(obj, ResourceSlice):
        return True
    return isinstance(obj, ResourceClaim) and obj.status.allocation is not None
