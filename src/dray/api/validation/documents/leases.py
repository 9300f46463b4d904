"""Validation of Leases."""

from __future__ import annotations

from typing import Final

from dray.api.fields import ROOT, invalid
from dray.api.validation.field_rules import FieldErrors
from dray.api.validation.pods.document_fields import Document, find_number, get_mapping

_SPEC: Final = ROOT.child("spec")


def validate_lease(lease: Document) -> FieldErrors:
    """Check the numbers of a lease."""
    spec = get_mapping(lease, "spec")
    duration, transitions = find_number(spec, "leaseDurationSeconds"), find_number(spec, "leaseTransitions")
    if duration is not None and duration <= 0:
        yield invalid(_SPEC.child("leaseDurationSeconds"), duration, "must be greater than 0")
    if transitions is not None and transitions < 0:
        yield invalid(_SPEC.child("leaseTransitions"), transitions, "must be greater than or equal to 0")


def validate_changed_lease(new: Document, old: Document) -> FieldErrors:
    """Check a change of a lease."""
    return validate_lease(new)
