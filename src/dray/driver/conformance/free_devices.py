"""Free devices for the conformance suite: published by the driver on its node, and used by no claim.

Theory of operation: only slices of the newest generation of a complete pool count, and devices without taints
that no claim holds and that overlap with no held device. Exclusive devices come first; of a shared device the
suite allocates one share for each claim, as small as its policy allows.
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
    """A device that the suite may allocate."""

    pool: str
    name: str
    node: str
    """The device's node; empty when every node reaches it."""
    shared: bool
    min_share: tuple[tuple[str, Quantity], ...] = ()
    """The capacity that the smallest share consumes."""
    draws: frozenset[str] = frozenset()
    """The counter sets it consumes: devices that consume the same ones may overlap."""


def resolve_node(slices: Iterable[ResourceSlice], driver: str, wanted: str) -> str:
    """Return the node whose driver is examined; raises `InputError` when it is ambiguous."""
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
    """Return the devices of a driver that are free on a node, exclusive ones first."""
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
    # A device that consumes the same counters as a device in use may overlap with it.
    consumed = {(each.pool, name) for each in found if (each.pool, each.name) in taken for name in each.draws}
    free = [
        each
        for each in found
        if (each.shared or (each.pool, each.name) not in taken)
        and not any((each.pool, name) in consumed for name in each.draws)
    ]
    return sorted(free, key=lambda each: (each.shared, not each.node))


def find_incomplete_pools(slices: Iterable[ResourceSlice], driver: str) -> list[str]:
    """Describe the incomplete pools of a driver."""
    described = []
    for name, current in _group_newest_by_pool(each for each in slices if each.spec.driver == driver).items():
        pool = current[0].spec.pool
        if len(current) != pool.resource_slice_count:
            described.append(
                f"pool `{name}` has {len(current)} of {pool.resource_slice_count} slices of generation "
                f"{pool.generation}"
            )
    return described


def _select_current_slices(slices: Iterable[ResourceSlice]) -> Iterator[ResourceSlice]:
    for current in _group_newest_by_pool(slices).values():
        if len(current) == current[0].spec.pool.resource_slice_count:
            yield from sorted(current, key=lambda each: each.metadata.name)


def _group_newest_by_pool(slices: Iterable[ResourceSlice]) -> dict[str, list[ResourceSlice]]:
    """Return the slices of each pool's newest generation, sorted by the pool's name."""
    pools: dict[str, list[ResourceSlice]] = defaultdict(list)
    for each in slices:
        pools[each.spec.pool.name].append(each)
    newest = {name: max(each.spec.pool.generation for each in found) for name, found in pools.items()}
    return {
        name: [each for each in found if each.spec.pool.generation == newest[name]]
        for name, found in sorted(pools.items())
    }


def _build_free_device(published: ResourceSlice, device: Device) -> FreeDevice:
    shared = bool(device.allow_multiple_allocations)
    min_share = (
        tuple((name, _get_min_share(capacity)) for name, capacity in device.capacity.items())
        if shared
        else ()
    )
    node = device.node_name or published.spec.node_name or ""
    draws = frozenset(each.counter_set for each in device.consumes_counters)
    return FreeDevice(published.spec.pool.name, device.name, node, shared, min_share, draws)


def _get_min_share(capacity: DeviceCapacity) -> Quantity:
    policy, whole = capacity.request_policy, capacity.value
    assert whole is not None
    if policy is None:
        return whole
    if policy.valid_range is not None and policy.valid_range.min is not None:
        return policy.valid_range.min
    return min(policy.valid_values, default=policy.default or whole)
