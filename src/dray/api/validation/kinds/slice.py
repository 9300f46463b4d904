"""Rules of a slice: its pool, the nodes that reach it, its devices or shared counters."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from dray.api.fields import ROOT, Path, invalid
from dray.api.resource import CounterSet, Device, ResourcePool, ResourceSlice, ResourceSliceSpec
from dray.api.validation import limits
from dray.api.validation.field_rules import Errors, distinct, each, named, unchanged
from dray.api.validation.kinds import bulk_device_check
from dray.api.validation.kinds.device import counters, device, extras
from dray.api.validation.kinds.node_selection import node_choice
from dray.values.names import dns_label, driver_name, pool_name

_SPEC = ROOT.field("spec")
_NODES = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required"


def resource_slice(obj: ResourceSlice) -> Errors:
    """What holds of a slice besides its metadata."""
    spec = obj.spec
    if not spec.driver or driver_name(spec.driver):
        yield from named(spec.driver, driver_name, _SPEC.field("driver"))
    yield from _pool(spec.pool, _SPEC.field("pool"))
    yield from node_choice(spec, _NODES, _SPEC)
    if spec.devices:
        yield from _devices(spec, _SPEC.field("devices"))
    if spec.shared_counters:
        yield from _shared_counters(spec, _SPEC)


def resource_slice_update(new: ResourceSlice, old: ResourceSlice) -> Errors:
    """A slice stays where it is: same driver, same pool, same node."""
    yield from unchanged(new.spec.driver, old.spec.driver, _SPEC.field("driver"))
    yield from unchanged(new.spec.pool.name, old.spec.pool.name, _SPEC.field("pool", "name"))
    yield from unchanged(new.spec.node_name, old.spec.node_name, _SPEC.field("nodeName"))


def _pool(pool: ResourcePool, path: Path) -> Errors:
    if not pool.name or pool_name(pool.name):
        yield from named(pool.name, pool_name, path.field("name"))
    if pool.resource_slice_count <= 0:
        place = path.field("resourceSliceCount")
        yield invalid(place, pool.resource_slice_count, "must be greater than zero")
    if pool.generation < 0:
        yield invalid(path.field("generation"), pool.generation, "must be greater than or equal to zero")


# --- devices ---


def _devices(spec: ResourceSliceSpec, path: Path) -> Errors:
    devices, chooses_nodes = spec.devices, spec.per_device_node_selection is True
    sound, plain = bulk_device_check.verdict(devices)
    if sound and plain and not chooses_nodes:
        return
    most = limits.DEVICES_PER_SLICE
    if len(devices) > limits.RICH_DEVICES_PER_SLICE and _rich(devices):
        most = limits.RICH_DEVICES_PER_SLICE
    judge = partial(extras if sound else device, chooses_nodes=chooses_nodes)
    yield from each(devices, most, judge, path)
    if len(devices) <= most:
        yield from distinct((item.name for item in devices), path)


def _rich(devices: Sequence[Device]) -> bool:
    """Whether some device has what makes devices large: lists, taints or counters."""
    return any(
        item.taints or item.consumes_counters or any(value.is_list for value in item.attributes.values())
        for item in devices
    )


# --- counters ---


def _shared_counters(spec: ResourceSliceSpec, path: Path) -> Errors:
    if spec.devices:
        yield invalid(path, "", "only one of `sharedCounters` or `devices` is allowed")
    place, sets = path.field("sharedCounters"), spec.shared_counters
    yield from each(sets, limits.COUNTER_SETS_PER_SLICE, _counter_set, place)
    if len(sets) <= limits.COUNTER_SETS_PER_SLICE:
        yield from distinct((item.name for item in sets), place)


def _counter_set(item: CounterSet, path: Path) -> Errors:
    yield from named(item.name, dns_label, path.field("name"))
    yield from counters(item.counters, path.field("counters"))
