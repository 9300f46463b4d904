"""The objects of a simulated cluster: few devices of every kind, so that pods compete for them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

Document = dict[str, Any]

GPU, NIC, PART = "gpu.example.com", "nic.example.com", "part.example.com"
DRIVERS: Final = (GPU, NIC, PART)
FABRIC: Final = "fabric"
"""A pool of devices that every node reaches."""
BANDWIDTH, SHARE = 10, 4
"""What a network card has, and what a claim takes of it: two fit."""
COUNTER, DRAW = 40, 20
"""What a card has, and what a partition of it takes: two of three fit."""
LIMITED: Final = "limited"
"""A namespace with a quota."""
TRUSTED: Final = "trusted"
"""A namespace whose claims may have admin access."""
MAX_CLAIMS, MAX_GPUS = 3, 2
"""The quota of the limited namespace."""
_API: Final = "resource.k8s.io/v1"


def _build_meta(name: str, namespace: str = "", **more: Any) -> Document:
    return {"name": name, **({"namespace": namespace} if namespace else {}), **more}


def build_request(device_class: str, **fields: Any) -> Document:
    """Build a request for devices of a class."""
    return {"name": "r", "exactly": {"deviceClassName": device_class, **fields}}


def _build_alternatives() -> Document:
    return {
        "name": "r",
        "firstAvailable": [
            {"name": "gpu", "deviceClassName": "gpu"},
            {"name": "part", "deviceClassName": "part"},
        ],
    }


REQUESTS: Final = {
    "gpu": build_request("gpu"),
    "two": build_request("gpu", count=2),
    "nic": build_request("nic", capacity={"requests": {"bandwidth": str(SHARE)}}),
    "part": build_request("part"),
    "any": _build_alternatives(),
}


def build_claim(name: str, requested: str, namespace: str = "default") -> Document:
    """Build a claim that pods share by its name."""
    spec = {"devices": {"requests": [REQUESTS[requested]]}}
    return {
        "apiVersion": _API,
        "kind": "ResourceClaim",
        "metadata": _build_meta(name, namespace),
        "spec": spec,
    }


def build_pod(name: str, claim: Document, namespace: str = "default", **annotations: str) -> Document:
    """Build a pod that uses a claim; annotations say how long it runs."""
    container = {"name": "c", "image": "x", "resources": {"claims": [{"name": "r"}]}}
    noted = {f"dray.dev/fake-{key.replace('_', '-')}": value for key, value in annotations.items()}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": _build_meta(name, namespace, annotations=noted),
        "spec": {
            "containers": [container],
            "resourceClaims": [{"name": "r", **claim}],
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 2,
        },
    }


def build_class(name: str, driver: str) -> Document:
    """Build the class of a driver's devices."""
    selector = {"cel": {"expression": f'device.driver == "{driver}"'}}
    return {
        "apiVersion": _API,
        "kind": "DeviceClass",
        "metadata": _build_meta(name),
        "spec": {"selectors": [selector]},
    }


CLASSES: Final = {"gpu": GPU, "nic": NIC, "part": PART}


def _build_slice(
    name: str, driver: str, pool: str, slices: int = 1, generation: int = 1, **spec: Any
) -> Document:
    where = {"allNodes": True} if pool == FABRIC else {"nodeName": pool}
    described = {"name": pool, "generation": generation, "resourceSliceCount": slices}
    return {
        "apiVersion": _API,
        "kind": "ResourceSlice",
        "metadata": _build_meta(name),
        "spec": {"driver": driver, "pool": described, **where, **spec},
    }


def build_gpu_slice(pool: str, generation: int = 1, taint: str = "", devices: int = 2) -> Document:
    """Build the slice of a pool of whole devices; a taint with an effect goes on the first."""
    listed: list[Document] = [{"name": f"gpu-{number}"} for number in range(devices)]
    if taint:
        listed[0]["taints"] = [{"key": "example.com/broken", "effect": taint}]
    return _build_slice(f"{pool}-gpu", GPU, pool, generation=generation, devices=listed)


def build_slices(node: str) -> Iterator[Document]:
    """Build the slices of a node."""
    yield build_gpu_slice(node)
    card = {
        "name": "eth0",
        "allowMultipleAllocations": True,
        "capacity": {
            "bandwidth": {
                "value": str(BANDWIDTH),
                "requestPolicy": {"default": "1", "validRange": {"min": "1", "step": "1"}},
            }
        },
    }
    yield _build_slice(f"{node}-nic", NIC, node, devices=[card])
    drawn = [{"counterSet": "card", "counters": {"memory": {"value": str(DRAW)}}}]
    parts = [{"name": f"part-{number}", "consumesCounters": drawn} for number in range(3)]
    counters = [{"name": "card", "counters": {"memory": {"value": str(COUNTER)}}}]
    yield _build_slice(f"{node}-part", PART, node, 2, devices=parts)
    yield _build_slice(f"{node}-counters", PART, node, 2, sharedCounters=counters)


def build_templates(namespace: str) -> Iterator[Document]:
    """Build the claim templates of a namespace."""
    for name, request in REQUESTS.items():
        spec = {"devices": {"requests": [request]}}
        yield {
            "apiVersion": _API,
            "kind": "ResourceClaimTemplate",
            "metadata": _build_meta(name, namespace),
            "spec": {"spec": spec},
        }


def build_taint_rule(name: str, pool: str, effect: str) -> Document:
    """Build a rule that taints the whole devices of a pool."""
    return {
        "apiVersion": _API,
        "kind": "DeviceTaintRule",
        "metadata": _build_meta(name),
        "spec": {
            "deviceSelector": {"driver": GPU, "pool": pool},
            "taint": {"key": "example.com/service", "effect": effect},
        },
    }


def build_setup(nodes: list[str]) -> Iterator[Document]:
    """Build everything that exists before the first pod."""
    yield {"apiVersion": "v1", "kind": "Namespace", "metadata": _build_meta(LIMITED)}
    label = {"resource.kubernetes.io/admin-access": "true"}
    yield {"apiVersion": "v1", "kind": "Namespace", "metadata": _build_meta(TRUSTED, labels=label)}
    hard = {
        "count/resourceclaims.resource.k8s.io": str(MAX_CLAIMS),
        "gpu.deviceclass.resource.k8s.io/devices": str(MAX_GPUS),
    }
    yield {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": _build_meta("quota", LIMITED),
        "spec": {"hard": hard},
    }
    for name, driver in CLASSES.items():
        yield build_class(name, driver)
    for namespace in ("default", LIMITED):
        yield from build_templates(namespace)
    admin = build_request("gpu", adminAccess=True, allocationMode="All")
    yield {
        "apiVersion": _API,
        "kind": "ResourceClaimTemplate",
        "metadata": _build_meta("admin", TRUSTED),
        "spec": {"spec": {"devices": {"requests": [admin]}}},
    }
    yield build_gpu_slice(FABRIC, devices=1)
    for node in nodes:
        yield from build_slices(node)
