"""Device inventory: the pools that each node sees, and what is left of them.

Theory of operation: slices are prepared once. A `NodeView` has the pool views of one node in order, and their
`NodeShape`. A shape has no names: two nodes with the same devices, of which the same are in use, have one
shape, and every result of a search on it holds for both. Usage may change without preparing the slices again
(`replace_usage`), and slices without preparing the unchanged ones again (`replace_slices`).

Prepared values are kept as long as their source: profiles and pool views as long as a slice, views as long as
a node (`forget_node`), shapes as long as a view. Only shapes come back, when a device is allocated and
released, so the most recent ones are kept although no node has them.

This module must not contain anything about claims or the search. It never changes the objects it is given.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any
from weakref import WeakKeyDictionary, WeakValueDictionary

from dray.allocator.inventory.device_profiles import (
    DeviceProfileTable,
    DeviceSelectorEvaluator,
)
from dray.allocator.inventory.node_shapes import NodeView, ShapeCache
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

SHARED_POOL_VIEWS = CacheBound("views of pools that several nodes see", 4_096, "an inventory")


class DeviceInventory:
    """Prepared slices, device classes and usage."""

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
        """The inventory with other usage; everything prepared is kept."""
        return self._copy_with(usage, self.classes, self._cache)

    def replace_classes(self, classes: Iterable[DeviceClass]) -> DeviceInventory:
        """The inventory with other classes."""
        return self._copy_with(self.usage, {c.metadata.name: c for c in classes}, self._cache)

    def replace_slices(self, slices: Iterable[ResourceSlice]) -> DeviceInventory:
        """The inventory with other slices; unchanged slices are not prepared again."""
        return self._copy_with(self.usage, self.classes, self._cache.replace_slices(slices))

    def get_node_view(self, node: Node) -> NodeView:
        """The view of a node."""
        return self._cache.get_view(node, self.usage)

    def find_nodes(self, pool: PoolId) -> frozenset[str] | None:
        """The nodes that may see a pool; None when only a check of every node can tell."""
        return self._cache.find_nodes(pool)

    def find_hidden_pools(self, node: Node) -> tuple[PoolId, ...]:
        """Pools with devices for a node in slices that a disabled gate hides."""
        return self._cache.find_hidden_pools(node)

    @property
    def evaluator(self) -> DeviceSelectorEvaluator:
        """The selector evaluator that its devices were prepared with."""
        return self._cache.evaluator

    def list_visible_pools(self, node: Node) -> set[PoolId]:
        """The pools of which a node sees a device."""
        return {each.pool for each in self._cache.find_candidates(node) if each.find_reachable(node)}

    def list_slices(self, pool: PoolId) -> list[ResourceSlice]:
        """The slices of a pool, of every generation."""
        return [each.slice for each in self._cache.get_slices(pool)]

    def count_cached(self) -> dict[str, int]:
        """Sizes of the caches, for metrics: device profiles, shapes, views of nodes."""
        return self._cache.count_cached()

    def forget_node(self, node: str) -> None:
        """Drop the view of a node that was deleted."""
        self._cache.forget_node(node)

    def _copy_with(
        self, usage: DeviceUsage, classes: Mapping[str, DeviceClass], cache: _InventoryCache
    ) -> DeviceInventory:
        other = object.__new__(DeviceInventory)
        other.usage, other.classes, other._cache = usage, classes, cache
        return other


class _InventoryCache:
    """Everything derived from slices: prepared slices, pool views, their remainders, shapes."""

    def __init__(self, profile_table: DeviceProfileTable) -> None:
        self._profile_table = profile_table
        self.evaluator = profile_table.evaluator
        self._slices: dict[int, PreparedSlice] = {}
        """By the identity of the slices, which the values keep alive."""
        self._by_node: dict[str, list[PreparedSlice]] = {}
        self._by_pool: dict[PoolId, list[PreparedSlice]] = {}
        self._shared: SharedSlices | None = None
        self._pool_views: dict[Any, tuple[PoolView, ...]] = {}
        self._view_keys: PoolViewKeys = WeakValueDictionary()
        self._models: WeakValueDictionary[Any, PoolView] = WeakValueDictionary()
        self._shapes = ShapeCache()
        self._views: dict[str, NodeView] = {}
        self._current_views: tuple[DeviceUsage | None, dict[str, NodeView]] = (None, {})
        self._remainders: WeakKeyDictionary[PoolView, tuple[PoolUsage, PoolRemainder]] = WeakKeyDictionary()

    def replace_slices(self, slices: Iterable[ResourceSlice]) -> _InventoryCache:
        """The same for other slices; the view of a node is kept unless one of its pools changed."""
        now = {id(published): published for published in slices}
        other = self._copy()
        gone = [prepared for number, prepared in self._slices.items() if number not in now]
        came = [
            PreparedSlice(published, self._profile_table)
            for n, published in now.items()
            if n not in self._slices
        ]
        for prepared in gone:
            other._remove(prepared)
        for prepared in came:
            other._add(prepared)
        changed = {prepared.pool for prepared in (*gone, *came)} if self._slices else set[PoolId]()
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
        """The prepared slices that may have devices for a node."""
        own, shared = self._by_node.get(node.metadata.name, ()), self._get_shared_slices()
        return [*own, *shared.find_candidates(node)] if shared.slices else list(own)

    def _get_shared_slices(self) -> SharedSlices:
        if self._shared is None:
            prepared_slices = [
                prepared for prepared in self._slices.values() if not prepared.slice.spec.node_name
            ]
            self._shared = SharedSlices(prepared_slices)
        return self._shared

    def get_slices(self, pool: PoolId) -> list[PreparedSlice]:
        """All prepared slices of a pool."""
        return self._by_pool.get(pool, [])

    def find_hidden_pools(self, node: Node) -> tuple[PoolId, ...]:
        return self._get_shared_slices().find_hidden_pools(node)

    def find_nodes(self, pool: PoolId) -> frozenset[str] | None:
        prepared_slices = self._by_pool.get(pool, ())
        if len(prepared_slices) == 1:  # By far the most common case: the only slice of a node-local pool.
            only = prepared_slices[0].slice.spec.node_name
            return frozenset((only,)) if only else None
        names = {prepared.slice.spec.node_name or "" for prepared in prepared_slices}
        return None if "" in names else frozenset(names)

    def count_cached(self) -> dict[str, int]:
        profiles, shapes, views = len(self._profile_table), len(self._shapes), len(self._views)
        return {"device_contents": profiles, "shapes": shapes, "views": views}

    def forget_node(self, node: str) -> None:
        self._views.pop(node, None)
        self._current_views[1].pop(node, None)

    def get_view(self, node: Node, usage: DeviceUsage) -> NodeView:
        # Read once: another thread may change it for another usage in between.
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
        used = tuple([pools.get(pool_view.pool, NO_USAGE) for pool_view in ordered])
        if known is not None and known.pool_usages == used:
            return known
        parts = [
            (pool_view, self._get_remainder(pool_view, use))
            for pool_view, use in zip(ordered, used, strict=True)
        ]
        view = self._views[name] = NodeView(node, ordered, used, self._shapes.get(parts))
        return view

    def _build_pool_views(self, node: Node) -> tuple[PoolView, ...]:
        seen: dict[PoolId, list[VisibleSlice]] = {}
        for prepared in self.find_candidates(node):
            positions = prepared.find_reachable(node)
            if positions is not None:
                seen.setdefault(prepared.pool, []).append((prepared, positions))
        return sort_pool_views(
            [pool_view for pool, entries in seen.items() for pool_view in self._get_pool_views(pool, entries)]
        )

    def _get_pool_views(self, pool: PoolId, entries: list[VisibleSlice]) -> tuple[PoolView, ...]:
        """The view of one pool from a node; nodes that see the same slices share it."""
        everything = self._by_pool[pool]
        for prepared in everything:
            if not prepared.slice.spec.node_name:
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
        """The view of a node-local pool; most are copies of the view of a like pool of another node."""
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
    """Remove a prepared slice from a list without changing the list itself, which may be shared."""
    lists[key] = [each for each in lists[key] if each is not prepared_slice]
    if not lists[key]:
        del lists[key]
