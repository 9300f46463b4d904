"""`resource.k8s.io/v1beta1`: devices nested under `basic`, requests spread flat.

Theory of operation: `SHAPES` are the internal structs with those two places changed, so that unknown
fields are judged, and named, in the version the user wrote. The rewrites move the fields; whatever
they do not know stays where it is, for the decoder to report.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import msgspec

from dray.api.decode_report import field_names
from dray.api.meta import Value
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

Document = Mapping[str, Any]


def _altered(
    origin: type[msgspec.Struct],
    *,
    called: str = "",
    without: tuple[str, ...] = (),
    **changed: tuple[type, Any],
) -> type[msgspec.Struct]:
    """A struct like another one, with some fields left out and others of another type."""
    fields: list[tuple[str, Any, Any]] = []
    for known in msgspec.structs.fields(origin):
        if known.name in without or known.name in changed:
            continue
        if known.default is not msgspec.NODEFAULT:
            default = msgspec.field(default=known.default, name=known.encode_name)
        else:
            default = msgspec.field(default_factory=known.default_factory, name=known.encode_name)
        fields.append((known.name, known.type, default))
    fields += [(name, shape, default) for name, (shape, default) in changed.items()]
    return _struct(f"{called or origin.__name__}V1beta1", fields)


def _struct(name: str, fields: list[tuple[str, Any, Any]]) -> type[msgspec.Struct]:
    return msgspec.defstruct(name, fields, bases=(Value,), frozen=True, kw_only=True)


def _shapes() -> dict[str, type[msgspec.Struct]]:
    basic = _altered(Device, called="BasicDevice", without=("name",))
    device = _struct("DeviceV1beta1", [("name", str, ""), ("basic", basic | None, None)])
    slice_spec = _altered(ResourceSliceSpec, devices=(tuple[device, ...], ()))  # type: ignore[valid-type]
    flat = {
        known.name: (known.type, msgspec.field(default=known.default, name=known.encode_name))
        for known in msgspec.structs.fields(ExactDeviceRequest)
    }
    request = _altered(DeviceRequest, called="DeviceRequest", without=("exactly",), **flat)
    devices = _altered(DeviceClaim, requests=(tuple[request, ...], ()))  # type: ignore[valid-type]
    claim_spec = _altered(ResourceClaimSpec, devices=(devices, devices()))
    template_spec = _altered(ResourceClaimTemplateSpec, spec=(claim_spec, claim_spec()))
    return {
        "ResourceSlice": _altered(ResourceSlice, spec=(slice_spec, slice_spec())),
        "ResourceClaim": _altered(ResourceClaim, spec=(claim_spec, claim_spec())),
        "ResourceClaimTemplate": _altered(ResourceClaimTemplate, spec=(template_spec, template_spec())),
    }


SHAPES: Mapping[str, type[msgspec.Struct]] = MappingProxyType(_shapes())
_NESTED = frozenset(field_names(Device)) - {"name"}
_FLAT = frozenset(field_names(ExactDeviceRequest))
_REQUESTS = ("spec", "devices", "requests")


def slice_up(document: Document) -> dict[str, Any]:
    """A slice in the internal form."""
    return _at(document, ("spec", "devices"), lambda devices: _each(devices, _device_up))


def slice_down(document: Document) -> dict[str, Any]:
    """A slice as v1beta1."""
    return _at(document, ("spec", "devices"), lambda devices: _each(devices, _device_down))


def claim_up(document: Document) -> dict[str, Any]:
    """A claim in the internal form."""
    return _at(document, _REQUESTS, lambda requests: _each(requests, _request_up))


def claim_down(document: Document) -> dict[str, Any]:
    """A claim as v1beta1."""
    return _at(document, _REQUESTS, lambda requests: _each(requests, _request_down))


def template_up(document: Document) -> dict[str, Any]:
    """A template in the internal form."""
    return _at(document, ("spec", *_REQUESTS), lambda requests: _each(requests, _request_up))


def template_down(document: Document) -> dict[str, Any]:
    """A template as v1beta1."""
    return _at(document, ("spec", *_REQUESTS), lambda requests: _each(requests, _request_down))


def place(kind_name: str, path: str) -> str:
    """Where a field of the internal form stands in v1beta1."""
    if kind_name == "ResourceSlice":
        return re.sub(r"^(spec\.devices\[\d+\])\.(?!name\b|basic\b)", r"\1.basic.", path)
    return re.sub(r"(devices\.requests\[\d+\])\.exactly\b", r"\1", path)


def _device_up(device: Document) -> dict[str, Any]:
    basic = device.get("basic")
    rest = {name: value for name, value in device.items() if name != "basic"}
    return {**rest, **basic} if isinstance(basic, Mapping) else rest


def _device_down(device: Document) -> dict[str, Any]:
    basic = {name: value for name, value in device.items() if name in _NESTED}
    return {**{name: value for name, value in device.items() if name not in _NESTED}, "basic": basic}


def _request_up(request: Document) -> dict[str, Any]:
    exactly = {name: value for name, value in request.items() if name in _FLAT and value is not None}
    rest = {name: value for name, value in request.items() if name not in _FLAT}
    return {**rest, "exactly": exactly} if exactly else rest


def _request_down(request: Document) -> dict[str, Any]:
    exactly = request.get("exactly")
    rest = {name: value for name, value in request.items() if name != "exactly"}
    if not isinstance(exactly, Mapping):
        return rest
    # An empty `exactly` must come back: its one required field, empty too, says that it was there.
    return {**rest, **(exactly or {"deviceClassName": ""})}


def _at(document: Document, path: tuple[str, ...], change: Callable[[Any], Any]) -> dict[str, Any]:
    """The document with what stands at a path changed; unchanged where the path ends early."""
    name, *below = path
    if name not in document:
        return dict(document)
    inner = document[name]
    if below:
        changed = _at(inner, tuple(below), change) if isinstance(inner, Mapping) else inner
    else:
        changed = change(inner)
    return {**document, name: changed}


def _each(items: Any, change: Callable[[Document], dict[str, Any]]) -> Any:
    if not isinstance(items, list | tuple):
        return items
    return [change(item) if isinstance(item, Mapping) else item for item in items]
