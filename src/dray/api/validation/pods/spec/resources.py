"""Validation of what containers and pods request: names of resources, amounts, requests against limits.

The claims that containers use are validated with the claims of the pod (`dray.api.validation.kinds.pod`).
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from dray.api.core.pod_amounts import sum_containers
from dray.api.fields import FieldPath, duplicate, forbidden, invalid, not_found, not_supported, required
from dray.api.validation.field_rules import FieldErrors, report_name_faults, validate_one_of
from dray.api.validation.pods.document_fields import (
    Document,
    find_mapping,
    get_mapping,
    get_text,
    iterate_objects,
    read_quantities,
)
from dray.values.names import check_qualified_name
from dray.values.quantity import NANOS_PER_UNIT, Quantity, QuantityError

_CONTAINER_RESOURCES: Final = frozenset({"cpu", "memory", "ephemeral-storage"})
COUNTED_RESOURCES: Final = frozenset(
    {
        "pods",
        "resourcequotas",
        "services",
        "replicationcontrollers",
        "secrets",
        "configmaps",
        "persistentvolumeclaims",
        "services.nodeports",
        "services.loadbalancers",
    }
)
"""Resources of quotas that count objects."""
_STANDARD_RESOURCES: Final = frozenset(
    {
        *_CONTAINER_RESOURCES,
        *(f"{prefix}.{name}" for prefix in ("requests", "limits") for name in _CONTAINER_RESOURCES),
        *COUNTED_RESOURCES,
        "storage",
        "requests.storage",
    }
)
"""The names without a domain that mean something in requests or in quotas."""

_PAGES: Final = "hugepages-"
_COMPUTE: Final = frozenset({"cpu", "memory"})
_NATIVE_DOMAIN: Final = "kubernetes.io/"


def validate_resources(resources: Document, path: FieldPath) -> FieldErrors:
    """Check the requests and limits of a container."""
    if not resources.get("limits") and not resources.get("requests"):
        return iter(())
    return _validate_requirements(resources, path, of_pod=False)


def validate_overhead(overhead: Document, path: FieldPath) -> FieldErrors:
    """Check the overhead of a pod, which has the rules of limits."""
    return _validate_requirements({"limits": overhead}, path, of_pod=False)


def _validate_requirements(resources: Document, path: FieldPath, *, of_pod: bool) -> FieldErrors:
    limits, requests = read_quantities(resources, "limits"), read_quantities(resources, "requests")
    for field, amounts in (("limits", limits), ("requests", requests)):
        place = path.child(field)
        for name, amount in amounts.items():
            yield from _validate_resource_name(name, place.key(name), of_pod=of_pod)
            yield from _validate_amount(name, amount, place.key(name))
    for name, amount in requests.items():
        yield from _validate_request(name, amount, limits.get(name), path)
    named = {*limits, *requests}
    if any(name.startswith(_PAGES) for name in named) and not named & _COMPUTE:
        yield forbidden(path, "huge pages need `cpu` or `memory` as well")


def _validate_request(name: str, amount: Quantity, limit: Quantity | None, path: FieldPath) -> FieldErrors:
    """Check a request against its limit; only native resources can be overcommitted."""
    can_overcommit = _is_native(name) and not name.startswith(_PAGES)
    if limit is None:
        if not can_overcommit:
            yield required(path.child("limits"), f"`{name}` cannot be overcommitted, so it needs a limit")
    elif not can_overcommit and amount != limit:
        yield invalid(path.child("requests"), str(amount), f"must be equal to the limit of `{name}`, {limit}")
    elif amount > limit:
        yield invalid(path.child("requests"), str(amount), f"must be at most the limit of `{name}`, {limit}")


# --- names ---


def _is_native(name: str) -> bool:
    return "/" not in name or _NATIVE_DOMAIN in name


@lru_cache(maxsize=1024)
def _is_extended(name: str) -> bool:
    """Whether a resource is counted by device plugins: of another domain, and short enough for quotas."""
    if _is_native(name) or name.startswith("requests."):
        return False
    return not check_qualified_name(f"requests.{name}")


def _validate_resource_name(name: str, path: FieldPath, *, of_pod: bool) -> FieldErrors:
    if name in _CONTAINER_RESOURCES and not (of_pod and name not in _COMPUTE):
        return
    errors = list(_validate_any_resource_name(name, path))
    yield from errors
    if of_pod:
        if not errors and name not in _COMPUTE and not name.startswith(_PAGES):
            yield not_supported(path, name, (*sorted(_COMPUTE), _PAGES))
    elif "/" not in name:
        if name not in _CONTAINER_RESOURCES and not name.startswith(_PAGES):
            yield invalid(path, name, "must be a standard resource for containers")
    elif not _is_native(name) and not _is_extended(name):
        yield invalid(path, name, "must be a name of an extended resource: a domain, `/` and a name")


def _validate_any_resource_name(name: str, path: FieldPath) -> FieldErrors:
    if faults := check_qualified_name(name):
        yield from report_name_faults(faults, path)
    elif "/" not in name and not _is_standard(name):
        yield invalid(path, name, "must be a standard resource, or have a domain")


def _is_standard(name: str) -> bool:
    return name in _STANDARD_RESOURCES or name.startswith((_PAGES, f"requests.{_PAGES}"))


# --- amounts ---


def validate_amount(name: str, amount: Quantity, path: FieldPath) -> FieldErrors:
    """Check an amount of a resource: not negative, and whole where it counts something."""
    if amount.nanos < 0:
        yield invalid(path, str(amount), "must be greater than or equal to 0")
    if name in _CONTAINER_RESOURCES:
        return
    if (name in COUNTED_RESOURCES or _is_extended(name)) and amount.nanos % NANOS_PER_UNIT:
        yield invalid(path, str(amount), "must be an integer")


def _validate_amount(name: str, amount: Quantity, path: FieldPath) -> FieldErrors:
    yield from validate_amount(name, amount, path)
    if name.startswith(_PAGES) and not _is_whole_pages(name, amount):
        yield invalid(path, str(amount), f"must be a multiple of the page size in `{name}`")


def _is_whole_pages(name: str, amount: Quantity) -> bool:
    try:
        size = Quantity.parse(name.removeprefix(_PAGES))
    except (QuantityError, ValueError):
        return False
    return size.nanos > 0 and size.nanos % NANOS_PER_UNIT == 0 and amount.nanos % size.nanos == 0


# --- resources of the whole pod ---


def validate_pod_resources(spec: Document, os_name: str | None, path: FieldPath) -> FieldErrors:
    """Check the resources of a whole pod, by themselves and against those of its containers."""
    resources = find_mapping(spec, "resources")
    if resources is None:
        return
    place = path.child("resources")
    if os_name == "windows":
        yield forbidden(place, "may not be set for a windows pod")
        return
    if resources.get("claims") is not None:
        yield forbidden(place.child("claims"), "may not be set for the whole pod; containers use claims")
        yield from _find_unknown_claims(spec, resources, place.child("claims"))
    yield from _validate_requirements(resources, place, of_pod=True)
    yield from _validate_pod_sums(spec, resources, place)


def _find_unknown_claims(spec: Document, resources: Document, path: FieldPath) -> FieldErrors:
    known = sorted({get_text(claim, "name") for _, claim in iterate_objects(spec, "resourceClaims")})
    for position, claim in iterate_objects(resources, "claims"):
        name = get_text(claim, "name")
        if not name:
            yield required(path.index(position))
        elif name not in known:
            text = "must be the name of an entry in `spec.resourceClaims`"
            yield not_found(path.index(position), name, tuple(known), text)


def _validate_pod_sums(spec: Document, resources: Document, path: FieldPath) -> FieldErrors:
    requests, limits = read_quantities(resources, "requests"), read_quantities(resources, "limits")
    for name, total in sum_containers(spec, "requests").items():
        if name in requests and total > requests[name]:
            text = f"must be at least what the containers request together, {total}"
            yield invalid(path.child("requests").key(name), str(requests[name]), text)
    for name, total in sum_containers(spec, "limits").items():
        if name.startswith(_PAGES) and name in limits and total > limits[name]:
            text = f"must be at least the limits of the containers together, {total}"
            yield invalid(path.child("limits").key(name), str(limits[name]), text)
    for position, container in iterate_objects(spec, "containers"):
        for name, limit in read_quantities(get_mapping(container, "resources"), "limits").items():
            if name in limits and limit > limits[name]:
                where = path.child("containers").index(position).key(name).child("limits")
                yield invalid(where, str(limit), f"must be at most the limit of the pod, {limits[name]}")


# --- resizing ---

_RESIZE_POLICIES: Final = ("NotRequired", "RestartContainer")


def validate_resize_policy(container: Document, restart_policy: str, path: FieldPath) -> FieldErrors:
    """Check which resources of a container can be changed without a restart; errors have the path of the
    list, except for duplicates.
    """
    seen: set[str] = set()
    for position, policy in iterate_objects(container, "resizePolicy"):
        name, action = get_text(policy, "resourceName"), get_text(policy, "restartPolicy")
        if name in seen:
            yield duplicate(path.index(position), name)
        seen.add(name)
        yield from validate_one_of(name, ("cpu", "memory"), path)
        yield from validate_one_of(action, _RESIZE_POLICIES, path)
        if restart_policy == "Never" and action != "NotRequired":
            yield invalid(path, action, "must be `NotRequired` when the pod is never restarted")
