"""Validation of every kind, for creation, update and status update.

`kinds` has the rules of each kind, `field_rules` the shared rules, `kind_rules` the table of kinds; a rule
takes a value and a path and yields errors, and depends on no gate, no clock and no other object. Every limit
that a rule enforces is in `limits`. Other packages import this package and `limits`, and nothing else inside
it.
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
