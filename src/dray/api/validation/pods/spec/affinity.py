"""Validation of affinity: to nodes, to other pods, and away from them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from dray.api.fields import FieldPath, invalid, required
from dray.api.validation.field_rules import FieldErrors, report_name_faults
from dray.api.validation.pods.document_fields import (
    Document,
    find_mapping,
    get_list,
    get_mapping,
    get_number,
    get_text,
    get_texts,
    iterate_objects,
)
from dray.api.validation.pods.label_selectors import (
    NODE_OPERATORS,
    validate_label_keys,
    validate_label_selector,
    validate_value_count,
    validate_values,
)
from dray.values.names import (
    check_dns_label,
    check_dns_subdomain,
    check_qualified_name,
)

TermRule: TypeAlias = Callable[[Document, FieldPath], FieldErrors]

_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
_MAX_WEIGHT: Final = 100


def validate_affinity(affinity: Document, path: FieldPath) -> FieldErrors:
    """Check the affinity of a pod."""
    nodes = find_mapping(affinity, "nodeAffinity")
    if nodes is not None:
        yield from _validate_node_affinity(nodes, path.child("nodeAffinity"))
    for field in ("podAffinity", "podAntiAffinity"):
        pods, place = find_mapping(affinity, field), path.child(field)
        if pods is not None:
            for position, term in iterate_objects(pods, _REQUIRED):
                yield from _validate_pod_term(term, place.child(_REQUIRED).index(position))
            yield from _validate_weighted(pods, "podAffinityTerm", _validate_pod_term, place)


def _validate_weighted(holder: Document, field: str, rule: TermRule, path: FieldPath) -> FieldErrors:
    """Check preferred terms, which have a weight."""
    for position, item in iterate_objects(holder, _PREFERRED):
        place = path.child(_PREFERRED).index(position)
        weight = get_number(item, "weight")
        if not 1 <= weight <= _MAX_WEIGHT:
            yield invalid(place.child("weight"), weight, f"must be in the range 1-{_MAX_WEIGHT}")
        yield from rule(get_mapping(item, field), place.child(field))


# --- nodes ---


def _validate_node_affinity(affinity: Document, path: FieldPath) -> FieldErrors:
    selector = find_mapping(affinity, _REQUIRED)
    if selector is not None:
        place = path.child(_REQUIRED, "nodeSelectorTerms")
        if not get_list(selector, "nodeSelectorTerms"):
            yield required(place, "must have at least one node selector term")
        for position, term in iterate_objects(selector, "nodeSelectorTerms"):
            yield from _validate_node_term(term, place.index(position))
            yield from _validate_node_label_values(term, place.index(position))
    yield from _validate_weighted(affinity, "preference", _validate_node_term, path)


def _validate_node_term(term: Document, path: FieldPath) -> FieldErrors:
    for position, item in iterate_objects(term, "matchExpressions"):
        place = path.child("matchExpressions").index(position)
        yield from validate_value_count(item, NODE_OPERATORS, place)
        yield from report_name_faults(check_qualified_name(get_text(item, "key")), place.child("key"))
    for position, item in iterate_objects(term, "matchFields"):
        yield from _validate_node_field(item, path.child("matchFields").index(position))


def _validate_node_label_values(term: Document, path: FieldPath) -> FieldErrors:
    for position, item in iterate_objects(term, "matchExpressions"):
        yield from validate_values(item, path.child("matchExpressions").index(position))


def _validate_node_field(item: Document, path: FieldPath) -> FieldErrors:
    values, key = get_texts(item, "values"), get_text(item, "key")
    if get_text(item, "operator") not in ("In", "NotIn"):
        yield invalid(path.child("operator"), get_text(item, "operator"), "not a valid selector operator")
    elif len(values) != 1:
        yield required(path.child("values"), "must have exactly one value")
    if key != "metadata.name":
        yield invalid(path.child("key"), key, "not a valid field selector key; `metadata.name` is one")
        return
    for position, value in enumerate(values):
        yield from report_name_faults(check_dns_subdomain(value), path.child("values").index(position))


# --- pods ---


def _validate_pod_term(term: Document, path: FieldPath) -> FieldErrors:
    for field in ("labelSelector", "namespaceSelector"):
        selector = find_mapping(term, field)
        if selector is not None:
            yield from validate_label_selector(selector, path.child(field))
    for name in get_texts(term, "namespaces"):
        yield from report_name_faults(check_dns_label(name), path.child("namespace"))
    yield from validate_label_keys(term, path)
    key = get_text(term, "topologyKey")
    if not key:
        yield required(path.child("topologyKey"))
    yield from report_name_faults(check_qualified_name(key), path.child("topologyKey"))
