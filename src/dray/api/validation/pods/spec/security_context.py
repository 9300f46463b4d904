"""Validation of the security contexts of pods and containers."""

from __future__ import annotations

import re
from typing import Final

from dray.api.fields import FieldPath, duplicate, forbidden, invalid, not_supported, required, too_long
from dray.api.validation.field_rules import FieldErrors
from dray.api.validation.pods.document_fields import (
    Document,
    find_mapping,
    find_text,
    get_list,
    get_mapping,
    get_text,
    is_true,
    iterate_objects,
)
from dray.api.validation.pods.spec.operating_system import validate_windows_options
from dray.api.validation.pods.value_rules import (
    MAX_INT32,
    validate_descending_path,
    validate_given_choice,
    validate_ids,
    validate_range,
)
from dray.values.names import count_bytes

_PROFILE_TYPES: Final = ("Localhost", "RuntimeDefault", "Unconfined")
_MAX_PROFILE_BYTES: Final = 4095


def validate_container_security(context: Document, host_users: bool, path: FieldPath) -> FieldErrors:
    """Check the security context of a container."""
    yield from validate_ids(context, ("runAsUser", "runAsGroup"), path)
    yield from validate_given_choice(context, "procMount", ("Default", "Unmasked"), path)
    if host_users and get_text(context, "procMount") == "Unmasked":
        yield invalid(path.child("procMount"), "Unmasked", "needs `hostUsers` to be false")
    yield from _validate_seccomp(context, path)
    if context.get("allowPrivilegeEscalation") is False:
        yield from _validate_escalation(context, path)
    yield from _validate_profiles(context, path)


def _validate_escalation(context: Document, path: FieldPath) -> FieldErrors:
    if is_true(context, "privileged"):
        text = "`allowPrivilegeEscalation` cannot be false for a privileged container"
        yield invalid(path, dict(context), text)
    for capability in get_list(get_mapping(context, "capabilities"), "add"):
        if capability == "CAP_SYS_ADMIN":
            text = "`allowPrivilegeEscalation` cannot be false when `CAP_SYS_ADMIN` is added"
            yield invalid(path, dict(context), text)


def _validate_profiles(context: Document, path: FieldPath) -> FieldErrors:
    options = find_mapping(context, "windowsOptions")
    if options is not None:
        yield from validate_windows_options(options, path.child("windowsOptions"))
    profile = find_mapping(context, "appArmorProfile")
    if profile is not None:
        yield from _validate_app_armor(profile, path.child("appArmorProfile"))


# --- profiles ---


def _validate_seccomp(context: Document, path: FieldPath) -> FieldErrors:
    profile = find_mapping(context, "seccompProfile")
    if profile is None:
        return
    place, kind, name = (
        path.child("seccompProfile"),
        get_text(profile, "type"),
        profile.get("localhostProfile"),
    )
    yield from _validate_profile_type(kind, place)
    if kind != "Localhost":
        if name is not None:
            yield invalid(place.child("localhostProfile"), name, "may only be set for the type `Localhost`")
    elif name is None:
        yield required(place.child("localhostProfile"), "is needed for the type `Localhost`")
    elif isinstance(name, str):
        yield from validate_descending_path(name, place.child("localhostProfile"))


def _validate_profile_type(kind: str, path: FieldPath) -> FieldErrors:
    if not kind:
        yield required(path.child("type"))
    elif kind not in _PROFILE_TYPES:
        yield not_supported(path.child("type"), kind, _PROFILE_TYPES)


def _validate_app_armor(profile: Document, path: FieldPath) -> FieldErrors:
    kind, name, place = (
        get_text(profile, "type"),
        find_text(profile, "localhostProfile"),
        path.child("localhostProfile"),
    )
    yield from _validate_profile_type(kind, path)
    if kind not in _PROFILE_TYPES:
        return
    if kind != "Localhost":
        if name is not None:
            yield invalid(place, name, "may only be set for the type `Localhost`")
    elif not name:
        yield required(place, "is needed for the type `Localhost`")
    else:
        if name != name.strip():
            yield invalid(place, name, "must not begin or end with white space")
        if count_bytes(name) > _MAX_PROFILE_BYTES:
            yield too_long(place, _MAX_PROFILE_BYTES)


# --- pods ---

_CHANGE_POLICIES: Final = ("Always", "OnRootMismatch")
_GROUP_POLICIES: Final = ("Merge", "Strict")
_LABEL_POLICIES: Final = ("MountOption", "Recursive")


def validate_pod_security(context: Document, spec: Document, path: FieldPath) -> FieldErrors:
    """Check the security context of a pod."""
    yield from validate_ids(context, ("fsGroup", "runAsUser", "runAsGroup"), path)
    for position, group in enumerate(get_list(context, "supplementalGroups")):
        if isinstance(group, int):
            yield from validate_range(group, 0, MAX_INT32, path.child("supplementalGroups").index(position))
    if context.get("sysctls"):
        yield from _validate_sysctls(context, spec, path.child("sysctls"))
    yield from validate_given_choice(context, "fsGroupChangePolicy", _CHANGE_POLICIES, path)
    yield from _validate_seccomp(context, path)
    yield from _validate_profiles(context, path)
    yield from validate_given_choice(context, "supplementalGroupsPolicy", _GROUP_POLICIES, path)
    yield from validate_given_choice(context, "seLinuxChangePolicy", _LABEL_POLICIES, path)


_SYSCTL_PART: Final = "[a-z0-9]([-_a-z0-9]*[a-z0-9])?"
_SYSCTL = re.compile(rf"({_SYSCTL_PART}[./])*{_SYSCTL_PART}")
_MAX_SYSCTL: Final = 253
_IPC_SYSCTLS: Final = ("kernel.msg", "kernel.sem", "kernel.shm", "fs.mqueue.")


def _validate_sysctls(context: Document, spec: Document, path: FieldPath) -> FieldErrors:
    seen: set[str] = set()
    for position, sysctl in iterate_objects(context, "sysctls"):
        name, place = get_text(sysctl, "name"), path.index(position).child("name")
        if not name:
            yield required(place)
        elif len(name) > _MAX_SYSCTL or not _SYSCTL.fullmatch(name):
            yield invalid(
                place, name, f"must have at most {_MAX_SYSCTL} characters and match `{_SYSCTL.pattern}`"
            )
        elif name in seen:
            yield duplicate(place, name)
        seen.add(name)
        yield from _validate_host_sysctl(name, spec, place)


def _validate_host_sysctl(name: str, spec: Document, path: FieldPath) -> FieldErrors:
    """Refuse to change the node: sysctls are of the namespaces that a pod may share with it."""
    dotted = _normalize_sysctl(name)
    if is_true(spec, "hostNetwork") and dotted.startswith("net."):
        yield invalid(path, name, "may not be set with `hostNetwork`")
    elif is_true(spec, "hostIPC") and dotted.startswith(_IPC_SYSCTLS):
        yield invalid(path, name, "may not be set with `hostIPC`")


def _normalize_sysctl(name: str) -> str:
    """Return the spelling with dots: the first separator says which of the two signs separates."""
    first = next((sign for sign in name if sign in "./"), ".")
    return name if first == "." else name.translate(str.maketrans("./", "/."))


def validate_shared_processes(spec: Document, path: FieldPath) -> FieldErrors:
    """Check that the processes of a pod are shared among its containers, or with the node."""
    if is_true(spec, "shareProcessNamespace") and is_true(spec, "hostPID"):
        yield invalid(path.child("shareProcessNamespace"), True, "cannot be set together with `hostPID`")


def validate_user_namespace(
    spec: Document, containers: list[tuple[FieldPath, Document]], path: FieldPath
) -> FieldErrors:
    """Check what a pod with users of its own cannot share with the node."""
    if spec.get("hostUsers") is not False:
        return
    text = "may not be set when `hostUsers` is false"
    for field, shown in (("hostNetwork", "hostNetwork"), ("hostPID", "HostPID"), ("hostIPC", "HostIPC")):
        if is_true(spec, field):
            yield forbidden(path.child(shown), text)
    for place, container in containers:
        if container.get("volumeDevices"):
            yield forbidden(place.child("volumeDevices"), text)
