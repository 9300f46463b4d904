"""What a sound object is: the rules of every kind, for creation, update and status update.

One file per kind, shared rules in `rules`, every number in `limits`; a rule takes a value and a path, returns
what is wrong, and knows no gate, no clock and no other object. Doors and services import this package and
nothing inside it, except for the table of limits.
"""

from dray.api.validation.kind_rules import (
    validate_create,
    validate_status_update,
    validate_stored,
    validate_update,
)
from dray.api.validation.limits import LIMITS, FieldLimit
from dray.api.validation.warnings import FieldWarning, collect_warnings

__all__ = [
    "LIMITS",
    "FieldLimit",
    "FieldWarning",
    "collect_warnings",
    "validate_create",
    "validate_status_update",
    "validate_stored",
    "validate_update",
]
