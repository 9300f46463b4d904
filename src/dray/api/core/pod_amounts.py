"""Amounts of resources in pods: what containers need together, and the QoS class that follows.

A container whose cpu and memory are requested in full is `Guaranteed`, one that requests neither is
`BestEffort`; a pod is what all its containers are, and otherwise `Burstable`. Requests and limits of the pod
as a whole replace those of the containers.

Rules for this file: it works on documents; amounts that cannot be parsed are left out, as validation refuses
them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from dray.api.core.pod import CONTAINER_LISTS
from dray.api.json_text import write_json
from dray.values.cache_bounds import CacheBound
from dray.values.quantity import ZERO, Quantity, QuantityError

Document = Mapping[str, Any]
Amounts = dict[str, Quantity]

BEST_EFFORT: Final = "BestEffort"
BURSTABLE: Final = "Burstable"
GUARANTEED: Final = "Guaranteed"

QOS_CLASSES: Final = CacheBound("QoS classes of resources", 1_024, "the process")
MAX_CACHED_BYTES: Final = 1024
"""Larger resources are classified each time: a few of them would fill the memory."""
_classes: dict[bytes, str] = {}
"""QoS classes by the JSON text of resources."""

COMPUTE_RESOURCES: Final = ("cpu", "memory")


def read_amounts(resources: Any, field: str) -> Amounts:
    """The requests or limits among resources; `null` is an amount of 0."""
    given = resources.get(field) if isinstance(resources, dict) else None
    found = ((name, _read_amount(value)) for name, value in given.items()) if isinstance(given, dict) else ()
    return {name: amount for name, amount in found if amount is not None}


def _read_amount(value: Any) -> Quantity | None:
    if isinstance(value, bool):
        return None
    try:
        return ZERO if value is None else Quantity.from_json_value(value)
    except (QuantityError, TypeError, ValueError):
        return None


def compute_qos_class(spec: Document) -> str:
    """The QoS class of a pod with this spec."""
    whole = spec.get("resources")
    if isinstance(whole, dict) and (whole.get("requests") or whole.get("limits")):
        return _classify(whole)
    classes = {_classify(container.get("resources")) for _, container in iterate_resource_holders(spec)}
    return classes.pop() if len(classes) == 1 else BURSTABLE if classes else BEST_EFFORT


def _classify(resources: Any) -> str:
    """The QoS class of a container or pod with these resources; those of most were seen before."""
    if not resources:
        return BEST_EFFORT
    text = write_json(resources)
    known = _classes.get(text)
    if known is None:
        known = _compute_class(resources)
        if len(text) <= MAX_CACHED_BYTES:
            QOS_CLASSES.put(_classes, text, known)
    return known


def _compute_class(resources: Any) -> str:
    requests, limits = read_amounts(resources, "requests"), read_amounts(resources, "limits")
    pairs = [(requests.get(name, ZERO), limits.get(name, ZERO)) for name in COMPUTE_RESOURCES]
    if all(request == limit == ZERO for request, limit in pairs):
        return BEST_EFFORT
    return GUARANTEED if all(request == limit != ZERO for request, limit in pairs) else BURSTABLE


def sum_containers(spec: Document, field: str) -> Amounts:
    """What the containers of a pod need together: sidecars run beside all others, and the other init
    containers one after the other before them; the largest of these moments counts.
    """
    running: Amounts = {}
    sidecars: Amounts = {}
    largest: Amounts = {}
    for place, container in iterate_resource_holders(spec):
        amounts = read_amounts(container.get("resources"), field)
        if place != "initContainers":
            running = _add(running, amounts)
        elif container.get("restartPolicy") == "Always":
            sidecars = _add(sidecars, amounts)
            largest = _take_larger(largest, sidecars)
        else:
            largest = _take_larger(largest, _add(sidecars, amounts))
    return _take_larger(largest, _add(running, sidecars))


def iterate_resource_holders(spec: Document) -> Iterator[tuple[str, Document]]:
    """Init containers first, in their order; ephemeral containers have no resources."""
    for place in CONTAINER_LISTS[:2]:
        containers = spec.get(place)
        if isinstance(containers, list):
            yield from ((place, each) for each in containers if isinstance(each, dict))


def _add(first: Amounts, second: Amounts) -> Amounts:
    added = {name: first[name] + value if name in first else value for name, value in second.items()}
    return {**first, **added}


def _take_larger(first: Amounts, second: Amounts) -> Amounts:
    return {**first, **{name: max(first.get(name, value), value) for name, value in second.items()}}
