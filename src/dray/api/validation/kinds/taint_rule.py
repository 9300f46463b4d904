"""Validation of taint rules: the selector, and the taint by the rules of device taints."""

from __future__ import annotations

from dray.api import limits
from dray.api.fields import ROOT
from dray.api.resource import DeviceTaintRule
from dray.api.validation.conditions import validate_conditions
from dray.api.validation.field_rules import FieldErrors, validate_name
from dray.api.validation.kinds.device import validate_taint
from dray.values.names import check_dns_label, check_driver_name, check_pool_name

_SPEC = ROOT.child("spec")
_SELECTOR = _SPEC.child("deviceSelector")
_NAME_RULES = (("driver", check_driver_name), ("pool", check_pool_name), ("device", check_dns_label))


def validate_taint_rule(obj: DeviceTaintRule) -> FieldErrors:
    """Check a taint rule, its metadata excluded."""
    selector = obj.spec.device_selector
    for field, rule in _NAME_RULES:
        name = None if selector is None else getattr(selector, field)
        if name is not None:
            yield from validate_name(name, rule, _SELECTOR.child(field))
    yield from validate_taint(obj.spec.taint, _SPEC.child("taint"))


def validate_taint_rule_status(obj: DeviceTaintRule) -> FieldErrors:
    """Check the conditions of the status."""
    path = ROOT.child("status", "conditions")
    yield from validate_conditions(obj.status.conditions, limits.CONDITIONS_PER_RULE, path)
