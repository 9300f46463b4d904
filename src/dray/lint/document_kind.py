"""What a document says it is: one of our kinds, a workload with pods inside, something else, or a mistake."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from dray.api.kinds import KINDS, Kind, kind_named, kind_of, split_api_version
from dray.errors import DecodeError
from dray.lint.findings import Complaint
from dray.lint.suggestions import did_you_mean
from dray.manifests.writer import yaml_block


@dataclass(frozen=True, slots=True)
class Known:
    """An object of one of our kinds."""

    kind: Kind
    version: str


@dataclass(frozen=True, slots=True)
class Workload:
    """An object of another kind that makes pods from a template."""

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
"""Kinds whose pods are checked, and where their template stands."""

_DRA = ("resource.k8s.io", "cdi.k8s.io")
_DRA_KINDS = frozenset(kind.name for kind in KINDS if kind.group in _DRA and not kind.bystander)
_SERVED = "resource.k8s.io/v1"


def identify(document: Mapping[str, Any]) -> Known | Workload | Complaint:
    """What to check a document as, or what to say about it instead."""
    api_version, name = document.get("apiVersion"), document.get("kind")
    for field, value, example in (("apiVersion", api_version, _SERVED), ("kind", name, "ResourceClaim")):
        if not isinstance(value, str) or not value:
            return _nameless(field, value, example, document)
    assert isinstance(api_version, str)
    assert isinstance(name, str)
    group, version = split_api_version(api_version)
    if group == "resource.k8s.io" and version.startswith("v1alpha"):
        return _removed(document, name, version)
    if (group, name) in WORKLOADS:
        return Workload(WORKLOADS[group, name])
    kind = kind_named(group, name)
    if kind is None or not kind.bystander:
        if kind is not None and version in kind.versions:
            return Known(kind, version)
        if group in _DRA or name in _DRA_KINDS or (kind is not None and not group):
            return _unknown_kind(document, kind, group, name)
    return Complaint("not-checked", "kind", f"`{name}` of `{api_version}` is not checked", at_key=True)


def _nameless(field: str, value: Any, example: str, document: Mapping[str, Any]) -> Complaint:
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
    return Complaint("not-an-object", field, f"`{field}` {found}", expected=expected, hint=hint)


def _unknown_kind(document: Mapping[str, Any], kind: Kind | None, group: str, name: str) -> Complaint:
    try:
        kind_of(document)
        message = f"unknown kind `{name}`"
    except DecodeError as refused:
        message, _, _ = str(refused).partition("; ")
    if kind is not None:
        served = ", ".join(f"`{kind.api_version(version)}`" for version in kind.versions)
        return Complaint("unknown-kind", "apiVersion", message, expected=f"one of {served}")
    homes = [f"`{other.internal_api_version}`" for other in KINDS if other.name == name]
    if homes:
        return Complaint("unknown-kind", "apiVersion", message, expected=" or ".join(homes))
    names = [other.name for other in KINDS if other.group == group]
    expected = "one of " + ", ".join(f"`{known}`" for known in names)
    return Complaint("unknown-kind", "kind", message, expected=expected, hint=did_you_mean(name, names))


@dataclass(frozen=True, slots=True)
class _Gone:
    """A kind of an alpha version: until when it was there and what took its place."""

    until: str
    instead: str


_GONE: Mapping[str, _Gone] = MappingProxyType(
    {
        "ResourceClass": _Gone("1.31", "`DeviceClass`, which selects devices by expression"),
        "PodSchedulingContext": _Gone("1.32", "nothing: the scheduler allocates devices itself"),
        "ResourceClaimParameters": _Gone("1.31", "`spec.devices` of the claim"),
        "ResourceClassParameters": _Gone("1.31", "`DeviceClass`"),
    }
)


def _removed(document: Mapping[str, Any], name: str, version: str) -> Complaint:
    gone = _GONE.get(name)
    api_version = f"resource.k8s.io/{version}"
    if gone is not None:
        return Complaint(
            "removed-api",
            "kind",
            f"`{name}` of `{api_version}` was removed in Kubernetes {gone.until}",
            expected=gone.instead,
            rewrite=_device_class(document) if name == "ResourceClass" else "",
        )
    if version == "v1alpha3" and name in _DRA_KINDS:
        hint = _OF_ALPHA3.get(name, _LIKE_BETA)
    else:
        hint = "the claim has a new form: a list of requests, each with a device class"
    expected = f"`{_SERVED}`" if name in _DRA_KINDS else "a kind of `resource.k8s.io/v1`"
    message = f"`{api_version}` is an alpha version that Kubernetes no longer serves"
    return Complaint("removed-api", "apiVersion", message, expected=expected, hint=hint)


_LIKE_BETA = "its fields are those of `v1beta1`: change `apiVersion` to that, then `dray convert --to v1`"
_OF_ALPHA3: Mapping[str, str] = MappingProxyType(
    {"DeviceTaintRule": "its fields are those of `v1`, but `deviceClassName` and `selectors` are gone"}
)


def _device_class(document: Mapping[str, Any]) -> str:
    driver = document.get("driverName") or document.get("driver")
    metadata = document.get("metadata")
    name = metadata.get("name") if isinstance(metadata, Mapping) else None
    spec = {"selectors": [{"cel": {"expression": f'device.driver == "{driver}"'}}]} if driver else {}
    return yaml_block(
        {"apiVersion": _SERVED, "kind": "DeviceClass", "metadata": {"name": name}, "spec": spec}
    )
