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

from dray.allocator.allocate import survey
from dray.allocator.allocation_results import assemble
from dray.allocator.feature_gates import Admission
from dray.allocator.inventory.device_inventory import Stock, View
from dray.allocator.inventory.usage import Usage
from dray.allocator.requests import Ask, ask_of
from dray.allocator.search.trace import Solved
from dray.api.codec import decode
from dray.api.core import Node
from dray.api.devices.interning import DeviceSharing
from dray.api.meta import ObjectMeta
from dray.api.resource import DeviceClass, ResourceClaim, ResourceClaimStatus, ResourceSlice

DRIVER = "gpu.example.com"
DEVICES = 10
_SHARE_ID = "00000000-0000-4000-8000-000000000000"
_HIGH_WATER = re.compile(r"^VmHWM:\s*(\d+) kB", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Cycles:
    """One size of cluster: seconds to prepare it, then for a cycle, and how many searches a cycle took."""

    nodes: int
    shapes: int
    prepare: float
    first: float
    again: float
    changed: float
    searches: int


def cycles(nodes: int, shapes: int, clock: Callable[[], float] = time.perf_counter) -> Cycles:
    """Measure a cluster of some nodes of some shapes."""
    machines = list(machines_of(nodes))
    slices, sharing = _kept(published(nodes, shapes), clock)
    claim = waiting_claim()
    start = clock()
    door = Admission.switched({})
    stock = Stock(door.slices(slices), [device_class()], Usage(), door.judge())
    ask = ask_of([claim], stock.classes.get)
    prepared = clock()
    first = _cycle(stock, ask, machines)
    cold = clock()
    again = min(_timed(lambda: _cycle(stock, ask, machines), clock) for _ in range(3))
    taken = _taken(first, ask, claim)
    busier = [stock.with_usage(stock.usage.taking([taken])) for _ in range(3)]
    changed = min(_timed(partial(_cycle, changed, ask, machines), clock) for changed in busier)
    return Cycles(
        nodes,
        shapes,
        sharing + prepared - start,
        cold - prepared,
        again,
        changed,
        len({view.shape for view, _ in first}),
    )


def _kept(slices: Iterable[ResourceSlice], clock: Callable[[], float]) -> tuple[list[ResourceSlice], float]:
    """Slices as an informer keeps them, and the seconds that took without reading them."""
    kept: list[ResourceSlice] = []
    sharing, seconds = DeviceSharing(), 0.0
    for published_slice in slices:
        start = clock()
        kept.append(sharing.share(published_slice))
        seconds += clock() - start
    return kept, seconds


def _timed(work: Callable[[], object], clock: Callable[[], float]) -> float:
    start = clock()
    work()
    return clock() - start


def _cycle(stock: Stock, ask: Ask, machines: list[Node]) -> list[tuple[View, Solved]]:
    """Every node where the claim fits, with its solution."""
    return [(view, ending) for view, ending in survey(stock, ask, machines) if isinstance(ending, Solved)]


def _taken(fitting: list[tuple[View, Solved]], ask: Ask, claim: ResourceClaim) -> ResourceClaim:
    """The claim with its devices on the first node."""
    view, solved = fitting[0]
    (allocation,) = assemble(ask, view, solved.picks, new_share_id=lambda: _SHARE_ID)
    return ResourceClaim(
        metadata=claim.metadata, spec=claim.spec, status=ResourceClaimStatus(allocation=allocation)
    )


# --- what it is made of ---


def published(nodes: int, shapes: int, devices: int = DEVICES) -> Iterator[ResourceSlice]:
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
                "devices": [_device(i, kind) for i in range(devices)],
            },
        }
        slice_: ResourceSlice = decode(json.dumps(document).encode()).object
        yield slice_


def _device(position: int, kind: int) -> dict[str, object]:
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


def machines_of(nodes: int) -> Iterator[Node]:
    """The nodes."""
    for number in range(nodes):
        name = f"node-{number:05}"
        yield Node(metadata=ObjectMeta(name=name, labels={"kubernetes.io/hostname": name}))


def device_class() -> DeviceClass:
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


def waiting_claim() -> ResourceClaim:
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
class Footprint:
    """Peak memory of a process in MiB: with everything imported, and after a cycle over a whole cluster."""

    nodes: int
    devices: int
    before: float
    after: float


def footprint(nodes: int, shapes: int = 1) -> Footprint:
    """Measure in a process of its own, as memory that was used once is rarely given back."""
    done = subprocess.run(
        [sys.executable, "-m", "dray.simulation.benchmarks.cluster_scale", str(nodes), str(shapes)],
        capture_output=True,
        text=True,
        check=True,
        timeout=600,
    )
    before, after = map(float, done.stdout.split())
    return Footprint(nodes, DEVICES, before, after)


def _high_water() -> float:
    """The most memory this process has had so far, in MiB."""
    status = Path("/proc/self/status")
    if status.exists():
        found = _HIGH_WATER.search(status.read_text())
        if found is not None:
            return int(found[1]) / 1024
    import resource

    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most / 2**20 if sys.platform == "darwin" else most / 1024


def _measure(nodes: int, shapes: int) -> None:
    before = _high_water()
    door = Admission.switched({})
    kept = map(DeviceSharing().share, published(nodes, shapes))
    stock = Stock(door.slices(kept), [device_class()], Usage(), door.judge())
    ask = ask_of([waiting_claim()], stock.classes.get)
    fitting = _cycle(stock, ask, list(machines_of(nodes)))
    assert len(fitting) == nodes
    print(before, _high_water())


if __name__ == "__main__":
    _measure(*map(int, sys.argv[1:]))
