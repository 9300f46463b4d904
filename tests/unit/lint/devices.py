"""Devices and device models for the tests of selectors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dray.api.codec import decode_document
from dray.api.devices.selector_analysis import analyze_selector
from dray.api.resource import ResourceSlice
from dray.lint.findings import ObjectLocation
from dray.lint.object_facts import ObjectFacts, SliceFacts, add_details
from dray.lint.selectors.device_models import DeviceModelIndex, FieldKeys

DRIVER = "gpu.example.com"
GPU = f'device.attributes["{DRIVER}"]'

_HOLDS = {bool: "bool", int: "int", str: "string"}


def attribute(value: Any) -> dict[str, Any]:
    """A value as a device publishes it; a tuple is a list of strings."""
    return {"list": {"string": list(value)}} if isinstance(value, tuple) else {_HOLDS[type(value)]: value}


def published(
    devices: Mapping[str, Mapping[str, Any]], *, driver: str = DRIVER, pool: str = "a"
) -> ResourceSlice:
    """A slice; the attributes of a device by name, and `memory` is its capacity."""
    document = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": pool},
        "spec": {
            "driver": driver,
            "nodeName": "node",
            "pool": {"name": pool, "generation": 1, "resourceSliceCount": 1},
            "devices": [
                {
                    "name": name,
                    "attributes": {k: attribute(v) for k, v in held.items() if k != "memory"},
                    "capacity": {"memory": {"value": held["memory"]}} if "memory" in held else {},
                }
                for name, held in devices.items()
            ],
        },
    }
    decoded = decode_document(document).object
    assert isinstance(decoded, ResourceSlice)
    return decoded


def object_facts(slice_: ResourceSlice, number: int = 0) -> ObjectFacts:
    """The facts of a slice as an object."""
    location = ObjectLocation("s.yaml", number, "", "ResourceSlice")
    facts = ObjectFacts(location, "resource.k8s.io", "ResourceSlice", "", f"s{number}")
    return add_details(facts, slice_, str)


def slice_facts(slice_: ResourceSlice) -> SliceFacts:
    """The facts of a slice."""
    found = object_facts(slice_).slice
    assert found is not None
    return found


def field_keys_of(*expressions: str) -> FieldKeys:
    """Everything some selectors read."""
    return frozenset(key for expression in expressions for key in analyze_selector(expression).field_keys)


def index_models(*slices: ResourceSlice, about: tuple[str, ...]) -> DeviceModelIndex:
    """The devices of some slices, as some selectors see them."""
    return DeviceModelIndex([slice_facts(one) for one in slices], field_keys_of(*about))
