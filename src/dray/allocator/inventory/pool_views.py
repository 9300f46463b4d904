"""Pool views: slices grouped into pools, with generation, completeness, validity and order.

Theory of operation: a node sees the slices that name it and the shared ones whose node selection covers it.
Of each pool it uses the newest generation among them. The pool is complete when all of its slices are
published, wherever they point; an incomplete or invalid pool, or one with fields that we do not understand,
offers no devices and has a reason. A `PoolView`
is what a node sees of one pool; nodes that see the same slices share it.

The order is part of the API: drivers by name; within a driver pools by priority (higher first), those without
binding conditions before those with, then by name; within a pool slices by priority, then by name; within a
slice by position. Pools that wait for binding conditions come last of all where priorities allow it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import groupby
from typing import Any
from weakref import WeakValueDictionary

import msgspec

from dray.allocator.inventory.device_lists import DeviceList, intern_device_list
from dray.allocator.inventory.device_profiles import DeviceProfile, DeviceProfileTable, to_nanos
from dray.allocator.inventory.usage import PoolId
from dray.allocator.refusals import Refusal, RefusalReason
from dray.api.core import Node
from dray.api.resource import Counter, CounterSet, ResourceSlice, ResourceSliceSpec
from dray.api.unknown_fields import explain_unknown_fields, list_unknown_fields
from dray.values.node_selectors import NodeSelector

CounterId = tuple[str, str]

CounterDraws = tuple[tuple[str, str, int], ...]
"""Counter set, counter, nanos."""


@dataclass(frozen=True, slots=True)
class DeviceNodeScope:
    """The nodes that can use a device: one node, those of a selector, or all (neither)."""

    local_only: bool = False
    selector: NodeSelector | None = None

    @property
    def has_several_terms(self) -> bool:
        """Whether the selector has several terms, which no allocation of one term can express."""
        return (
            not self.local_only and self.selector is not None and len(self.selector.node_selector_terms) > 1
        )


class PreparedSlice:
    """A slice, prepared once: profiles and node scopes of its devices."""

    __slots__ = ("_selector", "pool", "profile_table", "slice", "slice_profiles")

    def __init__(self, published: ResourceSlice, profile_table: DeviceProfileTable) -> None:
        self.slice = published
        self.profile_table = profile_table
        self.pool: PoolId = (published.spec.driver, published.spec.pool.name)
        selector = published.spec.node_selector
        self._selector = None if selector is None else selector.deduplicate()
        self.slice_profiles = profile_table.intern_slice(published.spec)

    @property
    def profiles(self) -> tuple[DeviceProfile, ...]:
        """The profiles of its devices, in order."""
        return self.slice_profiles.profiles

    @property
    def equivalence_key(self) -> Any:
        """Equal for slices that look the same to their node: pools of such slices have like views."""
        spec = self.slice.spec
        unknown = list_unknown_fields(self.slice)
        return (self.slice_profiles, spec.priority, spec.pool.priority, self._selector, unknown)

    def find_reachable(self, node: Node) -> tuple[int, ...] | None:
        """Positions of the devices a node can reach; None when the slice is not for this node at all."""
        spec = self.slice.spec
        if spec.per_device_node_selection:
            return find_reachable_devices(spec, node)
        covered = _covers_node(spec.node_name, spec.all_nodes, spec.node_selector, node)
        return self.slice_profiles.all_positions if covered else None

    def get_node_scope(self, position: int) -> DeviceNodeScope:
        """The nodes that can use the device at a position."""
        spec = self.slice.spec
        device = spec.devices[position]
        if not spec.per_device_node_selection:
            return DeviceNodeScope(bool(spec.node_name) or bool(device.binds_to_node), self._selector)
        selector = device.node_selector
        return DeviceNodeScope(
            bool(device.node_name) or bool(device.binds_to_node),
            None if selector is None else selector.deduplicate(),
        )


def find_reachable_devices(spec: ResourceSliceSpec, node: Node) -> tuple[int, ...] | None:
    """Positions of the devices of a slice that a node can reach; None when the slice is not for this node."""
    covered = _covers_node(spec.node_name, spec.all_nodes, spec.node_selector, node)
    if not spec.per_device_node_selection:
        return tuple(range(len(spec.devices))) if covered else None
    reached = tuple(
        i
        for i, device in enumerate(spec.devices)
        if _covers_node(device.node_name, device.all_nodes, device.node_selector, node)
    )
    # The API requires one kind of selection. Where a slice has both, both must select the node.
    if spec.node_name or spec.all_nodes or spec.node_selector is not None:
        return reached if covered else None
    return reached or None


def _covers_node(
    name: str | None, everywhere: bool | None, selector: NodeSelector | None, node: Node
) -> bool:
    if name:
        return name == node.metadata.name
    if everywhere:
        return True
    return selector is not None and selector.matches(node.metadata.name, node.metadata.labels)


class PoolViewKey:
    """What pool views with the same devices in the same order have in common."""

    __slots__ = ("__weakref__",)


PoolViewKeys = WeakValueDictionary[Any, PoolViewKey]
"""Interned as long as a pool view or a shape refers to them."""


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class PoolView:
    """What a node sees of one pool."""

    pool: PoolId
    key: PoolViewKey
    order: tuple[Any, ...]
    names: tuple[str, ...] = ()
    profiles: tuple[DeviceProfile, ...] = ()
    node_scopes: tuple[DeviceNodeScope, ...] = ()
    counters: Mapping[CounterId, int] = field(default_factory=dict)
    consumers: Mapping[str, CounterDraws] = field(default_factory=dict)
    flaw: Refusal | None = None
    devices: DeviceList | None = None
    model: PoolView | None = None
    """The pool view that this one was copied from."""
    unused: list[Any] = field(default_factory=list)
    """What is left of it while nothing is in use; the same for all copies of one model."""

    def copy_for_pool(self, pool: PoolId) -> PoolView:
        """A copy for another pool of the driver."""
        other = object.__new__(PoolView)
        for name in _COPIED_FIELDS:
            object.__setattr__(other, name, getattr(self, name))
        object.__setattr__(other, "pool", pool)
        object.__setattr__(other, "order", (*self.order[:-1], pool[1]))
        object.__setattr__(other, "model", self)
        return other

    @property
    def has_binding_conditions(self) -> bool:
        """Whether binding a pod to a device of this pool may have to wait for conditions."""
        return bool(self.order[2])


_COPIED_FIELDS = tuple(each.name for each in fields(PoolView) if each.name not in ("pool", "order", "model"))


def build_local_key(slices: Sequence[PreparedSlice]) -> Any:
    """The key of a node-local pool: pools with equal keys look the same to their nodes.

    None for a pool that is incomplete or not wholly visible, of which each node needs a view of its own.
    """
    if len(slices) == 1:
        spec = slices[0].slice.spec
        is_whole = spec.pool.resource_slice_count == 1 and not spec.per_device_node_selection
        return slices[0].equivalence_key if is_whole else None
    first = slices[0].slice.spec
    for prepared in slices:
        spec = prepared.slice.spec
        if (
            spec.pool.resource_slice_count != len(slices)
            or spec.pool.generation != first.pool.generation
            or spec.node_name != first.node_name
            or spec.per_device_node_selection
        ):
            return None
    return tuple(
        [
            prepared.equivalence_key
            for prepared in sorted(slices, key=lambda prepared: prepared.slice.metadata.name)
        ]
    )


class IncompletePool(msgspec.Struct, frozen=True):
    """The numbers of published and expected slices in the newest generation of a pool."""

    published: int
    expected: int
    generation: int


VisibleSlice = tuple[PreparedSlice, tuple[int, ...]]
"""A prepared slice a node sees, and the positions of the devices it can reach there."""


def build_pool_views(
    pool: PoolId, visible: Sequence[VisibleSlice], all_slices: Sequence[PreparedSlice], keys: PoolViewKeys
) -> list[PoolView]:
    """What a node sees of a pool, given all its prepared slices; None when a newer generation exists
    elsewhere.

    `keys` are the interned keys of pool views.
    """
    newest = max(prepared.slice.spec.pool.generation for prepared, _ in visible)
    relevant = [entry for entry in visible if entry[0].slice.spec.pool.generation == newest]
    # By name, so that nothing depends on the order of the input, not even the flaw that is reported.
    published = sorted(
        (prepared for prepared in all_slices if prepared.slice.spec.pool.generation == newest),
        key=lambda prepared: prepared.slice.metadata.name,
    )
    expected = published[0].slice.spec.pool.resource_slice_count
    agreed = all(prepared.slice.spec.pool.resource_slice_count == expected for prepared in published)
    if not agreed or len(relevant) != expected:
        if any(prepared.slice.spec.pool.generation > newest for prepared in all_slices):
            return []
        if agreed and len(published) != expected:
            flaw = Refusal(RefusalReason.POOL_INCOMPLETE, IncompletePool(len(published), expected, newest))
            return [_build_flawed_view(pool, relevant, flaw, keys)]
    return [_build_complete_view(pool, relevant, published, keys)]


def _build_complete_view(
    pool: PoolId, relevant: Sequence[VisibleSlice], published: Sequence[PreparedSlice], keys: PoolViewKeys
) -> PoolView:
    """The pool view of a pool of which all slices are there."""
    ordered = sorted(
        relevant, key=lambda entry: (-(entry[0].slice.spec.priority or 0), entry[0].slice.metadata.name)
    )
    places = [
        (prepared, i)
        for prepared, positions in ordered
        if not prepared.slice.spec.shared_counters
        for i in positions
    ]
    sets = [counters for prepared in published for counters in prepared.slice.spec.shared_counters]
    unsound = _find_flaw(relevant, sets, published)
    if unsound is not None:
        return _build_flawed_view(pool, relevant, unsound, keys)
    names = tuple(prepared.slice.spec.devices[i].name for prepared, i in places)
    profiles = tuple(prepared.profiles[i] for prepared, i in places)
    reaches = tuple(prepared.get_node_scope(i) for prepared, i in places)
    totals = {(group.name, name): to_nanos(c.value) for group in sets for name, c in group.counters.items()}
    tangled = tuple(reach.has_several_terms for reach in reaches)
    key = keys.setdefault((profiles, tangled, tuple(totals)), PoolViewKey())
    return PoolView(
        pool,
        key,
        _build_sort_key(relevant),
        names,
        profiles,
        reaches,
        totals,
        _collect_draws(published),
        devices=intern_device_list(relevant[0][0].profile_table, profiles, tangled),
    )


def _collect_draws(published: Sequence[PreparedSlice]) -> dict[str, CounterDraws]:
    """What a device in use draws from counters, by name.

    Nodes may have devices of one name. A claim does not tell which of them it has, so all of them count.
    """
    drawn: dict[str, CounterDraws] = {}
    for prepared in published:
        for device, profile in zip(prepared.slice.spec.devices, prepared.profiles, strict=True):
            if profile.counters:
                drawn[device.name] = drawn.get(device.name, ()) + profile.counters
    return drawn


def _build_flawed_view(
    pool: PoolId, relevant: Sequence[VisibleSlice], flaw: Refusal, keys: PoolViewKeys
) -> PoolView:
    return PoolView(pool, keys.setdefault(flaw, PoolViewKey()), _build_sort_key(relevant), flaw=flaw)


def _find_flaw(
    relevant: Sequence[VisibleSlice], sets: Sequence[CounterSet], published: Sequence[PreparedSlice]
) -> Refusal | None:
    """What makes a complete pool unusable."""
    # A field of any slice may be about all of them: shared counters are.
    paths = [path for prepared in published for path in list_unknown_fields(prepared.slice)]
    if paths:
        return Refusal(RefusalReason.POOL_UNKNOWN_FIELDS, explain_unknown_fields(paths, with_indexes=False))
    # Names are unique among all devices of the slices a node sees, also those only other nodes can reach.
    own = [prepared.slice.spec for prepared, _ in relevant if not prepared.slice.spec.shared_counters]
    twice = _find_first_duplicate([device.name for spec in own for device in spec.devices])
    if twice is not None:
        return Refusal(RefusalReason.POOL_INVALID, f"device `{twice}` is published twice")
    twice = _find_first_duplicate([group.name for group in sets])
    if twice is not None:
        return Refusal(RefusalReason.POOL_INVALID, f"counter set `{twice}` is published twice")
    unknown = _find_unknown_counter({group.name: group.counters for group in sets}, published)
    if unknown is not None:
        return Refusal(RefusalReason.POOL_INVALID, unknown)
    for what in ("resource_slice_count", "priority"):
        values = {getattr(prepared.slice.spec.pool, what) or 0 for prepared in published}
        if len(values) > 1:
            field = "resourceSliceCount" if what == "resource_slice_count" else "priority"
            listed = " and ".join(str(value) for value in sorted(values))
            return Refusal(RefusalReason.POOL_INVALID, f"its slices disagree on pool.{field}: {listed}")
    return None


def _find_unknown_counter(
    known: Mapping[str, Mapping[str, Counter]], published: Sequence[PreparedSlice]
) -> str | None:
    """The first device that draws from a counter that does not exist."""
    for prepared in published:
        for device, profile in zip(prepared.slice.spec.devices, prepared.profiles, strict=True):
            if not profile.counter_sets:
                continue
            drawn = [(group, "") for group in profile.counter_sets]
            drawn += [(group, name) for group, name, _ in profile.counters]
            for group, name in drawn:
                if group not in known or (name and name not in known[group]):
                    what = f"`{group}/{name}`" if name else f"set `{group}`"
                    return f"device `{device.name}` consumes counter {what}, which does not exist"
    return None


def _find_first_duplicate(names: Sequence[str]) -> str | None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return None


def _build_sort_key(entries: Sequence[VisibleSlice]) -> tuple[Any, ...]:
    spec = entries[0][0].slice.spec
    binding = any(
        device.binding_conditions for prepared, _ in entries for device in prepared.slice.spec.devices
    )
    return (spec.driver, -(spec.pool.priority or 0), binding, spec.pool.name)


def sort_pool_views(pool_views: Iterable[PoolView]) -> tuple[PoolView, ...]:
    """Pool views in the order of the search.

    Kubernetes moves pools with binding conditions behind all others. A driver's priorities come first,
    though: only the pools at the end of a driver's own order move.
    """
    shelves_ = list(pool_views)
    if len(shelves_) < 2:
        return tuple(shelves_)
    early: list[PoolView] = []
    late: list[PoolView] = []
    for _driver, own in groupby(
        sorted(shelves_, key=lambda pool_view: pool_view.order), key=lambda pool_view: pool_view.pool[0]
    ):
        ordered = list(own)
        end = len(ordered)
        while end and ordered[end - 1].has_binding_conditions:
            end -= 1
        early += ordered[:end]
        late += ordered[end:]
    return (*early, *late)
