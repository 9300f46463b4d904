"""Rules of a taint rule: whom it selects, and a taint as drivers would write it."""

from __future__ import annotations

from dray.api.fields import ROOT
from dray.api.resource import DeviceTaintRule
from dray.api.validation import limits
from dray.api.validation.conditions import conditions
from dray.api.validation.field_rules import Errors, named
from dray.api.validation.kinds.device import taint
from dray.values.names import dns_label, driver_name, pool_name

_SPEC = ROOT.field("spec")
_SELECTOR = _SPEC.field("deviceSelector")
_NAMES = (("driver", driver_name), ("pool", pool_name), ("device", dns_label))


def taint_rule(obj: DeviceTaintRule) -> Errors:
    """What holds of a taint rule besides its metadata."""
    selector = obj.spec.device_selector
    for field, rule in _NAMES:
        name = None if selector is None else getattr(selector, field)
        if name is not None:
            yield from named(name, rule, _SELECTOR.field(field))
    yield from taint(obj.spec.taint, _SPEC.field("taint"))


def taint_rule_status(obj: DeviceTaintRule) -> Errors:
    """Conditions of a form that everybody can read."""
    path = ROOT.field("status", "conditions")
    yield from conditions(obj.status.conditions, limits.CONDITIONS_PER_RULE, path)
