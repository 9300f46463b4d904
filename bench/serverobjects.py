"""Objects for measuring the server: nodes, slices, claims, and allocations of their devices."""

from __future__ import annotations

from typing import Any

from dray.api.json_text import write_json

DRIVER = "gpu.example.com"
DEVICES = 8
CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
SLICES = "/apis/resource.k8s.io/v1/resourceslices"
CLASSES = "/apis/resource.k8s.io/v1/deviceclasses"
NODES = "/api/v1/nodes"


def device_class() -> bytes:
    return write_json(
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "DeviceClass",
            "metadata": {"name": "gpu"},
            "spec": {"selectors": [{"cel": {"expression": f'device.driver == "{DRIVER}"'}}]},
        }
    )


def node(number: int) -> bytes:
    return write_json(
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": f"node-{number}", "labels": {"zone": f"z{number % 3}"}},
            "status": {
                "capacity": {"cpu": "64", "memory": "512Gi", "pods": "110"},
                "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
            },
        }
    )


def slice_of(number: int) -> bytes:
    return write_json(
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceSlice",
            "metadata": {"name": f"node-{number}-gpus"},
            "spec": {
                "driver": DRIVER,
                "nodeName": f"node-{number}",
                "pool": {"name": f"node-{number}", "generation": 1, "resourceSliceCount": 1},
                "devices": [_device(device) for device in range(DEVICES)],
            },
        }
    )


def _device(number: int) -> dict[str, Any]:
    return {
        "name": f"gpu-{number}",
        "attributes": {
            "model": {"string": "A100"},
            "index": {"int": number},
            "driverVersion": {"version": "12.3.4"},
            "numa": {"int": number // 4},
        },
        "capacity": {"memory": {"value": "80Gi"}},
    }


def claim(name: str) -> bytes:
    return write_json(claim_document(name))


def claim_document(name: str) -> dict[str, Any]:
    exactly = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": "default", "labels": {"app": "train"}},
        "spec": {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}},
    }


def allocated(name: str, version: str, device: int | None) -> bytes:
    """A claim with a device, or without one, for its status."""
    document = claim_document(name)
    document["metadata"]["resourceVersion"] = version
    if device is not None:
        result = {
            "request": "gpu",
            "driver": DRIVER,
            "pool": f"node-{device // DEVICES}",
            "device": f"gpu-{device % DEVICES}",
        }
        document["status"] = {"allocation": {"devices": {"results": [result]}}}
    return write_json(document)
