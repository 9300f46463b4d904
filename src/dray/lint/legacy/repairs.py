"""Repairs of old shapes of `resource.k8s.io` objects: what to write today, and where their fields are in the
file.

Theory of operation: each rule recognises one shape of a document and returns a `Repair`: the finding with the
text to write instead, the document in today's shape, and the mapping from today's field paths back to those
in the file. The object is then checked in its repaired form, so that one old shape is one finding and does
not hide the next fault.

Rules for this file: shapes are recognised, never guessed: a document that could also mean something else is
left as it is, and the ordinary checks report it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from dray.api.classic.resource_claim import ClassicClaimSpec
from dray.api.decode_report import list_field_names
from dray.api.resource import Device, ExactDeviceRequest
from dray.lint.findings import FieldFinding
from dray.manifests.writer import to_yaml_block

DocumentFields = Mapping[str, Any]
PathRewrite = tuple[re.Pattern[str], str]


@dataclass(frozen=True, slots=True)
class Repair:
    """A recognised shape."""

    finding: FieldFinding
    document: DocumentFields
    path_rewrite: PathRewrite | None = None


_REQUEST_FIELDS = frozenset(list_field_names(ExactDeviceRequest))
_DEVICE_FIELDS = frozenset(list_field_names(Device)) - {"name"}
_CLAIM_PARTS = ("requests", "constraints", "config")
_CLASSIC_FIELDS = frozenset(list_field_names(ClassicClaimSpec)) | {"parametersRef"}
_CLAIM_SPECS = {"ResourceClaim": ("spec",), "ResourceClaimTemplate": ("spec", "spec")}


def repair_document(document: DocumentFields, kind: str, version: str) -> tuple[DocumentFields, list[Repair]]:
    """A document of `resource.k8s.io` in today's shape, and the repairs that were needed."""
    repairs: list[Repair] = []
    for shape in REPAIR_RULES:
        while len(repairs) < _MAX_REPAIRS and (repair := shape(document, kind, version)) is not None:
            repairs.append(repair)
            document = repair.document
    return document, repairs


_MAX_REPAIRS = 32


def map_path_back(path: str, repairs: list[Repair]) -> str:
    """The path of a field of the repaired document in the document as written."""
    for repair in reversed(repairs):
        if repair.path_rewrite is not None:
            pattern, replacement = repair.path_rewrite
            path = pattern.sub(replacement, path, count=1)
    return path


def _repair_classic_fields(document: DocumentFields, kind: str, version: str) -> Repair | None:
    spec_path = _CLAIM_SPECS.get(kind)
    spec = _get_nested(document, spec_path)
    if (
        spec_path is None
        or not isinstance(spec, Mapping)
        or "resourceClassName" not in spec
        or "devices" in spec
    ):
        return None
    name = spec["resourceClassName"]
    exactly = {"deviceClassName": name}
    request = {"name": "device", **(exactly if version == "v1beta1" else {"exactly": exactly})}
    today = {"devices": {"requests": [request]}}
    rest = {key: value for key, value in spec.items() if key not in _CLASSIC_FIELDS}
    finding = FieldFinding(
        "old-classic-fields",
        f"{'.'.join(spec_path)}.resourceClassName",
        "`resourceClassName` is a field of classic claims; claims of `resource.k8s.io` ask for devices",
        expected="`devices.requests`, each with a device class",
        hint="a classic claim belongs to `cdi.k8s.io/v1alpha1`; otherwise ask for a device of a class",
        rewrite=to_yaml_block({"spec": today}),
        at_key=True,
    )
    return Repair(finding, _replace_nested(document, spec_path, {**rest, **today}))


def _repair_outside_devices(document: DocumentFields, kind: str, version: str) -> Repair | None:
    spec_path = _CLAIM_SPECS.get(kind)
    spec = _get_nested(document, spec_path)
    if spec_path is None or not isinstance(spec, Mapping) or "devices" in spec:
        return None
    moved = {part: spec[part] for part in _CLAIM_PARTS if part in spec}
    if not moved:
        return None
    rest = {key: value for key, value in spec.items() if key not in moved}
    first, names = next(iter(moved)), " and ".join(f"`{part}`" for part in moved)
    prefix = ".".join(spec_path)
    finding = FieldFinding(
        "requests-outside-devices",
        f"{prefix}.{first}",
        f"{names} must stand under `{prefix}.devices`",
        expected=f"`{prefix}.devices.{first}`",
        rewrite=to_yaml_block({"spec": {**rest, "devices": moved}}),
        at_key=True,
    )
    back = (re.compile(rf"^{re.escape(prefix)}\.devices\.({'|'.join(moved)})\b"), rf"{prefix}.\1")
    return Repair(finding, _replace_nested(document, spec_path, {**rest, "devices": moved}), back)


def _repair_flat_requests(document: DocumentFields, kind: str, version: str) -> Repair | None:
    """Requests of v1beta1 in a later version."""
    if version == "v1beta1":
        return None

    def nest(request: DocumentFields) -> DocumentFields | None:
        flat = {key: value for key, value in request.items() if key in _REQUEST_FIELDS}
        if not flat or "exactly" in request:
            return None
        return {
            **{key: value for key, value in request.items() if key not in _REQUEST_FIELDS},
            "exactly": flat,
        }

    return _repair_each_request(
        document,
        kind,
        nest,
        lambda path, count: FieldFinding(
            "old-flat-request",
            path,
            f"fields of a request stand under `exactly` in `{version}`; only `v1beta1` has them flat{count}",
            expected="`name` and either `exactly` or `firstAvailable`",
        ),
        (r"(devices\.requests\[@\])\.exactly\b", r"\1"),
    )


def _repair_nested_requests(document: DocumentFields, kind: str, version: str) -> Repair | None:
    """Requests of a later version in v1beta1."""
    if version != "v1beta1":
        return None

    def flatten(request: DocumentFields) -> DocumentFields | None:
        exactly = request.get("exactly")
        if not isinstance(exactly, Mapping) or _REQUEST_FIELDS & request.keys():
            return None
        return {**{key: value for key, value in request.items() if key != "exactly"}, **exactly}

    return _repair_each_request(
        document,
        kind,
        flatten,
        lambda path, count: FieldFinding(
            "new-exactly",
            f"{path}.exactly",
            f"`v1beta1` has no `exactly`; its fields stand beside `name`{count}",
            expected="the fields of the request beside `name`, or `apiVersion: resource.k8s.io/v1`",
            at_key=True,
        ),
        (rf"(devices\.requests\[@\])\.(?={'|'.join(sorted(_REQUEST_FIELDS))})", r"\1.exactly."),
    )


def _repair_attribute_lists(document: DocumentFields, kind: str, version: str) -> Repair | None:
    spec_path = _CLAIM_SPECS.get(kind)
    constraints = _get_nested(document, (*spec_path, "devices", "constraints")) if spec_path else None
    if spec_path is None or not isinstance(constraints, list):
        return None
    for index, constraint in enumerate(constraints):
        for name in ("matchAttribute", "distinctAttribute"):
            listed = constraint.get(name) if isinstance(constraint, Mapping) else None
            if isinstance(listed, list) and listed and all(isinstance(item, str) for item in listed):
                single = [{**constraint, name: attribute} for attribute in listed]
                whole = [*constraints[:index], single[0], *constraints[index + 1 :]]
                several = " each of its attributes needs a constraint of its own" if len(listed) > 1 else ""
                finding = FieldFinding(
                    "attribute-list",
                    f"{'.'.join(spec_path)}.devices.constraints[{index}].{name}",
                    f"`{name}` is a list; a constraint names one attribute",
                    expected="one attribute name, for example `resource.kubernetes.io/pcieRoot`",
                    hint=several.strip(),
                    rewrite=to_yaml_block(single),
                    at_key=True,
                )
                return Repair(
                    finding, _replace_nested(document, (*spec_path, "devices", "constraints"), whole)
                )
    return None


def _repair_basic_devices(document: DocumentFields, kind: str, version: str) -> Repair | None:
    """Devices of v1beta1 in a later version."""
    if version == "v1beta1":
        return None

    def unwrap(device: DocumentFields) -> DocumentFields | None:
        basic = device.get("basic")
        if not isinstance(basic, Mapping):
            return None
        return {**{key: value for key, value in device.items() if key != "basic"}, **basic}

    return _repair_each_device(
        document,
        kind,
        unwrap,
        lambda path, count: FieldFinding(
            "old-device-basic",
            f"{path}.basic",
            f"`basic` belongs to `v1beta1`; in `{version}` the fields of a device stand beside `name`{count}",
            expected="the fields of the device beside `name`",
            at_key=True,
        ),
        (r"^(spec\.devices\[@\])\.(?!name\b)", r"\1.basic."),
    )


def _repair_flat_devices(document: DocumentFields, kind: str, version: str) -> Repair | None:
    """Devices of a later version in v1beta1."""
    if version != "v1beta1":
        return None

    def wrap(device: DocumentFields) -> DocumentFields | None:
        flat = {key: value for key, value in device.items() if key in _DEVICE_FIELDS}
        if not flat or "basic" in device:
            return None
        return {**{key: value for key, value in device.items() if key not in _DEVICE_FIELDS}, "basic": flat}

    return _repair_each_device(
        document,
        kind,
        wrap,
        lambda path, count: FieldFinding(
            "new-flat-device",
            path,
            f"in `v1beta1` the fields of a device stand under `basic`{count}",
            expected="`name` and `basic`, or `apiVersion: resource.k8s.io/v1`",
        ),
        (r"^(spec\.devices\[@\])\.basic\b", r"\1"),
    )


RepairRule = Callable[[DocumentFields, str, str], Repair | None]

REPAIR_RULES: tuple[RepairRule, ...] = (
    _repair_classic_fields,
    _repair_outside_devices,
    _repair_flat_requests,
    _repair_nested_requests,
    _repair_attribute_lists,
    _repair_basic_devices,
    _repair_flat_devices,
)
"""In this order, because each works on the repairs before it."""

_ItemChange = Callable[[DocumentFields], DocumentFields | None]
_FindingBuilder = Callable[[str, str], FieldFinding]
_PathPattern = tuple[str, str]
"""A pattern of paths and its replacement; `@` stands for the items that were changed."""


def _repair_each_request(
    document: DocumentFields,
    kind: str,
    change: _ItemChange,
    build_finding: _FindingBuilder,
    path_pattern: _PathPattern,
) -> Repair | None:
    spec_path = _CLAIM_SPECS.get(kind)
    return (
        _repair_each(document, (*spec_path, "devices", "requests"), change, build_finding, path_pattern)
        if spec_path
        else None
    )


def _repair_each_device(
    document: DocumentFields,
    kind: str,
    change: _ItemChange,
    build_finding: _FindingBuilder,
    path_pattern: _PathPattern,
) -> Repair | None:
    return (
        _repair_each(document, ("spec", "devices"), change, build_finding, path_pattern)
        if kind == "ResourceSlice"
        else None
    )


def _repair_each(
    document: DocumentFields,
    path: tuple[str, ...],
    change: _ItemChange,
    build_finding: _FindingBuilder,
    path_pattern: _PathPattern,
) -> Repair | None:
    """Change every item of a list that has the shape; one finding, at the first, for all of them."""
    items = _get_nested(document, path)
    if not isinstance(items, list):
        return None
    changed = {i: new for i, item in enumerate(items) if isinstance(item, Mapping) and (new := change(item))}
    if not changed:
        return None
    first = min(changed)
    more = f" ({len(changed)} items of this list)" if len(changed) > 1 else ""
    finding = replace(
        build_finding(f"{'.'.join(path)}[{first}]", more), rewrite=to_yaml_block([changed[first]])
    )
    pattern = re.compile(path_pattern[0].replace("@", f"(?:{'|'.join(map(str, changed))})"))
    whole = [changed.get(i, item) for i, item in enumerate(items)]
    return Repair(finding, _replace_nested(document, path, whole), (pattern, path_pattern[1]))


def _get_nested(document: Any, path: tuple[str, ...] | None) -> Any:
    for name in path or ():
        if not isinstance(document, Mapping):
            return None
        document = document.get(name)
    return document


def _replace_nested(document: DocumentFields, path: tuple[str, ...], value: Any) -> dict[str, Any]:
    """The document with another value at the end of an existing path."""
    name, *rest = path
    return {**document, name: _replace_nested(document[name], tuple(rest), value) if rest else value}
