"""Validation of ResourceQuotas: names and amounts of resources, and scopes."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from dray.api.fields import ROOT, FieldPath, invalid, required
from dray.api.validation.field_rules import FieldErrors, report_name_faults, validate_immutable
from dray.api.validation.pods.document_fields import (
    Document,
    find_mapping,
    get_list,
    get_mapping,
    get_objects,
    get_text,
    get_texts,
    read_quantities,
)
from dray.api.validation.pods.spec.resources import COUNTED_RESOURCES, validate_amount
from dray.values.names import check_qualified_name

_SPEC, _STATUS = ROOT.child("spec"), ROOT.child("status")
_COMPUTE: Final = frozenset(
    {"cpu", "memory", "limits.cpu", "limits.memory", "requests.cpu", "requests.memory"}
)
_VOLUMES: Final = frozenset({"persistentvolumeclaims", "requests.storage"})
_STORAGE: Final = frozenset(
    {"ephemeral-storage", "requests.ephemeral-storage", "limits.ephemeral-storage", "requests.storage"}
)
_STANDARD: Final = _COMPUTE | COUNTED_RESOURCES | _STORAGE
_PAGES: Final = ("hugepages-", "requests.hugepages-")

_OF_PODS: Final = _COMPUTE | {"pods"}
SCOPES: Final[Mapping[str, frozenset[str]]] = MappingProxyType(
    {
        "Terminating": _OF_PODS,
        "NotTerminating": _OF_PODS,
        "BestEffort": frozenset({"pods"}),
        "NotBestEffort": _OF_PODS,
        "PriorityClass": _OF_PODS,
        "CrossNamespacePodAffinity": _OF_PODS,
        "VolumeAttributesClass": _VOLUMES,
    }
)
"""Scopes, with the standard resources that each can limit."""
_WITH_VALUES: Final = frozenset({"PriorityClass", "VolumeAttributesClass"})
_EXCLUSIVE: Final = (frozenset({"BestEffort", "NotBestEffort"}), frozenset({"Terminating", "NotTerminating"}))


def validate_quota(quota: Document) -> FieldErrors:
    """Check a new quota."""
    spec = get_mapping(quota, "spec")
    yield from _validate_amounts(spec, "hard", _SPEC)
    yield from _validate_scopes(spec)
    yield from _validate_scope_selector(spec)


def validate_changed_quota(new: Document, old: Document) -> FieldErrors:
    """Check a change of a quota: its scopes stay."""
    yield from validate_quota(new)
    scopes, stored = (frozenset(get_texts(get_mapping(quota, "spec"), "scopes")) for quota in (new, old))
    yield from validate_immutable(scopes, stored, _SPEC.child("scopes"))


def validate_changed_quota_status(new: Document, old: Document) -> FieldErrors:
    """Check a change of a quota's status."""
    status = get_mapping(new, "status")
    for field in ("hard", "used"):
        yield from _validate_amounts(status, field, _STATUS)


def _validate_amounts(document: Document, field: str, path: FieldPath) -> FieldErrors:
    for name, amount in read_quantities(document, field).items():
        place = path.child(field).key(name)
        faults = check_qualified_name(name)
        yield from report_name_faults(faults, place)
        if "/" not in name and not _is_standard(name):
            yield invalid(place, name, "must be a standard resource for quota, or have a domain")
        yield from validate_amount(name, amount, place)


def _is_standard(name: str) -> bool:
    return name in _STANDARD or name.startswith(_PAGES)


def _validate_scopes(spec: Document) -> FieldErrors:
    scopes, path = get_texts(spec, "scopes"), _SPEC.child("scopes")
    for scope in scopes:
        if scope not in SCOPES:
            yield invalid(path, scopes, "unsupported scope")
        if not _fits_resources(scope, spec):
            yield invalid(path, scopes, "unsupported scope applied to resource")
    if any(pair <= set(scopes) for pair in _EXCLUSIVE):
        yield invalid(path, scopes, "conflicting scopes")


def _fits_resources(scope: str, spec: Document) -> bool:
    limited = SCOPES.get(scope)
    names = (name for name in get_mapping(spec, "hard") if _is_standard(name))
    return limited is None or all(name in limited for name in names)


def _validate_scope_selector(spec: Document) -> FieldErrors:
    selector = find_mapping(spec, "scopeSelector")
    if selector is None:
        return
    path = _SPEC.child("scopeSelector").child("matchExpressions")
    items = get_objects(selector, "matchExpressions")
    for item in items:
        yield from _validate_scope_expression(item, spec, path)
    if any(pair <= {get_text(item, "scopeName") for item in items} for pair in _EXCLUSIVE):
        yield invalid(path, items, "conflicting scopes")


def _validate_scope_expression(item: Document, spec: Document, path: FieldPath) -> FieldErrors:
    scope, operator = get_text(item, "scopeName"), get_text(item, "operator")
    values = get_list(item, "values")
    if scope not in SCOPES:
        yield invalid(path.child("scopeName"), scope, "unsupported scope")
    elif scope not in _WITH_VALUES and operator != "Exists":
        yield invalid(path.child("operator"), operator, "must be `Exists` for this scope")
    if not _fits_resources(scope, spec):
        yield invalid(path, dict(item), "unsupported scope applied to resource")
    if operator in ("In", "NotIn"):
        if not values:
            yield required(path.child("values"), "must have a value for this operator")
    elif operator not in ("Exists", "DoesNotExist"):
        yield invalid(path.child("operator"), operator, "not a valid selector operator")
    elif values:
        yield invalid(path.child("values"), values, "must have no value for this operator")
