"""Resources of a new pod as a whole: a pod that names some for itself gets the rest from its containers.

Rules for this file: it works on documents; amounts that cannot be parsed are left for validation to refuse.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from dray.api.core.pod_amounts import (
    COMPUTE_RESOURCES,
    Amounts,
    iterate_resource_holders,
    read_amounts,
    sum_containers,
)

Document = dict[str, Any]

_HUGE_PAGES: Final = "hugepages-"


def default_pod_resources(spec: Document) -> Document:
    """A pod spec whose own resources are complete; the same spec when it names none."""
    resources = spec.get("resources")
    if not isinstance(resources, dict) or not (resources.get("requests") or resources.get("limits")):
        return spec
    limits, requests = read_amounts(resources, "limits"), read_amounts(resources, "requests")
    if len(limits) + len(requests) != sum(
        len(resources.get(field) or ()) for field in ("limits", "requests")
    ):
        return spec
    _add_huge_page_limits(limits, requests, sum_containers(spec, "limits"))
    _add_requests(requests, limits, sum_containers(spec, "requests"))
    _add_limits(limits, requests, spec)
    complete = {**resources, **_to_texts("limits", limits), **_to_texts("requests", requests)}
    return {**spec, "resources": complete}


def _add_huge_page_limits(limits: Amounts, requests: Amounts, summed: Amounts) -> None:
    for name, amount in summed.items():
        if name.startswith(_HUGE_PAGES) and name not in requests:
            limits.setdefault(name, amount)


def _add_requests(requests: Amounts, limits: Amounts, summed: Amounts) -> None:
    for name, amount in summed.items():
        if name in COMPUTE_RESOURCES:
            requests.setdefault(name, amount)
    for name, amount in limits.items():
        if _is_pod_resource(name):
            requests.setdefault(name, amount)


def _add_limits(limits: Amounts, requests: Amounts, spec: Mapping[str, Any]) -> None:
    """A resource that every container limits is limited for the pod, at least to its request."""
    missing = [name for name in requests if _is_pod_resource(name) and name not in limits]
    if not missing:
        return
    given = [read_amounts(each.get("resources"), "limits") for _, each in iterate_resource_holders(spec)]
    summed = sum_containers(spec, "limits")
    for name in missing:
        if name in summed and all(name in each for each in given):
            limits[name] = max(summed[name], requests[name])


def _is_pod_resource(name: str) -> bool:
    return name in COMPUTE_RESOURCES or name.startswith(_HUGE_PAGES)


def _to_texts(field: str, amounts: Amounts) -> Document:
    return {field: {name: str(value) for name, value in amounts.items()}} if amounts else {}
