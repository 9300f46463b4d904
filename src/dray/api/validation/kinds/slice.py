"""Validation of slices: pool, node selection, devices or shared counters."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from dray.api import limits
from dray.api.fields import ROOT, FieldPath, invalid
from dray.api.resource import CounterSet, Device, ResourcePool, ResourceSlice, ResourceSliceSpec
from dray.api.validation.field_rules import (
    FieldErrors,
    validate_distinct,
    validate_each,
    validate_immutable,
    validate_name,
)
from dray.api.validation.kinds import bulk_device_check
from dray.api.validation.kinds.device import validate_counters, validate_device, validate_optional_fields
from dray.api.validation.kinds.node_selection import validate_node_selection
from dray.values.names import check_dns_label, check_driver_name, check_pool_name

_SPEC = ROOT.child("spec")
_NODES = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required"


def validate_resource_slice(obj: ResourceSlice) -> FieldErrors:
    """Check a slice, its metadata excluded."""
    spec = obj.spec
    if not spec.driver or check_driver_name(spec.driver):
        yield from validate_name(spec.driver, check_driver_name, _SPEC.child("driver"))
    yield from _validate_pool(spec.pool, _SPEC.child("pool"))
    yield from validate_node_selection(spec, _NODES, _SPEC)
    if spec.devices:
        yield from _validate_devices(spec, _SPEC.child("devices"))
    if spec.shared_counters:
        yield from _validate_shared_counters(spec, _SPEC)


def validate_resource_slice_update(new: ResourceSlice, old: ResourceSlice) -> FieldErrors:
    """Check that driver, pool name and node do not change."""
    yield from validate_immutable(new.spec.driver, old.spec.driver, _SPEC.child("driver"))
    yield from validate_immutable(new.spec.pool.name, old.spec.pool.name, _SPEC.child("pool", "name"))
    yield from validate_immutable(new.spec.node_name, old.spec.node_name, _SPEC.child("nodeName"))


def _validate_pool(pool: ResourcePool, path: FieldPath) -> FieldErrors:
    if not pool.name or check_pool_name(pool.name):
        yield from validate_name(pool.name, check_pool_name, path.child("name"))
    if pool.resource_slice_count <= 0:
        place = path.child("resourceSliceCount")
        yield invalid(place, pool.resource_slice_count, "must be greater than zero")
    if pool.generation < 0:
        yield invalid(path.child("generation"), pool.generation, "must be greater than or equal to zero")


# --- devices ---


def _validate_devices(spec: ResourceSliceSpec, path: FieldPath) -> FieldErrors:
    devices, chooses_nodes = spec.devices, spec.per_device_node_selection is True
    contents_valid, no_other_fields = bulk_device_check.check_devices(devices)
    if contents_valid and no_other_fields and not chooses_nodes:
        return
    limit = limits.DEVICES_PER_SLICE
    if len(devices) > limits.RICH_DEVICES_PER_SLICE and _has_rich_devices(devices):
        limit = limits.RICH_DEVICES_PER_SLICE
    rule = partial(
        validate_optional_fields if contents_valid else validate_device, chooses_nodes=chooses_nodes
    )
    yield from validate_each(devices, limit, rule, path)
    if len(devices) <= limit:
        yield from validate_distinct((item.name for item in devices), path)


def _has_rich_devices(devices: Sequence[Device]) -> bool:
    """Whether some device has what makes devices large: lists, taints or counters."""
    return any(
        item.taints or item.consumes_counters or any(value.is_list for value in item.attributes.values())
        for item in devices
    )


# --- counters ---


def _validate_shared_counters(spec: ResourceSliceSpec, path: FieldPath) -> FieldErrors:
    if spec.devices:
        yield invalid(path, "", "only one of `sharedCounters` or `devices` is allowed")
    place, sets = path.child("sharedCounters"), spec.shared_counters
    yield from validate_each(sets, limits.COUNTER_SETS_PER_SLICE, _validate_counter_set, place)
    if len(sets) <= limits.COUNTER_SETS_PER_SLICE:
        yield from validate_distinct((item.name for item in sets), place)


def _validate_counter_set(item: CounterSet, path: FieldPath) -> FieldErrors:
    yield from validate_name(item.name, check_dns_label, path.child("name"))
    yield from validate_counters(item.counters, path.child("counters"))
