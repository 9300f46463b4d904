"""Everything that does not depend on the pod: pools, what is taken, what nodes see of it.

Theory of operation: slices are prepared once. What a node sees is a `View`: its shelves in order, and
their `Shape`. A shape leaves out names: two nodes whose devices are the same, taken the same, have one
shape, and whatever a search finds out about it holds for both. Usage may change without preparing the
slices again (`with_usage`), and slices without preparing those that stay (`with_slices`).

What is prepared lives as long as what it was made of: contents and shelves as long as a slice, views as long
as a node (`forget`), shapes as long as a view. Only shapes may come back, when a device is taken and given
back, so the last ones are kept although no node has them.

Rules for this file: nothing of claims or search. Objects that came in are never changed.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import Any
from weakref import WeakKeyDictionary, WeakValueDictionary

from dray.allocator.inventory.device_lists import DeviceList
from dray.allocator.inventory.device_profiles import Content, Contents, Judge
from dray.allocator.inventory.pool_views import (
    Entry,
    Likenesses,
    Page,
    Shelf,
    in_order,
    local_likeness,
    shelves,
)
from dray.allocator.inventory.remainder import Left, left_of
from dray.allocator.inventory.shared_slices import SharedPages
from dray.allocator.inventory.usage import UNTOUCHED, PoolId, PoolUsage, Usage
from dray.api.core import Node
from dray.api.resource import DeviceClass, ResourceSlice
from dray.values.cache_bounds import Bound
from dray.values.node_selectors import NodeSelector, for_node

RECENT = Bound("devices of shapes that no node has any more", 4_096, "a stock")
VALUES = Bound("values of attributes as masks", 64, "a shape")
SHELVES = Bound("shelves of pools that several nodes see", 4_096, "a stock")


class Shape:
    """What a search can see of a node: contents in order, what is taken, what is left. No names."""

    __slots__ = (
        "__weakref__",
        "_values",
        "contents",
        "counters",
        "endings",
        "flaws",
        "left",
        "lists",
        "memo",
        "overdrawn",
        "pool_of",
        "reaches",
        "shareable",
        "shared",
        "taken",
    )

    def __init__(self, parts: list[tuple[Shelf, Left]]) -> None:
        self.contents: tuple[Content, ...] = tuple(c for shelf, _ in parts for c in shelf.contents)
        self.lists = _placed([shelf.devices for shelf, _ in parts])
        self.reaches = tuple(reach for shelf, _ in parts for reach in shelf.reaches)
        self.pool_of: tuple[int, ...] = tuple(i for i, (shelf, _) in enumerate(parts) for _ in shelf.contents)
        self.flaws = tuple((i, shelf.flaw) for i, (shelf, _) in enumerate(parts) if shelf.flaw is not None)
        self.counters = tuple(use.counters for _, use in parts)
        self.overdrawn = frozenset(
            i for i, left in enumerate(self.counters) if any(v < 0 for v in left.values())
        )
        self.taken = self.shared = self.shareable = 0
        self.left: dict[int, Mapping[str, int]] = {}
        self.memo: dict[Any, Any] = {}
        """Candidates of wants; `options` bounds them."""
        self.endings: dict[Any, Any] = {}
        """How searches ended; whoever remembers them here bounds them."""
        self._values: dict[str, tuple[int, dict[tuple[str, Any], int]]] = {}
        offset = 0
        for shelf, use in parts:
            self.taken |= use.taken << offset
            self.shared |= use.shared << offset
            for position, left in use.amounts.items():
                self.left[offset + position] = left
            for position, content in enumerate(shelf.contents):
                if content.shareable:
                    self.shareable |= 1 << (offset + position)
            offset += len(shelf.contents)

    def values(self, attribute: str) -> tuple[int, dict[tuple[str, Any], int]]:
        """Which candidates have an attribute, and which have each of its values, as masks."""
        found = self._values.get(attribute)
        if found is None:
            having, by_value = 0, dict[tuple[str, Any], int]()
            for i, content in enumerate(self.contents):
                for value in content.values(attribute):
                    having |= 1 << i
                    by_value[value] = by_value.get(value, 0) | 1 << i
            found = VALUES.keep(self._values, attribute, (having, by_value))
        return found


def _placed(lists: list[DeviceList | None]) -> tuple[tuple[int, DeviceList], ...]:
    """Lists that have devices, each with the number of its first candidate."""
    placed: list[tuple[int, DeviceList]] = []
    offset = 0
    for devices in lists:
        if devices is not None and devices.contents:
            placed.append((offset, devices))
            offset += len(devices.contents)
    return tuple(placed)


class _Shapes:
    """The shapes that views have, and the last ones that some view had."""

    __slots__ = ("_devices", "_known", "_recent")

    def __init__(self) -> None:
        self._known: WeakValueDictionary[Any, Shape] = WeakValueDictionary()
        self._recent: OrderedDict[Shape, None] = OrderedDict()
        self._devices = 0

    def __len__(self) -> int:
        return len(self._known)

    def of(self, parts: list[tuple[Shelf, Left]]) -> Shape:
        """The shape of what a node sees, the same one for as long as anybody has it."""
        key = tuple([(shelf.key, left.key) for shelf, left in parts])
        shape = self._known.get(key)
        if shape is None:
            shape = self._known[key] = Shape(parts)
        if shape in self._recent:
            self._recent.move_to_end(shape)
            return shape
        self._recent[shape] = None
        self._devices += len(shape.contents) + 1
        while self._devices > RECENT.most and self._recent:
            self._devices -= len(self._recent.popitem(last=False)[0].contents) + 1
        return shape


class View:
    """What one node sees: shelves in order, and their shape."""

    __slots__ = ("node", "shape", "shelves", "used")

    def __init__(
        self, node: Node, shelves: tuple[Shelf, ...], used: tuple[PoolUsage, ...], shape: Shape
    ) -> None:
        self.node = node
        self.shelves = shelves
        self.used = used
        self.shape = shape

    @property
    def this_node(self) -> NodeSelector:
        """The selector that matches the node alone."""
        return for_node(self.node.metadata.name)

    def device(self, candidate: int) -> tuple[Shelf, int]:
        """The shelf a candidate stands on, and its position there."""
        for shelf in self.shelves:
            if candidate < len(shelf.contents):
                return shelf, candidate
            candidate -= len(shelf.contents)
        raise IndexError(candidate)


class Stock:
    """Slices and classes, prepared; and what is taken of them."""

    def __init__(
        self,
        slices: Iterable[ResourceSlice],
        classes: Iterable[DeviceClass],
        usage: Usage,
        judge: Judge,
    ) -> None:
        self.usage = usage
        self.classes: Mapping[str, DeviceClass] = {c.metadata.name: c for c in classes}
        self._prepared = _Prepared(Contents(judge)).with_slices(slices)

    def with_usage(self, usage: Usage) -> Stock:
        """The same slices and classes with something else taken; everything prepared is kept."""
        return self._with(usage, self.classes, self._prepared)

    def with_classes(self, classes: Iterable[DeviceClass]) -> Stock:
        """The same slices and usage with other classes."""
        return self._with(self.usage, {c.metadata.name: c for c in classes}, self._prepared)

    def with_slices(self, slices: Iterable[ResourceSlice]) -> Stock:
        """The same classes and usage with other slices; what was prepared of the same slices is kept."""
        return self._with(self.usage, self.classes, self._prepared.with_slices(slices))

    def seen_from(self, node: Node) -> View:
        """What a node sees."""
        return self._prepared.view(node, self.usage)

    def nodes_of(self, pool: PoolId) -> frozenset[str] | None:
        """The nodes that may see a pool; None when that cannot be told without asking each."""
        return self._prepared.nodes_of(pool)

    def hidden_from(self, node: Node) -> tuple[PoolId, ...]:
        """Pools with devices for a node in slices that a closed gate hides from every node."""
        return self._prepared.hidden_from(node)

    def sizes(self) -> dict[str, int]:
        """How much is remembered, for metrics: device contents, shapes, views of nodes."""
        return self._prepared.sizes()

    def forget(self, node: str) -> None:
        """A node is gone: what it saw is not kept any longer."""
        self._prepared.forget(node)

    def _with(self, usage: Usage, classes: Mapping[str, DeviceClass], prepared: _Prepared) -> Stock:
        other = object.__new__(Stock)
        other.usage, other.classes, other._prepared = usage, classes, prepared
        return other


class _Prepared:
    """What is derived from slices, kept between questions: pages, shelves, what is left of them, shapes."""

    def __init__(self, contents: Contents) -> None:
        self._contents = contents
        self._pages: dict[int, Page] = {}
        """By the identity of their slices, which they keep alive."""
        self._by_node: dict[str, list[Page]] = {}
        self._by_pool: dict[PoolId, list[Page]] = {}
        self._shared: SharedPages | None = None
        self._shelves: dict[Any, tuple[Shelf, ...]] = {}
        self._keys: Likenesses = WeakValueDictionary()
        self._models: WeakValueDictionary[Any, Shelf] = WeakValueDictionary()
        self._shapes = _Shapes()
        self._views: dict[str, View] = {}
        self._settled: tuple[Usage | None, dict[str, View]] = (None, {})
        self._left: WeakKeyDictionary[Shelf, tuple[PoolUsage, Left]] = WeakKeyDictionary()

    def with_slices(self, slices: Iterable[ResourceSlice]) -> _Prepared:
        """The same for other slices; what nodes see is kept where none of their pools changed."""
        now = {id(published): published for published in slices}
        other = self._copied()
        gone = [page for number, page in self._pages.items() if number not in now]
        came = [Page(published, self._contents) for n, published in now.items() if n not in self._pages]
        for page in gone:
            other._remove(page)
        for page in came:
            other._add(page)
        changed = {page.pool for page in (*gone, *came)} if self._pages else set[PoolId]()
        for pool in changed:
            before, after = self.nodes_of(pool), other.nodes_of(pool)
            if before is None or after is None:
                break
            for name in before | after:
                other._views.pop(name, None)
        else:
            if self._pages:
                return other
        other._views, other._shared = {}, None
        return other

    def _copied(self) -> _Prepared:
        other = _Prepared(self._contents)
        other._pages, other._views = self._pages.copy(), self._views.copy()
        other._by_node, other._by_pool = self._by_node.copy(), self._by_pool.copy()
        other._shared, other._keys = self._shared, self._keys
        other._models, other._shapes = self._models, self._shapes
        return other

    def _add(self, page: Page) -> None:
        self._pages[id(page.slice)] = page
        self._by_pool[page.pool] = [*self._by_pool.get(page.pool, ()), page]
        name = page.slice.spec.node_name
        if name:
            self._by_node[name] = [*self._by_node.get(name, ()), page]

    def _remove(self, page: Page) -> None:
        del self._pages[id(page.slice)]
        _take_out(self._by_pool, page.pool, page)
        if page.slice.spec.node_name:
            _take_out(self._by_node, page.slice.spec.node_name, page)

    def near(self, node: Node) -> list[Page]:
        """The pages that a node may see something of."""
        own, shared = self._by_node.get(node.metadata.name, ()), self._shared_pages()
        return [*own, *shared.near(node)] if shared.pages else list(own)

    def _shared_pages(self) -> SharedPages:
        if self._shared is None:
            pages = [page for page in self._pages.values() if not page.slice.spec.node_name]
            self._shared = SharedPages(pages)
        return self._shared

    def pages_of(self, pool: PoolId) -> list[Page]:
        """All pages of a pool."""
        return self._by_pool.get(pool, [])

    def hidden_from(self, node: Node) -> tuple[PoolId, ...]:
        return self._shared_pages().hidden_from(node)

    def nodes_of(self, pool: PoolId) -> frozenset[str] | None:
        pages = self._by_pool.get(pool, ())
        if len(pages) == 1:  # by far the most common case: the only slice of a node's own pool
            only = pages[0].slice.spec.node_name
            return frozenset((only,)) if only else None
        names = {page.slice.spec.node_name or "" for page in pages}
        return None if "" in names else frozenset(names)

    def sizes(self) -> dict[str, int]:
        contents, shapes, views = len(self._contents), len(self._shapes), len(self._views)
        return {"device_contents": contents, "shapes": shapes, "views": views}

    def forget(self, node: str) -> None:
        self._views.pop(node, None)
        self._settled[1].pop(node, None)

    def view(self, node: Node, usage: Usage) -> View:
        # Read once: another thread may ask under another usage in between.
        settled = self._settled
        if settled[0] is not usage:
            settled = self._settled = (usage, {})
        found = settled[1].get(node.metadata.name)
        if found is None or found.node is not node:
            found = settled[1][node.metadata.name] = self._view(node, usage)
        return found

    def _view(self, node: Node, usage: Usage) -> View:
        name, pools = node.metadata.name, usage.pools
        known = self._views.get(name)
        if (
            known is not None
            and known.node is not node
            and known.node.metadata.labels != node.metadata.labels
        ):
            known = None
        ordered = self._shelves_of(node) if known is None else known.shelves
        used = tuple([pools.get(shelf.pool, UNTOUCHED) for shelf in ordered])
        if known is not None and known.used == used:
            return known
        parts = [(shelf, self._left_of(shelf, use)) for shelf, use in zip(ordered, used, strict=True)]
        view = self._views[name] = View(node, ordered, used, self._shapes.of(parts))
        return view

    def _shelves_of(self, node: Node) -> tuple[Shelf, ...]:
        seen: dict[PoolId, list[Entry]] = {}
        for page in self.near(node):
            positions = page.seen_by(node)
            if positions is not None:
                seen.setdefault(page.pool, []).append((page, positions))
        return in_order([shelf for pool, entries in seen.items() for shelf in self._made(pool, entries)])

    def _made(self, pool: PoolId, entries: list[Entry]) -> tuple[Shelf, ...]:
        """What a node sees of one pool; nodes that see the same of a shared one have the same shelf."""
        everything = self._by_pool[pool]
        for page in everything:
            if not page.slice.spec.node_name:
                break
        else:
            return self._made_locally(pool, entries, everything)
        key = (pool, tuple(entries))
        made = self._shelves.get(key)
        if made is None:
            made = SHELVES.keep(self._shelves, key, tuple(shelves(pool, entries, everything, self._keys)))
        return made

    def _made_locally(self, pool: PoolId, entries: list[Entry], everything: list[Page]) -> tuple[Shelf, ...]:
        """What a node sees of a pool of its own; most nodes have pools like those of other nodes."""
        likeness = local_likeness(everything)
        model = None if likeness is None else self._models.get(likeness)
        if model is not None:
            return (model.renamed(pool),)
        made = tuple(shelves(pool, entries, everything, self._keys))
        if likeness is not None:
            self._models[likeness] = made[0]
        return made

    def _left_of(self, shelf: Shelf, use: PoolUsage) -> Left:
        if use is UNTOUCHED:
            if not shelf.untouched:
                shelf.untouched.append(left_of(shelf, use))
            untouched: Left = shelf.untouched[0]
            return untouched
        known = self._left.get(shelf)
        if known is None or known[0] is not use:
            known = self._left[shelf] = (use, left_of(shelf, use))
        return known[1]


def _take_out(kept: dict[Any, list[Page]], key: Any, page: Page) -> None:
    """Leave a page out of a list that others may have."""
    kept[key] = [each for each in kept[key] if each is not page]
    if not kept[key]:
        del kept[key]
