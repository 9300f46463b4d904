"""Everything that does not depend on the pod: pools, what is taken, what nodes see of it.

Theory of operation: slices are prepared once. What a node sees is a `NodeView`: its shelves in order, and
their `NodeShape`. A shape leaves out names: two nodes whose devices are the same, taken the same, have one
shape, and whatever a search finds out about it holds for both. Usage may change without preparing the
slices again (`replace_usage`), and slices without preparing those that stay (`replace_slices`).

What is prepared lives as long as what it was made of: contents and shelves as long as a slice, views as long
as a node (`forget_node`), shapes as long as a view. Only shapes may come back, when a device is taken and
given back, so the last ones are kept although no node has them.

Rules for this file: nothing of claims or search. Objects that came in are never changed.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import Any
from weakref import WeakKeyDictionary, WeakValueDictionary

from dray.allocator.inventory.device_lists import DeviceList
from dray.allocator.inventory.device_profiles import (
    DeviceProfile,
    DeviceProfileTable,
    DeviceSelectorEvaluator,
)
from dray.allocator.inventory.pool_views import (
    PoolView,
    PoolViewKeys,
    PreparedSlice,
    VisibleSlice,
    build_local_key,
    build_pool_views,
    sort_pool_views,
)
from dray.allocator.inventory.remainder import PoolRemainder, compute_remainder
from dray.allocator.inventory.shared_slices import SharedSlices
from dray.allocator.inventory.usage import NO_USAGE, DeviceUsage, PoolId, PoolUsage
from dray.api.core import Node
from dray.api.resource import DeviceClass, ResourceSlice
from dray.values.cache_bounds import CacheBound
from dray.values.node_selectors import NodeSelector, build_node_name_selector

RECENT_SHAPES = CacheBound("devices of shapes that no node has any more", 4_096, "a device inventory")
ATTRIBUTE_MASKS = CacheBound("values of attributes as masks", 64, "a shape")
SHARED_POOL_VIEWS = CacheBound("views of pools that several nodes see", 4_096, "a device inventory")


class NodeShape:
    """What a search can see of a node: contents in order, what is taken, what is left. No names."""

    __slots__ = (
        "__weakref__",
        "_values",
        "candidate_sets",
        "capacity_left",
        "counters_left",
        "device_lists",
        "endings",
        "flaws",
        "node_scopes",
        "overdrawn",
        "pool_indexes",
        "profiles",
        "shareable",
        "shared",
        "taken",
    )

    def __init__(self, parts: list[tuple[PoolView, PoolRemainder]]) -> None:
        self.profiles: tuple[DeviceProfile, ...] = tuple(c for shelf, _ in parts for c in shelf.profiles)
        self.device_lists = _assign_offsets([shelf.devices for shelf, _ in parts])
        self.node_scopes = tuple(reach for shelf, _ in parts for reach in shelf.node_scopes)
        self.pool_indexes: tuple[int, ...] = tuple(
            i for i, (shelf, _) in enumerate(parts) for _ in shelf.profiles
        )
        self.flaws = tuple((i, shelf.flaw) for i, (shelf, _) in enumerate(parts) if shelf.flaw is not None)
        self.counters_left = tuple(use.counters for _, use in parts)
        self.overdrawn = frozenset(
            i for i, left in enumerate(self.counters_left) if any(v < 0 for v in left.values())
        )
        self.taken = self.shared = self.shareable = 0
        self.capacity_left: dict[int, Mapping[str, int]] = {}
        self.candidate_sets: dict[Any, Any] = {}
        """Candidates of wants; `options` bounds them."""
        self.endings: dict[Any, Any] = {}
        """How searches ended; whoever remembers them here bounds them."""
        self._values: dict[str, tuple[int, dict[tuple[str, Any], int]]] = {}
        offset = 0
        for shelf, use in parts:
            self.taken |= use.taken << offset
            self.shared |= use.shared << offset
            for position, left in use.amounts.items():
                self.capacity_left[offset + position] = left
            for position, content in enumerate(shelf.profiles):
                if content.shareable:
                    self.shareable |= 1 << (offset + position)
            offset += len(shelf.profiles)

    def get_value_masks(self, attribute: str) -> tuple[int, dict[tuple[str, Any], int]]:
        """Which candidates have an attribute, and which have each of its values, as masks."""
        found = self._values.get(attribute)
        if found is None:
            having, by_value = 0, dict[tuple[str, Any], int]()
            for i, content in enumerate(self.profiles):
                for value in content.get_values(attribute):
                    having |= 1 << i
                    by_value[value] = by_value.get(value, 0) | 1 << i
            found = ATTRIBUTE_MASKS.put(self._values, attribute, (having, by_value))
        return found


def _assign_offsets(lists: list[DeviceList | None]) -> tuple[tuple[int, DeviceList], ...]:
    """Lists that have devices, each with the number of its first candidate."""
    placed: list[tuple[int, DeviceList]] = []
    offset = 0
    for devices in lists:
        if devices is not None and devices.profiles:
            placed.append((offset, devices))
            offset += len(devices.profiles)
    return tuple(placed)


class _ShapeCache:
    """The shapes that views have, and the last ones that some view had."""

    __slots__ = ("_devices", "_known", "_recent")

    def __init__(self) -> None:
        self._known: WeakValueDictionary[Any, NodeShape] = WeakValueDictionary()
        self._recent: OrderedDict[NodeShape, None] = OrderedDict()
        self._devices = 0

    def __len__(self) -> int:
        return len(self._known)

    def get(self, parts: list[tuple[PoolView, PoolRemainder]]) -> NodeShape:
        """The shape of what a node sees, the same one for as long as anybody has it."""
        key = tuple([(shelf.key, left.key) for shelf, left in parts])
        shape = self._known.get(key)
        if shape is None:
            shape = self._known[key] = NodeShape(parts)
        if shape in self._recent:
            self._recent.move_to_end(shape)
            return shape
        self._recent[shape] = None
        self._devices += len(shape.profiles) + 1
        while self._devices > RECENT_SHAPES.max_entries and self._recent:
            self._devices -= len(self._recent.popitem(last=False)[0].profiles) + 1
        return shape


class NodeView:
    """What one node sees: shelves in order, and their shape."""

    __slots__ = ("node", "pool_usages", "pool_views", "shape")

    def __init__(
        self,
        node: Node,
        pool_views: tuple[PoolView, ...],
        pool_usages: tuple[PoolUsage, ...],
        shape: NodeShape,
    ) -> None:
        self.node = node
        self.pool_views = pool_views
        self.pool_usages = pool_usages
        self.shape = shape

    @property
    def own_selector(self) -> NodeSelector:
        """The selector that matches the node alone."""
        return build_node_name_selector(self.node.metadata.name)

    def locate_device(self, candidate: int) -> tuple[PoolView, int]:
        """The shelf a candidate stands on, and its position there."""
        for shelf in self.pool_views:
            if candidate < len(shelf.profiles):
                return shelf, candidate
            candidate -= len(shelf.profiles)
        raise IndexError(candidate)


class DeviceInventory:
    """Slices and classes, prepared; and what is taken of them."""

    def __init__(
        self,
        slices: Iterable[ResourceSlice],
        classes: Iterable[DeviceClass],
        usage: DeviceUsage,
        evaluator: DeviceSelectorEvaluator,
    ) -> None:
        self.usage = usage
        self.classes: Mapping[str, DeviceClass] = {c.metadata.name: c for c in classes}
        self._cache = _InventoryCache(DeviceProfileTable(evaluator)).replace_slices(slices)

    def replace_usage(self, usage: DeviceUsage) -> DeviceInventory:
        """The same slices and classes with something else taken; everything prepared is kept."""
        return self._copy_with(usage, self.classes, self._cache)

    def replace_classes(self, classes: Iterable[DeviceClass]) -> DeviceInventory:
        """The same slices and usage with other classes."""
        return self._copy_with(self.usage, {c.metadata.name: c for c in classes}, self._cache)

    def replace_slices(self, slices: Iterable[ResourceSlice]) -> DeviceInventory:
        """The same classes and usage with other slices; what was prepared of the same slices is kept."""
        return self._copy_with(self.usage, self.classes, self._cache.replace_slices(slices))

    def get_node_view(self, node: Node) -> NodeView:
        """What a node sees."""
        return self._cache.get_view(node, self.usage)

    def find_nodes(self, pool: PoolId) -> frozenset[str] | None:
        """The nodes that may see a pool; None when that cannot be told without asking each."""
        return self._cache.find_nodes(pool)

    def find_hidden_pools(self, node: Node) -> tuple[PoolId, ...]:
        """Pools with devices for a node in slices that a closed gate hides from every node."""
        return self._cache.find_hidden_pools(node)

    def count_cached(self) -> dict[str, int]:
        """How much is remembered, for metrics: device contents, shapes, views of nodes."""
        return self._cache.count_cached()

    def forget_node(self, node: str) -> None:
        """A node is gone: what it saw is not kept any longer."""
        self._cache.forget_node(node)

    def _copy_with(
        self, usage: DeviceUsage, classes: Mapping[str, DeviceClass], cache: _InventoryCache
    ) -> DeviceInventory:
        other = object.__new__(DeviceInventory)
        other.usage, other.classes, other._cache = usage, classes, cache
        return other


class _InventoryCache:
    """What is derived from slices, kept between questions: pages, shelves, what is left of them, shapes."""

    def __init__(self, profile_table: DeviceProfileTable) -> None:
        self._profile_table = profile_table
        self._slices: dict[int, PreparedSlice] = {}
        """By the identity of their slices, which they keep alive."""
        self._by_node: dict[str, list[PreparedSlice]] = {}
        self._by_pool: dict[PoolId, list[PreparedSlice]] = {}
        self._shared: SharedSlices | None = None
        self._pool_views: dict[Any, tuple[PoolView, ...]] = {}
        self._view_keys: PoolViewKeys = WeakValueDictionary()
        self._models: WeakValueDictionary[Any, PoolView] = WeakValueDictionary()
        self._shapes = _ShapeCache()
        self._views: dict[str, NodeView] = {}
        self._current_views: tuple[DeviceUsage | None, dict[str, NodeView]] = (None, {})
        self._remainders: WeakKeyDictionary[PoolView, tuple[PoolUsage, PoolRemainder]] = WeakKeyDictionary()

    def replace_slices(self, slices: Iterable[ResourceSlice]) -> _InventoryCache:
        """The same for other slices; what nodes see is kept where none of their pools changed."""
        now = {id(published): published for published in slices}
        other = self._copy()
        gone = [page for number, page in self._slices.items() if number not in now]
        came = [
            PreparedSlice(published, self._profile_table)
            for n, published in now.items()
            if n not in self._slices
        ]
        for page in gone:
            other._remove(page)
        for page in came:
            other._add(page)
        changed = {page.pool for page in (*gone, *came)} if self._slices else set[PoolId]()
        for pool in changed:
            before, after = self.find_nodes(pool), other.find_nodes(pool)
            if before is None or after is None:
                break
            for name in before | after:
                other._views.pop(name, None)
        else:
            if self._slices:
                return other
        other._views, other._shared = {}, None
        return other

    def _copy(self) -> _InventoryCache:
        other = _InventoryCache(self._profile_table)
        other._slices, other._views = self._slices.copy(), self._views.copy()
        other._by_node, other._by_pool = self._by_node.copy(), self._by_pool.copy()
        other._shared, other._view_keys = self._shared, self._view_keys
        other._models, other._shapes = self._models, self._shapes
        return other

    def _add(self, prepared_slice: PreparedSlice) -> None:
        self._slices[id(prepared_slice.slice)] = prepared_slice
        self._by_pool[prepared_slice.pool] = [*self._by_pool.get(prepared_slice.pool, ()), prepared_slice]
        name = prepared_slice.slice.spec.node_name
        if name:
            self._by_node[name] = [*self._by_node.get(name, ()), prepared_slice]

    def _remove(self, prepared_slice: PreparedSlice) -> None:
        del self._slices[id(prepared_slice.slice)]
        _remove_slice(self._by_pool, prepared_slice.pool, prepared_slice)
        if prepared_slice.slice.spec.node_name:
            _remove_slice(self._by_node, prepared_slice.slice.spec.node_name, prepared_slice)

    def find_candidates(self, node: Node) -> list[PreparedSlice]:
        """The pages that a node may see something of."""
        own, shared = self._by_node.get(node.metadata.name, ()), self._get_shared_slices()
        return [*own, *shared.find_candidates(node)] if shared.slices else list(own)

    def _get_shared_slices(self) -> SharedSlices:
        if self._shared is None:
            pages = [page for page in self._slices.values() if not page.slice.spec.node_name]
            self._shared = SharedSlices(pages)
        return self._shared

    def get_slices(self, pool: PoolId) -> list[PreparedSlice]:
        """All pages of a pool."""
        return self._by_pool.get(pool, [])

    def find_hidden_pools(self, node: Node) -> tuple[PoolId, ...]:
        return self._get_shared_slices().find_hidden_pools(node)

    def find_nodes(self, pool: PoolId) -> frozenset[str] | None:
        pages = self._by_pool.get(pool, ())
        if len(pages) == 1:  # by far the most common case: the only slice of a node's own pool
            only = pages[0].slice.spec.node_name
            return frozenset((only,)) if only else None
        names = {page.slice.spec.node_name or "" for page in pages}
        return None if "" in names else frozenset(names)

    def count_cached(self) -> dict[str, int]:
        contents, shapes, views = len(self._profile_table), len(self._shapes), len(self._views)
        return {"device_contents": contents, "shapes": shapes, "views": views}

    def forget_node(self, node: str) -> None:
        self._views.pop(node, None)
        self._current_views[1].pop(node, None)

    def get_view(self, node: Node, usage: DeviceUsage) -> NodeView:
        # Read once: another thread may ask under another usage in between.
        settled = self._current_views
        if settled[0] is not usage:
            settled = self._current_views = (usage, {})
        found = settled[1].get(node.metadata.name)
        if found is None or found.node is not node:
            found = settled[1][node.metadata.name] = self._build_view(node, usage)
        return found

    def _build_view(self, node: Node, usage: DeviceUsage) -> NodeView:
        name, pools = node.metadata.name, usage.pools
        known = self._views.get(name)
        if (
            known is not None
            and known.node is not node
            and known.node.metadata.labels != node.metadata.labels
        ):
            known = None
        ordered = self._build_pool_views(node) if known is None else known.pool_views
        used = tuple([pools.get(shelf.pool, NO_USAGE) for shelf in ordered])
        if known is not None and known.pool_usages == used:
            return known
        parts = [(shelf, self._get_remainder(shelf, use)) for shelf, use in zip(ordered, used, strict=True)]
        view = self._views[name] = NodeView(node, ordered, used, self._shapes.get(parts))
        return view

    def _build_pool_views(self, node: Node) -> tuple[PoolView, ...]:
        seen: dict[PoolId, list[VisibleSlice]] = {}
        for page in self.find_candidates(node):
            positions = page.find_reachable(node)
            if positions is not None:
                seen.setdefault(page.pool, []).append((page, positions))
        return sort_pool_views(
            [shelf for pool, entries in seen.items() for shelf in self._get_pool_views(pool, entries)]
        )

    def _get_pool_views(self, pool: PoolId, entries: list[VisibleSlice]) -> tuple[PoolView, ...]:
        """What a node sees of one pool; nodes that see the same of a shared one have the same shelf."""
        everything = self._by_pool[pool]
        for page in everything:
            if not page.slice.spec.node_name:
                break
        else:
            return self._get_local_pool_views(pool, entries, everything)
        key = (pool, tuple(entries))
        made = self._pool_views.get(key)
        if made is None:
            made = SHARED_POOL_VIEWS.put(
                self._pool_views, key, tuple(build_pool_views(pool, entries, everything, self._view_keys))
            )
        return made

    def _get_local_pool_views(
        self, pool: PoolId, entries: list[VisibleSlice], everything: list[PreparedSlice]
    ) -> tuple[PoolView, ...]:
        """What a node sees of a pool of its own; most nodes have pools like those of other nodes."""
        likeness = build_local_key(everything)
        model = None if likeness is None else self._models.get(likeness)
        if model is not None:
            return (model.copy_for_pool(pool),)
        made = tuple(build_pool_views(pool, entries, everything, self._view_keys))
        if likeness is not None:
            self._models[likeness] = made[0]
        return made

    def _get_remainder(self, pool_view: PoolView, usage: PoolUsage) -> PoolRemainder:
        if usage is NO_USAGE:
            if not pool_view.unused:
                pool_view.unused.append(compute_remainder(pool_view, usage))
            untouched: PoolRemainder = pool_view.unused[0]
            return untouched
        known = self._remainders.get(pool_view)
        if known is None or known[0] is not usage:
            known = self._remainders[pool_view] = (usage, compute_remainder(pool_view, usage))
        return known[1]


def _remove_slice(lists: dict[Any, list[PreparedSlice]], key: Any, prepared_slice: PreparedSlice) -> None:
    """Leave a page out of a list that others may have."""
    lists[key] = [each for each in lists[key] if each is not prepared_slice]
    if not lists[key]:
        del lists[key]
