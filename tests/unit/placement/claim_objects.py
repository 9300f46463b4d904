"""Small clusters with devices, and pods with claims; selectors are words that `toy_selectors` understands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from dray.allocator.inventory.device_inventory import DeviceInventory
from dray.allocator.inventory.usage import DeviceUsage
from dray.api.core import Pod, PodSpec
from dray.api.meta import ObjectMeta
from dray.api.resource import AllocationResult, Device, DeviceRequest, ResourceClaim
from dray.placement.device_searches import DeviceSearches
from dray.placement.pending_pod import PendingPod
from dray.placement.plugins.dynamic_resources import DynamicResources
from dray.placement.profile import SchedulerProfile, WeightedPlugin
from dray.placement.resource_requests import compute_requests
from dray.placement.snapshot import ClusterSnapshot
from dray.values.node_selectors import build_node_name_selector
from tests.brute import builders as make
from tests.brute.toy_selectors import evaluate_toy
from tests.property.test_placement_law import OPEN, one_share, unlimited
from tests.unit.placement.pods_and_nodes import node

CLASS = make.device_class("any")
MODEL = "gpu.example/model"


def models(*names: str) -> tuple[Device, ...]:
    """Devices `d0`, `d1` ... of these models; an empty name is none."""
    return tuple(
        make.device(f"d{at}", attributes={MODEL: make.attribute(name)} if name else {})
        for at, name in enumerate(names)
    )


def cluster(
    devices: Mapping[str, Sequence[Device]], *held: ResourceClaim, labels: Mapping[str, str] | None = None
) -> ClusterSnapshot:
    """Nodes with the devices of their own pool, which has the name of the node."""
    slices = [
        make.published(*found, name=name, pool=name, node_name=name)
        for name, found in devices.items()
        if found
    ]
    inventory = DeviceInventory(slices, (CLASS,), DeviceUsage.from_claims(held), evaluate_toy)
    return ClusterSnapshot.build([node(name, labels=dict(labels or {})) for name in devices], inventory)


def claim(*requests: DeviceRequest, name: str = "c") -> ResourceClaim:
    """A claim that has nothing yet; without requests, for one device."""
    made = make.claim(*(requests or (make.request("r"),)), name=name)
    return replace(made, metadata=replace(made.metadata, uid=f"uid-{name}", resource_version="1"))


def rather(name: str, *order: str) -> DeviceRequest:
    """A request that would rather have one model than the next."""
    return make.first_of(name, *[(model, make.asking(1, f"attr?:{MODEL}={model}")) for model in order])


def having(asked: ResourceClaim, *devices: str, where: str = "") -> ResourceClaim:
    """The claim with devices, `pool/device` each, reachable from one node or from all."""
    results = [make.result(device, pool) for pool, device in (each.split("/") for each in devices)]
    held = make.holding(*results).status.allocation
    assert held is not None
    allocation: AllocationResult = replace(
        held, node_selector=build_node_name_selector(where) if where else None
    )
    return replace(asked, status=replace(asked.status, allocation=allocation))


def wanting(*claims: ResourceClaim, name: str = "p", attempts: int = 0, worked: float = 0.0) -> PendingPod:
    """A pod with claims."""
    pod = Pod(metadata=ObjectMeta(name=name, namespace="ml", uid=f"uid-{name}"), spec=PodSpec())
    return PendingPod(pod, compute_requests(pod), claims, attempts=attempts, search_seconds=worked)


def devices_only(searches: DeviceSearches | None = None) -> tuple[DynamicResources, SchedulerProfile]:
    """The plugin for devices, and a profile of nothing else."""
    plugin = DynamicResources(OPEN, one_share, searches or unlimited())
    return plugin, SchedulerProfile((WeightedPlugin(plugin, 2),))
