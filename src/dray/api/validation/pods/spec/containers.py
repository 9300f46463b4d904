"""Validation of containers: the regular ones, init containers with sidecars, and ephemeral containers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from dray.api.core.pod import CONTAINER_LISTS
from dray.api.fields import (
    FieldPath,
    duplicate,
    forbidden,
    invalid,
    not_found,
    not_supported,
    required,
    too_many,
)
from dray.api.validation.field_rules import FieldErrors, report_name_faults
from dray.api.validation.pods.document_fields import (
    Document,
    find_mapping,
    find_text,
    get_list,
    get_text,
    iterate_objects,
)
from dray.api.validation.pods.spec.environment import validate_environment
from dray.api.validation.pods.spec.networking import validate_host_ports, validate_ports
from dray.api.validation.pods.spec.probes import HOOKS, validate_hooks
from dray.api.validation.pods.spec.resources import validate_resize_policy, validate_resources
from dray.api.validation.pods.spec.security_context import validate_container_security
from dray.api.validation.pods.value_rules import validate_choice
from dray.api.validation.pods.volumes.mounts import validate_mounts
from dray.values.names import check_dns_label

PULL_POLICIES: Final = ("Always", "IfNotPresent", "Never")
_MESSAGE_POLICIES: Final = ("FallbackToLogsOnError", "File")


@dataclass(frozen=True, slots=True)
class ContainerContext:
    """What the rules of a container need to know about its pod."""

    volumes: Mapping[str, Document]
    """The valid volumes by name."""
    restart_policy: str
    grace_period: int
    host_users: bool
    os_name: str | None
    """None when the pod does not say which operating system it needs."""


def list_containers(spec: Document, path: FieldPath) -> list[tuple[FieldPath, Document]]:
    """Return all containers of a pod with their paths."""
    return [
        (path.child(field).index(position), container)
        for field in CONTAINER_LISTS
        if spec.get(field)
        for position, container in iterate_objects(spec, field)
    ]


def validate_containers(spec: Document, context: ContainerContext, path: FieldPath) -> FieldErrors:
    """Check all containers of a pod."""
    yield from _validate_regular_containers(spec, context, path.child("containers"))
    names = {get_text(container, "name") for _, container in iterate_objects(spec, "containers")}
    if spec.get("initContainers"):
        yield from _validate_init_containers(spec, names, context, path.child("initContainers"))
    if spec.get("ephemeralContainers"):
        yield from _validate_ephemeral_containers(spec, names, context, path.child("ephemeralContainers"))


def _validate_regular_containers(spec: Document, context: ContainerContext, path: FieldPath) -> FieldErrors:
    if not get_list(spec, "containers"):
        yield required(path, "a pod needs at least one container")
        return
    names: set[str] = set()
    with_ports = []
    for position, container in iterate_objects(spec, "containers"):
        place = path.index(position)
        yield from _validate_container(container, context, place)
        name = get_text(container, "name")
        if name in names:
            yield duplicate(place.child("name"), name)
        names.add(name)
        yield from _validate_hooks_of(container, context, place)
        yield from _validate_restarts(container, place)
        if "ports" in container:
            with_ports.append((place, container))
    if with_ports:
        yield from validate_host_ports(with_ports)


def _validate_hooks_of(container: Document, context: ContainerContext, path: FieldPath) -> FieldErrors:
    if any(name in container for name in HOOKS):
        yield from validate_hooks(container, context.grace_period, context.os_name, path)


def _validate_container(container: Document, context: ContainerContext, path: FieldPath) -> FieldErrors:
    """Check what all kinds of containers have, skipping what is absent."""
    name = get_text(container, "name")
    if not name:
        yield required(path.child("name"))
    elif faults := check_dns_label(name):
        yield from report_name_faults(faults, path.child("name"))
    if not get_text(container, "image"):
        yield required(path.child("image"))
    yield from validate_choice(container, "terminationMessagePolicy", _MESSAGE_POLICIES, path)
    if container.get("ports"):
        yield from validate_ports(container, path.child("ports"))
    if container.get("env") or container.get("envFrom"):
        yield from validate_environment(container, path)
    if container.get("volumeMounts") or container.get("volumeDevices"):
        yield from validate_mounts(container, context.volumes, path)
    yield from validate_choice(container, "imagePullPolicy", PULL_POLICIES, path)
    resources = find_mapping(container, "resources")
    if resources:
        yield from validate_resources(resources, path.child("resources"))
    if container.get("resizePolicy"):
        yield from validate_resize_policy(container, context.restart_policy, path.child("resizePolicy"))
    security = find_mapping(container, "securityContext")
    if security:
        yield from validate_container_security(security, context.host_users, path.child("securityContext"))


def validate_image_spaces(containers: Iterable[tuple[FieldPath, Document]]) -> FieldErrors:
    """Check that images have no white space around them; templates may."""
    for path, container in containers:
        image = get_text(container, "image")
        if image != image.strip():
            yield invalid(path.child("image"), image, "must not begin or end with white space")


# --- restarts ---

_RESTART_POLICIES: Final = ("Always", "Never", "OnFailure")
_RULE_ACTIONS: Final = ("Restart", "RestartAllContainers")
_RULE_OPERATORS: Final = ("In", "NotIn")
_MAX_RULES: Final = 20
_MAX_EXIT_CODES: Final = 255


def _validate_restarts(container: Document, path: FieldPath) -> FieldErrors:
    """Check whether a container is restarted, by policy and by exit code."""
    policy, rules = find_text(container, "restartPolicy"), get_list(container, "restartPolicyRules")
    if policy is None:
        if not rules:
            return
        yield required(path.child("restartPolicy"), "is needed when there are restart rules")
    elif policy not in _RESTART_POLICIES:
        yield not_supported(path.child("restartPolicy"), policy, _RESTART_POLICIES)
    place = path.child("restartPolicyRules")
    if len(rules) > _MAX_RULES:
        yield too_many(place, len(rules), _MAX_RULES)
    for position, rule in iterate_objects(container, "restartPolicyRules"):
        yield from _validate_restart_rule(rule, place.index(position))


def _validate_restart_rule(rule: Document, path: FieldPath) -> FieldErrors:
    action = get_text(rule, "action")
    if action not in _RULE_ACTIONS:
        yield not_supported(path.child("action"), action, _RULE_ACTIONS)
    codes, place = find_mapping(rule, "exitCodes"), path.child("exitCodes")
    if codes is None:
        yield required(place)
        return
    operator = get_text(codes, "operator")
    if operator not in _RULE_OPERATORS:
        yield not_supported(place.child("operator"), operator, _RULE_OPERATORS)
    count = len(get_list(codes, "values"))
    if count > _MAX_EXIT_CODES:
        yield too_many(place.child("values"), count, _MAX_EXIT_CODES)


# --- init containers ---


def _validate_init_containers(
    spec: Document, names: set[str], context: ContainerContext, path: FieldPath
) -> FieldErrors:
    """Check init containers; those that are always restarted are sidecars, and may have hooks."""
    for position, container in iterate_objects(spec, "initContainers"):
        place = path.index(position)
        yield from _validate_container(container, context, place)
        yield from _validate_restarts(container, place)
        name = get_text(container, "name")
        if name in names:
            yield duplicate(place.child("name"), name)
        elif name:
            names.add(name)
        if "ports" in container:
            yield from _validate_own_host_ports(container, path)
        if get_text(container, "restartPolicy") == "Always":
            yield from _validate_hooks_of(container, context, place)
        else:
            yield from _forbid_hooks(container, place)


def _validate_own_host_ports(container: Document, path: FieldPath) -> FieldErrors:
    """Check the ports of one init container; the errors name the first position, whichever it has."""
    return validate_host_ports([(path.index(0), container)])


def _forbid_hooks(container: Document, path: FieldPath) -> FieldErrors:
    for field in ("lifecycle", "livenessProbe", "readinessProbe", "startupProbe"):
        if find_mapping(container, field) is not None:
            yield forbidden(
                path.child(field), "may only be set for an init container that is always restarted"
            )
    for position, policy in iterate_objects(container, "resizePolicy"):
        if get_text(policy, "restartPolicy") == "RestartContainer":
            place = path.child("resizePolicy").index(position).child("restartPolicy")
            yield invalid(
                place, "RestartContainer", "may only be set for an init container that is always restarted"
            )


# --- ephemeral containers ---

_FORBIDDEN_LISTS: Final = ("ports", "resources", "resizePolicy", "restartPolicyRules")
_FORBIDDEN_FIELDS: Final = ("restartPolicy", "livenessProbe", "readinessProbe", "startupProbe", "lifecycle")
_NOT_EPHEMERAL: Final = "may not be set for an ephemeral container"


def _validate_ephemeral_containers(
    spec: Document, names: set[str], context: ContainerContext, path: FieldPath
) -> FieldErrors:
    targets = names | {
        get_text(container, "name") for _, container in iterate_objects(spec, "initContainers")
    }
    taken = set(targets)
    for position, container in iterate_objects(spec, "ephemeralContainers"):
        place, name = path.index(position), get_text(container, "name")
        yield from _validate_container(container, context, place)
        yield from validate_image_spaces([(place, container)])
        if name in taken:
            yield duplicate(place.child("name"), name)
        taken.add(name)
        target = get_text(container, "targetContainerName")
        if target and target not in targets:
            text = "must be the name of another container of the pod"
            yield not_found(place.child("targetContainerName"), target, tuple(sorted(targets)), text)
        yield from _forbid_ephemeral_fields(container, place)


def _forbid_ephemeral_fields(container: Document, path: FieldPath) -> FieldErrors:
    """Refuse what an ephemeral container cannot have: it is neither restarted nor counted."""
    for field in (*_FORBIDDEN_LISTS, *_FORBIDDEN_FIELDS):
        value = container.get(field)
        if value or (value is not None and field in _FORBIDDEN_FIELDS):
            yield forbidden(path.child(field), _NOT_EPHEMERAL)
    for position, mount in iterate_objects(container, "volumeMounts"):
        for field in ("subPath", "subPathExpr"):
            if get_text(mount, field):
                yield forbidden(path.child("volumeMounts").index(position).child(field), _NOT_EPHEMERAL)
