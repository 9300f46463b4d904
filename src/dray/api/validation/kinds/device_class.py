"""Validation of device classes: selectors and configuration."""

from __future__ import annotations

from dray.api import limits
from dray.api.fields import ROOT, FieldPath
from dray.api.resource import DeviceClass, DeviceClassConfiguration
from dray.api.validation.field_rules import (
    FieldErrors,
    validate_each,
    validate_opaque_config,
    validate_selector,
)

_SPEC = ROOT.child("spec")


def validate_device_class(obj: DeviceClass) -> FieldErrors:
    """Check a device class, its metadata excluded."""
    spec = obj.spec
    if spec.selectors:
        yield from validate_each(
            spec.selectors, limits.SELECTORS_PER_REQUEST, validate_selector, _SPEC.child("selectors")
        )
    if spec.config:
        yield from validate_each(
            spec.config, limits.CONFIGS_PER_CLAIM, _validate_config, _SPEC.child("config")
        )


def _validate_config(config: DeviceClassConfiguration, path: FieldPath) -> FieldErrors:
    return validate_opaque_config(config.opaque, path)
