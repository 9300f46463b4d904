"""Resource slice: a part of a pool of devices, published by a driver."""

from __future__ import annotations

from dray.api.meta import ApiStruct, CompositeApiStruct, Int64, ObjectMeta, always_encode
from dray.api.resource.device import CounterSet, Device
from dray.values.node_selectors import NodeSelector


class ResourcePool(ApiStruct, frozen=True):
    """The pool of a slice, its generation, and how many slices make it complete."""

    name: str = ""
    generation: Int64 = always_encode(0)
    resource_slice_count: Int64 = always_encode(0)
    priority: Int64 | None = None


class ResourceSliceSpec(CompositeApiStruct, frozen=True):
    """The devices or shared counters in this slice, and the nodes that reach them."""

    driver: str = ""
    pool: ResourcePool = ResourcePool()
    node_name: str | None = None
    node_selector: NodeSelector | None = None
    all_nodes: bool | None = None
    devices: tuple[Device, ...] = ()
    per_device_node_selection: bool | None = None
    shared_counters: tuple[CounterSet, ...] = ()
    priority: Int64 | None = None


class ResourceSlice(CompositeApiStruct, frozen=True):
    """A part of a pool of devices, published by a driver."""

    api_version: str = always_encode("resource.k8s.io/v1")
    kind: str = always_encode("ResourceSlice")
    metadata: ObjectMeta = ObjectMeta()
    spec: ResourceSliceSpec = ResourceSliceSpec()
