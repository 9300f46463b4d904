"""Which devices a node sees, in which order: said again in the plainest way.

A pool is looked at as a whole every time: no indexes, nothing prepared, nothing shared.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dray.api.core import Node
from dray.api.resource import Device, ResourceSlice
from tests.brute.problem import Problem


@dataclass(frozen=True)
class Thing:
    """A device a node sees."""

    driver: str
    pool: str
    page: ResourceSlice
    device: Device

    @property
    def place(self) -> tuple[str, str, str]:
        return (self.driver, self.pool, self.device.name)

    @property
    def is_shared(self) -> bool:
        return bool(self.device.allow_multiple_allocations)

    @property
    def is_tangled(self) -> bool:
        """Whether no allocation could say where the device can be used: its selector has several terms."""
        holder = self.device if self.page.spec.per_device_node_selection else self.page.spec
        selector = holder.node_selector
        if holder.node_name or self.device.binds_to_node or selector is None:
            return False
        return len(selector.node_selector_terms) > 1


@dataclass(frozen=True)
class VisiblePools:
    """What a node sees: devices in order, whether a pool is broken, and the slices of each usable pool."""

    things: tuple[Thing, ...]
    broken: bool
    slices_by_pool: dict[tuple[str, str], tuple[ResourceSlice, ...]]


def covers(holder: Any, node: Node) -> bool:
    """Whether a slice or a device is for a node."""
    if holder.node_name:
        return bool(holder.node_name == node.metadata.name)
    if holder.all_nodes:
        return True
    selector = holder.node_selector
    return selector is not None and selector.matches(node.metadata.name, node.metadata.labels)


def seen(page: ResourceSlice, node: Node) -> list[Device] | None:
    """The devices of a page a node can use; None when the page is not for the node."""
    if page.spec.per_device_node_selection:
        own = [device for device in page.spec.devices if covers(device, node)]
        if page.spec.node_name or page.spec.all_nodes or page.spec.node_selector is not None:
            return own if covers(page.spec, node) else None
        return own or None
    return list(page.spec.devices) if covers(page.spec, node) else None


def look(problem: Problem) -> VisiblePools:
    """Everything the first node of a problem sees."""
    node = problem.node
    pools = {(page.spec.driver, page.spec.pool.name) for page in problem.slices}
    usable: list[tuple[Any, list[Thing]]] = []
    slices_by_pool = {}
    broken = False
    for driver, pool in pools:
        every = [page for page in problem.slices if (page.spec.driver, page.spec.pool.name) == (driver, pool)]
        visible = [page for page in every if seen(page, node) is not None]
        if not visible:
            continue
        generation = max(page.spec.pool.generation for page in visible)
        visible = [page for page in visible if page.spec.pool.generation == generation]
        same = [page for page in every if page.spec.pool.generation == generation]
        state = _state(every, visible, same, node)
        if state == "sound":
            things = _things(visible, node)
            waits = any(device.binding_conditions for page in visible for device in page.spec.devices)
            usable.append(((driver, -(visible[0].spec.pool.priority or 0), waits, pool), things))
            slices_by_pool[driver, pool] = tuple(same)
        broken = broken or state == "broken"
    return VisiblePools(tuple(_walked(usable)), broken, slices_by_pool)


def _state(
    every: list[ResourceSlice], visible: list[ResourceSlice], same: list[ResourceSlice], node: Node
) -> str:
    """Sound, broken, or gone (a newer generation is elsewhere)."""
    newer = any(page.spec.pool.generation > same[0].spec.pool.generation for page in every)
    counts = {page.spec.pool.resource_slice_count for page in same}
    if len(counts) > 1:
        return "gone" if newer else "broken"
    (count,) = counts
    if len(visible) != count:
        if newer:
            return "gone"
        if len(same) != count:
            return "broken"
    names = [d.name for page in visible if not page.spec.shared_counters for d in page.spec.devices]
    sets = [group.name for page in same for group in page.spec.shared_counters]
    known = {
        (group.name, name)
        for page in same
        for group in page.spec.shared_counters
        for name in ("", *group.counters)
    }
    drawn = {
        (drawn.counter_set, name)
        for page in same
        for device in page.spec.devices
        for drawn in device.consumes_counters
        for name in ("", *drawn.counters)
    }
    priorities = {page.spec.pool.priority or 0 for page in same}
    sound = len(set(names)) == len(names) and len(set(sets)) == len(sets) and drawn <= known
    return "sound" if sound and len(priorities) == 1 else "broken"


def _things(visible: list[ResourceSlice], node: Node) -> list[Thing]:
    ordered = sorted(visible, key=lambda page: (-(page.spec.priority or 0), page.metadata.name))
    return [
        Thing(page.spec.driver, page.spec.pool.name, page, device)
        for page in ordered
        if not page.spec.shared_counters
        for device in seen(page, node) or ()
    ]


def _walked(pools: list[tuple[Any, list[Thing]]]) -> list[Thing]:
    """Drivers by name, then pools in order; at a driver's end those that wait for conditions come last."""
    early: list[Thing] = []
    late: list[Thing] = []
    for driver in sorted({key[0] for key, _ in pools}):
        own = sorted([item for item in pools if item[0][0] == driver], key=lambda item: item[0])
        for i, (_key, things) in enumerate(own):
            (late if all(key[2] for key, _ in own[i:]) else early).extend(things)
    return early + late
