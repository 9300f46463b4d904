"""Inputs of benchmarks: slices, claims and folders of manifests, the same on every machine.

Theory of operation: dray caches values it has seen (quantities, names, valid attributes), and real drivers
repeat most of theirs. So that caches give no unfair advantage, the values here are new for every device of
every slice; whether a slice is read twice is up to the benchmark.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

from dray.api.json_text import write_json
from dray.manifests import to_yaml

DEVICES = 128
DRIVER = "gpu.example.com"
MODELS = ("a100", "h100", "b200", "l40s")


def _device(random: Random, index: int) -> dict[str, Any]:
    """Eight attributes and two capacities, as a driver for accelerators publishes them."""
    serial = random.randrange(16**12)
    return {
        "name": f"gpu-{index}-{serial:012x}",
        "attributes": {
            "uuid": {"string": f"GPU-{random.randrange(16**24):024x}"},
            "serial": {"string": f"{serial:012x}"},
            "pciAddress": {
                "string": f"0000:{serial % 256:02x}:{serial // 256 % 32:02x}.{serial % 8}-{index}"
            },
            "index": {"int": serial},
            "numaNode": {"int": random.randrange(2**40)},
            "driverVersion": {"version": f"{random.randrange(999)}.{random.randrange(999)}.{index}"},
            "model": {"string": f"{random.choice(MODELS)}-{random.randrange(10**6)}"},
            f"{DRIVER}/ecc": {"bool": serial % 2 == 0},
        },
        "capacity": {
            "memory": {"value": f"{random.randrange(1, 10**6)}Mi"},
            "cores": {"value": str(random.randrange(1, 10**6))},
        },
    }


def slice_document(random: Random, number: int, devices: int = DEVICES) -> dict[str, Any]:
    """A slice of one node."""
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {
            "name": f"node-{number}-{DRIVER}",
            "uid": f"{random.randrange(16**12):012x}",
            "generation": 3,
        },
        "spec": {
            "driver": DRIVER,
            "pool": {"name": f"node-{number}", "generation": number, "resourceSliceCount": 1},
            "nodeName": f"node-{number}",
            "devices": [_device(random, index) for index in range(devices)],
        },
    }


def _opaque(random: Random) -> dict[str, Any]:
    return {
        "driver": DRIVER,
        "parameters": {
            "apiVersion": f"{DRIVER}/v1",
            "kind": "GpuConfig",
            "sharing": {"strategy": "TimeSlicing", "interval": random.randrange(10**6)},
        },
    }


def claim_document(random: Random, number: int) -> dict[str, Any]:
    """An allocated claim: two requests, one with alternatives, a constraint, configuration, a status.

    Its selectors are one of a few, because claims are made from templates.
    """
    return _allocated(random, number, least=random.randrange(8))


def new_claim_document(random: Random, number: int) -> dict[str, Any]:
    """The same with a selector that no other claim has."""
    return _allocated(random, number, least=random.randrange(10**9))


def _allocated(random: Random, number: int, least: int) -> dict[str, Any]:
    expression = f'device.attributes["{DRIVER}"].index > {least}'
    ask = {
        "deviceClassName": "gpu",
        "selectors": [{"cel": {"expression": expression}}],
        "allocationMode": "ExactCount",
        "count": 1,
    }
    results = [
        {"request": request, "driver": DRIVER, "pool": f"node-{number}", "device": f"gpu-{index}-{number}"}
        for index, request in enumerate(("one", "some/big"))
    ]
    alternatives = [{"name": "big", **ask}, {"name": "small", "deviceClassName": "gpu", "count": 2}]
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": f"claim-{number}", "namespace": "ml", "labels": {"app": f"train-{number}"}},
        "spec": {
            "devices": {
                "requests": [
                    {"name": "one", "exactly": ask},
                    {"name": "some", "firstAvailable": alternatives},
                ],
                "constraints": [{"requests": ["one", "some"], "matchAttribute": f"{DRIVER}/numaNode"}],
                "config": [{"requests": ["one"], "opaque": _opaque(random)}],
            }
        },
        "status": {
            "allocation": {
                "devices": {
                    "results": results,
                    "config": [{"source": "FromClaim", "requests": ["one"], "opaque": _opaque(random)}],
                }
            },
            "reservedFor": [
                {"resource": "pods", "name": f"pod-{number}", "uid": f"{random.randrange(16**12):012x}"}
            ],
        },
    }


def _template(random: Random, number: int) -> dict[str, Any]:
    spec = claim_document(random, number)["spec"]
    head = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate"}
    return {**head, "metadata": {"name": f"template-{number}", "namespace": "ml"}, "spec": {"spec": spec}}


def _pod(random: Random, number: int) -> dict[str, Any]:
    container = {
        "name": "main",
        "image": f"example.com/train:{random.randrange(10**6)}",
        "command": ["python", "-m", "train", "--steps", str(random.randrange(10**6))],
        "env": [{"name": f"VAR_{i}", "value": str(random.randrange(10**6))} for i in range(6)],
        "resources": {
            "limits": {"cpu": "2", "memory": f"{random.randrange(1, 64)}Gi"},
            "claims": [{"name": "gpu", "request": "one"}],
        },
    }
    entry = {"name": "gpu", "resourceClaimTemplateName": f"template-{number}"}
    metadata = {"name": f"pod-{number}", "namespace": "ml", "labels": {"app": f"train-{number}"}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"containers": [container], "resourceClaims": [entry], "restartPolicy": "Never"},
    }


def _claim(random: Random, number: int) -> dict[str, Any]:
    return {name: part for name, part in claim_document(random, number).items() if name != "status"}


def _small_slice(random: Random, number: int) -> dict[str, Any]:
    return slice_document(random, number, devices=8)


def texts(make: Any, count: int, seed: int) -> list[bytes]:
    """JSON of `count` different documents."""
    random = Random(seed)
    return [write_json(make(random, number)) for number in range(1, count + 1)]


def manifests(count: int) -> Iterator[tuple[str, str]]:
    """Names and contents of YAML files: templates, their pods, claims, slices of eight devices."""
    random = Random(7)
    device_class = {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "gpu"}}
    yield "class.yaml", to_yaml([{**device_class, "spec": {"config": [{"opaque": _opaque(random)}]}}])
    makers = (_template, _pod, _claim, _small_slice)
    for number in range(count - 1):
        make = makers[number % len(makers)]
        yield f"{number:04}.yaml", to_yaml([make(random, number // len(makers) + 1)])


def write_folder(folder: Path, count: int) -> int:
    """Fill a folder with manifests; how many bytes they are."""
    size = 0
    for name, text in manifests(count):
        size += (folder / name).write_text(text, "utf-8")
    return size
