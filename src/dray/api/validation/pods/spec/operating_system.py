"""Validation of what depends on the operating system: forbidden fields, and the options of Windows."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from dray.api.fields import FieldPath, forbidden, invalid, not_supported, required
from dray.api.validation.field_rules import FieldErrors, report_name_faults
from dray.api.validation.pods.document_fields import (
    Document,
    find_mapping,
    find_text,
    get_mapping,
    get_text,
    is_true,
)
from dray.values.names import check_dns_subdomain, count_bytes

_SYSTEMS: Final = ("linux", "windows")

_FORBIDDEN_IN_POD_CONTEXT: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "linux": ("windowsOptions",),
        "windows": (
            "appArmorProfile",
            "seLinuxOptions",
            "seccompProfile",
            "fsGroup",
            "fsGroupChangePolicy",
            "sysctls",
            "runAsUser",
            "runAsGroup",
            "supplementalGroups",
            "supplementalGroupsPolicy",
            "seLinuxChangePolicy",
        ),
    }
)
_FORBIDDEN_IN_CONTAINER_CONTEXT: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "linux": ("windowsOptions",),
        "windows": (
            "appArmorProfile",
            "seLinuxOptions",
            "seccompProfile",
            "capabilities",
            "readOnlyRootFilesystem",
            "privileged",
            "allowPrivilegeEscalation",
            "procMount",
            "runAsUser",
            "runAsGroup",
        ),
    }
)
_FORBIDDEN_ON_WINDOWS: Final = ("hostUsers", "hostPID", "hostIPC", "shareProcessNamespace")


def validate_os(spec: Document, containers: list[tuple[FieldPath, Document]], path: FieldPath) -> FieldErrors:
    """Check the operating system of a pod, and that it has no fields of the other one."""
    system = find_mapping(spec, "os")
    if system is None:
        return
    name = get_text(system, "name")
    if not name:
        yield required(path.child("os", "name"))
    elif name not in _SYSTEMS:
        yield not_supported(path.child("os"), name, _SYSTEMS)
    else:
        yield from _forbid_other_fields(name, spec, containers, path)


def _forbid_other_fields(
    name: str, spec: Document, containers: list[tuple[FieldPath, Document]], path: FieldPath
) -> FieldErrors:
    text = f"may not be set for a {name} pod"
    context = get_mapping(spec, "securityContext")
    for field in _FORBIDDEN_IN_POD_CONTEXT[name]:
        if context.get(field) is not None and (context[field] or field != "sysctls"):
            yield forbidden(path.child("securityContext", field), text)
    if name == "windows":
        for field in _FORBIDDEN_ON_WINDOWS:
            if is_true(spec, field) or (
                spec.get(field) is False and field in ("hostUsers", "shareProcessNamespace")
            ):
                yield forbidden(path.child(field), text)
    for place, container in containers:
        context = get_mapping(container, "securityContext")
        for field in _FORBIDDEN_IN_CONTAINER_CONTEXT[name]:
            if context.get(field) is not None:
                yield forbidden(place.child("securityContext", field), text)


# --- options of Windows ---

_MAX_SPEC_BYTES: Final = 64 * 1024
_MAX_DOMAIN: Final = 256
_MAX_USER: Final = 104
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_NETBIOS_NAME = re.compile(r'[^\\/:*?"<>|.][^\\/:*?"<>|]{0,14}')
_LABEL: Final = "[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?"
_DOMAIN_NAME = re.compile(rf"{_LABEL}(?:\.{_LABEL})*")
_DOTS_AND_SPACES = re.compile(r"[. ]+")
_REFUSED_IN_USERS = re.compile(r'["/\\:;|=,+*?<>@\[\]]')


def validate_windows_options(options: Document, path: FieldPath) -> FieldErrors:
    """Check the account under which a container runs on Windows."""
    name = find_text(options, "gmsaCredentialSpecName")
    if name is not None:
        yield from report_name_faults(check_dns_subdomain(name), path.child("gmsaCredentialSpecName"))
    spec = find_text(options, "gmsaCredentialSpec")
    if spec is not None and not 0 < count_bytes(spec) <= _MAX_SPEC_BYTES:
        text = f"must have at least one byte and at most {_MAX_SPEC_BYTES}"
        yield invalid(path.child("gmsaCredentialSpec"), spec, text)
    account = find_text(options, "runAsUserName")
    if account is not None:
        for text in _find_account_faults(account):
            yield invalid(path.child("runAsUserName"), account, text)


def _find_account_faults(account: str) -> list[str]:
    if not account:
        return ["must not be empty"]
    if _CONTROL.search(account):
        return ["must not contain control characters"]
    if account.count("\\") > 1:
        return ["must not contain more than one backslash"]
    domain, backslash, user = account.rpartition("\\")
    faults = []
    if len(domain) >= _MAX_DOMAIN:
        faults.append(f"the domain must be shorter than {_MAX_DOMAIN} characters")
    if backslash and not (_NETBIOS_NAME.fullmatch(domain) or _DOMAIN_NAME.fullmatch(domain)):
        faults.append("the domain must be a NetBIOS or DNS name")
    if not 0 < len(user) <= _MAX_USER:
        faults.append(f"the user must have at least one character and at most {_MAX_USER}")
    if _DOTS_AND_SPACES.fullmatch(user):
        faults.append("the user must not consist of periods and spaces")
    if _REFUSED_IN_USERS.search(user):
        faults.append('the user must not contain any of "/\\:;|=,+*?<>@[]')
    return faults


def validate_host_process(
    spec: Document, containers: list[tuple[FieldPath, Document]], path: FieldPath
) -> FieldErrors:
    """Check that either all containers are processes of the host or none is."""
    own = _find_host_process(spec)
    count = 0
    for place, container in containers:
        value = _find_host_process(container)
        if own is not None and value is not None and own != value:
            where = place.child("securityContext", "windowsOptions", "hostProcess")
            yield invalid(where, value, f"must be {str(own).lower()}, as for the pod")
        count += value if value is not None else bool(own)
    if not count:
        return
    if count != len(containers):
        yield invalid(path, "", "either all containers are processes of the host or none is")
    if not is_true(spec, "hostNetwork"):
        yield invalid(path.child("hostNetwork"), False, "must be true for processes of the host")


def _find_host_process(holder: Document) -> bool | None:
    value = get_mapping(get_mapping(holder, "securityContext"), "windowsOptions").get("hostProcess")
    return value if isinstance(value, bool) else None
