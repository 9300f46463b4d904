"""Devices and catalogues for the tests of selectors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dray.api.codec import decode_document
from dray.api.resource import ResourceSlice
from dray.lint.object_facts import SliceFacts, extract_details
from dray.lint.selectors.analysis import analyze_selector
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


def page(slice_: ResourceSlice) -> SliceFacts:
    """What lint remembers of a slice."""
    found = extract_details(slice_, str)["page"]
    assert isinstance(found, SliceFacts)
    return found


def needs_of(*expressions: str) -> FieldKeys:
    """Everything some selectors look at."""
    return frozenset(need for expression in expressions for need in analyze_selector(expression).field_keys)


def catalogue(*slices: ResourceSlice, about: tuple[str, ...]) -> DeviceModelIndex:
    """The devices of some slices, as some selectors see them."""
    return DeviceModelIndex([page(one) for one in slices], needs_of(*about))
