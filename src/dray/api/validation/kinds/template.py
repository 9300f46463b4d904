"""Rules of a claim template: what it copies into each claim."""

from __future__ import annotations

from dray.api.fields import ROOT, invalid
from dray.api.resource import ResourceClaimTemplate
from dray.api.validation.field_rules import IMMUTABLE, Errors
from dray.api.validation.kinds.claim import device_claim
from dray.api.validation.metadata import template_metadata
from dray.api.validation.semantic_equality import same

_SPEC = ROOT.field("spec")
_DEVICES = _SPEC.field("spec", "devices")


def template(obj: ResourceClaimTemplate) -> Errors:
    """What holds of a new template besides its own metadata."""
    yield from template_metadata(obj.spec.metadata, _SPEC.field("metadata"))
    yield from device_claim(obj.spec.spec.devices, _DEVICES)


def template_update(new: ResourceClaimTemplate, old: ResourceClaimTemplate) -> Errors:
    """All claims of a template are alike, so it never changes."""
    if not same(new.spec, old.spec):
        yield invalid(_SPEC, new.spec, IMMUTABLE)
