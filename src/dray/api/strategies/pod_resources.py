"""Resources of a new pod as a whole: what it requests and may use in sum, and the QoS class that follows.

Theory of operation: a pod that names resources for itself gets the rest of them from its containers. For each
resource, containers that run side by side add up, and init containers run one after the other beside the
sidecars that were started before them; the largest of these moments counts.

Rules for this file: it works on documents; amounts that cannot be parsed are left for validation to refuse.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from dray.api.core.pod import CONTAINER_LISTS
from dray.values.quantity import ZERO, Quantity, QuantityError

Document = dict[str, Any]
Amounts = dict[str, Quantity]

BEST_EFFORT: Final = "BestEffort"
BURSTABLE: Final = "Burstable"
GUARANTEED: Final = "Guaranteed"

_HUGE_PAGES: Final = "hugepages-"
_COUNTED: Final = ("cpu", "memory")


def default_pod_resources(spec: Document) -> Document:
    """A pod spec whose own resources are complete; the same spec when it names none."""
    resources = spec.get("resources")
    if not isinstance(resources, dict) or not (resources.get("requests") or resources.get("limits")):
        return spec
    try:
        limits, requests = read_amounts(resources, "limits"), read_amounts(resources, "requests")
        _add_huge_page_limits(limits, requests, sum_containers(spec, "limits"))
        _add_requests(requests, limits, sum_containers(spec, "requests"))
        _add_limits(limits, requests, spec)
    except QuantityError:
        return spec
    complete = {**resources, **_to_texts("limits", limits), **_to_texts("requests", requests)}
    return {**spec, "resources": complete}


def compute_qos_class(spec: Mapping[str, Any]) -> str:
    """The QoS class that follows from the requests and limits of a pod, or else of its containers."""
    try:
        whole = spec.get("resources")
        if isinstance(whole, dict) and (whole.get("requests") or whole.get("limits")):
            return _classify(whole)
        classes = {_classify(each.get("resources")) for _, each in iterate_containers(spec)}
    except QuantityError:
        return BURSTABLE
    return classes.pop() if len(classes) == 1 else BURSTABLE if classes else BEST_EFFORT


def _classify(resources: Any) -> str:
    if not isinstance(resources, dict):
        return BEST_EFFORT
    requests, limits = read_amounts(resources, "requests"), read_amounts(resources, "limits")
    pairs = [(requests.get(name, ZERO), limits.get(name, ZERO)) for name in _COUNTED]
    if all(request == limit == ZERO for request, limit in pairs):
        return BEST_EFFORT
    equal = all(request == limit != ZERO for request, limit in pairs)
    return GUARANTEED if equal else BURSTABLE


def _add_huge_page_limits(limits: Amounts, requests: Amounts, summed: Amounts) -> None:
    for name, amount in summed.items():
        if name.startswith(_HUGE_PAGES) and name not in requests:
            limits.setdefault(name, amount)


def _add_requests(requests: Amounts, limits: Amounts, summed: Amounts) -> None:
    for name, amount in summed.items():
        if name in _COUNTED:
            requests.setdefault(name, amount)
    for name, amount in limits.items():
        if _is_pod_resource(name):
            requests.setdefault(name, amount)


def _add_limits(limits: Amounts, requests: Amounts, spec: Mapping[str, Any]) -> None:
    """A resource that every container limits is limited for the pod, at least to its request."""
    missing = [name for name in requests if _is_pod_resource(name) and name not in limits]
    if not missing:
        return
    given = [read_amounts(each.get("resources"), "limits") for _, each in iterate_containers(spec)]
    summed = sum_containers(spec, "limits")
    for name in missing:
        if name in summed and all(name in each for each in given):
            limits[name] = max(summed[name], requests[name])


def _is_pod_resource(name: str) -> bool:
    return name in _COUNTED or name.startswith(_HUGE_PAGES)


def sum_containers(spec: Mapping[str, Any], field: str) -> Amounts:
    """The requests or limits of all containers of a pod together."""
    running: Amounts = {}
    sidecars: Amounts = {}
    largest: Amounts = {}
    for place, container in iterate_containers(spec):
        amounts = read_amounts(container.get("resources"), field)
        if place != "initContainers":
            running = _add(running, amounts)
        elif container.get("restartPolicy") == "Always":
            sidecars = _add(sidecars, amounts)
            largest = _take_larger(largest, sidecars)
        else:
            largest = _take_larger(largest, _add(sidecars, amounts))
    return _take_larger(largest, _add(running, sidecars))


def iterate_containers(spec: Mapping[str, Any]) -> Iterator[tuple[str, Document]]:
    """Init containers first, in their order; ephemeral containers have no resources."""
    for place in CONTAINER_LISTS[:2]:
        containers = spec.get(place)
        if isinstance(containers, list):
            yield from ((place, each) for each in containers if isinstance(each, dict))


def read_amounts(resources: Any, field: str) -> Amounts:
    """The requests or limits of a container or a pod; raises `QuantityError` when one cannot be parsed."""
    given = resources.get(field) if isinstance(resources, dict) else None
    if not isinstance(given, dict):
        return {}
    return {name: Quantity.from_json_value(value) for name, value in given.items()}


def _add(first: Amounts, second: Amounts) -> Amounts:
    return {
        **first,
        **{name: first[name] + value if name in first else value for name, value in second.items()},
    }


def _take_larger(first: Amounts, second: Amounts) -> Amounts:
    return {**first, **{name: max(first.get(name, value), value) for name, value in second.items()}}


def _to_texts(field: str, amounts: Amounts) -> Document:
    return {field: {name: str(value) for name, value in amounts.items()}} if amounts else {}
