"""The table of validation rules per kind, for creation, update and status update.

Theory of operation: every kind has rules for an object by itself, and rules for the transition from the
stored object to the new one. A new object must satisfy the former. A changed object must satisfy both, except
for errors that the stored object already has (`ratcheting`). Metadata is validated for all kinds alike, and
for kinds without rules of their own it is all that is validated.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, TypeVar

import msgspec

from dray.api import admission, classic, core, resource
from dray.api.fields import FieldError
from dray.api.kinds import KINDS, split_api_version
from dray.api.preparation import Preparation
from dray.api.validation.field_rules import FieldErrors
from dray.api.validation.kinds.claim import validate_claim, validate_claim_update
from dray.api.validation.kinds.claim_status import (
    validate_claim_allocation,
    validate_claim_status,
    validate_claim_status_update,
)
from dray.api.validation.kinds.classic import (
    validate_classic_claim,
    validate_classic_claim_update,
    validate_classic_status,
    validate_classic_status_update,
    validate_resource_class,
)
from dray.api.validation.kinds.device_class import validate_device_class
from dray.api.validation.kinds.pod import validate_pod, validate_pod_status
from dray.api.validation.kinds.preparation import validate_preparation, validate_preparation_update
from dray.api.validation.kinds.slice import validate_resource_slice, validate_resource_slice_update
from dray.api.validation.kinds.taint_rule import validate_taint_rule, validate_taint_rule_status
from dray.api.validation.kinds.template import validate_template, validate_template_update
from dray.api.validation.kinds.webhooks import validate_webhook_configuration
from dray.api.validation.metadata import (
    validate_finalizer_domains,
    validate_metadata,
    validate_metadata_update,
)
from dray.api.validation.ratcheting import filter_new_errors
from dray.values.names import NameRule, check_dns_label, check_dns_subdomain, check_path_segment

T = TypeVar("T", bound=msgspec.Struct)
ObjectRule = Callable[[Any], FieldErrors]
TransitionRule = Callable[[Any, Any], FieldErrors]


def _accept_anything(*_objects: Any) -> FieldErrors:
    return iter(())


@dataclass(frozen=True, slots=True)
class KindRules:
    """The rules of a kind besides those of its metadata.

    `on_create` applies to a new object, `on_update` to a changed one (the same, unless what it checks cannot
    change), `on_transition` to the change. `on_status` and `on_status_transition` are the same for the
    status. `on_stored` is checked once, when the status is written, and of objects that were not written
    through this server.
    """

    on_create: ObjectRule = _accept_anything
    on_update: ObjectRule | None = None
    on_transition: TransitionRule = _accept_anything
    on_status: ObjectRule = _accept_anything
    on_status_transition: TransitionRule = _accept_anything
    on_stored: ObjectRule = _accept_anything
    name_rule: NameRule = check_dns_subdomain


RULES_BY_TYPE: Mapping[type, KindRules] = MappingProxyType(
    {
        resource.DeviceClass: KindRules(validate_device_class),
        resource.ResourceClaim: KindRules(
            validate_claim,
            _accept_anything,
            validate_claim_update,
            validate_claim_status,
            validate_claim_status_update,
            validate_claim_allocation,
        ),
        resource.ResourceClaimTemplate: KindRules(validate_template, on_transition=validate_template_update),
        resource.ResourceSlice: KindRules(
            validate_resource_slice, on_transition=validate_resource_slice_update
        ),
        resource.DeviceTaintRule: KindRules(validate_taint_rule, on_status=validate_taint_rule_status),
        admission.MutatingWebhookConfiguration: KindRules(validate_webhook_configuration),
        admission.ValidatingWebhookConfiguration: KindRules(validate_webhook_configuration),
        classic.ResourceClass: KindRules(validate_resource_class),
        classic.ClassicResourceClaim: KindRules(
            validate_classic_claim,
            _accept_anything,
            validate_classic_claim_update,
            validate_classic_status,
            validate_classic_status_update,
        ),
        Preparation: KindRules(validate_preparation, _accept_anything, validate_preparation_update),
        core.Pod: KindRules(validate_pod, on_status=validate_pod_status),
        core.Namespace: KindRules(name_rule=check_dns_label),
        core.RbacObject: KindRules(name_rule=check_path_segment),
        core.RbacClusterObject: KindRules(name_rule=check_path_segment),
        core.PathNamedClusterObject: KindRules(name_rule=check_path_segment),
    }
)

_METADATA_RULES = KindRules()
_GROUPS_WITH_ANY_FINALIZER = frozenset(
    {
        "admissionregistration.k8s.io",
        "apiextensions.k8s.io",
        "apiregistration.k8s.io",
        "coordination.k8s.io",
        "policy",
    }
)
"""Groups in which Kubernetes does not ask for a domain in the names of finalizers; nor does it for events."""
_NAMESPACED: Mapping[type, bool] = MappingProxyType({kind.type: kind.namespaced for kind in KINDS})


def validate_create(obj: msgspec.Struct) -> list[FieldError]:
    """Return all errors of a new object; empty when it is valid."""
    rules, errors = _get_rules(obj), list(_validate_object_metadata(obj))
    errors += rules.on_create(obj)
    return errors


def validate_update(new: T, old: T) -> list[FieldError]:
    """Return all errors of a change of an object, its status excluded."""
    rules = _get_rules(new)
    rule = rules.on_update if rules.on_update is not None else rules.on_create
    return _validate_transition(new, old, rules.on_transition, rule)


def validate_status_update(new: T, old: T) -> list[FieldError]:
    """Return all errors of a change of an object's status."""
    rules = _get_rules(new)
    return _validate_transition(new, old, rules.on_status_transition, rules.on_status)


def validate_stored(obj: msgspec.Struct) -> list[FieldError]:
    """Return all errors of an object from a file or a cluster dump, status included."""
    rules = _get_rules(obj)
    return [
        *_validate_object_metadata(obj),
        *rules.on_create(obj),
        *rules.on_status(obj),
        *rules.on_stored(obj),
    ]


def _validate_transition(
    new: Any, old: Any, transition_rule: TransitionRule, update_rule: ObjectRule
) -> list[FieldError]:
    # Metadata that is the same object was validated when it was stored.
    if new.metadata is old.metadata:
        errors, found = [], list(update_rule(new))
    else:
        errors = list(validate_metadata_update(new.metadata, old.metadata))
        found = [*_validate_object_metadata(new), *update_rule(new)]
    errors += transition_rule(new, old)
    if found:
        errors += filter_new_errors(found, new, [*_validate_object_metadata(old), *update_rule(old)], old)
    return errors


def _validate_object_metadata(obj: Any) -> FieldErrors:
    metadata = obj.metadata
    yield from validate_metadata(metadata, _get_rules(obj).name_rule, _NAMESPACED[type(obj)])
    if metadata.finalizers and not _takes_any_finalizer(obj):
        yield from validate_finalizer_domains(metadata.finalizers)


def _takes_any_finalizer(obj: Any) -> bool:
    group, _ = split_api_version(obj.api_version)
    return group in _GROUPS_WITH_ANY_FINALIZER or isinstance(obj, core.Event)


def _get_rules(obj: Any) -> KindRules:
    return RULES_BY_TYPE.get(type(obj), _METADATA_RULES)
