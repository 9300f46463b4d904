"""The devices that writers compete for: pools of dedicated and shared devices and partitions, and claims for
them.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

DRIVER = "gpu.example.com"
DEDICATED, SHARED, PARTITIONS = 30, 10, 10
PER_POOL = DEDICATED + SHARED + PARTITIONS
MEMORY = 40
"""Gi of every shared device."""
BUDGET, DRAW = 100, 40
"""What a counter has, and what a partition draws from it: two of five fit."""
PER_SET = 5
AMOUNTS = (5, 10, 20)

Document = dict[str, Any]
Device = tuple[str, str]
"""Pool and name."""


@dataclass(frozen=True)
class Size:
    """How much of everything, and how rough."""

    pools: int
    claims: int
    kills: int
    held: float = 0.2
    """Which part of the devices is held at a time, by all writers together."""

    @property
    def devices(self) -> int:
        return self.pools * PER_POOL


def pool_name(number: int) -> str:
    return f"rack/{number:03}"


def devices_of(sort: str) -> list[str]:
    """Names of the devices of one sort, the same in every pool."""
    numbers = {"dedicated": DEDICATED, "shared": SHARED, "partition": PARTITIONS}
    return [f"{sort}-{i}" for i in range(numbers[sort])]


def counter_set(device: str) -> str:
    """The set a partition draws from."""
    return f"set-{int(device.rpartition('-')[2]) // PER_SET}"


def slices(size: Size) -> Iterator[Document]:
    """Two slices per pool: devices, and the counters of its partitions."""
    for number in range(size.pools):
        pool = {"name": pool_name(number), "generation": 1, "resourceSliceCount": 2}
        base = {"driver": DRIVER, "pool": pool, "allNodes": True}
        sets = sorted({counter_set(name) for name in devices_of("partition")})
        counters = [{"name": name, "counters": {"slots": {"value": str(BUDGET)}}} for name in sets]
        yield _slice(f"devices-{number}", base | {"devices": list(_devices())})
        yield _slice(f"counters-{number}", base | {"sharedCounters": counters})


def _slice(name: str, spec: Document) -> Document:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": name},
        "spec": spec,
    }


def _devices() -> Iterator[Document]:
    yield from ({"name": name} for name in devices_of("dedicated"))
    for name in devices_of("shared"):
        capacity = {"memory": {"value": f"{MEMORY}Gi"}}
        yield {"name": name, "allowMultipleAllocations": True, "capacity": capacity}
    for name in devices_of("partition"):
        drawn = [{"counterSet": counter_set(name), "counters": {"slots": {"value": str(DRAW)}}}]
        yield {"name": name, "consumesCounters": drawn}


def sort_of(number: int) -> str:
    """What the claim of a number asks for; half want a device for themselves."""
    return ("dedicated", "shared", "dedicated", "partition", "dedicated", "shared")[number % 6]


def claim(number: int) -> Document:
    asked = {"deviceClassName": sort_of(number), "allocationMode": "ExactCount", "count": 1}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": f"c{number}", "namespace": "default"},
        "spec": {"devices": {"requests": [{"name": "r", "exactly": asked}]}},
    }


def allocation(sort: str, device: Device, rng: random.Random) -> Document:
    """A result for a claim: the device, or a share of it."""
    found: Document = {"request": "r", "driver": DRIVER, "pool": device[0], "device": device[1]}
    if sort == "shared":
        share = f"{rng.getrandbits(32):08x}-0000-4000-8000-{rng.getrandbits(48):012x}"
        found |= {"shareID": share, "consumedCapacity": {"memory": f"{rng.choice(AMOUNTS)}Gi"}}
    return {"status": {"allocation": {"devices": {"results": [found]}}}}


def preparation(name: str, node: str, claim_name: str, uid: str) -> Document:
    return {
        "apiVersion": "dray.dev/v1alpha1",
        "kind": "Preparation",
        "metadata": {"name": name},
        "spec": {"nodeName": node, "claim": {"namespace": "default", "name": claim_name, "uid": uid}},
    }
