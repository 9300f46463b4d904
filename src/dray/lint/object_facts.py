"""What is remembered of an object for the checks across objects: names, references and pages, no documents.

Rules for this file: everything here is small and frozen; a thousand slices must fit in a few megabytes. Field
paths are those of the object as it was written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from dray.api.classic import ClassicClaim
from dray.api.codec import encode
from dray.api.core import Pod
from dray.api.resource import (
    Device,
    DeviceCapacity,
    DeviceClaim,
    DeviceClass,
    DeviceSelector,
    DeviceSubRequest,
    ExactDeviceRequest,
    ResourceClaim,
    ResourceClaimTemplate,
    ResourceSlice,
    ResourceSliceSpec,
)
from dray.lint.findings import Where

Place = Callable[[str], str]
"""From a path in the internal form to the path as it was written."""


@dataclass(frozen=True, slots=True)
class ClassUse:
    """A class that is asked for: where, and its name."""

    path: str
    name: str


@dataclass(frozen=True, slots=True)
class SelectorUse:
    """A selector: where its expression stands, and whether it can be used at all."""

    path: str
    expression: str
    usable: bool = True


@dataclass(frozen=True, slots=True)
class Ask:
    """Selectors that must all be true of one device, after those of the class; a class asks for itself."""

    class_name: str
    selectors: tuple[SelectorUse, ...]


@dataclass(frozen=True, slots=True)
class Entry:
    """One claim of a pod: by name, from a template object, or (neither) from an inline template."""

    name: str
    path: str
    claim: str | None
    template: str | None


@dataclass(frozen=True, slots=True)
class ContainerUse:
    """A container that uses one request of an entry."""

    path: str
    entry: str
    request: str


@dataclass(frozen=True, slots=True)
class Page:
    """One slice: its place in a pool, the devices on it, and each type an attribute has, with where.

    `contents` is the slice with as much of its devices as selectors can see, as JSON: devices are many, and
    as text they are small.
    """

    driver: str
    pool: str
    generation: int
    slices: int
    priority: int | None
    devices: tuple[str, ...]
    types: tuple[tuple[str, str, str], ...]
    contents: bytes = b""


@dataclass(frozen=True, slots=True)
class Facts:
    """One object, as far as other objects are concerned."""

    where: Where
    group: str
    kind: str
    namespace: str
    name: str
    device_classes: tuple[ClassUse, ...] = ()
    classic_classes: tuple[ClassUse, ...] = ()
    asks: tuple[Ask, ...] = ()
    requests: tuple[str, ...] = ()
    entries: tuple[Entry, ...] = ()
    uses: tuple[ContainerUse, ...] = ()
    page: Page | None = None


def details_of(obj: Any, place: Place) -> dict[str, Any]:
    """What other objects may ask about an object, as fields of `Facts`."""
    look = _LOOKS.get(type(obj))
    return look(obj, place) if look is not None else {}


def _class(obj: DeviceClass, place: Place) -> dict[str, Any]:
    uses = _selector_uses(obj.spec.selectors, "spec", place)
    return {"asks": (Ask(obj.metadata.name, uses),)}


def _claim(obj: ResourceClaim, place: Place) -> dict[str, Any]:
    return _asks(obj.spec.devices, "spec.devices", place)


def _template(obj: ResourceClaimTemplate, place: Place) -> dict[str, Any]:
    return _asks(obj.spec.spec.devices, "spec.spec.devices", place)


def _asks(devices: DeviceClaim, prefix: str, place: Place) -> dict[str, Any]:
    return {
        "device_classes": tuple(
            ClassUse(place(path), name) for path, name in _class_uses(devices, prefix) if name
        ),
        "asks": tuple(_asked(devices, prefix, place)),
        "requests": tuple(request.name for request in devices.requests),
    }


def _asked(devices: DeviceClaim, prefix: str, place: Place) -> Iterator[Ask]:
    for i, request in enumerate(devices.requests):
        here = f"{prefix}.requests[{i}]"
        wants: dict[str, ExactDeviceRequest | DeviceSubRequest] = {
            f"{here}.firstAvailable[{j}]": alternative
            for j, alternative in enumerate(request.first_available)
        }
        if request.exactly is not None:
            wants[f"{here}.exactly"] = request.exactly
        for path, want in wants.items():
            uses = _selector_uses(want.selectors, path, place)
            if uses:
                yield Ask(want.device_class_name, uses)


def _selector_uses(
    selectors: tuple[DeviceSelector, ...], prefix: str, place: Place
) -> tuple[SelectorUse, ...]:
    return tuple(
        SelectorUse(place(f"{prefix}.selectors[{i}].cel.expression"), selector.cel.expression)
        for i, selector in enumerate(selectors)
        if selector.cel is not None
    )


def _class_uses(devices: DeviceClaim, prefix: str) -> Iterator[tuple[str, str]]:
    for i, request in enumerate(devices.requests):
        here = f"{prefix}.requests[{i}]"
        if request.exactly is not None:
            yield f"{here}.exactly.deviceClassName", request.exactly.device_class_name
        for j, alternative in enumerate(request.first_available):
            yield f"{here}.firstAvailable[{j}].deviceClassName", alternative.device_class_name


def _classic_claim(obj: ClassicClaim, place: Place) -> dict[str, Any]:
    name = obj.spec.resource_class_name
    return {"classic_classes": (ClassUse(place("spec.resourceClassName"), name),) if name else ()}


def _pod(obj: Pod, place: Place) -> dict[str, Any]:
    entries, classes = [], []
    for i, entry in enumerate(obj.spec.resource_claims):
        here = f"spec.resourceClaims[{i}]"
        by_template = entry.resource_claim_template_name
        field_name = "resourceClaimName" if by_template is None else "resourceClaimTemplateName"
        entries.append(
            Entry(entry.name, place(f"{here}.{field_name}"), entry.resource_claim_name, by_template)
        )
        if entry.template is not None and entry.template.spec.resource_class_name:
            path = place(f"{here}.template.spec.resourceClassName")
            classes.append(ClassUse(path, entry.template.spec.resource_class_name))
    return {"entries": tuple(entries), "classic_classes": tuple(classes), "uses": tuple(_uses(obj, place))}


def _uses(obj: Pod, place: Place) -> Iterator[ContainerUse]:
    lists = {
        "initContainers": obj.spec.init_containers,
        "containers": obj.spec.containers,
        "ephemeralContainers": obj.spec.ephemeral_containers,
    }
    for name, containers in lists.items():
        for i, container in enumerate(containers):
            for j, claim in enumerate(container.resources.claims):
                if claim.request:
                    path = place(f"spec.{name}[{i}].resources.claims[{j}].request")
                    yield ContainerUse(path, claim.name, claim.request)


def _slice(obj: ResourceSlice, place: Place) -> dict[str, Any]:
    spec = obj.spec
    types: dict[tuple[str, str], str] = {}
    for i, device in enumerate(spec.devices):
        for name, attribute in device.attributes.items():
            held = attribute.held()
            if held is not None:
                full = name if "/" in name else f"{spec.driver}/{name}"
                types.setdefault((full, held[0]), f"spec.devices[{i}].attributes[{name}]")
    page = Page(
        driver=spec.driver,
        pool=spec.pool.name,
        generation=spec.pool.generation,
        slices=spec.pool.resource_slice_count,
        priority=spec.pool.priority,
        devices=tuple(device.name for device in spec.devices),
        types=tuple((name, held, place(path)) for (name, held), path in types.items()),
        contents=encode(_seen_by_selectors(obj)),
    )
    return {"page": page}


def _seen_by_selectors(obj: ResourceSlice) -> ResourceSlice:
    devices = tuple(
        Device(
            name=device.name,
            attributes=device.attributes,
            capacity={name: DeviceCapacity(value=held.value) for name, held in device.capacity.items()},
            allow_multiple_allocations=device.allow_multiple_allocations,
        )
        for device in obj.spec.devices
    )
    spec = ResourceSliceSpec(driver=obj.spec.driver, pool=obj.spec.pool, devices=devices)
    return ResourceSlice(spec=spec)


_LOOKS: Mapping[type, Callable[[Any, Place], dict[str, Any]]] = MappingProxyType(
    {
        DeviceClass: _class,
        ResourceClaim: _claim,
        ResourceClaimTemplate: _template,
        ClassicClaim: _classic_claim,
        Pod: _pod,
        ResourceSlice: _slice,
    }
)
