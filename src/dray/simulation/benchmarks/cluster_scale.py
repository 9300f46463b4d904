"""Large clusters made up for measuring: how the cost of a cycle grows with nodes, and with kinds of nodes.

Every node has one slice of devices, read from JSON as it would come from a server, and kept as a scheduler
keeps it. Nodes come in a number of kinds (*shapes*), which differ in the model of their devices. A cycle
asks every node about one pod. It is timed three times: the first one ever, one more when nothing has
changed, and one after a device was taken.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from dray.allocator.allocate import search_nodes
from dray.allocator.allocation_results import build_allocations
from dray.allocator.feature_gates import AllocatorGateFilter
from dray.allocator.inventory.device_inventory import DeviceInventory
from dray.allocator.inventory.node_shapes import NodeView
from dray.allocator.inventory.usage import DeviceUsage
from dray.allocator.requests import AllocationRequest, normalize_claims
from dray.allocator.search.trace import Solved
from dray.api.codec import decode
from dray.api.core import Node
from dray.api.devices.interning import DeviceInterner
from dray.api.meta import ObjectMeta
from dray.api.resource import DeviceClass, ResourceClaim, ResourceClaimStatus, ResourceSlice

DRIVER = "gpu.example.com"
DEVICES_PER_NODE = 10
_SHARE_ID = "00000000-0000-4000-8000-000000000000"
_PEAK_MEMORY = re.compile(r"^VmHWM:\s*(\d+) kB", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class CycleTimings:
    """One size of cluster: seconds to prepare it, then for a cycle, and how many searches a cycle took."""

    nodes: int
    shapes: int
    prepare: float
    first: float
    repeated: float
    changed: float
    searches: int


def measure_cycles(nodes: int, shapes: int, clock: Callable[[], float] = time.perf_counter) -> CycleTimings:
    """Measure a cluster of some nodes of some shapes."""
    machines = list(generate_nodes(nodes))
    slices, sharing = _share_slices(generate_slices(nodes, shapes), clock)
    claim = build_claim()
    start = clock()
    gate_filter = AllocatorGateFilter.from_overrides({})
    inventory = DeviceInventory(
        gate_filter.admit_slices(slices),
        [build_device_class()],
        DeviceUsage(),
        gate_filter.build_selector_evaluator(),
    )
    allocation_request = normalize_claims([claim], inventory.classes.get)
    prepared = clock()
    first = _run_cycle(inventory, allocation_request, machines)
    cold = clock()
    again = min(
        _measure_seconds(lambda: _run_cycle(inventory, allocation_request, machines), clock) for _ in range(3)
    )
    taken = _allocate_claim(first, allocation_request, claim)
    busier = [inventory.replace_usage(inventory.usage.add_claims([taken])) for _ in range(3)]
    changed = min(
        _measure_seconds(partial(_run_cycle, changed, allocation_request, machines), clock)
        for changed in busier
    )
    return CycleTimings(
        nodes,
        shapes,
        sharing + prepared - start,
        cold - prepared,
        again,
        changed,
        len({view.shape for view, _ in first}),
    )


def _share_slices(
    slices: Iterable[ResourceSlice], clock: Callable[[], float]
) -> tuple[list[ResourceSlice], float]:
    """Slices as an informer keeps them, and the seconds that took without reading them."""
    kept: list[ResourceSlice] = []
    sharing, seconds = DeviceInterner(), 0.0
    for published_slice in slices:
        start = clock()
        kept.append(sharing.intern_devices(published_slice))
        seconds += clock() - start
    return kept, seconds


def _measure_seconds(work: Callable[[], object], clock: Callable[[], float]) -> float:
    start = clock()
    work()
    return clock() - start


def _run_cycle(
    inventory: DeviceInventory, allocation_request: AllocationRequest, nodes: list[Node]
) -> list[tuple[NodeView, Solved]]:
    """Every node where the claim fits, with its solution."""
    return [
        (view, ending)
        for view, ending in search_nodes(inventory, allocation_request, nodes)
        if isinstance(ending, Solved)
    ]


def _allocate_claim(
    fitting: list[tuple[NodeView, Solved]], allocation_request: AllocationRequest, claim: ResourceClaim
) -> ResourceClaim:
    """The claim with its devices on the first node."""
    view, solved = fitting[0]
    (allocation,) = build_allocations(allocation_request, view, solved.picks, new_share_id=lambda: _SHARE_ID)
    return ResourceClaim(
        metadata=claim.metadata, spec=claim.spec, status=ResourceClaimStatus(allocation=allocation)
    )


# --- what it is made of ---


def generate_slices(nodes: int, shapes: int, devices: int = DEVICES_PER_NODE) -> Iterator[ResourceSlice]:
    """One slice per node, decoded from JSON one by one."""
    for number in range(nodes):
        name = f"node-{number:05}"
        kind = number % shapes
        document = {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceSlice",
            "metadata": {"name": f"{name}-{DRIVER}", "uid": f"00000000-0000-4000-8000-{number:012}"},
            "spec": {
                "driver": DRIVER,
                "nodeName": name,
                "pool": {"name": name, "generation": 1, "resourceSliceCount": 1},
                "devices": [_build_device(i, kind) for i in range(devices)],
            },
        }
        slice_: ResourceSlice = decode(json.dumps(document).encode()).object
        yield slice_


def _build_device(position: int, kind: int) -> dict[str, object]:
    return {
        "name": f"gpu-{position}",
        "attributes": {
            "model": {"string": f"model-{kind}"},
            "numa": {"int": position // 4},
            "driverVersion": {"version": "550.54.15"},
            "resource.kubernetes.io/pcieRoot": {"string": f"pci0000:{position:02}"},
        },
        "capacity": {"memory": {"value": "80Gi"}},
    }


def generate_nodes(count: int) -> Iterator[Node]:
    """The nodes."""
    for number in range(count):
        name = f"node-{number:05}"
        yield Node(metadata=ObjectMeta(name=name, labels={"kubernetes.io/hostname": name}))


def build_device_class() -> DeviceClass:
    """The class that everything is in."""
    selector = {"cel": {"expression": f'device.driver == "{DRIVER}"'}}
    document = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": "gpu"},
        "spec": {"selectors": [selector]},
    }
    found: DeviceClass = decode(json.dumps(document).encode()).object
    return found


def build_claim() -> ResourceClaim:
    """A claim for two devices on one NUMA node with enough memory."""
    expression = f'device.capacity["{DRIVER}"].memory.compareTo(quantity("40Gi")) >= 0'
    exactly = {
        "deviceClassName": "gpu",
        "allocationMode": "ExactCount",
        "count": 2,
        "selectors": [{"cel": {"expression": expression}}],
    }
    document = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "waiting", "namespace": "default"},
        "spec": {
            "devices": {
                "requests": [{"name": "gpus", "exactly": exactly}],
                "constraints": [{"requests": ["gpus"], "matchAttribute": f"{DRIVER}/numa"}],
            }
        },
    }
    found: ResourceClaim = decode(json.dumps(document).encode()).object
    return found


# --- memory ---


@dataclass(frozen=True, slots=True)
class MemoryFootprint:
    """Peak memory of a process in MiB: with everything imported, and after a cycle over a whole cluster."""

    nodes: int
    devices: int
    before: float
    after: float


def measure_footprint(nodes: int, shapes: int = 1) -> MemoryFootprint:
    """Measure in a process of its own, as memory that was used once is rarely given back."""
    done = subprocess.run(
        [sys.executable, "-m", "dray.simulation.benchmarks.cluster_scale", str(nodes), str(shapes)],
        capture_output=True,
        text=True,
        check=True,
        timeout=600,
    )
    before, after = map(float, done.stdout.split())
    return MemoryFootprint(nodes, DEVICES_PER_NODE, before, after)


def _read_peak_memory() -> float:
    """The most memory this process has had so far, in MiB."""
    status = Path("/proc/self/status")
    if status.exists():
        found = _PEAK_MEMORY.search(status.read_text())
        if found is not None:
            return int(found[1]) / 1024
    import resource

    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most / 2**20 if sys.platform == "darwin" else most / 1024


def _print_measurement(nodes: int, shapes: int) -> None:
    before = _read_peak_memory()
    gate_filter = AllocatorGateFilter.from_overrides({})
    kept = map(DeviceInterner().intern_devices, generate_slices(nodes, shapes))
    inventory = DeviceInventory(
        gate_filter.admit_slices(kept),
        [build_device_class()],
        DeviceUsage(),
        gate_filter.build_selector_evaluator(),
    )
    allocation_request = normalize_claims([build_claim()], inventory.classes.get)
    fitting = _run_cycle(inventory, allocation_request, list(generate_nodes(nodes)))
    assert len(fitting) == nodes
    print(before, _read_peak_memory())


if __name__ == "__main__":
    _print_measurement(*map(int, sys.argv[1:]))
