"""Rules of a device class: its selectors and configuration."""

from __future__ import annotations

from dray.api.fields import ROOT, Path
from dray.api.resource import DeviceClass, DeviceClassConfiguration
from dray.api.validation import limits
from dray.api.validation.field_rules import Errors, configuration, each, selector

_SPEC = ROOT.field("spec")


def device_class(obj: DeviceClass) -> Errors:
    """What holds of a device class besides its metadata."""
    spec = obj.spec
    if spec.selectors:
        yield from each(spec.selectors, limits.SELECTORS_PER_REQUEST, selector, _SPEC.field("selectors"))
    if spec.config:
        yield from each(spec.config, limits.CONFIGS_PER_CLAIM, _configuration, _SPEC.field("config"))


def _configuration(config: DeviceClassConfiguration, path: Path) -> Errors:
    return configuration(config.opaque, path)
