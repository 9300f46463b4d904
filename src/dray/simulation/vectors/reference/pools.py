"""Which devices a node sees, in which order, and which pools it cannot use."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import msgspec

from dray.api.resource import Device, ResourceSlice
from dray.simulation.vectors.reference.amounts import to_nanos
from dray.simulation.vectors.reference.departures import Departure
from dray.simulation.vectors.reference.model_case import ModelAbortError, ModelCase
from dray.values.node_selectors import NodeSelector, check_node_selector

_SOUND_STATE = "sound"

PoolId = tuple[str, str]
CompatibilityGroups = Mapping[str, frozenset[str]]
"""Compatibility groups by counter set."""


@dataclass(frozen=True, eq=False, slots=True)
class ModelCandidate:
    """A device of a pool, with what vectors say of it that dray's objects do not hold."""

    published_slice: ResourceSlice
    device: Device
    groups: CompatibilityGroups
    skips_operations: bool
    is_reachable: bool

    @property
    def pool(self) -> PoolId:
        return (self.published_slice.spec.driver, self.published_slice.spec.pool.name)

    @property
    def path(self) -> tuple[str, str, str]:
        return (*self.pool, self.device.name)

    @property
    def node_selection(self) -> Any:
        """Who says where the device can be used from."""
        return (
            self.device if self.published_slice.spec.per_device_node_selection else self.published_slice.spec
        )

    def __str__(self) -> str:
        return "/".join(self.path)


@dataclass(frozen=True, slots=True)
class ModelPoolView:
    """A pool as a node sees it; `flaw` is why it cannot be used, as Kubernetes words it."""

    pool: PoolId
    flaw: str
    candidates: tuple[ModelCandidate, ...] = ()


@dataclass(frozen=True)
class ModelNodeView:
    """What a node sees: pools in order; `consumers` are all devices of a pool that draw counters."""

    pools: tuple[ModelPoolView, ...]
    consumers: Mapping[PoolId, tuple[ModelCandidate, ...]]
    totals: Mapping[PoolId, Mapping[tuple[str, str], int]]

    @cached_property
    def candidates(self) -> tuple[ModelCandidate, ...]:
        return tuple(candidate for pool in self.pools for candidate in pool.candidates)

    @cached_property
    def flaws(self) -> frozenset[str]:
        return frozenset(pool.flaw for pool in self.pools if pool.flaw)


@dataclass(frozen=True, slots=True)
class _ModelSlice:
    """A slice with its devices; `seen` are those the node can reach, None when the slice is not for it."""

    number: int
    slice: ResourceSlice
    candidates: tuple[ModelCandidate, ...]
    seen: tuple[ModelCandidate, ...] | None

    @property
    def generation(self) -> int:
        return self.slice.spec.pool.generation

    @property
    def expected(self) -> int:
        return self.slice.spec.pool.resource_slice_count


def gather_pools(case: ModelCase) -> ModelNodeView:
    """Everything the node of a query sees."""
    pools: dict[PoolId, list[_ModelSlice]] = {}
    for page in _read_slices(case):
        pools.setdefault((page.slice.spec.driver, page.slice.spec.pool.name), []).append(page)
    seen: list[tuple[PoolId, str, list[_ModelSlice]]] = []
    consumers: dict[PoolId, tuple[ModelCandidate, ...]] = {}
    totals: dict[PoolId, Mapping[tuple[str, str], int]] = {}
    for pool, pages in pools.items():
        state, relevant, published = _find_pool_state(case, pages)
        if state == _SOUND_STATE:
            consumers[pool] = tuple(t for p in published for t in p.candidates if t.device.consumes_counters)
            totals[pool] = _sum_totals(published)
        if state:
            seen.append((pool, state, relevant if state == _SOUND_STATE else []))
    return ModelNodeView(tuple(_sort_pools(case, seen)), consumers, totals)


def _read_slices(case: ModelCase) -> Iterator[_ModelSlice]:
    """Slices of this node first, then those of no node, then others; each in the order they came."""
    name = case.vector.node.metadata.name
    read = [
        _read_slice(case, number, page)
        for number, page in enumerate(case.vector.slices)
        if case.departs(Departure.COMPATIBILITY_GROUPS)
        or case.is_feature_enabled("CompatibilityGroups")
        or not case.vector.extras.has_groups(number)
    ]
    return iter(
        sorted(
            read,
            key=lambda page: (
                page.slice.spec.node_name not in (name, None, ""),
                page.slice.spec.node_name != name,
            ),
        )
    )


def _read_slice(case: ModelCase, number: int, published: ResourceSlice) -> _ModelSlice:
    extras = case.vector.extras
    everywhere = not published.spec.per_device_node_selection
    candidates = tuple(
        ModelCandidate(
            published,
            _apply_gates(case, device),
            extras.get_groups(number, position),
            number in extras.skipping,
            everywhere or _covers_node(device, case),
        )
        for position, device in enumerate(published.spec.devices)
    )
    partitioned = bool(published.spec.per_device_node_selection or published.spec.shared_counters)
    if partitioned and not case.is_gate_enabled("DRAPartitionableDevices"):
        return _ModelSlice(number, published, (), None)
    if everywhere:
        return _ModelSlice(
            number, published, candidates, candidates if _covers_node(published.spec, case) else None
        )
    reached = tuple(candidate for candidate in candidates if candidate.is_reachable)
    if published.spec.node_name or published.spec.all_nodes or published.spec.node_selector is not None:
        return _ModelSlice(
            number, published, candidates, reached if _covers_node(published.spec, case) else None
        )
    return _ModelSlice(number, published, candidates, reached or None)


def _apply_gates(case: ModelCase, device: Device) -> Device:
    """A device without what is behind closed gates, where dray does not let selectors see it."""
    if not case.is_gate_enabled("DRAListTypeAttributes") and case.departs(Departure.LISTS_OFF):
        kept = {name: value for name, value in device.attributes.items() if not value.is_list}
        device = msgspec.structs.replace(device, attributes=kept)
    if not case.is_gate_enabled("DRAConsumableCapacity") and case.departs(Departure.SHARING_OFF):
        device = msgspec.structs.replace(device, allow_multiple_allocations=None)
    return device


def _covers_node(node_selection: Any, case: ModelCase) -> bool:
    meta = case.vector.node.metadata
    if node_selection.node_name:
        return bool(node_selection.node_name == meta.name)
    if node_selection.all_nodes or node_selection.node_selector is None:
        return bool(node_selection.all_nodes)
    if not case.departs(Departure.BAD_NODE_SELECTOR) and is_meaningless(node_selection.node_selector):
        raise ModelAbortError("failed to perform node selection")
    return bool(node_selection.node_selector.matches(meta.name, meta.labels))


def is_meaningless(selector: NodeSelector) -> bool:
    """Whether a requirement of a node selector cannot be read; a selector without terms can."""
    return any(fault.path != "nodeSelectorTerms" for fault in check_node_selector(selector))


def _find_pool_state(
    case: ModelCase, slices: Sequence[_ModelSlice]
) -> tuple[str, list[_ModelSlice], list[_ModelSlice]]:
    """Sound, or what Kubernetes calls the state of the pool; nothing for a pool that is not there."""
    relevant = [page for page in slices if page.seen is not None]
    if not relevant:
        return "", [], []
    newest = max(page.generation for page in relevant)
    relevant = [page for page in relevant if page.generation == newest]
    published = [page for page in slices if page.generation == newest]
    newer = any(page.generation > newest for page in slices)
    if case.departs(Departure.SLICE_COUNT) and len({page.expected for page in published}) > 1:
        return "" if newer else "invalid", [], []
    expected = relevant[0].expected
    if len(relevant) != expected:
        if newer:
            return "", [], []
        if len(published) != expected:
            return "being updated", [], []
    elif not case.departs(Departure.WHOLE_POOL):
        published = relevant
    sound = _is_sound(case, relevant, published)
    return _SOUND_STATE if sound else "invalid", relevant, published


def _is_sound(case: ModelCase, relevant: Sequence[_ModelSlice], published: Sequence[_ModelSlice]) -> bool:
    names = [
        t.device.name for page in relevant if not page.slice.spec.shared_counters for t in page.candidates
    ]
    if len(set(names)) < len(names):
        return False
    if case.departs(Departure.PRIORITY) and len({p.slice.spec.pool.priority or 0 for p in published}) > 1:
        return False
    sets = [group.name for page in published for group in page.slice.spec.shared_counters]
    totals = _sum_totals(published)
    return len(set(sets)) == len(sets) and all(
        drawn.counter_set in sets and all((drawn.counter_set, name) in totals for name in drawn.counters)
        for page in published
        for candidate in page.candidates
        for drawn in candidate.device.consumes_counters
        if case.is_gate_enabled("DRAPartitionableDevices")
    )


def _sum_totals(published: Sequence[_ModelSlice]) -> dict[tuple[str, str], int]:
    return {
        (group.name, name): to_nanos(counter.value)
        for page in published
        for group in page.slice.spec.shared_counters
        for name, counter in group.counters.items()
    }


def _sort_pools(
    case: ModelCase, pools: Sequence[tuple[PoolId, str, list[_ModelSlice]]]
) -> Iterator[ModelPoolView]:
    """Pools in the order they are tried: those that may wait for conditions at the end."""
    ranked = case.departs(Departure.PRIORITY) and case.is_gate_enabled("DRAResourceSlicePriority")

    def rank(item: Any) -> int:
        return -(item.priority or 0) if ranked else 0

    known = {
        pool: (rank(pages[0].slice.spec.pool) if pages else 0, _has_conditions(case, pages))
        for pool, _, pages in pools
    }
    ordered = sorted(pools, key=lambda entry: (entry[0][0], *known[entry[0]], entry[0][1]))
    late = {
        pool
        for i, (pool, *_) in enumerate(ordered)
        if all(known[other][1] for other, *_ in ordered[i:] if other[0] == pool[0])
    }
    reached = case.departs(Departure.REACHED_ONLY)
    for pool, state, pages in sorted(ordered, key=lambda entry: entry[0] in late):
        own = sorted(pages, key=lambda page: (rank(page.slice.spec), page.slice.metadata.name))
        yield ModelPoolView(
            pool,
            "" if state == _SOUND_STATE else state,
            tuple(
                candidate
                for page in own
                if not page.slice.spec.shared_counters
                for candidate in ((page.seen or ()) if reached else page.candidates)
            ),
        )


def _has_conditions(case: ModelCase, slices: Sequence[_ModelSlice]) -> bool:
    """Whether a pool has a device with binding conditions; Kubernetes takes an empty list for some."""
    empty = () if case.departs(Departure.EMPTY_CONDITIONS) else case.vector.extras.empty_conditions
    return any(
        bool(candidate.device.binding_conditions) or page.number in empty
        for page in slices
        for candidate in page.candidates
    )
