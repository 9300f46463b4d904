"""Validation of the spec of a pod: all its concerns, in the order of Kubernetes.

Theory of operation: every write of a pod goes through here, and almost every pod is valid and simple. So each
concern is looked at only when one of its fields is present. `_CONCERNS` lists the fields and the rules.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from dray.api.fields import FieldPath, invalid
from dray.api.validation.field_rules import FieldErrors
from dray.api.validation.pods.document_fields import (
    Document,
    find_mapping,
    find_number,
    get_mapping,
    get_text,
    iterate_objects,
)
from dray.api.validation.pods.spec.affinity import validate_affinity
from dray.api.validation.pods.spec.containers import ContainerContext, list_containers, validate_containers
from dray.api.validation.pods.spec.environment import validate_file_variables
from dray.api.validation.pods.spec.networking import (
    validate_dns_config,
    validate_dns_policy,
    validate_host_aliases,
    validate_host_names,
    validate_hostname_override,
    validate_ports_on_host_network,
)
from dray.api.validation.pods.spec.operating_system import validate_host_process, validate_os
from dray.api.validation.pods.spec.resources import validate_overhead, validate_pod_resources
from dray.api.validation.pods.spec.scheduling import (
    validate_classes,
    validate_gates,
    validate_references,
    validate_scheduling_group,
    validate_spreading,
    validate_tolerations,
)
from dray.api.validation.pods.spec.security_context import (
    validate_pod_security,
    validate_shared_processes,
    validate_user_namespace,
)
from dray.api.validation.pods.value_rules import validate_choice, validate_labels
from dray.api.validation.pods.volumes.sources import validate_volumes

ConcernRule: TypeAlias = Callable[[Document, FieldPath], FieldErrors]

DEFAULT_GRACE_PERIOD: Final = 30
_RESTART_POLICIES: Final = ("Always", "Never", "OnFailure")


def validate_pod_spec(spec: Document, path: FieldPath, *, pod_name: str = "") -> FieldErrors:
    """Check the spec of a pod or of a template; a pod that has a name gives it to what is made for it."""
    volumes: dict[str, Document] = {}
    if spec.get("volumes"):
        errors, volumes = validate_volumes(spec, pod_name, path.child("volumes"))
        yield from errors
    yield from validate_containers(spec, _build_context(spec, volumes), path)
    given = spec.keys()
    for fields, rule in _CONCERNS:
        if not given.isdisjoint(fields):
            yield from rule(spec, path)
    if _has_file_variables(spec):
        named = {get_text(volume, "name"): volume for _, volume in iterate_objects(spec, "volumes")}
        yield from validate_file_variables(list_containers(spec, path), named)


def _build_context(spec: Document, volumes: dict[str, Document]) -> ContainerContext:
    grace = find_number(spec, "terminationGracePeriodSeconds")
    return ContainerContext(
        volumes=volumes,
        restart_policy=get_text(spec, "restartPolicy"),
        grace_period=DEFAULT_GRACE_PERIOD if grace is None else grace,
        host_users=spec.get("hostUsers") is not False,
        os_name=find_os_name(spec),
    )


def find_os_name(spec: Document) -> str | None:
    """Return the operating system a pod asks for; None when it asks for none."""
    system = find_mapping(spec, "os")
    return None if system is None else get_text(system, "name")


def _has_file_variables(spec: Document) -> bool:
    return any(
        "fileKeyRef" in get_mapping(variable, "valueFrom")
        for field in ("containers", "initContainers", "ephemeralContainers")
        for _, container in iterate_objects(spec, field)
        for _, variable in iterate_objects(container, "env")
    )


# --- rules of single fields ---


def _validate_resources_of_pod(spec: Document, path: FieldPath) -> FieldErrors:
    return validate_pod_resources(spec, find_os_name(spec), path)


def _validate_restart_policy(spec: Document, path: FieldPath) -> FieldErrors:
    return validate_choice(spec, "restartPolicy", _RESTART_POLICIES, path)


def _validate_node_labels(spec: Document, path: FieldPath) -> FieldErrors:
    return validate_labels(get_mapping(spec, "nodeSelector"), path.child("nodeSelector"))


def _validate_security(spec: Document, path: FieldPath) -> FieldErrors:
    context = find_mapping(spec, "securityContext")
    return iter(()) if not context else validate_pod_security(context, spec, path.child("securityContext"))


def _validate_pull_secrets(spec: Document, path: FieldPath) -> FieldErrors:
    for position, secret in iterate_objects(spec, "imagePullSecrets"):
        if set(secret) - {"name"}:
            place = path.child("imagePullSecrets").index(position)
            yield invalid(place, dict(secret), "only `name` may be set")


def _validate_affinity_of_pod(spec: Document, path: FieldPath) -> FieldErrors:
    return validate_affinity(get_mapping(spec, "affinity"), path.child("affinity"))


def _validate_host_process_of_pod(spec: Document, path: FieldPath) -> FieldErrors:
    containers = list_containers(spec, path)
    holders = (spec, *(container for _, container in containers))
    if not any("windowsOptions" in get_mapping(holder, "securityContext") for holder in holders):
        return iter(())
    return validate_host_process(spec, containers, path)


def _validate_users(spec: Document, path: FieldPath) -> FieldErrors:
    if spec.get("hostUsers") is not False:
        return iter(())
    return validate_user_namespace(spec, list_containers(spec, path), path)


def _validate_overhead_of_pod(spec: Document, path: FieldPath) -> FieldErrors:
    return validate_overhead(get_mapping(spec, "overhead"), path.child("overhead"))


def _validate_system(spec: Document, path: FieldPath) -> FieldErrors:
    return validate_os(spec, list_containers(spec, path), path)


_CONCERNS: Final[tuple[tuple[tuple[str, ...], ConcernRule], ...]] = (
    (("resources",), _validate_resources_of_pod),
    (("hostNetwork",), validate_ports_on_host_network),
    (("restartPolicy",), _validate_restart_policy),
    (("dnsPolicy",), validate_dns_policy),
    (("nodeSelector",), _validate_node_labels),
    (("securityContext",), _validate_security),
    (("shareProcessNamespace",), validate_shared_processes),
    (("imagePullSecrets",), _validate_pull_secrets),
    (("affinity",), _validate_affinity_of_pod),
    (("dnsConfig", "dnsPolicy"), validate_dns_config),
    (("readinessGates", "schedulingGates"), validate_gates),
    (("topologySpreadConstraints",), validate_spreading),
    (("containers",), _validate_host_process_of_pod),
    (("hostUsers",), _validate_users),
    (("hostnameOverride",), validate_hostname_override),
    (("serviceAccountName", "serviceAccount", "nodeName", "activeDeadlineSeconds"), validate_references),
    (("hostname", "subdomain"), validate_host_names),
    (("tolerations",), validate_tolerations),
    (("hostAliases",), validate_host_aliases),
    (("priorityClassName", "runtimeClassName", "preemptionPolicy"), validate_classes),
    (("overhead",), _validate_overhead_of_pod),
    (("os",), _validate_system),
    (("schedulingGroup",), validate_scheduling_group),
)
"""The concerns of a pod besides volumes and containers: the fields of each, and its rule."""
