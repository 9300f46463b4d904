"""Validation of what containers mount: file systems of volumes, and their block devices."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from dray.api.fields import FieldPath, duplicate, forbidden, invalid, not_found, not_supported, required
from dray.api.validation.field_rules import FieldErrors
from dray.api.validation.pods.document_fields import (
    Document,
    find_mapping,
    find_text,
    get_mapping,
    get_text,
    get_texts,
    is_true,
    iterate_objects,
)
from dray.api.validation.pods.value_rules import validate_descending_path, validate_given_choice

_PROPAGATIONS: Final = ("Bidirectional", "HostToContainer", "None")
_READ_ONLY_MODES: Final = ("Disabled", "Enabled", "IfPossible")
_BIND_OPTIONS: Final = ("nodev", "noexec", "nosuid")
_BLOCK_SOURCES: Final = ("persistentVolumeClaim", "ephemeral")


def validate_mounts(container: Document, volumes: Mapping[str, Document], path: FieldPath) -> FieldErrors:
    """Check the mounts and block devices of a container."""
    mounts = {get_text(item, "name"): get_text(item, "mountPath") for _, item in _iterate_mounts(container)}
    devices = {
        get_text(item, "name"): get_text(item, "devicePath") for _, item in _iterate_devices(container)
    }
    yield from _validate_volume_mounts(container, devices, volumes, path.child("volumeMounts"))
    yield from _validate_volume_devices(container, mounts, volumes, path.child("volumeDevices"))


def _iterate_mounts(container: Document) -> list[tuple[int, Document]]:
    return list(iterate_objects(container, "volumeMounts"))


def _iterate_devices(container: Document) -> list[tuple[int, Document]]:
    return list(iterate_objects(container, "volumeDevices"))


def _validate_volume_mounts(
    container: Document, devices: Mapping[str, str], volumes: Mapping[str, Document], path: FieldPath
) -> FieldErrors:
    taken: set[str] = set()
    for position, mount in _iterate_mounts(container):
        place = path.index(position)
        name, target = get_text(mount, "name"), get_text(mount, "mountPath")
        yield from _validate_volume_name(name, volumes, place.child("name"))
        if not target:
            yield required(place.child("mountPath"))
        if target in taken:
            yield invalid(place.child("mountPath"), target, "must be unique")
        taken.add(target)
        if devices:
            yield from _find_conflicts(name, target, devices, place, "mountPath")
        if len(mount) > 2:
            yield from _validate_mount_options(mount, container, path, position)
            yield from _validate_bind_options(mount, volumes.get(name), place.child("bindMountOptions"))


def _validate_volume_name(name: str, volumes: Mapping[str, Document], path: FieldPath) -> FieldErrors:
    if not name:
        yield required(path)
    if name not in volumes:
        yield not_found(path, name, tuple(volumes), "must be the name of a volume of the pod")


def _find_conflicts(
    name: str, target: str, others: Mapping[str, str], path: FieldPath, field: str
) -> FieldErrors:
    """Check that a volume is not mounted in both ways, and nothing at the same path."""
    other = "volumeDevices" if field == "mountPath" else "volumeMounts"
    if name in others:
        yield invalid(path.child("name"), name, f"stands in `{other}` already")
    if target in others.values():
        yield invalid(path.child(field), target, f"is a path in `{other}` already")


def _validate_mount_options(
    mount: Document, container: Document, path: FieldPath, position: int
) -> FieldErrors:
    """Check the options of a mount; most errors have the path of the list and not of the mount."""
    sub_path, expression = get_text(mount, "subPath"), get_text(mount, "subPathExpr")
    if sub_path:
        yield from validate_descending_path(sub_path, path.child("subPath"))
    if expression:
        if sub_path:
            place = path.index(position).child("subPathExpr")
            yield invalid(place, expression, "may not be set beside `subPath`")
        yield from validate_descending_path(expression, path.child("subPathExpr"))
    yield from validate_given_choice(mount, "mountPropagation", _PROPAGATIONS, path)
    propagation = find_text(mount, "mountPropagation")
    if propagation == "Bidirectional" and not is_true(
        get_mapping(container, "securityContext"), "privileged"
    ):
        yield forbidden(path.child("mountPropagation"), "`Bidirectional` is for privileged containers")
    mode, place = find_text(mount, "recursiveReadOnly"), path.child("recursiveReadOnly")
    if mode in ("Enabled", "IfPossible"):
        if not is_true(mount, "readOnly"):
            yield forbidden(place, "may only be set when `readOnly` is true")
        if propagation not in (None, "None"):
            yield forbidden(place, "may not be set beside `mountPropagation`")
    else:
        yield from validate_given_choice(mount, "recursiveReadOnly", _READ_ONLY_MODES, path)


def _validate_bind_options(mount: Document, volume: Document | None, path: FieldPath) -> FieldErrors:
    seen: set[str] = set()
    options = get_texts(mount, "bindMountOptions")
    for position, option in enumerate(options):
        if option not in _BIND_OPTIONS:
            yield not_supported(path.index(position), option, _BIND_OPTIONS)
        if option in seen:
            yield duplicate(path.index(position), option)
        seen.add(option)
    if options and volume is not None and find_mapping(volume, "image") is not None:
        yield invalid(path, options, "may not be set for a volume of the type `image`")


def _validate_volume_devices(
    container: Document, mounts: Mapping[str, str], volumes: Mapping[str, Document], path: FieldPath
) -> FieldErrors:
    names: set[str] = set()
    targets: set[str] = set()
    for position, device in _iterate_devices(container):
        place = path.index(position)
        name, target = get_text(device, "name"), get_text(device, "devicePath")
        if name and name in names:
            yield invalid(place.child("name"), name, "must be unique")
        names.add(name)
        yield from _validate_volume_name(name, volumes, place.child("name"))
        if name in volumes and not any(field in volumes[name] for field in _BLOCK_SOURCES):
            text = "must be a volume of the type `persistentVolumeClaim` or `ephemeral`"
            yield invalid(place.child("name"), name, text)
        if not target:
            yield required(place.child("devicePath"))
        if target in targets:
            yield invalid(place.child("devicePath"), target, "must be unique")
        if ".." in target.split("/"):
            yield invalid(place.child("devicePath"), target, "must not contain '..'")
        else:
            targets.add(target)
        yield from _find_conflicts(name, target, mounts, place, "devicePath")
