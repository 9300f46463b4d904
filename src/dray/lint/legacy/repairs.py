"""Shapes of other times and versions: what they look like, what to write today, and where their fields went.

Theory of operation: each shape is a function that looks at a document and, when it recognises itself, returns
one `Repair`: the complaint with the text to write instead, the document in today's shape, and the way back
from today's field paths to the ones in the file. The object is then checked in its repaired form, so that one
old habit is one finding and does not hide the next fault.

Rules for this file: shapes are recognised, never guessed: a document that could also mean something else is
left alone, and the ordinary checks report it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from dray.api.classic.resource_claim import ClassicClaimSpec
from dray.api.decode_report import field_names
from dray.api.resource import Device, ExactDeviceRequest
from dray.lint.findings import Complaint
from dray.manifests.writer import yaml_block

Fields = Mapping[str, Any]
Back = tuple[re.Pattern[str], str]


@dataclass(frozen=True, slots=True)
class Repair:
    """A shape that was recognised."""

    complaint: Complaint
    document: Fields
    back: Back | None = None


_ASK = frozenset(field_names(ExactDeviceRequest))
_DEVICE = frozenset(field_names(Device)) - {"name"}
_CLAIM_PARTS = ("requests", "constraints", "config")
_CLASSIC = frozenset(field_names(ClassicClaimSpec)) | {"parametersRef"}
_CLAIM_SPECS = {"ResourceClaim": ("spec",), "ResourceClaimTemplate": ("spec", "spec")}


def repaired(document: Fields, kind: str, version: str) -> tuple[Fields, list[Repair]]:
    """A document of `resource.k8s.io` in today's shape, and what had to be repaired for it."""
    repairs: list[Repair] = []
    for shape in SHAPES:
        while len(repairs) < _ENOUGH and (repair := shape(document, kind, version)) is not None:
            repairs.append(repair)
            document = repair.document
    return document, repairs


_ENOUGH = 32


def came_from(path: str, repairs: list[Repair]) -> str:
    """Where a field of the repaired document stands in the document as written."""
    for repair in reversed(repairs):
        if repair.back is not None:
            pattern, replacement = repair.back
            path = pattern.sub(replacement, path, count=1)
    return path


def _classic_fields(document: Fields, kind: str, version: str) -> Repair | None:
    way = _CLAIM_SPECS.get(kind)
    spec = _inner(document, way)
    if way is None or not isinstance(spec, Mapping) or "resourceClassName" not in spec or "devices" in spec:
        return None
    name = spec["resourceClassName"]
    ask = {"deviceClassName": name}
    request = {"name": "device", **(ask if version == "v1beta1" else {"exactly": ask})}
    today = {"devices": {"requests": [request]}}
    rest = {key: value for key, value in spec.items() if key not in _CLASSIC}
    complaint = Complaint(
        "old-classic-fields",
        f"{'.'.join(way)}.resourceClassName",
        "`resourceClassName` is a field of classic claims; claims of `resource.k8s.io` ask for devices",
        expected="`devices.requests`, each with a device class",
        hint="a classic claim belongs to `cdi.k8s.io/v1alpha1`; otherwise ask for a device of a class",
        rewrite=yaml_block({"spec": today}),
        at_key=True,
    )
    return Repair(complaint, _with(document, way, {**rest, **today}))


def _outside_devices(document: Fields, kind: str, version: str) -> Repair | None:
    way = _CLAIM_SPECS.get(kind)
    spec = _inner(document, way)
    if way is None or not isinstance(spec, Mapping) or "devices" in spec:
        return None
    moved = {part: spec[part] for part in _CLAIM_PARTS if part in spec}
    if not moved:
        return None
    rest = {key: value for key, value in spec.items() if key not in moved}
    first, names = next(iter(moved)), " and ".join(f"`{part}`" for part in moved)
    prefix = ".".join(way)
    complaint = Complaint(
        "requests-outside-devices",
        f"{prefix}.{first}",
        f"{names} must stand under `{prefix}.devices`",
        expected=f"`{prefix}.devices.{first}`",
        rewrite=yaml_block({"spec": {**rest, "devices": moved}}),
        at_key=True,
    )
    back = (re.compile(rf"^{re.escape(prefix)}\.devices\.({'|'.join(moved)})\b"), rf"{prefix}.\1")
    return Repair(complaint, _with(document, way, {**rest, "devices": moved}), back)


def _flat_requests(document: Fields, kind: str, version: str) -> Repair | None:
    """Requests of v1beta1 in a later version."""
    if version == "v1beta1":
        return None

    def nested(request: Fields) -> Fields | None:
        flat = {key: value for key, value in request.items() if key in _ASK}
        if not flat or "exactly" in request:
            return None
        return {**{key: value for key, value in request.items() if key not in _ASK}, "exactly": flat}

    return _each_request(
        document,
        kind,
        nested,
        lambda path, count: Complaint(
            "old-flat-request",
            path,
            f"fields of a request stand under `exactly` in `{version}`; only `v1beta1` has them flat{count}",
            expected="`name` and either `exactly` or `firstAvailable`",
        ),
        (r"(devices\.requests\[@\])\.exactly\b", r"\1"),
    )


def _nested_requests(document: Fields, kind: str, version: str) -> Repair | None:
    """Requests of a later version in v1beta1."""
    if version != "v1beta1":
        return None

    def flat(request: Fields) -> Fields | None:
        exactly = request.get("exactly")
        if not isinstance(exactly, Mapping) or _ASK & request.keys():
            return None
        return {**{key: value for key, value in request.items() if key != "exactly"}, **exactly}

    return _each_request(
        document,
        kind,
        flat,
        lambda path, count: Complaint(
            "new-exactly",
            f"{path}.exactly",
            f"`v1beta1` has no `exactly`; its fields stand beside `name`{count}",
            expected="the fields of the request beside `name`, or `apiVersion: resource.k8s.io/v1`",
            at_key=True,
        ),
        (rf"(devices\.requests\[@\])\.(?={'|'.join(sorted(_ASK))})", r"\1.exactly."),
    )


def _attribute_lists(document: Fields, kind: str, version: str) -> Repair | None:
    way = _CLAIM_SPECS.get(kind)
    constraints = _inner(document, (*way, "devices", "constraints")) if way else None
    if way is None or not isinstance(constraints, list):
        return None
    for index, constraint in enumerate(constraints):
        for name in ("matchAttribute", "distinctAttribute"):
            listed = constraint.get(name) if isinstance(constraint, Mapping) else None
            if isinstance(listed, list) and listed and all(isinstance(item, str) for item in listed):
                single = [{**constraint, name: attribute} for attribute in listed]
                whole = [*constraints[:index], single[0], *constraints[index + 1 :]]
                several = " each of its attributes needs a constraint of its own" if len(listed) > 1 else ""
                complaint = Complaint(
                    "attribute-list",
                    f"{'.'.join(way)}.devices.constraints[{index}].{name}",
                    f"`{name}` is a list; a constraint names one attribute",
                    expected="one attribute name, for example `resource.kubernetes.io/pcieRoot`",
                    hint=several.strip(),
                    rewrite=yaml_block(single),
                    at_key=True,
                )
                return Repair(complaint, _with(document, (*way, "devices", "constraints"), whole))
    return None


def _basic_devices(document: Fields, kind: str, version: str) -> Repair | None:
    """Devices of v1beta1 in a later version."""
    if version == "v1beta1":
        return None

    def open_up(device: Fields) -> Fields | None:
        basic = device.get("basic")
        if not isinstance(basic, Mapping):
            return None
        return {**{key: value for key, value in device.items() if key != "basic"}, **basic}

    return _each_device(
        document,
        kind,
        open_up,
        lambda path, count: Complaint(
            "old-device-basic",
            f"{path}.basic",
            f"`basic` belongs to `v1beta1`; in `{version}` the fields of a device stand beside `name`{count}",
            expected="the fields of the device beside `name`",
            at_key=True,
        ),
        (r"^(spec\.devices\[@\])\.(?!name\b)", r"\1.basic."),
    )


def _flat_devices(document: Fields, kind: str, version: str) -> Repair | None:
    """Devices of a later version in v1beta1."""
    if version != "v1beta1":
        return None

    def wrap(device: Fields) -> Fields | None:
        flat = {key: value for key, value in device.items() if key in _DEVICE}
        if not flat or "basic" in device:
            return None
        return {**{key: value for key, value in device.items() if key not in _DEVICE}, "basic": flat}

    return _each_device(
        document,
        kind,
        wrap,
        lambda path, count: Complaint(
            "new-flat-device",
            path,
            f"in `v1beta1` the fields of a device stand under `basic`{count}",
            expected="`name` and `basic`, or `apiVersion: resource.k8s.io/v1`",
        ),
        (r"^(spec\.devices\[@\])\.basic\b", r"\1"),
    )


Shape = Callable[[Fields, str, str], Repair | None]

SHAPES: tuple[Shape, ...] = (
    _classic_fields,
    _outside_devices,
    _flat_requests,
    _nested_requests,
    _attribute_lists,
    _basic_devices,
    _flat_devices,
)
"""In this order, because each works on what the ones before have repaired."""

_Change = Callable[[Fields], Fields | None]
_Words = Callable[[str, str], Complaint]
_Way = tuple[str, str]
"""A pattern of paths and what to put in its place; `@` stands for the items that were changed."""


def _each_request(document: Fields, kind: str, change: _Change, words: _Words, back: _Way) -> Repair | None:
    way = _CLAIM_SPECS.get(kind)
    return _each(document, (*way, "devices", "requests"), change, words, back) if way else None


def _each_device(document: Fields, kind: str, change: _Change, words: _Words, back: _Way) -> Repair | None:
    return _each(document, ("spec", "devices"), change, words, back) if kind == "ResourceSlice" else None


def _each(
    document: Fields, way: tuple[str, ...], change: _Change, words: _Words, back: _Way
) -> Repair | None:
    """Change every item of a list that has the shape; one complaint, at the first, for all of them."""
    items = _inner(document, way)
    if not isinstance(items, list):
        return None
    changed = {i: new for i, item in enumerate(items) if isinstance(item, Mapping) and (new := change(item))}
    if not changed:
        return None
    first = min(changed)
    more = f" ({len(changed)} items of this list)" if len(changed) > 1 else ""
    complaint = replace(words(f"{'.'.join(way)}[{first}]", more), rewrite=yaml_block([changed[first]]))
    pattern = re.compile(back[0].replace("@", f"(?:{'|'.join(map(str, changed))})"))
    whole = [changed.get(i, item) for i, item in enumerate(items)]
    return Repair(complaint, _with(document, way, whole), (pattern, back[1]))


def _inner(document: Any, way: tuple[str, ...] | None) -> Any:
    for name in way or ():
        if not isinstance(document, Mapping):
            return None
        document = document.get(name)
    return document


def _with(document: Fields, way: tuple[str, ...], value: Any) -> dict[str, Any]:
    """The document with another value at the end of a way that exists."""
    name, *rest = way
    return {**document, name: _with(document[name], tuple(rest), value) if rest else value}
