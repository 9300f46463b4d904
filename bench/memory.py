"""`python -m bench.memory`: memory of a scheduler while drivers republish their slices without end.

Theory of operation: every node has one slice, and each update changes one attribute of its devices to new
values. An update takes the path of a real one: a line of a watch is decoded, validated as by the server in
the same process, and put into the indexer of an informer, which updates the scheduler cache. Now and then a
pod with a claim is placed and another one is deleted; some claims have a new selector. Nothing of an old
slice is needed once it was replaced, so memory must end where it began.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import time
import tracemalloc
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from dray.allocator.feature_gates import AllocatorGateFilter
from dray.allocator.search.resumable import TimeLimit
from dray.api.codec import decode
from dray.api.core import Node, Pod, PodResourceClaim, PodSpec
from dray.api.devices.interning import DeviceInterner
from dray.api.kinds import get_kind_by_type
from dray.api.meta import ObjectMeta
from dray.api.resource import ResourceClaim, ResourceSlice
from dray.api.validation import validate_update
from dray.claims.pod_claims import PodClaimLookup
from dray.client.informers.indexer import IndexedObject, Indexer, ObjectListener
from dray.client.object_refs import ObjectKey
from dray.client.response_decoding import ResponseDecoder, WatchEvent
from dray.placement.device_searches import DeviceSearches
from dray.placement.pending_pod import PendingPod, resolve_pending_pod
from dray.placement.plugins.dynamic_resources import DynamicResources
from dray.placement.profile import PlacementOptions, build_profile
from dray.placement.scheduling_cycle import Placement, place_pod
from dray.scheduler.cache import SchedulerCache
from dray.simulation.benchmarks.cluster_scale import build_device_class

TARGET: Final = 60.0
DRIVER: Final = "gpu.example.com"
DEVICES: Final = 8
PLACE_EVERY: Final = 5
ASK_ANEW_EVERY: Final = 50
STAY: Final = 40
"""Pods that run at once; the oldest leaves when another one comes."""
_MEBIBYTE: Final = 2**20


class Churn:
    """A scheduler's view of a cluster whose slices change all the time."""

    def __init__(self, nodes: int, devices: int = DEVICES, stay: int = STAY) -> None:
        gate_filter = AllocatorGateFilter.from_overrides({})
        self.overlay = SchedulerCache(gate_filter)
        self.devices = DynamicResources(gate_filter, lambda: "", DeviceSearches(TimeLimit(time.monotonic)))
        self.profile = build_profile(PlacementOptions(), [self.devices])
        self._reader = ResponseDecoder(get_kind_by_type(ResourceSlice), "v1")
        self._sharing = DeviceInterner()
        self._indexer: Indexer[ResourceSlice] = Indexer()
        self._indexer.listen(
            ObjectListener(
                self.overlay.update_slice,
                lambda _old, new: self.overlay.update_slice(new),
                self.overlay.remove_slice,
            )
        )
        self._seen = PodClaimLookup(self.overlay.claims.get)
        self._nodes, self._devices, self._stay = nodes, devices, stay
        self._running: deque[tuple[Pod, ResourceClaim]] = deque()
        self._version = self._pods = 0
        self.placed = 0
        for number in range(nodes):
            self.overlay.update_node(node(number))
        self.overlay.update_class(build_device_class())
        for number in range(nodes):
            self._update("ADDED", number)
        self._place_pod()

    def republish(self, updates: int) -> None:
        """Change so many slices, one after the other."""
        for _ in range(updates):
            self._update("MODIFIED", self._version % self._nodes)
            if self._version % PLACE_EVERY == 0:
                self._place_pod()

    def _update(self, what: str, number: int) -> None:
        self._version += 1
        document = slice_document(number, self._version, self._devices)
        event = self._reader.decode_event(json.dumps({"type": what, "object": document}).encode())
        assert isinstance(event, WatchEvent)
        new: ResourceSlice = self._sharing.intern_devices(event.object)
        key = ObjectKey("", new.metadata.name)
        old = self._indexer.objects.get(key)
        if old is not None:
            assert not validate_update(old.object, new)
        self._indexer.put(key, IndexedObject(new, self._version, new.metadata.uid))

    def _place_pod(self) -> None:
        self._pods += 1
        pod, claim = pod_with_claim(self._pods, anew=self._pods % (ASK_ANEW_EVERY // PLACE_EVERY) == 0)
        self.overlay.claims.update(claim)
        subject = resolve_pending_pod(pod, self._seen)
        assert isinstance(subject, PendingPod)
        found = place_pod(self.overlay.update_snapshot(), subject, self.profile, rotation=self._pods)
        assert isinstance(found, Placement)
        for given, allocation in found.allocations:
            self.overlay.claims.add_pending_allocation(given, allocation, pod.metadata.uid)
        self.overlay.assume_pod(pod, found.node_state.name, subject.requests)
        self.placed += 1
        self._running.append((pod, claim))
        if len(self._running) > self._stay:
            leaving, released = self._running.popleft()
            self.overlay.remove_pod(leaving)
            self.overlay.claims.remove(released)


def node(number: int) -> Node:
    """A node that can run pods."""
    name = f"node-{number:05}"
    document = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "status": {"allocatable": {"cpu": "64", "memory": "256Gi", "pods": "110"}},
    }
    found: Node = decode(json.dumps(document).encode()).object
    return found


def slice_document(number: int, version: int, devices: int = DEVICES) -> dict[str, Any]:
    """The slice of a node; one attribute of each device has a new value."""
    name = f"node-{number:05}"
    found = [_device(position, version) for position in range(devices)]
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {
            "name": f"{name}-{DRIVER}",
            "uid": f"00000000-0000-4000-8000-{number:012}",
            "resourceVersion": f"{version}",
        },
        "spec": {
            "driver": DRIVER,
            "nodeName": name,
            "pool": {"name": name, "generation": version, "resourceSliceCount": 1},
            "devices": found,
        },
    }


def _device(position: int, version: int) -> dict[str, Any]:
    return {
        "name": f"gpu-{position}",
        "attributes": {
            "model": {"string": "a100"},
            "numa": {"int": position // 4},
            "temperature": {"string": f"{version}-{position}"},
            "driverVersion": {"version": "550.54.15"},
            "resource.kubernetes.io/pcieRoot": {"string": f"pci0000:{position:02}"},
        },
        "capacity": {"memory": {"value": "80Gi"}},
    }


def pod_with_claim(number: int, *, anew: bool) -> tuple[Pod, ResourceClaim]:
    """A pod and its claim for one device; the selector is that of all others, or a new one."""
    least = f"{number % 40 + 1}Gi" if not anew else f"{number}Mi"
    expression = f'device.capacity["{DRIVER}"].memory.compareTo(quantity("{least}")) >= 0'
    exactly = {
        "deviceClassName": "gpu",
        "allocationMode": "ExactCount",
        "count": 1,
        "selectors": [{"cel": {"expression": expression}}],
    }
    document = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": f"claim-{number}", "namespace": "default", "uid": f"claim-{number}"},
        "spec": {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}},
    }
    claim: ResourceClaim = decode(json.dumps(document).encode()).object
    entry = PodResourceClaim(name="gpu", resource_claim_name=claim.metadata.name)
    meta = ObjectMeta(name=f"pod-{number}", namespace="default", uid=f"pod-{number}")
    return Pod(metadata=meta, spec=PodSpec(resource_claims=(entry,))), claim


# --- measuring ---


@dataclass(frozen=True, slots=True)
class Reading:
    """The process after so many updates: MiB of memory, and seconds of the processor since the last."""

    updates: int
    resident: float
    seconds: float


def readings(churn: Churn, updates: int, parts: int = 10) -> Iterator[Reading]:
    """Memory before, between and after the updates."""
    yield Reading(0, resident(), 0.0)
    for part in range(1, parts + 1):
        began = time.process_time()
        churn.republish(updates // parts)
        took = time.process_time() - began
        yield Reading(updates * part // parts, resident(), took)


def resident() -> float:
    """Memory of this process in MiB, after garbage collection."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
    return pages * 4096 / _MEBIBYTE


def growth(churn: Churn, updates: int, lines: int) -> Iterator[str]:
    """Where memory that grew was allocated, most first."""
    tracemalloc.start(1)
    churn.republish(updates // 10)
    gc.collect()
    before = tracemalloc.take_snapshot()
    churn.republish(updates)
    gc.collect()
    grown = tracemalloc.take_snapshot().compare_to(before, "lineno")
    tracemalloc.stop()
    for found in grown[:lines]:
        frame = found.traceback[0]
        place_ = "/".join(Path(frame.filename).parts[-3:])
        grew = f"{found.size_diff / _MEBIBYTE:>9.2f} MiB {found.count_diff:>9,} objects"
        yield f"{grew}  {place_}:{frame.lineno}"


def main(arguments: list[str] | None = None) -> int:
    """Print readings, and with `--sources` where growth comes from."""
    parser = argparse.ArgumentParser("python -m bench.memory", description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=50)
    parser.add_argument("--updates", type=int, default=20_000)
    parser.add_argument("--devices", type=int, default=DEVICES, help="devices of a slice")
    parser.add_argument("--sources", action="store_true", help="show where memory that grew was allocated")
    chosen = parser.parse_args(arguments)
    imported = resident()
    churn = Churn(chosen.nodes, chosen.devices)
    if chosen.sources:
        print("\n".join(growth(churn, chosen.updates, 30)))
        return 0
    print(f"{'updates':>9}{'MiB':>9}{'µs/update':>12}")
    last = imported
    for reading in readings(churn, chosen.updates):
        last = reading.resident
        pace = reading.seconds * 1e6 / (chosen.updates / 10)
        print(f"{reading.updates:>9,}{reading.resident:>9.1f}{pace:>12,.0f}")
    print(f"{imported:.0f} MiB with everything imported, {last:.0f} at the end (target {TARGET:.0f})")
    return 0 if last < TARGET else 1


if __name__ == "__main__":
    sys.exit(main())
