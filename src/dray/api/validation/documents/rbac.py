"""Validation of roles and bindings."""

from __future__ import annotations

from typing import Final

from dray.api.fields import ROOT, FieldPath, invalid, not_supported, required
from dray.api.validation.field_rules import FieldErrors, report_name_faults, validate_immutable
from dray.api.validation.pods.document_fields import (
    Document,
    find_mapping,
    get_list,
    get_mapping,
    get_objects,
    get_text,
)
from dray.api.validation.pods.label_selectors import validate_label_selector
from dray.values.names import check_dns_subdomain, check_path_segment

_GROUP: Final = "rbac.authorization.k8s.io"
_ACCOUNT, _USER, _GROUP_KIND = "ServiceAccount", "User", "Group"
_SUBJECT_KINDS: Final = (_ACCOUNT, _USER, _GROUP_KIND)


def validate_role(role: Document) -> FieldErrors:
    """Check a role of a namespace."""
    return _validate_rules(role, namespaced=True)


def validate_changed_role(new: Document, old: Document) -> FieldErrors:
    """Check a change of a role."""
    return validate_role(new)


def validate_cluster_role(role: Document) -> FieldErrors:
    """Check a role of the cluster, and the selectors of an aggregated one."""
    yield from _validate_rules(role, namespaced=False)
    aggregation = find_mapping(role, "aggregationRule")
    if aggregation is None:
        return
    path = ROOT.child("aggregationRule").child("clusterRoleSelectors")
    selectors = get_objects(aggregation, "clusterRoleSelectors")
    if not selectors:
        yield required(path, "an aggregation needs at least one selector")
    for position, selector in enumerate(selectors):
        errors = list(validate_label_selector(selector, path.index(position)))
        yield from errors
        if errors:
            yield invalid(path.index(position), selector, "invalid label selector")


def validate_changed_cluster_role(new: Document, old: Document) -> FieldErrors:
    """Check a change of a role of the cluster."""
    return validate_cluster_role(new)


def _validate_rules(role: Document, *, namespaced: bool) -> FieldErrors:
    for position, rule in enumerate(get_objects(role, "rules")):
        yield from _validate_rule(rule, ROOT.child("rules").index(position), namespaced)


def _validate_rule(rule: Document, path: FieldPath, namespaced: bool) -> FieldErrors:
    if not get_list(rule, "verbs"):
        yield required(path.child("verbs"), "a rule needs at least one verb")
    urls = get_list(rule, "nonResourceURLs")
    if not urls:
        for field in ("apiGroups", "resources"):
            if not get_list(rule, field):
                yield required(path.child(field), "a rule for resources needs at least one")
        return
    if namespaced:
        yield invalid(path.child("nonResourceURLs"), urls, "a rule of a namespace has no such URLs")
    if any(get_list(rule, field) for field in ("apiGroups", "resources", "resourceNames")):
        text = "a rule is for resources or for other URLs, not for both"
        yield invalid(path.child("nonResourceURLs"), urls, text)


# --- bindings ---


def validate_role_binding(binding: Document) -> FieldErrors:
    """Check a binding of a namespace."""
    return _validate_binding(binding, ("Role", "ClusterRole"), namespaced=True)


def validate_changed_role_binding(new: Document, old: Document) -> FieldErrors:
    """Check a change of a binding: its role stays."""
    yield from validate_role_binding(new)
    yield from _validate_same_role(new, old)


def validate_cluster_role_binding(binding: Document) -> FieldErrors:
    """Check a binding of the cluster."""
    return _validate_binding(binding, ("ClusterRole",), namespaced=False)


def validate_changed_cluster_role_binding(new: Document, old: Document) -> FieldErrors:
    """Check a change of a binding of the cluster: its role stays."""
    yield from validate_cluster_role_binding(new)
    yield from _validate_same_role(new, old)


def _validate_binding(binding: Document, kinds: tuple[str, ...], *, namespaced: bool) -> FieldErrors:
    role, path = get_mapping(binding, "roleRef"), ROOT.child("roleRef")
    # An empty group stands for the only one there is.
    if get_text(role, "apiGroup") not in ("", _GROUP):
        yield not_supported(path.child("apiGroup"), get_text(role, "apiGroup"), (_GROUP,))
    if get_text(role, "kind") not in kinds:
        yield not_supported(path.child("kind"), get_text(role, "kind"), kinds)
    name = get_text(role, "name")
    if name:
        yield from report_name_faults(check_path_segment(name), path.child("name"))
    else:
        yield required(path.child("name"))
    for position, subject in enumerate(get_objects(binding, "subjects")):
        yield from _validate_subject(subject, ROOT.child("subjects").index(position), namespaced)


def _validate_subject(subject: Document, path: FieldPath, namespaced: bool) -> FieldErrors:
    name, kind, group = (get_text(subject, field) for field in ("name", "kind", "apiGroup"))
    if not name:
        yield required(path.child("name"))
    if kind not in _SUBJECT_KINDS:
        yield not_supported(path.child("kind"), kind, _SUBJECT_KINDS)
    elif kind != _ACCOUNT:
        if group not in ("", _GROUP):
            yield not_supported(path.child("apiGroup"), group, (_GROUP,))
    else:
        if name:
            yield from report_name_faults(check_dns_subdomain(name), path.child("name"))
        if group:
            yield not_supported(path.child("apiGroup"), group, ("",))
        if not namespaced and not get_text(subject, "namespace"):
            yield required(path.child("namespace"))


def _validate_same_role(new: Document, old: Document) -> FieldErrors:
    roles = [
        (get_text(role, "apiGroup") or _GROUP, get_text(role, "kind"), get_text(role, "name"))
        for role in (get_mapping(new, "roleRef"), get_mapping(old, "roleRef"))
    ]
    yield from validate_immutable(roles[0], roles[1], ROOT.child("roleRef"))
