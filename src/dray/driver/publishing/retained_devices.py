"""Devices that a driver no longer reports while claims use them: they stay in their pool, tainted.

Theory of operation: a device that disappears while a claim uses it stays published with the taint
`dray.dev/gone:NoSchedule`: no new claim gets it, and the pods that use it are not disturbed. A network
interface that was moved into a pod is not broken, so the publisher evicts nobody.

Rules for this file: pure.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Final

from msgspec import structs

from dray.api.resource import CounterSet, Device, DeviceTaint, ResourceSlice, ResourceSliceSpec
from dray.driver.devices import Slice
from dray.driver.publishing.pool_plan import DesiredPool

GONE_TAINT: Final = DeviceTaint(key="dray.dev/gone", effect="NoSchedule")
"""On a device that the driver no longer reports, while a claim still uses it."""


def retain_used_devices(
    desired: DesiredPool, existing: Sequence[ResourceSlice], in_use: Collection[str], may_taint: bool = True
) -> DesiredPool:
    """Add to a pool the devices that it no longer has and that are in use, each in its former position."""
    names = {device.name for device in desired.devices}
    parts = [list(part.devices) for part in desired.slices] or [[]]
    previous: str | None = None
    newest = max((each.spec.pool.generation for each in existing), default=0)
    gone: list[Device] = []
    for page in sorted(existing, key=lambda each: each.metadata.name):
        for device in page.spec.devices if page.spec.pool.generation == newest else ():
            if device.name not in names and device.name in in_use:
                names.add(device.name)
                gone.append(_add_gone_taint(device) if may_taint else device)
                _insert_after(parts, gone[-1], previous)
            if device.name in names:
                previous = device.name
    if not gone:
        return desired
    old = desired.slices or (Slice(()),)
    slices = tuple(Slice(devices, part.priority) for devices, part in zip(parts, old, strict=True))
    return replace(desired, slices=slices, counters=_retain_counters(desired.counters, gone, existing))


def _add_gone_taint(device: Device) -> Device:
    others = tuple(taint for taint in device.taints if taint.key != GONE_TAINT.key)
    return structs.replace(device, taints=(*others, GONE_TAINT))


def _insert_after(parts: list[list[Device]], device: Device, previous: str | None) -> None:
    for part in parts:
        for position, each in enumerate(part):
            if each.name == previous:
                part.insert(position + 1, device)
                return
    parts[0].insert(0, device)


def _retain_counters(
    counters: tuple[CounterSet, ...], gone: Sequence[Device], existing: Sequence[ResourceSlice]
) -> tuple[CounterSet, ...]:
    """Add to the counters those that only retained devices consume."""
    drawn = {draw.counter_set for device in gone for draw in device.consumes_counters}
    missing = drawn - {each.name for each in counters}
    old: Mapping[str, CounterSet] = {
        each.name: each for page in existing for each in page.spec.shared_counters
    }
    return (*counters, *(old[name] for name in sorted(missing) if name in old))


def build_emptied_pool(existing: Sequence[ResourceSlice]) -> DesiredPool:
    """Build the pool without devices that replaces one that the driver no longer reports."""
    spec = existing[0].spec
    node_selection = ResourceSliceSpec(
        node_name=spec.node_name,
        node_selector=spec.node_selector,
        all_nodes=spec.all_nodes,
        per_device_node_selection=spec.per_device_node_selection,
    )
    return DesiredPool(spec.pool.name, (), (), spec.pool.priority, node_selection)
