"""Validation of the subresources of pods that change their containers: `resize` and `ephemeralcontainers`."""

from __future__ import annotations

from typing import Any, Final

from dray.api.core.pod_amounts import compute_qos_class
from dray.api.fields import ROOT, FieldError, FieldPath, forbidden, invalid
from dray.api.validation.field_rules import FieldErrors
from dray.api.validation.pods.annotations import MIRROR
from dray.api.validation.pods.create import SPEC
from dray.api.validation.pods.document_equality import is_same_document
from dray.api.validation.pods.document_fields import (
    Document,
    find_mapping,
    get_mapping,
    get_objects,
    get_text,
    iterate_objects,
)
from dray.api.validation.pods.spec.pod_spec import find_os_name
from dray.api.validation.pods.update import find_new_pod_errors, validate_annotations_of_change

_RESIZABLE: Final = ("cpu", "memory")
_ONLY_RESOURCES: Final = "only the cpu and memory of containers may change"
_LISTS: Final = ("containers", "initContainers")


def _is_mirror(pod: Document) -> bool:
    return MIRROR in get_mapping(get_mapping(pod, "metadata"), "annotations")


# --- ephemeral containers ---


def validate_ephemeral_containers(new: Document, old: Document) -> list[FieldError]:
    """Return the errors of a change of ephemeral containers: they can be added, and nothing else."""
    if _is_mirror(old):
        return [forbidden(ROOT, "a static pod cannot have ephemeral containers")]
    errors = [*find_new_pod_errors(new, old), *validate_annotations_of_change(new, old)]
    path = SPEC.child("ephemeralContainers")
    given = {
        get_text(item, "name"): item for item in get_objects(get_mapping(new, "spec"), "ephemeralContainers")
    }
    for container in get_objects(get_mapping(old, "spec"), "ephemeralContainers"):
        name = get_text(container, "name")
        if name not in given:
            errors.append(forbidden(path, f"container `{name}` may not be removed"))
        elif not is_same_document(given[name], container):
            errors.append(forbidden(path, f"container `{name}` may not be changed"))
    return errors


# --- resizing ---


def validate_resize(new: Document, old: Document) -> list[FieldError]:
    """Return the errors of a resize: requests and limits of containers and of the pod may change, as long as
    the pod keeps its QoS class.
    """
    if _is_mirror(old):
        return [forbidden(ROOT, "a static pod cannot be resized")]
    spec, stored = get_mapping(new, "spec"), get_mapping(old, "spec")
    if find_os_name(stored) == "windows":
        return [forbidden(ROOT, "a windows pod cannot be resized")]
    errors = find_new_pod_errors(new, old)
    status = get_mapping(old, "status")
    if (get_text(status, "qosClass") or compute_qos_class(stored)) != compute_qos_class(spec):
        errors.append(invalid(SPEC, get_text(status, "qosClass"), "a resize may not change the QoS class"))
    if not _is_resizable(status):
        errors.append(forbidden(SPEC, "the node of the pod does not support resizing"))
    if _has_amounts(spec) or _has_amounts(stored):
        errors += _validate_pod_resources(spec, stored)
    order_errors = [error for field in _LISTS for error in _validate_order(spec, stored, field)]
    errors += order_errors
    if order_errors:
        return errors
    errors += _validate_container_changes(spec, stored)
    if not is_same_document(spec.get("volumes"), stored.get("volumes")):
        errors.append(forbidden(SPEC.child("volumes"), "a resize may not change volumes"))
    if not errors and not _is_same_otherwise(spec, stored):
        errors.append(forbidden(SPEC, _ONLY_RESOURCES))
    return errors


def _is_resizable(status: Document) -> bool:
    """Whether the node reports what its first running container has, as nodes do that can change it."""
    for _, item in iterate_objects(status, "containerStatuses"):
        if find_mapping(get_mapping(item, "state"), "running") is not None:
            return find_mapping(item, "resources") is not None
    return True


def _has_amounts(spec: Document) -> bool:
    resources = get_mapping(spec, "resources")
    return bool(resources.get("requests") or resources.get("limits"))


def _validate_order(spec: Document, stored: Document, field: str) -> FieldErrors:
    new, old = get_objects(spec, field), get_objects(stored, field)
    if len(new) != len(old):
        yield forbidden(SPEC.child(field), "a resize may not add or remove containers")
        return
    for position, (container, before) in enumerate(zip(new, old, strict=True)):
        if get_text(container, "name") != get_text(before, "name"):
            place = SPEC.child(field).index(position).child("name")
            yield forbidden(place, "a resize may not rename or reorder containers")


def _validate_container_changes(spec: Document, stored: Document) -> FieldErrors:
    for field in reversed(_LISTS):
        for position, container in enumerate(get_objects(spec, field)):
            before = get_objects(stored, field)[position]
            place = SPEC.child(field).index(position).child("resources")
            yield from _validate_removals(container, before, place)
    for container, before in zip(
        get_objects(spec, "containers"), get_objects(stored, "containers"), strict=True
    ):
        if not is_same_document(_restore_resources(container, before), before):
            yield forbidden(SPEC, _ONLY_RESOURCES)
    for position, container in enumerate(get_objects(spec, "initContainers")):
        yield from _validate_init_container(
            container,
            get_objects(stored, "initContainers")[position],
            SPEC.child("initContainers").index(position),
        )


def _validate_init_container(container: Document, before: Document, path: FieldPath) -> FieldErrors:
    if is_same_document(container, before):
        return
    if not is_same_document(_restore_resources(container, before), before):
        yield forbidden(path, _ONLY_RESOURCES)
    if get_text(container, "restartPolicy") != "Always":
        for policy in get_objects(container, "resizePolicy"):
            if get_text(policy, "restartPolicy") == "RestartContainer":
                yield forbidden(path, "an init container that would be restarted cannot be resized")


def _validate_removals(container: Document, before: Document, path: FieldPath) -> FieldErrors:
    new, old = get_mapping(container, "resources"), get_mapping(before, "resources")
    for field in ("requests", "limits"):
        if set(get_mapping(old, field)) - set(get_mapping(new, field)):
            yield forbidden(path.child(field), f"{field} may be changed and added, but not removed")


def _restore_resources(container: Document, before: Document) -> dict[str, Any]:
    """Return the container with the cpu and memory it had before."""
    new, old = get_mapping(container, "resources"), get_mapping(before, "resources")
    return {**container, "resources": _restore_amounts(new, old)}


def _restore_amounts(new: Document, old: Document) -> dict[str, Any]:
    restored = dict(new)
    for field in ("requests", "limits"):
        rest = {name: value for name, value in get_mapping(new, field).items() if name not in _RESIZABLE}
        rest |= {name: value for name, value in get_mapping(old, field).items() if name in _RESIZABLE}
        restored[field] = rest
    return restored


def _validate_pod_resources(spec: Document, stored: Document) -> FieldErrors:
    new, old, path = (
        find_mapping(spec, "resources"),
        find_mapping(stored, "resources"),
        SPEC.child("resources"),
    )
    if new is None:
        if old is not None:
            yield forbidden(path, "the resources of a pod may not be removed")
        return
    for field in ("requests", "limits"):
        if old is not None and set(get_mapping(old, field)) - set(get_mapping(new, field)):
            yield forbidden(path.child(field), f"{field} of a pod may be changed and added, but not removed")
    if not is_same_document(_restore_amounts(new, old or {}), old or {}):
        yield forbidden(SPEC, "only the cpu and memory of a pod may change")


def _is_same_otherwise(spec: Document, stored: Document) -> bool:
    skipped = (*_LISTS, "resources")
    rest = {name: value for name, value in spec.items() if name not in skipped}
    return is_same_document(rest, {name: value for name, value in stored.items() if name not in skipped})
