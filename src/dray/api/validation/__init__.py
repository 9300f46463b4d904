"""Validation of every kind, for creation, update and status update.

`kinds` has the rules of each kind, `pods` those of all fields of pods, `field_rules` the shared rules,
`kind_rules` and `document_rules` the tables of kinds; a rule takes a value and a path and yields errors, and
depends on no gate, no clock and no other object. Limits are in `dray.api.limits`. Other packages import this
package and nothing inside it.
"""

from dray.api.validation.deprecations import find_deprecation_warning
from dray.api.validation.document_rules import (
    has_document_rules,
    validate_changed_document,
    validate_new_document,
)
from dray.api.validation.kind_rules import (
    validate_create,
    validate_status_update,
    validate_stored,
    validate_update,
)
from dray.api.validation.pod_warnings import collect_pod_warnings
from dray.api.validation.warnings import FieldWarning, collect_warnings

__all__ = [
    "FieldWarning",
    "collect_pod_warnings",
    "collect_warnings",
    "find_deprecation_warning",
    "has_document_rules",
    "validate_changed_document",
    "validate_create",
    "validate_new_document",
    "validate_status_update",
    "validate_stored",
    "validate_update",
]
