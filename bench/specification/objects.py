"""The objects of the measurements in this process: slices, classes and claims, decoded as from a server."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import msgspec

from dray.allocator.feature_gates import AllocatorGateFilter
from dray.allocator.inventory.device_inventory import DeviceInventory
from dray.allocator.inventory.usage import DeviceUsage
from dray.api.codec import decode
from dray.api.resource import DeviceClass, ResourceClaim, ResourceSlice

Document = dict[str, Any]
Devices = Callable[[int], Sequence[Document]]

DRIVER: Final = "bench.example.com"
_API: Final = "resource.k8s.io/v1"


def node_name(number: int) -> str:
    return f"node-{number:05}"


def build_device(position: int, attributes: Document | None = None, **more: Any) -> Document:
    """Build a device; attributes are its own and those of every device."""
    known: Document = {"model": {"string": "m"}, "index": {"int": position}, **(attributes or {})}
    return {
        "name": f"device-{position}",
        "attributes": known,
        "capacity": {"memory": {"value": "80Gi"}},
        **more,
    }


def build_slices(
    nodes: int,
    devices: Devices,
    pools: int = 1,
    slices: int = 1,
    priority: Callable[[int], int | None] = lambda number: None,
) -> list[ResourceSlice]:
    """Build the slices of nodes with some pools of some slices each; pools and slices may have priorities."""
    found: list[ResourceSlice] = []
    for node in range(nodes):
        for number in range(pools * slices):
            pool: Document = {
                "name": f"{node_name(node)}-{number // slices}",
                "generation": 1,
                "resourceSliceCount": slices,
            }
            published = [
                {**device, "name": f"{device['name']}-{number % slices}"} for device in devices(node)
            ]
            spec: Document = {
                "driver": DRIVER,
                "nodeName": node_name(node),
                "devices": published,
                "pool": pool,
            }
            if priority(number) is not None:
                spec["priority"] = priority(number % slices)
                pool["priority"] = priority(number // slices)
            document = {"kind": "ResourceSlice", "metadata": _name(f"{pool['name']}-{number}"), "spec": spec}
            found.append(_decode(document))
    return found


def build_class(name: str = "any") -> DeviceClass:
    """Build a class that every device is in."""
    selector = {"cel": {"expression": f'device.driver == "{DRIVER}"'}}
    found: DeviceClass = _decode(
        {"kind": "DeviceClass", "metadata": _name(name), "spec": {"selectors": [selector]}}
    )
    return found


def build_request(name: str, count: int = 1, model: str = "", device_class: str = "any") -> Document:
    """Build what one request, or one alternative of it, asks for."""
    asked: Document = {"name": name, "deviceClassName": device_class, "allocationMode": "ExactCount"}
    asked["count"] = count
    if model:
        expression = f'device.attributes["{DRIVER}"].model == "{model}"'
        asked["selectors"] = [{"cel": {"expression": expression}}]
    return asked


def build_claim(
    name: str, requests: Sequence[Document], constraints: Sequence[Document] = (), **status: Any
) -> ResourceClaim:
    """Build a claim; a request without alternatives asks for exactly that."""
    devices: Document = {"requests": [_wrap(request) for request in requests]}
    if constraints:
        devices["constraints"] = list(constraints)
    document = {
        "kind": "ResourceClaim",
        "metadata": {**_name(name), "namespace": "default"},
        "spec": {"devices": devices},
    }
    found: ResourceClaim = _decode({**document, "status": status} if status else document)
    return found


def build_inventory(
    slices: Iterable[ResourceSlice], classes: Iterable[DeviceClass] = (), usage: DeviceUsage | None = None
) -> DeviceInventory:
    """Build an inventory of its own, in which nothing is prepared."""
    gates = AllocatorGateFilter.from_overrides({})
    return DeviceInventory(
        gates.admit_slices(slices),
        list(classes) or [build_class()],
        usage or DeviceUsage(),
        gates.build_selector_evaluator(),
    )


def _wrap(request: Document) -> Document:
    if "firstAvailable" in request:
        return request
    return {"name": request["name"], "exactly": {key: request[key] for key in request if key != "name"}}


def _name(name: str) -> Document:
    return {"name": name, "uid": f"uid-{name}"}


def _decode(document: Document) -> Any:
    return decode(msgspec.json.encode({"apiVersion": _API, **document})).object
