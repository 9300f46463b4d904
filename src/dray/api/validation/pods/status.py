"""Validation of changes of a pod's status: what a node, a scheduler or a controller may report."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from dray.api.fields import (
    ROOT,
    FieldPath,
    duplicate,
    forbidden,
    invalid,
    not_found,
    not_supported,
    required,
    too_long,
)
from dray.api.validation.conditions import is_condition_reason
from dray.api.validation.field_rules import IMMUTABLE, FieldErrors, report_name_faults
from dray.api.validation.pods.document_fields import (
    Document,
    find_mapping,
    find_quantity,
    find_text,
    get_list,
    get_mapping,
    get_number,
    get_text,
    iterate_objects,
)
from dray.api.validation.pods.spec.pod_spec import find_os_name
from dray.api.validation.pods.update import validate_annotations_of_change
from dray.api.validation.pods.value_rules import MAX_INT32, is_ip_address, validate_ip_address, validate_range
from dray.values.names import check_dns_label, check_dns_subdomain, check_qualified_name, count_bytes

STATUS: Final = ROOT.child("status")
_STATUS_LISTS: Final = (
    ("containerStatuses", "containers"),
    ("initContainerStatuses", "initContainers"),
    ("ephemeralContainerStatuses", "ephemeralContainers"),
)
"""The reports about containers, and the containers they are about."""
_SYSTEM_CONDITIONS: Final = ("PodScheduled", "Ready", "Initialized")
_WITHOUT_SIGN: Final = "must not be negative"


def validate_changed_status(new: Document, old: Document) -> FieldErrors:
    """Check an update of the status of a pod."""
    status, stored, spec = get_mapping(new, "status"), get_mapping(old, "status"), get_mapping(new, "spec")
    yield from validate_annotations_of_change(new, old)
    yield from _validate_conditions(status)
    yield from _validate_nomination(status, stored, spec)
    if get_number(status, "observedGeneration") < 0:
        yield invalid(STATUS.child("observedGeneration"), status["observedGeneration"], _WITHOUT_SIGN)
    if get_text(status, "qosClass") != get_text(stored, "qosClass"):
        yield invalid(STATUS.child("qosClass"), status.get("qosClass"), IMMUTABLE)
    for field, containers in _STATUS_LISTS:
        if stored.get(field):
            yield from _validate_restarts(status, stored, get_mapping(old, "spec"), field, containers)
    if find_mapping(status, "extendedResourceClaimStatus") is not None:
        yield from _validate_extended_claim(status, spec)
    if status.get("volumeHealth"):
        yield from _validate_volume_health(status, spec)
    yield from _validate_addresses(status, stored)
    for field, containers in _STATUS_LISTS:
        if status.get(field):
            yield from _validate_container_statuses(status, spec, field, containers)


def _validate_conditions(status: Document) -> FieldErrors:
    for position, condition in iterate_objects(status, "conditions"):
        place = STATUS.child("conditions").index(position)
        if get_number(condition, "observedGeneration") < 0:
            yield invalid(place.child("observedGeneration"), condition["observedGeneration"], _WITHOUT_SIGN)
        kind = get_text(condition, "type")
        if kind not in _SYSTEM_CONDITIONS:
            yield from report_name_faults(check_qualified_name(kind), place.child("Type"))


def _validate_nomination(status: Document, stored: Document, spec: Document) -> FieldErrors:
    """Check the node on which a pod is about to be placed; a pod on a node needs none."""
    name, place = get_text(status, "nominatedNodeName"), STATUS.child("nominatedNodeName")
    if not name or name == get_text(stored, "nominatedNodeName"):
        return
    yield from report_name_faults(check_dns_subdomain(name), place)
    if get_text(spec, "nodeName"):
        yield forbidden(place, "may not be set for a pod that is on a node")


# --- restarts ---


def _validate_restarts(
    status: Document, stored: Document, spec: Document, field: str, containers: str
) -> FieldErrors:
    """Check that a container that has ended runs again only if it may be restarted."""
    if field != "ephemeralContainerStatuses" and _restarts_all(spec):
        return
    reported = {get_text(item, "name"): item for _, item in iterate_objects(status, field)}
    by_name = {get_text(item, "name"): item for _, item in iterate_objects(spec, containers)}
    for position, item in iterate_objects(stored, field):
        ended, name = find_mapping(get_mapping(item, "state"), "terminated"), get_text(item, "name")
        if ended is None or name not in reported:
            continue
        if find_mapping(get_mapping(reported[name], "state"), "terminated") is not None:
            continue
        if name not in by_name or not _may_restart(
            by_name[name], spec, get_number(ended, "exitCode"), containers
        ):
            place = STATUS.child(field).index(position).child("state")
            yield forbidden(place, f"container `{name}` has ended and is not restarted")


def _restarts_all(spec: Document) -> bool:
    return any(
        get_text(rule, "action") == "RestartAllContainers"
        for field in ("initContainers", "containers")
        for _, container in iterate_objects(spec, field)
        for _, rule in iterate_objects(container, "restartPolicyRules")
    )


def _may_restart(container: Document, spec: Document, exit_code: int, containers: str) -> bool:
    if containers == "ephemeralContainers":
        return False
    policy = find_text(container, "restartPolicy")
    if policy is not None and any(_matches_exit_code(rule, exit_code) for rule in _iterate_rules(container)):
        return True
    policy = policy or get_text(spec, "restartPolicy")
    return exit_code != 0 if policy == "OnFailure" else policy != "Never"


def _iterate_rules(container: Document) -> Iterator[Document]:
    return (rule for _, rule in iterate_objects(container, "restartPolicyRules"))


def _matches_exit_code(rule: Document, exit_code: int) -> bool:
    codes = get_mapping(rule, "exitCodes")
    return (exit_code in get_list(codes, "values")) == (get_text(codes, "operator") == "In")


# --- addresses ---


def _validate_addresses(status: Document, stored: Document) -> FieldErrors:
    addresses, first = _read_addresses(status, "podIPs"), get_text(status, "podIP")
    place = STATUS.child("podIPs")
    yield from _validate_address_list(addresses, _read_addresses(stored, "podIPs"), place)
    if bool(first) != bool(addresses):
        yield invalid(place, addresses, "must be set together with `podIP`")
    elif addresses and addresses[0] != first:
        yield invalid(place.index(0).child("ip"), addresses[0], "must be the same as `podIP`")
    addresses, place = _read_addresses(status, "hostIPs"), STATUS.child("hostIPs")
    if addresses and addresses[0] != get_text(status, "hostIP"):
        yield invalid(place.index(0).child("ip"), addresses[0], "must be the same as `hostIP`")
    yield from _validate_address_list(addresses, _read_addresses(stored, "hostIPs"), place)


def _read_addresses(status: Document, field: str) -> list[str]:
    return [get_text(item, "ip") for _, item in iterate_objects(status, field)]


def _validate_address_list(addresses: list[str], known: list[str], path: FieldPath) -> FieldErrors:
    for position, address in enumerate(addresses):
        if address not in known:
            yield from validate_ip_address(address, path.index(position))
    families = {":" in address for address in addresses if is_ip_address(address)}
    if len(addresses) > 1 and (len(addresses) > 2 or len(families) != 2):
        yield invalid(path, addresses, "must have at most one address of each family")


# --- reports about containers ---


def _validate_container_statuses(
    status: Document, spec: Document, field: str, containers: str
) -> FieldErrors:
    by_name = {get_text(item, "name"): item for _, item in iterate_objects(spec, containers)}
    for position, item in iterate_objects(status, field):
        place = STATUS.child(field).index(position)
        user = find_mapping(get_mapping(item, "user"), "linux")
        if user is not None:
            yield from _validate_user(user, find_os_name(spec), place.child("user", "linux"))
        if item.get("allocatedResourcesStatus"):
            place_of_devices = place.child("allocatedResourcesStatus")
            if containers == "ephemeralContainers":
                yield forbidden(place_of_devices, "may not be set for an ephemeral container")
            else:
                container = by_name.get(get_text(item, "name"))
                yield from _validate_devices(item, container, status, place_of_devices)
        for index, mount in iterate_objects(item, "volumeMounts"):
            where = place.child("volumeMounts").index(index).child("volumeStatus", "imageVolumeStatus")
            yield from _validate_image_status(get_mapping(mount, "volumeStatus"), where)


_MAX_IMAGE_REFERENCE: Final = 256


def _validate_image_status(volume: Document, path: FieldPath) -> FieldErrors:
    image = find_mapping(volume, "image")
    if image is None:
        return
    reference = get_text(image, "imageRef")
    if not reference:
        yield required(path.child("imageRef"))
    elif count_bytes(reference) > _MAX_IMAGE_REFERENCE:
        yield too_long(path.child("imageRef"), _MAX_IMAGE_REFERENCE)


def _validate_user(user: Document, os_name: str | None, path: FieldPath) -> FieldErrors:
    if os_name == "windows":
        yield forbidden(path, "may not be set for a windows pod")
    elif os_name in (None, "linux"):
        yield from validate_range(get_number(user, "uid"), 0, 2**32 - 1, path.child("uid"))
        yield from validate_range(get_number(user, "gid"), 0, MAX_INT32, path.child("gid"))
        for position, group in enumerate(get_list(user, "supplementalGroups")):
            if isinstance(group, int):
                yield from validate_range(
                    group, 0, MAX_INT32, path.child("supplementalGroups").index(position)
                )


_HEALTH: Final = ("Healthy", "Unhealthy", "Unknown")
_MAX_HEALTH_MESSAGE: Final = 1024
_CLAIM: Final = "claim:"


def _validate_devices(
    item: Document, container: Document | None, status: Document, path: FieldPath
) -> FieldErrors:
    """Check the health of devices that a container uses."""
    for position, resource in iterate_objects(item, "allocatedResourcesStatus"):
        place, name = path.index(position), get_text(resource, "name")
        if container is not None and not _uses_resource(name, container, status):
            yield invalid(place.child("name"), name, "must be a resource request or a claim of the container")
        seen: set[str] = set()
        for index, device in iterate_objects(resource, "resources"):
            where, device_id = place.child("resources").index(index), get_text(device, "resourceID")
            health, message = get_text(device, "health") or "Unknown", find_text(device, "message")
            if health not in _HEALTH:
                yield not_supported(where.child("health"), health, _HEALTH)
            if message == "":
                yield required(where.child("message"), "must not be empty when it is set")
            elif message is not None and count_bytes(message) > _MAX_HEALTH_MESSAGE:
                yield too_long(where.child("message"), _MAX_HEALTH_MESSAGE)
            if device_id in seen:
                yield duplicate(where.child("resourceID"), device_id)
            seen.add(device_id)


def _uses_resource(name: str, container: Document, status: Document) -> bool:
    resources = get_mapping(container, "resources")
    if not name.startswith(_CLAIM):
        return name in get_mapping(resources, "requests")
    for _, claim in iterate_objects(resources, "claims"):
        request = get_text(claim, "request")
        if name == f"{_CLAIM}{get_text(claim, 'name')}" + (f"/{request}" if request else ""):
            return True
    extended = get_mapping(status, "extendedResourceClaimStatus")
    claim_name, _, request = name.removeprefix(_CLAIM).partition("/")
    return claim_name == get_text(extended, "resourceClaimName") and any(
        get_text(mapping, "containerName") == get_text(container, "name")
        and get_text(mapping, "requestName") == request
        and bool(find_quantity(get_mapping(resources, "requests"), get_text(mapping, "resourceName")))
        for _, mapping in iterate_objects(extended, "requestMappings")
    )


# --- claims and volumes ---


def _validate_extended_claim(status: Document, spec: Document) -> FieldErrors:
    """Check the claim that was made for extended resources of containers."""
    claim, path = (
        get_mapping(status, "extendedResourceClaimStatus"),
        STATUS.child("extendedResourceClaimStatus"),
    )
    containers = {
        get_text(item, "name"): item
        for field in ("initContainers", "containers")
        for _, item in iterate_objects(spec, field)
    }
    mappings = path.child("requestMappings")
    if not get_list(claim, "requestMappings"):
        yield required(mappings, "at least one is needed")
    seen: set[tuple[str, ...]] = set()
    fields = ("containerName", "resourceName", "requestName")
    for position, mapping in iterate_objects(claim, "requestMappings"):
        place = mappings.index(position)
        container, resource, request = key = tuple(get_text(mapping, field) for field in fields)
        if container not in containers:
            yield invalid(place.child("containerName"), container, "must be a container of the pod")
        elif resource not in get_mapping(get_mapping(containers[container], "resources"), "requests"):
            yield invalid(place.child("resourceName"), resource, "must be a request of the container")
        yield from report_name_faults(check_dns_label(request), path.child("requestName"))
        if key in seen:
            yield from (
                duplicate(place.child(field), value) for field, value in zip(fields, key, strict=True)
            )
        seen.add(key)
    name = get_text(claim, "resourceClaimName")
    if not name:
        yield required(path.child("resourceClaimName"))
    else:
        yield from report_name_faults(check_dns_subdomain(name), path.child("resourceClaimName"))


def _validate_volume_health(status: Document, spec: Document) -> FieldErrors:
    names = {get_text(volume, "name") for _, volume in iterate_objects(spec, "volumes")}
    for position, item in iterate_objects(status, "volumeHealth"):
        place, name = STATUS.child("volumeHealth").index(position), get_text(item, "name")
        if name and name not in names:
            yield not_found(place.child("name"), name, tuple(sorted(names)), "must be a volume of the pod")
        for index, condition in iterate_objects(item, "healthConditions"):
            reason = get_text(condition, "reason")
            if reason and not is_condition_reason(reason):
                where = place.child("healthConditions").index(index).child("reason")
                yield invalid(where, reason, "must be one word in CamelCase")
