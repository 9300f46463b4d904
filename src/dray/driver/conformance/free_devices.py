"""Devices for the suite to take: published by the driver on its node, whole, and in nobody's hands.

Theory of operation: only slices of the newest generation of a complete pool count, and devices that no claim
holds, that overlap with none that is held, and that have no taints. Exclusive ones come first; of a shared
device the suite takes one share for each claim, as small as its policy allows.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from dray.api.resource import Device, DeviceCapacity, ResourceClaim, ResourceSlice
from dray.errors import InputError
from dray.values.quantity import Quantity


@dataclass(frozen=True, slots=True)
class FreeDevice:
    """A device that the suite may take."""

    pool: str
    name: str
    node: str
    """The node it is on; empty when it can be reached from everywhere."""
    shared: bool
    min_share: tuple[tuple[str, Quantity], ...] = ()
    """What the smallest share of it takes."""
    draws: frozenset[str] = frozenset()
    """The counters it draws from: devices that draw from the same ones may overlap."""


def resolve_node(slices: Iterable[ResourceSlice], driver: str, wanted: str) -> str:
    """The node whose driver is examined; `InputError` when that is not clear."""
    nodes = sorted({each.spec.node_name or "" for each in slices if each.spec.driver == driver})
    if wanted:
        return wanted
    if not nodes:
        raise InputError(
            f"driver `{driver}` publishes no devices; wait for its slices, or look into its log why there "
            "are none"
        )
    named = [name for name in nodes if name]
    if len(named) > 1:
        raise InputError(
            f"driver `{driver}` publishes devices of {len(named)} nodes; say with --node which of them the "
            f"socket belongs to: {', '.join(named)}"
        )
    return named[0] if named else ""


def find_free_devices(
    slices: Iterable[ResourceSlice], claims: Iterable[ResourceClaim], driver: str, node: str
) -> list[FreeDevice]:
    """The devices of a driver that are free on a node, exclusive ones first."""
    taken = {
        (result.pool, result.device)
        for claim in claims
        if claim.status.allocation is not None
        for result in claim.status.allocation.devices.results
        if result.driver == driver
    }
    found = [
        _build_free_device(published, device)
        for published in _select_current_slices(each for each in slices if each.spec.driver == driver)
        if published.spec.node_name in (None, "", node)
        for device in published.spec.devices
        if not device.taints
    ]
    # What draws from the same counters as a device in use may overlap with it.
    drawn = {(each.pool, name) for each in found if (each.pool, each.name) in taken for name in each.draws}
    free = [
        each
        for each in found
        if (each.shared or (each.pool, each.name) not in taken)
        and not any((each.pool, name) in drawn for name in each.draws)
    ]
    return sorted(free, key=lambda each: (each.shared, not each.node))


def find_incomplete_pools(slices: Iterable[ResourceSlice], driver: str) -> list[str]:
    """Pools of a driver that are not whole, in words."""
    pools = _group_by_pool(each for each in slices if each.spec.driver == driver)
    told = []
    for name, members in pools.items():
        newest = max(each.spec.pool.generation for each in members)
        there = [each for each in members if each.spec.pool.generation == newest]
        expected = there[0].spec.pool.resource_slice_count
        if len(there) != expected:
            told.append(f"pool `{name}` has {len(there)} of {expected} slices of generation {newest}")
    return told


def _select_current_slices(slices: Iterable[ResourceSlice]) -> Iterator[ResourceSlice]:
    for members in _group_by_pool(slices).values():
        newest = max(each.spec.pool.generation for each in members)
        there = [each for each in members if each.spec.pool.generation == newest]
        if len(there) == there[0].spec.pool.resource_slice_count:
            yield from sorted(there, key=lambda each: each.metadata.name)


def _group_by_pool(slices: Iterable[ResourceSlice]) -> dict[str, list[ResourceSlice]]:
    pools: dict[str, list[ResourceSlice]] = defaultdict(list)
    for each in slices:
        pools[each.spec.pool.name].append(each)
    return dict(sorted(pools.items()))


def _build_free_device(published: ResourceSlice, device: Device) -> FreeDevice:
    shared = bool(device.allow_multiple_allocations)
    least = (
        tuple((name, _get_min_share(capacity)) for name, capacity in device.capacity.items())
        if shared
        else ()
    )
    node = device.node_name or published.spec.node_name or ""
    draws = frozenset(each.counter_set for each in device.consumes_counters)
    return FreeDevice(published.spec.pool.name, device.name, node, shared, least, draws)


def _get_min_share(capacity: DeviceCapacity) -> Quantity:
    policy, whole = capacity.request_policy, capacity.value
    assert whole is not None
    if policy is None:
        return whole
    if policy.valid_range is not None and policy.valid_range.min is not None:
        return policy.valid_range.min
    return min(policy.valid_values, default=policy.default or whole)
