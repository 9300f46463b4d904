"""The objects of the workloads: nodes, slices, classes, claims, templates and pods."""

from __future__ import annotations

from typing import Any, Final

Document = dict[str, Any]

DRIVER: Final = "test-driver.cdi.k8s.io"
CLASS, NO_CLASS = "test-class", "no-devices-class"
TEMPLATE: Final = "test-claim-template"
NAMESPACE, BEFORE = "test", "init"
"""Where the measured pods are, and where what was there before them is."""

OURS: Final = f'device.driver == "{DRIVER}"'
OURS_SHARED: Final = f"{OURS} && device.allowMultipleAllocations == true"
NOBODYS: Final = 'device.driver == "no-such-driver.cdi.k8s.io"'
SELECTOR: Final = (
    f'device.attributes["{DRIVER}"].driverVersion.major() >= 1 && '
    f'device.capacity["{DRIVER}"].memory.isGreaterThan(quantity("1Mi"))'
)

_API: Final = "resource.k8s.io/v1"


def node_name(number: int) -> str:
    return f"scheduler-perf-dra-{number}"


def node(number: int) -> Document:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": node_name(number), "labels": {"node-with-dra": "true"}},
        "status": {
            "capacity": {"pods": "110", "cpu": "4", "memory": "32Gi"},
            "allocatable": {"pods": "110", "cpu": "4", "memory": "32Gi"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def namespace(name: str) -> Document:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


def device_class(name: str, expression: str) -> Document:
    return {
        "apiVersion": _API,
        "kind": "DeviceClass",
        "metadata": {"name": name},
        "spec": {"selectors": [{"cel": {"expression": expression}}]},
    }


# --- slices ---


def pool(number: int) -> str:
    return f"resourceslice-{number}"


def _slice(number: int, name: str, slices: int, **contents: Any) -> Document:
    spec = {
        "driver": DRIVER,
        "nodeName": node_name(number),
        "pool": {"name": pool(number), "generation": 1, "resourceSliceCount": slices},
        **contents,
    }
    return {"apiVersion": _API, "kind": "ResourceSlice", "metadata": {"name": name}, "spec": spec}


def _device(number: int, roots: int = 2) -> Document:
    texts = {
        "driver": "xe",
        "resource.k8s.io/pciRoot": f"{number % roots}",
        "family": "Arc Pro B-Series",
        "health": "Healthy",
        "model": "B60",
        "pciAddress": f"0000:0{number}:00.0",
        "pciId": "0xe211",
        "pciRoot": f"0{number % roots}",
        "resource.kubernetes.io/pciBusID": f"0000:0{number}:00.0",
        "resource.kubernetes.io/pciRoot": f"pci0000:0{number % roots}",
        "type": "gpu",
    }
    attributes: Document = {name: {"string": text} for name, text in texts.items()}
    attributes |= {"driverVersion": {"version": "1.2.3"}, "sriov": {"bool": True}}
    capacity = {"memory": {"value": "24480Mi"}, "millicores": {"value": "1k"}}
    return {"name": f"basic-device-{number}", "attributes": attributes, "capacity": capacity}


def basic(number: int, devices: int = 10) -> list[Document]:
    return [_slice(number, pool(number), 1, devices=[_device(each) for each in range(devices)])]


def two(number: int) -> list[Document]:
    return basic(number, 2)


def consumable(number: int) -> list[Document]:
    policy = {"default": "1M", "validRange": {"min": "1M", "step": "8"}}
    devices = [
        {
            "name": f"shareable-device-{each}",
            "allowMultipleAllocations": True,
            "attributes": {"dra.example.com/index": {"int": each}},
            "capacity": {"bandwidth": {"value": "10Gi" if each == 2 else "10G", "requestPolicy": policy}},
        }
        for each in range(4)
    ]
    return [_slice(number, pool(number), 1, devices=devices)]


def listed(number: int) -> list[Document]:
    devices = []
    for each in range(64):
        values = ["shared-value"] if each >= 32 else []
        values += [f"device-{each}-value-{value}" for value in range(47)]
        devices.append(
            {"name": f"device-{each}", "attributes": {"dra.example.com/match": {"strings": values}}}
        )
    return [_slice(number, pool(number), 1, devices=devices)]


def _drawing(name: str, *sets: tuple[str, dict[str, str]]) -> Document:
    draws = [
        {"counterSet": counters, "counters": {name: {"value": amount} for name, amount in given.items()}}
        for counters, given in sets
    ]
    return {"name": name, "consumesCounters": draws}


def _counters(name: str, given: dict[str, str]) -> Document:
    return {"name": name, "counters": {each: {"value": amount} for each, amount in given.items()}}


def _pool_of_two(number: int, counters: list[Document], devices: list[Document]) -> list[Document]:
    return [
        _slice(number, f"resourceslice-countersets-{number}", 2, sharedCounters=counters),
        _slice(number, f"resourceslice-devices-{number}", 2, devices=devices),
    ]


def partitionable(number: int) -> list[Document]:
    counters = _counters("counter-set", {f"counter{each}": "1" for each in range(1, 5)})
    devices = [
        _drawing("device-1", ("counter-set", {"counter1": "1", "counter2": "1"})),
        _drawing("device-2", ("counter-set", {"counter3": "1", "counter4": "1"})),
    ]
    return _pool_of_two(number, [counters], devices)


def backtracking(number: int) -> list[Document]:
    cpus, memory = "counter-set-for-cpu", "counter-set-for-mem"
    counters = [
        _counters(cpus, {f"cpu{each}": "1" for each in range(1, 9)}),
        _counters(memory, {"mem": "70Gi"}),
    ]
    devices = [
        _drawing(
            f"device-{each}",
            (cpus, {f"cpu{each}": "1"}),
            (memory, {"mem": "20Gi" if each == 1 else "10Gi"}),
        )
        for each in range(1, 9)
    ]
    return _pool_of_two(number, counters, devices)


# --- what claims may have taken before ---


def single_devices() -> list[tuple[str, ...]]:
    return [(f"basic-device-{each}",) for each in range(10)]


def five_devices() -> list[tuple[str, ...]]:
    return [tuple(f"basic-device-{each}" for each in range(5))]


def both_parts() -> list[tuple[str, ...]]:
    return [("device-1", "device-2")]


def all_but_first() -> list[tuple[str, ...]]:
    return [tuple(f"device-{each}" for each in range(2, 9))]


# --- claims and pods ---


def requests(number: int, *, count: int = 1, selector: str = "") -> list[Document]:
    exactly: Document = {"deviceClassName": CLASS, "allocationMode": "ExactCount", "count": count}
    if selector:
        exactly["selectors"] = [{"cel": {"expression": selector}}]
    return [{"name": f"req-{each}", "exactly": exactly} for each in range(number)]


def template(asked: list[Document], match: str = "", **constraint: Any) -> Document:
    devices: Document = {"requests": asked}
    if match:
        devices["constraints"] = [{"matchAttribute": match}]
    if constraint:
        devices["constraints"] = [constraint]
    return {
        "apiVersion": _API,
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": TEMPLATE},
        "spec": {"spec": {"devices": devices}},
    }


SHARES: Final = template(
    [
        {
            "name": "req-0",
            "exactly": {
                "deviceClassName": CLASS,
                "allocationMode": "ExactCount",
                "count": 2,
                "capacity": {"requests": {"bandwidth": "2500M"}},
            },
        }
    ],
    requests=["req-0"],
    distinctAttribute="dra.example.com/index",
)

FIRST_AVAILABLE: Final = template(
    [
        {
            "name": "req-0",
            "firstAvailable": [
                {"name": "sub-0", "deviceClassName": NO_CLASS},
                {"name": "sub-1", "deviceClassName": CLASS},
            ],
        }
    ]
)


def claim(name: str, count: int = 1) -> Document:
    return {
        "apiVersion": _API,
        "kind": "ResourceClaim",
        "metadata": {"name": name},
        "spec": {"devices": {"requests": requests(1, count=count)}},
    }


def allocated(document: Document, number: int, devices: tuple[str, ...]) -> Document:
    """A stored claim with devices of a node."""
    results = [
        {"request": "req-0", "driver": DRIVER, "pool": pool(number), "device": device} for device in devices
    ]
    here = {"key": "metadata.name", "operator": "In", "values": [node_name(number)]}
    selector = {"nodeSelectorTerms": [{"matchFields": [here]}]}
    allocation = {"devices": {"results": results}, "nodeSelector": selector}
    return {**document, "status": {"allocation": allocation}}


def pod(name: str, claim_name: str = "") -> Document:
    """A pod with a claim from the template, or with one that is named."""
    source = {"resourceClaimName": claim_name} if claim_name else {"resourceClaimTemplateName": TEMPLATE}
    container = {"name": "pause", "image": "pause:3.10", "resources": {"claims": [{"name": "resource"}]}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"containers": [container], "resourceClaims": [{"name": "resource", **source}]},
    }
