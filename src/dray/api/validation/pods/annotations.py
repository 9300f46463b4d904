"""Validation of the annotations that mean something for a pod, by themselves and against its fields."""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

from dray.api.fields import FieldPath, forbidden, invalid
from dray.api.validation.field_rules import FieldErrors
from dray.api.validation.pods.document_fields import (
    Document,
    find_mapping,
    get_mapping,
    get_text,
    iterate_texts,
)
from dray.api.validation.pods.spec.containers import list_containers
from dray.api.validation.pods.spec.pod_spec import find_os_name
from dray.api.validation.pods.spec.scheduling import validate_toleration_list
from dray.api.validation.pods.value_rules import validate_descending_path

MIRROR: Final = "kubernetes.io/config.mirror"
_TOLERATIONS: Final = "scheduler.alpha.kubernetes.io/tolerations"
_DELETION_COST: Final = "controller.kubernetes.io/pod-deletion-cost"
_POD_SECCOMP: Final = "seccomp.security.alpha.kubernetes.io/pod"
_CONTAINER_SECCOMP: Final = "container.seccomp.security.alpha.kubernetes.io/"
_APP_ARMOR: Final = "container.apparmor.security.beta.kubernetes.io/"
_LOCALHOST: Final = "localhost/"

_INT32 = re.compile(r"-?[1-9][0-9]{0,9}|-?0")


def validate_pod_annotations(annotations: Document, spec: Document, path: FieldPath) -> FieldErrors:
    """Check annotations of a pod or template; others than these have no rules of their own."""
    for key, value in annotations.items():
        if not isinstance(value, str):
            continue
        if key == MIRROR and not get_text(spec, "nodeName"):
            yield invalid(path.key(key), value, "a mirror pod must have `spec.nodeName`")
        elif key == _TOLERATIONS and value:
            yield from _validate_tolerations_text(value, path)
        elif key == _DELETION_COST and not _is_int32(value):
            yield invalid(path.key(key), value, "must be an integer of 32 bits")
        elif key == _POD_SECCOMP or key.startswith(_CONTAINER_SECCOMP):
            yield from _validate_seccomp_text(value, path.child(key))
        elif key.startswith(_APP_ARMOR):
            yield from _validate_app_armor_text(key, value, spec, path)


def _is_int32(text: str) -> bool:
    return bool(_INT32.fullmatch(text)) and -(2**31) <= int(text) < 2**31


def _validate_tolerations_text(text: str, path: FieldPath) -> FieldErrors:
    try:
        tolerations: Any = msgspec.json.decode(text.encode())
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        yield invalid(path, _TOLERATIONS, f"must be a list of tolerations in JSON: {error}")
        return
    yield from validate_toleration_list({"tolerations": tolerations}, path.child(_TOLERATIONS))


def _validate_seccomp_text(profile: str, path: FieldPath) -> FieldErrors:
    if profile.startswith(_LOCALHOST):
        yield from validate_descending_path(profile.removeprefix(_LOCALHOST), path)
    elif profile not in ("runtime/default", "docker/default", "unconfined"):
        yield invalid(path, profile, "must be a seccomp profile")


def _validate_app_armor_text(key: str, profile: str, spec: Document, path: FieldPath) -> FieldErrors:
    name = key.removeprefix(_APP_ARMOR)
    if all(get_text(container, "name") != name for _, container in list_containers(spec, path)):
        yield invalid(path.key(key), name, "is no container of this pod")
    if profile not in ("", "runtime/default", "unconfined") and not profile.startswith(_LOCALHOST):
        yield invalid(path.key(key), profile, "must be an AppArmor profile")


# --- annotations beside fields ---

_ANNOTATION_BY_TYPE: Final = {
    "Unconfined": ("unconfined",),
    "RuntimeDefault": ("runtime/default", "docker/default"),
}


def validate_profiles_match(annotations: Document, spec: Document, path: FieldPath) -> FieldErrors:
    """Check that profiles that stand in annotations and in fields are the same."""
    if not any(key.startswith((_POD_SECCOMP, _CONTAINER_SECCOMP, _APP_ARMOR)) for key in annotations):
        return
    security = get_mapping(spec, "securityContext")
    profile = find_mapping(security, "seccompProfile")
    place = path.child("securityContext", "seccompProfile")
    yield from _validate_match(profile, annotations.get(_POD_SECCOMP), place)
    for where, container in list_containers(spec, path):
        own, name = get_mapping(container, "securityContext"), get_text(container, "name")
        place, annotation = where.child("securityContext"), annotations.get(f"{_CONTAINER_SECCOMP}{name}")
        yield from _validate_match(
            find_mapping(own, "seccompProfile"), annotation, place.child("seccompProfile")
        )
        armor = find_mapping(own, "appArmorProfile") or find_mapping(security, "appArmorProfile")
        if find_os_name(spec) != "windows":
            annotation = annotations.get(f"{_APP_ARMOR}{name}")
            yield from _validate_match(armor, annotation, place.child("appArmorProfile"))


def _validate_match(profile: Document | None, annotation: object, path: FieldPath) -> FieldErrors:
    if profile is None or not isinstance(annotation, str):
        return
    kind = get_text(profile, "type")
    if kind == "Localhost" and annotation.startswith(_LOCALHOST):
        if annotation.removeprefix(_LOCALHOST) != profile.get("localhostProfile"):
            yield forbidden(path.child("localhostProfile"), "must be the profile of the annotation")
    elif kind == "Localhost" or annotation not in _ANNOTATION_BY_TYPE.get(kind, (annotation,)):
        yield forbidden(path.child("type"), "must be the type of the annotation")


# --- updates ---


def validate_annotation_changes(new: Document, old: Document, path: FieldPath) -> FieldErrors:
    """Check that nobody adds, changes or removes annotations on which a running pod depends."""
    if new is old or new == old:
        return
    before, after = dict(iterate_texts({"": old}, "")), dict(iterate_texts({"": new}, ""))
    for key in {**before, **after}:
        if (key == MIRROR or key.startswith(_APP_ARMOR)) and before.get(key) != after.get(key):
            yield forbidden(path.key(key), "may not be added, changed or removed")
