"""The QoS class of a pod, which follows from its requests and limits.

A container whose cpu and memory are requested in full is `Guaranteed`, one that requests neither is
`BestEffort`; a pod is what all its containers are, and otherwise `Burstable`. Requests and limits of the pod
as a whole replace those of the containers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from dray.values.quantity import Quantity, QuantityError

BEST_EFFORT: Final = "BestEffort"
BURSTABLE: Final = "Burstable"
GUARANTEED: Final = "Guaranteed"

_COMPUTE: Final = ("cpu", "memory")
_CONTAINER_LISTS: Final = ("initContainers", "containers")


def compute_qos_class(spec: Mapping[str, Any]) -> str:
    """Return the QoS class of a pod with this spec."""
    resources = _get_mapping(spec, "resources")
    if resources.get("requests") or resources.get("limits"):
        return _classify(resources)
    classes = {
        _classify(_get_mapping(container, "resources"))
        for field in _CONTAINER_LISTS
        for container in spec.get(field) or ()
        if isinstance(container, Mapping)
    }
    return classes.pop() if len(classes) == 1 else BURSTABLE if classes else BEST_EFFORT


def _classify(resources: Mapping[str, Any]) -> str:
    requests, limits = _get_mapping(resources, "requests"), _get_mapping(resources, "limits")
    if not requests and not limits:
        return BEST_EFFORT
    classes = set()
    for name in _COMPUTE:
        request, limit = _read_nanos(requests, name), _read_nanos(limits, name)
        classes.add(BURSTABLE if request != limit else GUARANTEED if request else BEST_EFFORT)
    return classes.pop() if len(classes) == 1 else BURSTABLE


def _get_mapping(document: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = document.get(name)
    return value if isinstance(value, Mapping) else {}


def _read_nanos(amounts: Mapping[str, Any], name: str) -> int:
    value = amounts.get(name)
    if value is None or isinstance(value, bool):
        return 0
    try:
        return Quantity.from_json_value(value).nanos
    except (QuantityError, TypeError, ValueError):
        return 0
