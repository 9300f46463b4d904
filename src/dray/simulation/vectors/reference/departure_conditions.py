"""Departure conditions: whether a vector can make a departure matter at all, from its input alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType

from dray.allocator.feature_gates import AllocatorGateFilter
from dray.api.resource import (
    CapacityRequestPolicyRange,
    Device,
    DeviceConstraint,
    DeviceSubRequest,
    ExactDeviceRequest,
    ResourceSlice,
)
from dray.simulation.vectors.reference.departures import Departure
from dray.simulation.vectors.reference.pools import is_meaningless
from dray.simulation.vectors.vector import Vector
from dray.values.node_selectors import NodeSelector


def _iter_requests(vector: Vector) -> Iterator[ExactDeviceRequest | DeviceSubRequest]:
    for claim in vector.claims:
        for request in claim.spec.devices.requests:
            if request.exactly is not None:
                yield request.exactly
            yield from request.first_available


def _iter_devices(vector: Vector) -> Iterator[Device]:
    for page in vector.slices:
        yield from page.spec.devices


def _iter_ranges(vector: Vector) -> Iterator[CapacityRequestPolicyRange]:
    for device in _iter_devices(vector):
        for capacity in device.capacity.values():
            if capacity.request_policy is not None and capacity.request_policy.valid_range is not None:
                yield capacity.request_policy.valid_range


def _iter_constraints(vector: Vector) -> Iterator[DeviceConstraint]:
    for claim in vector.claims:
        yield from claim.spec.devices.constraints


def _iter_selectors(vector: Vector) -> Iterator[NodeSelector | None]:
    for page in vector.slices:
        yield page.spec.node_selector
        yield from (device.node_selector for device in page.spec.devices)


def _is_gate_off(vector: Vector, gate: str) -> bool:
    return not AllocatorGateFilter.from_overrides(vector.gate_overrides).gates.is_enabled(gate)


def _has_all_request(vector: Vector) -> bool:
    return any(spec.allocation_mode == "All" for spec in _iter_requests(vector))


def _has_typeless_request(vector: Vector) -> bool:
    return any(
        request.exactly is None and not request.first_available
        for claim in vector.claims
        for request in claim.spec.devices.requests
    )


def _has_admin_draws(vector: Vector) -> bool:
    admin = any(isinstance(spec, ExactDeviceRequest) and spec.admin_access for spec in _iter_requests(vector))
    return admin and any(device.consumes_counters for device in _iter_devices(vector))


def _has_dedicated_shares(vector: Vector) -> bool:
    held = {
        (result.driver, result.pool, result.device)
        for claim in vector.held
        if claim.status.allocation is not None
        for result in claim.status.allocation.devices.results
        if result.share_id is not None or result.consumed_capacity
    }
    shared = not _is_gate_off(vector, "DRAConsumableCapacity")
    return any(
        (page.spec.driver, page.spec.pool.name, device.name) in held
        for page in vector.slices
        for device in page.spec.devices
        if not (shared and device.allow_multiple_allocations)
    )


def _has_slice_disagreement(vector: Vector) -> bool:
    slice_counts: dict[tuple[str, str, int], set[int]] = {}
    for page in vector.slices:
        pool = page.spec.pool
        key = (page.spec.driver, pool.name, pool.generation)
        slice_counts.setdefault(key, set()).add(pool.resource_slice_count)
    return any(len(counts) > 1 for counts in slice_counts.values())


def _has_excess_slices(vector: Vector) -> bool:
    """Whether a pool with counters has more slices than it should have."""
    pools: dict[tuple[str, str, int], list[ResourceSlice]] = {}
    for page in vector.slices:
        pool = page.spec.pool
        pools.setdefault((page.spec.driver, pool.name, pool.generation), []).append(page)
    return any(
        any(len(pages) > page.spec.pool.resource_slice_count for page in pages)
        and any(
            page.spec.shared_counters or any(device.consumes_counters for device in page.spec.devices)
            for page in pages
        )
        for pages in pools.values()
    )


DEPARTURE_CONDITIONS: Mapping[Departure, Callable[[Vector], bool]] = MappingProxyType(
    {
        Departure.ALL_POOL: _has_all_request,
        Departure.ALL_CONSTRAINT: lambda vector: _has_all_request(vector) and any(_iter_constraints(vector)),
        Departure.ALL_LIMIT: _has_all_request,
        Departure.ALL_UNREACHED: _has_all_request,
        Departure.REACHED_ONLY: lambda vector: any(
            page.spec.per_device_node_selection for page in vector.slices
        ),
        Departure.SELECTOR_TERMS: lambda vector: any(
            selector is not None and len(selector.node_selector_terms) > 1
            for selector in _iter_selectors(vector)
        ),
        Departure.EXACT_AMOUNTS: lambda vector: any(True for _ in _iter_ranges(vector)),
        Departure.ZERO_STEP: lambda vector: any(
            limits.step is not None and limits.step.nanos <= 0 for limits in _iter_ranges(vector)
        ),
        Departure.NO_MIN: lambda vector: any(limits.min is None for limits in _iter_ranges(vector)),
        Departure.BOTH_CONSTRAINTS: lambda vector: any(
            constraint.match_attribute is not None and constraint.distinct_attribute is not None
            for constraint in _iter_constraints(vector)
        ),
        Departure.NEGATIVE_COUNT: lambda vector: any(ask.count < 0 for ask in _iter_requests(vector)),
        Departure.NEGATIVE_AMOUNT: lambda vector: any(
            amount.nanos < 0
            for ask in _iter_requests(vector)
            if ask.capacity is not None
            for amount in ask.capacity.requests.values()
        ),
        Departure.BAD_NODE_SELECTOR: lambda vector: any(
            selector is not None and is_meaningless(selector) for selector in _iter_selectors(vector)
        ),
        Departure.NO_TYPE: _has_typeless_request,
        Departure.ADMIN_COUNTERS: _has_admin_draws,
        Departure.NEGATIVE_DRAWS: lambda vector: any(
            counter.value is not None and counter.value.nanos < 0
            for device in _iter_devices(vector)
            for drawn in device.consumes_counters
            for counter in drawn.counters.values()
        ),
        Departure.HELD_SHARES: _has_dedicated_shares,
        Departure.SLICE_COUNT: _has_slice_disagreement,
        Departure.WHOLE_POOL: _has_excess_slices,
        Departure.EMPTY_CONDITIONS: lambda vector: bool(vector.extras.empty_conditions),
        Departure.PRIORITY: lambda vector: any(
            page.spec.priority or page.spec.pool.priority for page in vector.slices
        ),
        Departure.LISTS_OFF: lambda vector: (
            _is_gate_off(vector, "DRAListTypeAttributes")
            and any(value.is_list for device in _iter_devices(vector) for value in device.attributes.values())
        ),
        Departure.SHARING_OFF: lambda vector: (
            _is_gate_off(vector, "DRAConsumableCapacity")
            and any(device.allow_multiple_allocations is not None for device in _iter_devices(vector))
        ),
        Departure.TOLERATIONS_OFF: lambda vector: (
            _is_gate_off(vector, "DRADeviceTaints") and any(ask.tolerations for ask in _iter_requests(vector))
        ),
        Departure.DISTINCT_OFF: lambda vector: (
            _is_gate_off(vector, "DRAConsumableCapacity")
            and any(constraint.distinct_attribute is not None for constraint in _iter_constraints(vector))
        ),
        Departure.COMPATIBILITY_GROUPS: lambda vector: bool(vector.extras.groups),
        Departure.NODE_OPERATIONS: lambda vector: bool(vector.extras.skipping),
    }
)
"""Departures of the model, and whether a query has what they are about."""


def find_possible_departures(vector: Vector) -> frozenset[Departure]:
    """The departures that can matter for a query."""
    return frozenset(departure for departure, arises in DEPARTURE_CONDITIONS.items() if arises(vector))
