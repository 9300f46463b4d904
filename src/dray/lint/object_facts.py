"""Facts about an object for the checks across objects: names, references and slices instead of documents.

Rules for this file: facts are small and frozen; those of a thousand slices must fit in a few megabytes. Field
paths are those of the object as it was written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from dray.api.classic import ClassicResourceClaim
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
from dray.lint.findings import ObjectLocation
from dray.values.request_names import RequestName

PathTranslator = Callable[[str], str]
"""Translates a path in the internal form to the path as it was written."""


@dataclass(frozen=True, slots=True)
class ClassUse:
    """A reference to a class: where, and its name."""

    path: str
    name: str


@dataclass(frozen=True, slots=True)
class SelectorUse:
    """A selector: the path of its expression, and whether it compiles."""

    path: str
    expression: str
    usable: bool = True


@dataclass(frozen=True, slots=True)
class SelectorGroup:
    """Selectors that must all be true of one device, after those of the class; a class has a group, too."""

    class_name: str
    selectors: tuple[SelectorUse, ...]


@dataclass(frozen=True, slots=True)
class PodClaimUse:
    """One claim of a pod: by name, from a template object, or (neither) from an inline template."""

    name: str
    path: str
    claim: str | None
    template: str | None


@dataclass(frozen=True, slots=True)
class ContainerClaimUse:
    """A container that uses one request of a pod claim; validation reports names of alternatives."""

    path: str
    entry: str
    request: str


@dataclass(frozen=True, slots=True)
class SliceFacts:
    """One slice: its pool, its devices, and each type an attribute has, with a path.

    `contents` is the slice with the device fields that selectors can read, as JSON: devices are many, and
    JSON text is small.
    """

    driver: str
    pool: str
    generation: int
    slice_count: int
    priority: int | None
    devices: tuple[str, ...]
    attribute_types: tuple[tuple[str, str, str], ...]
    contents: bytes = b""


@dataclass(frozen=True, slots=True)
class ObjectFacts:
    """One object, as far as checks of other objects need it."""

    location: ObjectLocation
    group: str
    kind: str
    namespace: str
    name: str
    device_classes: tuple[ClassUse, ...] = ()
    classic_classes: tuple[ClassUse, ...] = ()
    selector_groups: tuple[SelectorGroup, ...] = ()
    requests: tuple[str, ...] = ()
    claim_uses: tuple[PodClaimUse, ...] = ()
    container_uses: tuple[ContainerClaimUse, ...] = ()
    slice: SliceFacts | None = None


def add_details(facts: ObjectFacts, obj: Any, translate_path: PathTranslator) -> ObjectFacts:
    """The facts of an object with those that only its kind has."""
    extract = _EXTRACTORS.get(type(obj))
    return extract(facts, obj, translate_path) if extract is not None else facts


def _extract_class(facts: ObjectFacts, obj: DeviceClass, translate_path: PathTranslator) -> ObjectFacts:
    uses = _list_selector_uses(obj.spec.selectors, "spec", translate_path)
    return replace(facts, selector_groups=(SelectorGroup(obj.metadata.name, uses),))


def _extract_claim(facts: ObjectFacts, obj: ResourceClaim, translate_path: PathTranslator) -> ObjectFacts:
    return _extract_requests(facts, obj.spec.devices, "spec.devices", translate_path)


def _extract_template(
    facts: ObjectFacts, obj: ResourceClaimTemplate, translate_path: PathTranslator
) -> ObjectFacts:
    return _extract_requests(facts, obj.spec.spec.devices, "spec.spec.devices", translate_path)


def _extract_requests(
    facts: ObjectFacts, devices: DeviceClaim, prefix: str, translate_path: PathTranslator
) -> ObjectFacts:
    return replace(
        facts,
        device_classes=tuple(
            ClassUse(translate_path(path), name) for path, name in _list_class_uses(devices, prefix) if name
        ),
        selector_groups=tuple(_list_selector_groups(devices, prefix, translate_path)),
        requests=tuple(request.name for request in devices.requests),
    )


def _list_selector_groups(
    devices: DeviceClaim, prefix: str, translate_path: PathTranslator
) -> Iterator[SelectorGroup]:
    for i, request in enumerate(devices.requests):
        here = f"{prefix}.requests[{i}]"
        alternatives: dict[str, ExactDeviceRequest | DeviceSubRequest] = {
            f"{here}.firstAvailable[{j}]": subrequest for j, subrequest in enumerate(request.first_available)
        }
        if request.exactly is not None:
            alternatives[f"{here}.exactly"] = request.exactly
        for path, alternative in alternatives.items():
            uses = _list_selector_uses(alternative.selectors, path, translate_path)
            if uses:
                yield SelectorGroup(alternative.device_class_name, uses)


def _list_selector_uses(
    selectors: tuple[DeviceSelector, ...], prefix: str, translate_path: PathTranslator
) -> tuple[SelectorUse, ...]:
    return tuple(
        SelectorUse(translate_path(f"{prefix}.selectors[{i}].cel.expression"), selector.cel.expression)
        for i, selector in enumerate(selectors)
        if selector.cel is not None
    )


def _list_class_uses(devices: DeviceClaim, prefix: str) -> Iterator[tuple[str, str]]:
    for i, request in enumerate(devices.requests):
        here = f"{prefix}.requests[{i}]"
        if request.exactly is not None:
            yield f"{here}.exactly.deviceClassName", request.exactly.device_class_name
        for j, alternative in enumerate(request.first_available):
            yield f"{here}.firstAvailable[{j}].deviceClassName", alternative.device_class_name


def _extract_classic_claim(
    facts: ObjectFacts, obj: ClassicResourceClaim, translate_path: PathTranslator
) -> ObjectFacts:
    name = obj.spec.resource_class_name
    uses = (ClassUse(translate_path("spec.resourceClassName"), name),) if name else ()
    return replace(facts, classic_classes=uses)


def _extract_pod(facts: ObjectFacts, obj: Pod, translate_path: PathTranslator) -> ObjectFacts:
    claim_uses, classes = [], []
    for i, entry in enumerate(obj.spec.resource_claims):
        here = f"spec.resourceClaims[{i}]"
        by_template = entry.resource_claim_template_name
        field_name = "resourceClaimName" if by_template is None else "resourceClaimTemplateName"
        claim_uses.append(
            PodClaimUse(
                entry.name, translate_path(f"{here}.{field_name}"), entry.resource_claim_name, by_template
            )
        )
        if entry.template is not None and entry.template.spec.resource_class_name:
            path = translate_path(f"{here}.template.spec.resourceClassName")
            classes.append(ClassUse(path, entry.template.spec.resource_class_name))
    return replace(
        facts,
        claim_uses=tuple(claim_uses),
        classic_classes=tuple(classes),
        container_uses=tuple(_list_container_uses(obj, translate_path)),
    )


def _list_container_uses(obj: Pod, translate_path: PathTranslator) -> Iterator[ContainerClaimUse]:
    for name, i, container in obj.spec.iterate_containers():
        for j, claim in enumerate(container.resources.claims):
            if claim.request and not RequestName.parse(claim.request).subrequest:
                path = translate_path(f"spec.{name}[{i}].resources.claims[{j}].request")
                yield ContainerClaimUse(path, claim.name, claim.request)


def _extract_slice(facts: ObjectFacts, obj: ResourceSlice, translate_path: PathTranslator) -> ObjectFacts:
    spec = obj.spec
    types: dict[tuple[str, str], str] = {}
    for i, device in enumerate(spec.devices):
        for name, attribute in device.attributes.items():
            held = attribute.get_typed_values()
            if held is not None:
                full = name if "/" in name else f"{spec.driver}/{name}"
                types.setdefault((full, held[0]), f"spec.devices[{i}].attributes[{name}]")
    slice_facts = SliceFacts(
        driver=spec.driver,
        pool=spec.pool.name,
        generation=spec.pool.generation,
        slice_count=spec.pool.resource_slice_count,
        priority=spec.pool.priority,
        devices=tuple(device.name for device in spec.devices),
        attribute_types=tuple((name, held, translate_path(path)) for (name, held), path in types.items()),
        contents=encode(_trim_to_selector_view(obj)),
    )
    return replace(facts, slice=slice_facts)


def _trim_to_selector_view(obj: ResourceSlice) -> ResourceSlice:
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


_EXTRACTORS: Mapping[type, Callable[[ObjectFacts, Any, PathTranslator], ObjectFacts]] = MappingProxyType(
    {
        DeviceClass: _extract_class,
        ResourceClaim: _extract_claim,
        ResourceClaimTemplate: _extract_template,
        ClassicResourceClaim: _extract_classic_claim,
        Pod: _extract_pod,
        ResourceSlice: _extract_slice,
    }
)
