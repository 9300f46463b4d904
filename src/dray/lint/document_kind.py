"""Identification of documents: a known kind, a workload with a pod template, or a finding."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from dray.api.kinds import (
    KINDS,
    Kind,
    UnknownKindError,
    find_kind,
    parse_document_kind,
    split_api_version,
)
from dray.lint.findings import FieldFinding
from dray.lint.suggestions import suggest_name
from dray.manifests.writer import to_yaml_block


@dataclass(frozen=True, slots=True)
class KnownObject:
    """An object of a known kind."""

    kind: Kind
    version: str


@dataclass(frozen=True, slots=True)
class WorkloadTemplate:
    """An object of another kind that creates pods from a template."""

    template: str


WORKLOADS: Mapping[tuple[str, str], str] = MappingProxyType(
    {
        ("apps", "Deployment"): "spec.template",
        ("apps", "ReplicaSet"): "spec.template",
        ("apps", "StatefulSet"): "spec.template",
        ("apps", "DaemonSet"): "spec.template",
        ("batch", "Job"): "spec.template",
        ("batch", "CronJob"): "spec.jobTemplate.spec.template",
        ("", "ReplicationController"): "spec.template",
        ("", "PodTemplate"): "template",
    }
)
"""Kinds whose pods are checked, and the path of their template."""

_DRA_GROUPS = ("resource.k8s.io", "cdi.k8s.io")
_DRA_KINDS = frozenset(kind.name for kind in KINDS if kind.group in _DRA_GROUPS and not kind.is_opaque)
_CURRENT_API_VERSION = "resource.k8s.io/v1"


def identify(document: Mapping[str, Any]) -> KnownObject | WorkloadTemplate | FieldFinding:
    """What a document is checked as, or the finding about it."""
    api_version, name = document.get("apiVersion"), document.get("kind")
    for field, value, example in (
        ("apiVersion", api_version, _CURRENT_API_VERSION),
        ("kind", name, "ResourceClaim"),
    ):
        if not isinstance(value, str) or not value:
            return _report_missing_type(field, value, example, document)
    assert isinstance(api_version, str)
    assert isinstance(name, str)
    group, version = split_api_version(api_version)
    if group == "resource.k8s.io" and version.startswith("v1alpha"):
        return _report_removed_api(document, name, version)
    if (group, name) in WORKLOADS:
        return WorkloadTemplate(WORKLOADS[group, name])
    kind = find_kind(group, name)
    if kind is None or not kind.is_opaque:
        if kind is not None and version in kind.versions:
            return KnownObject(kind, version)
        if group in _DRA_GROUPS or name in _DRA_KINDS or (kind is not None and not group):
            return _report_unknown_kind(document, kind, group, name)
    return FieldFinding("not-checked", "kind", f"`{name}` of `{api_version}` is not checked", at_key=True)


def _report_missing_type(field: str, value: Any, example: str, document: Mapping[str, Any]) -> FieldFinding:
    found = "is missing" if value is None or value == "" else "is not text"
    hint = ""
    name = document.get("kind")
    if field == "apiVersion" and isinstance(name, str) and name in _DRA_KINDS:
        served = [kind.internal_api_version for kind in KINDS if kind.name == name]
        hint = f"`{name}` is served in {' and '.join(f'`{v}`' for v in served)}"
    elif field == "kind" and isinstance(document.get("apiVersion"), str):
        group = split_api_version(document["apiVersion"])[0]
        names = [f"`{kind.name}`" for kind in KINDS if kind.group == group]
        hint = f"kinds of `{document['apiVersion']}`: {', '.join(names)}" if names else ""
        example = next((kind.name for kind in KINDS if kind.group == group), example)
    expected = f"for example `{field}: {example}`"
    return FieldFinding("not-an-object", field, f"`{field}` {found}", expected=expected, hint=hint)


def _report_unknown_kind(
    document: Mapping[str, Any], kind: Kind | None, group: str, name: str
) -> FieldFinding:
    try:
        parse_document_kind(document)
        message = f"unknown kind `{name}`"
    except UnknownKindError as error:
        message = error.problem
    if kind is not None:
        served = ", ".join(f"`{kind.format_api_version(version)}`" for version in kind.versions)
        return FieldFinding("unknown-kind", "apiVersion", message, expected=f"one of {served}")
    versions = [f"`{other.internal_api_version}`" for other in KINDS if other.name == name]
    if versions:
        return FieldFinding("unknown-kind", "apiVersion", message, expected=" or ".join(versions))
    names = [other.name for other in KINDS if other.group == group]
    expected = "one of " + ", ".join(f"`{known}`" for known in names)
    return FieldFinding("unknown-kind", "kind", message, expected=expected, hint=suggest_name(name, names))


@dataclass(frozen=True, slots=True)
class _RemovedKind:
    """A kind of an alpha version: the release that removed it, and its replacement."""

    removed_in: str
    replacement: str


_REMOVED_KINDS: Mapping[str, _RemovedKind] = MappingProxyType(
    {
        "ResourceClass": _RemovedKind("1.31", "`DeviceClass`, which selects devices by expression"),
        "PodSchedulingContext": _RemovedKind("1.32", "nothing: the scheduler allocates devices itself"),
        "ResourceClaimParameters": _RemovedKind("1.31", "`spec.devices` of the claim"),
        "ResourceClassParameters": _RemovedKind("1.31", "`DeviceClass`"),
    }
)


def _report_removed_api(document: Mapping[str, Any], name: str, version: str) -> FieldFinding:
    removed = _REMOVED_KINDS.get(name)
    api_version = f"resource.k8s.io/{version}"
    if removed is not None:
        return FieldFinding(
            "removed-api",
            "kind",
            f"`{name}` of `{api_version}` was removed in Kubernetes {removed.removed_in}",
            expected=removed.replacement,
            rewrite=_rewrite_as_device_class(document) if name == "ResourceClass" else "",
        )
    if version == "v1alpha3" and name in _DRA_KINDS:
        hint = _ALPHA3_HINTS.get(name, _LIKE_BETA_HINT)
    else:
        hint = "the claim has a new form: a list of requests, each with a device class"
    expected = f"`{_CURRENT_API_VERSION}`" if name in _DRA_KINDS else "a kind of `resource.k8s.io/v1`"
    message = f"`{api_version}` is an alpha version that Kubernetes no longer serves"
    return FieldFinding("removed-api", "apiVersion", message, expected=expected, hint=hint)


_LIKE_BETA_HINT = (
    "its fields are those of `v1beta1`: change `apiVersion` to that, then `dray convert --to v1`"
)
_ALPHA3_HINTS: Mapping[str, str] = MappingProxyType(
    {"DeviceTaintRule": "its fields are those of `v1`, but `deviceClassName` and `selectors` are removed"}
)


def _rewrite_as_device_class(document: Mapping[str, Any]) -> str:
    driver = document.get("driverName") or document.get("driver")
    metadata = document.get("metadata")
    name = metadata.get("name") if isinstance(metadata, Mapping) else None
    spec = {"selectors": [{"cel": {"expression": f'device.driver == "{driver}"'}}]} if driver else {}
    return to_yaml_block(
        {"apiVersion": _CURRENT_API_VERSION, "kind": "DeviceClass", "metadata": {"name": name}, "spec": spec}
    )
