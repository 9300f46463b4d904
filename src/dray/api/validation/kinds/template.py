"""Validation of claim templates: what is copied into each claim."""

from __future__ import annotations

from dray.api.fields import ROOT, invalid
from dray.api.resource import ResourceClaimTemplate
from dray.api.validation.field_rules import IMMUTABLE, FieldErrors
from dray.api.validation.kinds.claim import validate_device_claim
from dray.api.validation.metadata import validate_template_metadata
from dray.api.validation.semantic_equality import is_semantically_equal

_SPEC = ROOT.child("spec")
_DEVICES = _SPEC.child("spec", "devices")


def validate_template(obj: ResourceClaimTemplate) -> FieldErrors:
    """Check a new template, its own metadata excluded."""
    yield from validate_template_metadata(obj.spec.metadata, _SPEC.child("metadata"))
    yield from validate_device_claim(obj.spec.spec.devices, _DEVICES)


def validate_template_update(new: ResourceClaimTemplate, old: ResourceClaimTemplate) -> FieldErrors:
    """Check that the spec does not change: all claims of a template are alike."""
    if not is_semantically_equal(new.spec, old.spec):
        yield invalid(_SPEC, new.spec, IMMUTABLE)
