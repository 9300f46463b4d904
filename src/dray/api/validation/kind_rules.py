"""THE table of rules: what each kind is asked when it is created, changed, or its status is written.

Theory of operation: every kind has rules that hold of an object by itself, and rules for the step from the
stored object to the new one. A new object keeps the former. A changed object keeps both, except that what the
stored object already broke is not held against it (`stored`). Metadata is judged for all kinds alike, and
for kinds without rules of their own it is all we judge.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, TypeVar

import msgspec

from dray.api import admission, classic, core, resource
from dray.api.fields import FieldError
from dray.api.kinds import KINDS
from dray.api.preparation import Preparation
from dray.api.validation.field_rules import Errors
from dray.api.validation.kinds.claim import claim, claim_update
from dray.api.validation.kinds.claim_status import claim_allocation, claim_status, claim_status_update
from dray.api.validation.kinds.classic import (
    classic_claim,
    classic_claim_status,
    classic_claim_status_update,
    classic_claim_update,
    resource_class,
)
from dray.api.validation.kinds.device_class import device_class
from dray.api.validation.kinds.pod import pod, pod_status, pod_update
from dray.api.validation.kinds.preparation import preparation, preparation_update
from dray.api.validation.kinds.slice import resource_slice, resource_slice_update
from dray.api.validation.kinds.taint_rule import taint_rule, taint_rule_status
from dray.api.validation.kinds.template import template, template_update
from dray.api.validation.kinds.webhooks import webhook_configuration
from dray.api.validation.metadata import metadata, metadata_update
from dray.api.validation.ratcheting import fresh
from dray.values.names import Rule, dns_label, dns_subdomain, path_segment

T = TypeVar("T", bound=msgspec.Struct)
Judge = Callable[[Any], Errors]
Step = Callable[[Any, Any], Errors]


def _nothing(*_objects: Any) -> Errors:
    return iter(())


@dataclass(frozen=True, slots=True)
class Rules:
    """What a kind is asked besides its metadata.

    `made` holds of a new object, `kept` of a changed one (the same, unless what it judges cannot change),
    `step` of the change. `status` and `status_step` are the same for the status. `settled` is judged once,
    when it is written, and then only of objects that nobody wrote through us.
    """

    made: Judge = _nothing
    kept: Judge | None = None
    step: Step = _nothing
    status: Judge = _nothing
    status_step: Step = _nothing
    settled: Judge = _nothing
    names: Rule = dns_subdomain


RULES: Mapping[type, Rules] = MappingProxyType(
    {
        resource.DeviceClass: Rules(device_class),
        resource.ResourceClaim: Rules(
            claim, _nothing, claim_update, claim_status, claim_status_update, claim_allocation
        ),
        resource.ResourceClaimTemplate: Rules(template, _nothing, template_update),
        resource.ResourceSlice: Rules(resource_slice, step=resource_slice_update),
        resource.DeviceTaintRule: Rules(taint_rule, status=taint_rule_status),
        admission.MutatingWebhookConfiguration: Rules(webhook_configuration),
        admission.ValidatingWebhookConfiguration: Rules(webhook_configuration),
        classic.ResourceClass: Rules(resource_class),
        classic.ClassicClaim: Rules(
            classic_claim,
            _nothing,
            classic_claim_update,
            classic_claim_status,
            classic_claim_status_update,
        ),
        Preparation: Rules(preparation, _nothing, preparation_update),
        core.Pod: Rules(pod, _nothing, pod_update, pod_status),
        core.Namespace: Rules(names=dns_label),
        core.Grant: Rules(names=path_segment),
        core.ClusterGrant: Rules(names=path_segment),
    }
)

_METADATA_ONLY = Rules()
_NAMESPACED: Mapping[type, bool] = MappingProxyType({kind.type: kind.namespaced for kind in KINDS})


def validate_create(obj: msgspec.Struct) -> list[FieldError]:
    """Everything wrong with a new object; empty when it is sound."""
    rules, errors = _rules(obj), list(_metadata(obj))
    errors += rules.made(obj)
    return errors


def validate_update(new: T, old: T) -> list[FieldError]:
    """Everything wrong with a change of an object, its status aside."""
    rules = _rules(new)
    kept = rules.kept if rules.kept is not None else rules.made
    return _judged(new, old, rules.step, kept)


def validate_status_update(new: T, old: T) -> list[FieldError]:
    """Everything wrong with a change of an object's status."""
    rules = _rules(new)
    return _judged(new, old, rules.status_step, rules.status)


def validate_stored(obj: msgspec.Struct) -> list[FieldError]:
    """Everything wrong with an object as it lies in a file or a dump of a cluster, status included."""
    rules = _rules(obj)
    return [*_metadata(obj), *rules.made(obj), *rules.status(obj), *rules.settled(obj)]


def _judged(new: Any, old: Any, step: Step, kept: Judge) -> list[FieldError]:
    # Metadata that is the very same was judged when it was stored.
    if new.metadata is old.metadata:
        errors, found = [], list(kept(new))
    else:
        errors = list(metadata_update(new.metadata, old.metadata))
        found = [*_metadata(new), *kept(new)]
    errors += step(new, old)
    if found:
        errors += fresh(found, new, [*_metadata(old), *kept(old)], old)
    return errors


def _metadata(obj: Any) -> Errors:
    return metadata(obj.metadata, _rules(obj).names, _NAMESPACED[type(obj)])


def _rules(obj: Any) -> Rules:
    return RULES.get(type(obj), _METADATA_ONLY)
