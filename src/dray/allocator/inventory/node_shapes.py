"""Node shapes and node views: a node as the search sees it, without names, and the names behind it.

Theory of operation: two nodes with the same devices, of which the same are in use, have one `NodeShape`, and
every result of a search on it holds for both. A `NodeView` has the pool views of one node in order and their
shape, and translates the candidates of a search back to devices.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any
from weakref import WeakValueDictionary

from dray.allocator.inventory.device_lists import DeviceList
from dray.allocator.inventory.device_profiles import DeviceProfile
from dray.allocator.inventory.pool_views import PoolView
from dray.allocator.inventory.remainder import PoolRemainder
from dray.allocator.inventory.usage import PoolUsage
from dray.api.core import Node
from dray.values.cache_bounds import CacheBound
from dray.values.node_selectors import NodeSelector, build_node_name_selector

RECENT_SHAPES = CacheBound("devices of shapes that no node has any more", 4_096, "an inventory")
ATTRIBUTE_MASKS = CacheBound("values of attributes as masks", 64, "a shape")


class NodeShape:
    """A node as the search sees it, without names: device profiles in order, what is taken, what is left."""

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
        self.profiles: tuple[DeviceProfile, ...] = tuple(
            c for pool_view, _ in parts for c in pool_view.profiles
        )
        self.device_lists = _assign_offsets([pool_view.devices for pool_view, _ in parts])
        self.node_scopes = tuple(reach for pool_view, _ in parts for reach in pool_view.node_scopes)
        self.pool_indexes: tuple[int, ...] = tuple(
            i for i, (pool_view, _) in enumerate(parts) for _ in pool_view.profiles
        )
        self.flaws = tuple(
            (i, pool_view.flaw) for i, (pool_view, _) in enumerate(parts) if pool_view.flaw is not None
        )
        self.counters_left = tuple(use.counters for _, use in parts)
        self.overdrawn = frozenset(
            i for i, left in enumerate(self.counters_left) if any(v < 0 for v in left.values())
        )
        self.taken = self.shared = self.shareable = 0
        self.capacity_left: dict[int, Mapping[str, int]] = {}
        self.candidate_sets: dict[Any, Any] = {}
        """Candidate sets by alternative key; `candidates` bounds them."""
        self.endings: dict[Any, Any] = {}
        """Endings of searches by query; the caller that adds them bounds them."""
        self._values: dict[str, tuple[int, dict[tuple[str, Any], int]]] = {}
        offset = 0
        for pool_view, use in parts:
            self.taken |= use.taken << offset
            self.shared |= use.shared << offset
            for position, left in use.amounts.items():
                self.capacity_left[offset + position] = left
            for position, profile in enumerate(pool_view.profiles):
                if profile.shareable:
                    self.shareable |= 1 << (offset + position)
            offset += len(pool_view.profiles)

    def get_value_masks(self, attribute: str) -> tuple[int, dict[tuple[str, Any], int]]:
        """Masks of the candidates that have an attribute, and of those that have each of its values."""
        found = self._values.get(attribute)
        if found is None:
            having, by_value = 0, dict[tuple[str, Any], int]()
            for i, profile in enumerate(self.profiles):
                for value in profile.get_values(attribute):
                    having |= 1 << i
                    by_value[value] = by_value.get(value, 0) | 1 << i
            found = ATTRIBUTE_MASKS.put(self._values, attribute, (having, by_value))
        return found


def _assign_offsets(lists: list[DeviceList | None]) -> tuple[tuple[int, DeviceList], ...]:
    """Device lists that are not empty, each with the number of its first candidate."""
    placed: list[tuple[int, DeviceList]] = []
    offset = 0
    for devices in lists:
        if devices is not None and devices.profiles:
            placed.append((offset, devices))
            offset += len(devices.profiles)
    return tuple(placed)


class ShapeCache:
    """Interned shapes: those that views have, and the most recent ones."""

    __slots__ = ("_devices", "_known", "_recent")

    def __init__(self) -> None:
        self._known: WeakValueDictionary[Any, NodeShape] = WeakValueDictionary()
        self._recent: OrderedDict[NodeShape, None] = OrderedDict()
        self._devices = 0

    def __len__(self) -> int:
        return len(self._known)

    def get(self, parts: list[tuple[PoolView, PoolRemainder]]) -> NodeShape:
        """The interned shape of some pool views."""
        key = tuple([(pool_view.key, left.key) for pool_view, left in parts])
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
    """The pool views of one node in order, and their shape."""

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
        """The pool view of a candidate, and its position there."""
        for pool_view in self.pool_views:
            if candidate < len(pool_view.profiles):
                return pool_view, candidate
            candidate -= len(pool_view.profiles)
        raise IndexError(candidate)
