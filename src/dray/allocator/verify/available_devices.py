"""Devices that the pools offer to a node, computed anew: pool by pool, from all slices each time.

A pool is usable from a node when all slices of the newest generation that the node sees are published and
valid. If the node does not see all of them itself, there must not be a newer generation elsewhere.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from dray.allocator.verify.findings import VerificationInput
from dray.allocator.withheld_devices import HiddenSlice, WithheldDevice
from dray.api.core import Node
from dray.api.resource import Device, ResourceSlice, ResourceSliceSpec
from dray.values.node_selectors import NodeSelector

DevicePath = tuple[str, str, str]
"""Driver, pool, device."""


@dataclass(frozen=True, slots=True)
class AvailableDevice:
    """A device that a node may use."""

    driver: str
    pool: str
    device: Device
    node_selection: ResourceSliceSpec | Device

    @property
    def path(self) -> DevicePath:
        """Its identity in the cluster."""
        return (self.driver, self.pool, self.device.name)

    @property
    def is_shared(self) -> bool:
        """Whether several allocations may share it."""
        return bool(self.device.allow_multiple_allocations)

    @property
    def is_local(self) -> bool:
        """Whether it can be used on one node only."""
        return bool(self.node_selection.node_name or self.device.binds_to_node)

    @property
    def selector(self) -> NodeSelector | None:
        """The nodes it can be used on, when a selector says so."""
        return None if self.is_local else self.node_selection.node_selector

    def __str__(self) -> str:
        return "/".join(self.path)


@dataclass(frozen=True, slots=True)
class AvailableDevices:
    """What a node sees: devices by identity, those withheld by a closed gate, unusable pools with the reason,
    slices of each usable pool."""

    devices: dict[DevicePath, AvailableDevice] = field(default_factory=dict)
    withheld: dict[DevicePath, WithheldDevice] = field(default_factory=dict)
    unusable: dict[tuple[str, str], str] = field(default_factory=dict)
    pools: dict[tuple[str, str], list[ResourceSlice]] = field(default_factory=dict)
    hidden: tuple[HiddenSlice, ...] = ()

    def is_hidden(self, path: DevicePath) -> bool:
        """Whether a closed gate hides the slice of a device."""
        specs = [item.published.spec for item in self.hidden if item.spec.pool.name == path[1]]
        return any(spec.driver == path[0] and path[2] in {d.name for d in spec.devices} for spec in specs)


def find_available_devices(inputs: VerificationInput) -> AvailableDevices:
    """What all pools offer to the node."""
    found = AvailableDevices(hidden=tuple(item for item in inputs.slices if isinstance(item, HiddenSlice)))
    for pool in {(item.spec.driver, item.spec.pool.name) for item in inputs.slices}:
        every = [item for item in inputs.slices if (item.spec.driver, item.spec.pool.name) == pool]
        seen = [item for item in every if _list_slice_devices(item, inputs.node) is not None]
        if not seen:
            continue
        newest = max(item.spec.pool.generation for item in seen)
        seen = [item for item in seen if item.spec.pool.generation == newest]
        same = [item for item in every if item.spec.pool.generation == newest]
        complete_here = {item.spec.pool.resource_slice_count for item in same} == {len(seen)}
        if not complete_here and any(item.spec.pool.generation > newest for item in every):
            continue
        lent = [
            one
            for item in seen
            if not item.spec.shared_counters
            for one in _list_slice_devices(item, inputs.node) or ()
        ]
        flaw = _find_flaw(same, seen, complete_here)
        if flaw is not None:
            found.unusable[pool] = flaw
            continue
        found.pools[pool] = same
        for one in lent:
            if isinstance(one.device, WithheldDevice):
                found.withheld[one.path] = one.device
            else:
                found.devices[one.path] = one
    return found


def _list_slice_devices(published: ResourceSlice, node: Node) -> list[AvailableDevice] | None:
    """The devices of a slice for a node; None when the slice is not for that node."""
    spec = published.spec
    if spec.per_device_node_selection:
        own = [
            AvailableDevice(spec.driver, spec.pool.name, one, one)
            for one in spec.devices
            if _is_for_node(one, node)
        ]
        if spec.node_name or spec.all_nodes or spec.node_selector is not None:
            return own if _is_for_node(spec, node) else None
        return own or None
    if not _is_for_node(spec, node):
        return None
    return [AvailableDevice(spec.driver, spec.pool.name, one, spec) for one in spec.devices]


def _is_for_node(node_selection: ResourceSliceSpec | Device, node: Node) -> bool:
    if node_selection.node_name:
        return node_selection.node_name == node.metadata.name
    if node_selection.all_nodes or node_selection.node_selector is None:
        return bool(node_selection.all_nodes)
    return node_selection.node_selector.matches(node.metadata.name, node.metadata.labels)


def _find_flaw(same: list[ResourceSlice], seen: list[ResourceSlice], complete_here: bool) -> str | None:
    """Why a pool must not be used, if so; `seen` are the slices that the node sees."""
    counts = {item.spec.pool.resource_slice_count for item in same}
    if len(counts) > 1:
        return "its slices disagree on their number"
    if not complete_here and counts != {len(same)}:
        return f"it is incomplete: {len(same)} of {min(counts)} slices"
    if len({item.spec.pool.priority or 0 for item in same}) > 1:
        return "its slices disagree on its priority"
    sets = [group for item in same for group in item.spec.shared_counters]
    budget = {(group.name, name) for group in sets for name in ("", *group.counters)}
    drawn = {
        (part.counter_set, name)
        for item in same
        for device in item.spec.devices
        for part in device.consumes_counters
        for name in ("", *part.counters)
    }
    if not drawn <= budget:
        return "a device draws from a counter that does not exist"
    if _has_repeats(group.name for group in sets):
        return "it has two counter sets of one name"
    own = [item for item in seen if not item.spec.shared_counters]
    if _has_repeats(device.name for item in own for device in item.spec.devices):
        return "it has two devices of one name"
    return None


def _has_repeats(names: Iterable[str]) -> bool:
    return any(times > 1 for times in Counter(names).values())
