"""Conversion of `resource.k8s.io/v1beta1`: devices nested under `basic`, requests without `exactly`.

Theory of operation: `STRUCT_TYPES` are the internal structs with those two parts changed, so that unknown
fields are reported under the names of the version the user wrote. The conversion functions move fields;
fields they do not handle stay in place, for the decoder to report.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import msgspec

from dray.api.decode_report import list_field_names
from dray.api.json_text import Document
from dray.api.meta import ApiStruct
from dray.api.resource import (
    Device,
    DeviceClaim,
    DeviceRequest,
    ExactDeviceRequest,
    ResourceClaim,
    ResourceClaimSpec,
    ResourceClaimTemplate,
    ResourceClaimTemplateSpec,
    ResourceSlice,
    ResourceSliceSpec,
)


def _derive_struct(
    origin: type[msgspec.Struct],
    *,
    struct_name: str = "",
    without: tuple[str, ...] = (),
    **changed: tuple[type, Any],
) -> type[msgspec.Struct]:
    """Derive a struct type from another one, with some fields removed and others of another type."""
    fields: list[tuple[str, Any, Any]] = []
    for known in msgspec.structs.fields(origin):
        if known.name in without or known.name in changed:
            continue
        if known.default is not msgspec.NODEFAULT:
            default = msgspec.field(default=known.default, name=known.encode_name)
        else:
            default = msgspec.field(default_factory=known.default_factory, name=known.encode_name)
        fields.append((known.name, known.type, default))
    fields += [(name, field_type, default) for name, (field_type, default) in changed.items()]
    return _define_struct(f"{struct_name or origin.__name__}V1beta1", fields)


def _define_struct(name: str, fields: list[tuple[str, Any, Any]]) -> type[msgspec.Struct]:
    return msgspec.defstruct(name, fields, bases=(ApiStruct,), frozen=True, kw_only=True)


def _build_struct_types() -> dict[str, type[msgspec.Struct]]:
    basic = _derive_struct(Device, struct_name="BasicDevice", without=("name",))
    device = _define_struct("DeviceV1beta1", [("name", str, ""), ("basic", basic | None, None)])
    slice_spec = _derive_struct(ResourceSliceSpec, devices=(tuple[device, ...], ()))  # type: ignore[valid-type]
    flat = {
        known.name: (known.type, msgspec.field(default=known.default, name=known.encode_name))
        for known in msgspec.structs.fields(ExactDeviceRequest)
    }
    request = _derive_struct(DeviceRequest, struct_name="DeviceRequest", without=("exactly",), **flat)
    devices = _derive_struct(DeviceClaim, requests=(tuple[request, ...], ()))  # type: ignore[valid-type]
    claim_spec = _derive_struct(ResourceClaimSpec, devices=(devices, devices()))
    template_spec = _derive_struct(ResourceClaimTemplateSpec, spec=(claim_spec, claim_spec()))
    return {
        "ResourceSlice": _derive_struct(ResourceSlice, spec=(slice_spec, slice_spec())),
        "ResourceClaim": _derive_struct(ResourceClaim, spec=(claim_spec, claim_spec())),
        "ResourceClaimTemplate": _derive_struct(ResourceClaimTemplate, spec=(template_spec, template_spec())),
    }


STRUCT_TYPES: Mapping[str, type[msgspec.Struct]] = MappingProxyType(_build_struct_types())
_BASIC_FIELDS = frozenset(list_field_names(Device)) - {"name"}
_EXACT_FIELDS = frozenset(list_field_names(ExactDeviceRequest))
_REQUESTS = ("spec", "devices", "requests")


def convert_slice_to_internal(document: Document) -> dict[str, Any]:
    """Convert a slice to the internal version."""
    return _change_at(
        document, ("spec", "devices"), lambda devices: _change_each(devices, _convert_device_to_internal)
    )


def convert_slice_from_internal(document: Document) -> dict[str, Any]:
    """Convert a slice to v1beta1."""
    return _change_at(
        document, ("spec", "devices"), lambda devices: _change_each(devices, _convert_device_from_internal)
    )


def convert_claim_to_internal(document: Document) -> dict[str, Any]:
    """Convert a claim to the internal version."""
    return _change_at(
        document, _REQUESTS, lambda requests: _change_each(requests, _convert_request_to_internal)
    )


def convert_claim_from_internal(document: Document) -> dict[str, Any]:
    """Convert a claim to v1beta1."""
    return _change_at(
        document, _REQUESTS, lambda requests: _change_each(requests, _convert_request_from_internal)
    )


def convert_template_to_internal(document: Document) -> dict[str, Any]:
    """Convert a template to the internal version."""
    return _change_at(
        document, ("spec", *_REQUESTS), lambda requests: _change_each(requests, _convert_request_to_internal)
    )


def convert_template_from_internal(document: Document) -> dict[str, Any]:
    """Convert a template to v1beta1."""
    return _change_at(
        document,
        ("spec", *_REQUESTS),
        lambda requests: _change_each(requests, _convert_request_from_internal),
    )


def translate_path(kind_name: str, path: str) -> str:
    """Return the path in v1beta1 of a field of the internal version."""
    if kind_name == "ResourceSlice":
        return re.sub(r"^(spec\.devices\[\d+\])\.(?!name\b|basic\b)", r"\1.basic.", path)
    return re.sub(r"(devices\.requests\[\d+\])\.exactly\b", r"\1", path)


def _convert_device_to_internal(device: Document) -> dict[str, Any]:
    basic = device.get("basic")
    rest = {name: value for name, value in device.items() if name != "basic"}
    return {**rest, **basic} if isinstance(basic, Mapping) else rest


def _convert_device_from_internal(device: Document) -> dict[str, Any]:
    basic = {name: value for name, value in device.items() if name in _BASIC_FIELDS}
    return {**{name: value for name, value in device.items() if name not in _BASIC_FIELDS}, "basic": basic}


def _convert_request_to_internal(request: Document) -> dict[str, Any]:
    exactly = {name: value for name, value in request.items() if name in _EXACT_FIELDS and value is not None}
    rest = {name: value for name, value in request.items() if name not in _EXACT_FIELDS}
    return {**rest, "exactly": exactly} if exactly else rest


def _convert_request_from_internal(request: Document) -> dict[str, Any]:
    exactly = request.get("exactly")
    rest = {name: value for name, value in request.items() if name != "exactly"}
    if not isinstance(exactly, Mapping):
        return rest
    # An empty `exactly` must survive the round trip: its one required field, also empty, shows that it was
    # set.
    return {**rest, **(exactly or {"deviceClassName": ""})}


def _change_at(document: Document, path: tuple[str, ...], change: Callable[[Any], Any]) -> dict[str, Any]:
    """Return the document with the value at a path changed; unchanged where the path does not exist."""
    name, *below = path
    if name not in document:
        return dict(document)
    inner = document[name]
    if below:
        changed = _change_at(inner, tuple(below), change) if isinstance(inner, Mapping) else inner
    else:
        changed = change(inner)
    return {**document, name: changed}


def _change_each(items: Any, change: Callable[[Document], dict[str, Any]]) -> Any:
    if not isinstance(items, list | tuple):
        return items
    return [change(item) if isinstance(item, Mapping) else item for item in items]
