"""Slices become pools: the newest generation, whether it is complete and sound, in which order.

Theory of operation: a node sees the slices that name it and the shared ones whose node selection covers it.
Of each pool it uses the newest generation among them. The pool is complete when all of its slices are
published, wherever they point; an incomplete or unsound pool lends no devices and says why. What a
node sees of one pool is a `PoolView`; nodes that see the same slices share the shelf.

Order is API: drivers by name; within a driver pools by priority (higher first), those without binding
conditions before those with, then by name; within a pool slices by priority, then by name; within a
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
from dray.values.node_selectors import NodeSelector

CounterId = tuple[str, str]

CounterDraws = tuple[tuple[str, str, int], ...]
"""Counter set, counter, nanos."""


@dataclass(frozen=True, slots=True)
class DeviceNodeScope:
    """Where a device can be used from: one node, the nodes of a selector, or anywhere (neither)."""

    local_only: bool = False
    selector: NodeSelector | None = None

    @property
    def has_several_terms(self) -> bool:
        """Whether the selector has several terms, which no allocation of one term can express."""
        return (
            not self.local_only and self.selector is not None and len(self.selector.node_selector_terms) > 1
        )


class PreparedSlice:
    """A slice, prepared once: contents and reach of its devices."""

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
        """The contents of its devices, in order."""
        return self.slice_profiles.profiles

    @property
    def equivalence_key(self) -> Any:
        """What a pool of one node looks like is the same where this is the same of all of its slices."""
        spec = self.slice.spec
        return (self.slice_profiles, spec.priority, spec.pool.priority, self._selector)

    def find_reachable(self, node: Node) -> tuple[int, ...] | None:
        """Positions of the devices a node can reach; None when the slice is not for this node at all."""
        spec = self.slice.spec
        if spec.per_device_node_selection:
            return find_reachable_devices(spec, node)
        covered = _covers_node(spec.node_name, spec.all_nodes, spec.node_selector, node)
        return self.slice_profiles.all_positions if covered else None

    def get_node_scope(self, position: int) -> DeviceNodeScope:
        """Where the device at a position can be used from."""
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
    # The API wants one kind of selection. Where a slice has both, a device must be for the node by both.
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
    """What shelves have in common that hold the same devices in the same order."""

    __slots__ = ("__weakref__",)


PoolViewKeys = WeakValueDictionary[Any, PoolViewKey]
"""Known for as long as a shelf or a shape has them."""


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
    """The shelf of another pool that this one was made after."""
    unused: list[Any] = field(default_factory=list)
    """What is left of it while nothing is taken; the same for all that were made after one model."""

    def copy_for_pool(self, pool: PoolId) -> PoolView:
        """The same for another pool of the driver."""
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
    """What a pool on one node is a model for: pools with the same one look the same to their nodes.

    None for a pool that is not whole, or not seen as a whole, of which each node needs a look of its own.
    """
    if len(slices) == 1:
        spec = slices[0].slice.spec
        is_whole = spec.pool.resource_slice_count == 1 and not spec.per_device_node_selection
        return slices[0].equivalence_key if is_whole else None
    first = slices[0].slice.spec
    for page in slices:
        spec = page.slice.spec
        if (
            spec.pool.resource_slice_count != len(slices)
            or spec.pool.generation != first.pool.generation
            or spec.node_name != first.node_name
            or spec.per_device_node_selection
        ):
            return None
    return tuple([page.equivalence_key for page in sorted(slices, key=lambda page: page.slice.metadata.name)])


class IncompletePool(msgspec.Struct, frozen=True):
    """How many slices of a pool there are, and should be, in its newest generation."""

    published: int
    expected: int
    generation: int


VisibleSlice = tuple[PreparedSlice, tuple[int, ...]]
"""A page a node sees, and the positions of the devices it can reach there."""


def build_pool_views(
    pool: PoolId, visible: Sequence[VisibleSlice], all_slices: Sequence[PreparedSlice], keys: PoolViewKeys
) -> list[PoolView]:
    """What a node sees of a pool, given all pages of it; nothing when a newer generation lives elsewhere.

    `keys` are the likenesses of shelves seen so far.
    """
    newest = max(page.slice.spec.pool.generation for page, _ in visible)
    relevant = [entry for entry in visible if entry[0].slice.spec.pool.generation == newest]
    # By name, so that nothing depends on the order slices came in, not even what is said of an unsound pool.
    published = sorted(
        (page for page in all_slices if page.slice.spec.pool.generation == newest),
        key=lambda page: page.slice.metadata.name,
    )
    expected = published[0].slice.spec.pool.resource_slice_count
    agreed = all(page.slice.spec.pool.resource_slice_count == expected for page in published)
    if not agreed or len(relevant) != expected:
        if any(page.slice.spec.pool.generation > newest for page in all_slices):
            return []
        if agreed and len(published) != expected:
            flaw = Refusal(RefusalReason.POOL_INCOMPLETE, IncompletePool(len(published), expected, newest))
            return [_build_flawed_view(pool, relevant, flaw, keys)]
    return [_build_complete_view(pool, relevant, published, keys)]


def _build_complete_view(
    pool: PoolId, relevant: Sequence[VisibleSlice], published: Sequence[PreparedSlice], keys: PoolViewKeys
) -> PoolView:
    """The shelf of a pool of which all slices are there."""
    ordered = sorted(
        relevant, key=lambda entry: (-(entry[0].slice.spec.priority or 0), entry[0].slice.metadata.name)
    )
    places = [
        (page, i) for page, positions in ordered if not page.slice.spec.shared_counters for i in positions
    ]
    sets = [counters for page in published for counters in page.slice.spec.shared_counters]
    unsound = _find_flaw(relevant, sets, published)
    if unsound is not None:
        return _build_flawed_view(pool, relevant, unsound, keys)
    names = tuple(page.slice.spec.devices[i].name for page, i in places)
    contents = tuple(page.profiles[i] for page, i in places)
    reaches = tuple(page.get_node_scope(i) for page, i in places)
    totals = {(group.name, name): to_nanos(c.value) for group in sets for name, c in group.counters.items()}
    tangled = tuple(reach.has_several_terms for reach in reaches)
    key = keys.setdefault((contents, tangled, tuple(totals)), PoolViewKey())
    return PoolView(
        pool,
        key,
        _build_sort_key(relevant),
        names,
        contents,
        reaches,
        totals,
        _collect_draws(published),
        devices=intern_device_list(relevant[0][0].profile_table, contents, tangled),
    )


def _collect_draws(published: Sequence[PreparedSlice]) -> dict[str, CounterDraws]:
    """What is drawn from counters while a device of a name is held.

    Nodes may have devices of one name. A claim that holds the name does not tell which of them, so all count.
    """
    drawn: dict[str, CounterDraws] = {}
    for page in published:
        for device, content in zip(page.slice.spec.devices, page.profiles, strict=True):
            if content.counters:
                drawn[device.name] = drawn.get(device.name, ()) + content.counters
    return drawn


def _build_flawed_view(
    pool: PoolId, relevant: Sequence[VisibleSlice], flaw: Refusal, keys: PoolViewKeys
) -> PoolView:
    return PoolView(pool, keys.setdefault(flaw, PoolViewKey()), _build_sort_key(relevant), flaw=flaw)


def _find_flaw(
    relevant: Sequence[VisibleSlice], sets: Sequence[CounterSet], published: Sequence[PreparedSlice]
) -> Refusal | None:
    """What makes a complete pool unusable."""
    # Names are unique among all devices of the slices a node sees, also those only other nodes can reach.
    own = [page.slice.spec for page, _ in relevant if not page.slice.spec.shared_counters]
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
        said = {getattr(page.slice.spec.pool, what) or 0 for page in published}
        if len(said) > 1:
            field = "resourceSliceCount" if what == "resource_slice_count" else "priority"
            values = " and ".join(str(value) for value in sorted(said))
            return Refusal(RefusalReason.POOL_INVALID, f"its slices disagree on pool.{field}: {values}")
    return None


def _find_unknown_counter(
    known: Mapping[str, Mapping[str, Counter]], published: Sequence[PreparedSlice]
) -> str | None:
    """Which device draws from a counter that is not there."""
    for page in published:
        for device, content in zip(page.slice.spec.devices, page.profiles, strict=True):
            if not content.counter_sets:
                continue
            drawn = [(group, "") for group in content.counter_sets]
            drawn += [(group, name) for group, name, _ in content.counters]
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
    binding = any(device.binding_conditions for page, _ in entries for device in page.slice.spec.devices)
    return (spec.driver, -(spec.pool.priority or 0), binding, spec.pool.name)


def sort_pool_views(pool_views: Iterable[PoolView]) -> tuple[PoolView, ...]:
    """Shelves as the search walks them.

    Kubernetes moves pools with binding conditions behind all others. A driver's priorities come first,
    though: only the pools at the end of a driver's own order move.
    """
    shelves_ = list(pool_views)
    if len(shelves_) < 2:
        return tuple(shelves_)
    early: list[PoolView] = []
    late: list[PoolView] = []
    for _driver, own in groupby(
        sorted(shelves_, key=lambda shelf: shelf.order), key=lambda shelf: shelf.pool[0]
    ):
        ordered = list(own)
        end = len(ordered)
        while end and ordered[end - 1].has_binding_conditions:
            end -= 1
        early += ordered[:end]
        late += ordered[end:]
    return (*early, *late)
