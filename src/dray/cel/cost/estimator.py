"""The worst an expression can cost, whatever it is evaluated with.

Theory of operation: one walk over the checked tree. Every part has a cost, and a size where that can be
known: literals and list literals have one, parts of variables get theirs from the declared extents (followed
by path), results of calls from the rule of the call. A loop costs its body times the size of what it walks
over. Numbers saturate at 2^64-1, which stands for "no bound". The figures are those of Kubernetes; see
`costs` for what really happens.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from dray.cel import types as t
from dray.cel.checking.checker import Checked
from dray.cel.cost.call_costs import IDENT, LIST, MAP
from dray.cel.cost.call_estimates import RULES_BY_EXTENSION, RULES_BY_ID, RULES_BY_NAME, Estimate, Seen
from dray.cel.cost.size_bounds import INDICES, ITEMS, KEYS, VALUES, Extent, Path, extent_at
from dray.cel.cost.sizes import UNKNOWN, Size, fixed, plus, times
from dray.cel.syntax.ast import (
    Call,
    Fold,
    FoldKind,
    Ident,
    ListLiteral,
    Literal,
    MapLiteral,
    Node,
    OptionalMap,
    Select,
    children,
)
from dray.cel.syntax.macros import ACCU
from dray.cel.syntax.traversal import SHALLOW, settle
from dray.cel.types import Kind, Type
from dray.cel.values import SIZED

_SCALARS: Final = frozenset({Kind.BOOL, Kind.INT, Kind.UINT, Kind.DOUBLE, Kind.DURATION, Kind.TIMESTAMP})
_SELECTED: Final = frozenset({Kind.MAP, Kind.STRUCT, Kind.VARIABLE})


class _Entries(NamedTuple):
    """The sizes of what a list or map holds."""

    is_list: bool
    key: Size
    value: Size


class _Local(NamedTuple):
    """A name that a macro binds."""

    path: Path
    size: Size | None
    entries: _Entries | None


def worst_cost(root: Node, checked: Checked, extents: Mapping[str, Extent]) -> int:
    """The most the expression can cost; 2^64-1 when there is no bound."""
    return _Estimator(checked, extents).cost(root)


class _Estimator:
    """One walk over one tree."""

    def __init__(self, checked: Checked, extents: Mapping[str, Extent]) -> None:
        self.checked = checked
        self.extents = extents
        self.locals: dict[str, list[_Local]] = {}
        self.costs: dict[int, int] = {}
        self.sizes: dict[int, Size] = {}
        self.entries: dict[int, _Entries] = {}
        self.paths: dict[int, Path] = {}

    def cost(self, node: Node) -> int:
        known = self.costs.get(node.id)
        if known is not None:
            return known
        if node.depth > SHALLOW:
            settle(node, self.costs, self._below, self._visit)
        return self._visit(node)

    def _visit(self, node: Node) -> int:
        found = self.costs[node.id] = _WAYS[type(node)](self, node)
        return found

    def _below(self, node: Node) -> tuple[Node, ...]:
        match node:
            case Fold():
                return (node.source,)
            case OptionalMap():
                return (node.target,)
            case Call() if node.id in self.checked.qualified:
                return node.args
            case Select() if node.id in self.checked.qualified:
                return ()
            case _:
                return children(node)

    def _type(self, node: Node) -> Type:
        return self.checked.types[node.id]

    def _local(self, name: str) -> _Local | None:
        bound = self.locals.get(name)
        return bound[-1] if bound else None

    # --- sizes and paths ---

    def _path(self, node: Node) -> Path:
        if isinstance(node, Ident):
            local = self._local(node.name)
            if local is not None:
                return local.path
        return self.paths.get(node.id, ())

    def _size(self, node: Node) -> Size | None:
        known = self.sizes.get(node.id)
        if known is not None:
            return known
        match node:
            case Literal():
                return fixed(len(node.value) if type(node.value) in SIZED else 1)
            case ListLiteral():
                return fixed(len(node.items))
            case MapLiteral():
                return fixed(len(node.entries))
            case _:
                return self._declared_size(node)

    def _declared_size(self, node: Node) -> Size | None:
        extent = extent_at(self.extents, self._path(node))
        if extent is not None:
            found = self.sizes[node.id] = Size(0, extent.size)
            return found
        if _is_scalar(self._type(node)):
            return fixed(1)
        local = self._local(node.name) if isinstance(node, Ident) else None
        return None if local is None else local.size

    def _size_or_unknown(self, node: Node) -> Size:
        found = self._size(node)
        return UNKNOWN if found is None else found

    def _entries_of(self, node: Node) -> _Entries | None:
        known = self.entries.get(node.id)
        if known is None and isinstance(node, Ident):
            local = self._local(node.name)
            return None if local is None else local.entries
        return known

    def _seen(self, node: Node) -> Seen:
        path = self._path(node)
        items = None
        if self._type(node).params:
            extent = None if path[:1] == (ACCU,) else extent_at(self.extents, (*path, ITEMS) if path else ())
            items = UNKNOWN if extent is None else Size(0, extent.size)
        return Seen(node, self._type(node), self._size_or_unknown(node), items)

    # --- leaves and selections ---

    def _literal(self, node: Literal) -> int:
        return 0

    def _ident(self, node: Ident) -> int:
        local = self._local(node.name)
        self.paths[node.id] = (node.name,) if local is None else local.path
        return IDENT

    def _select(self, node: Select) -> int:
        if node.id in self.checked.qualified:
            return IDENT
        inside = self.cost(node.operand)
        if node.test:
            return inside
        if node.optional:
            return plus(inside, 1)
        self.paths[node.id] = (*self._path(node.operand), node.field)
        return plus(inside, IDENT) if self._type(node.operand).kind in _SELECTED else inside

    # --- calls ---

    def _call(self, node: Call) -> int:
        if node.function == "dyn" and node.target is None:
            return self._dyn(node)
        args = [self.cost(arg) for arg in node.args]
        target = None if node.id in self.checked.qualified else node.target
        inside = 0 if target is None else self.cost(target)
        seen = tuple(self._seen(arg) for arg in node.args)
        seen_target = None if target is None else self._seen(target)
        worst, size = 0, None
        for overload in self.checked.overloads.get(node.id, ()):
            estimate = self._estimated(node, overload.id, seen_target, seen, args)
            worst = max(worst, estimate.cost)
            size = _union(size, estimate.size)
            if overload.id in ("index_list", "index_map"):
                size = self._indexed(node, overload.id == "index_list")
            if size is None:
                size = self._size(node)
        if size is not None:
            self.sizes[node.id] = size
        return plus(inside, worst)

    def _dyn(self, node: Call) -> int:
        inside = self.cost(node.args[0])
        self._copy_sizes(node, node.args[0])
        return plus(inside, 1)

    def _indexed(self, node: Call, is_list: bool) -> Size | None:
        container = node.args[0]
        entries = self._entries_of(container)
        self.paths[node.id] = (*self._path(container), ITEMS if is_list else VALUES)
        return None if entries is None else entries.value

    def _copy_sizes(self, node: Node, source: Node) -> None:
        size, entries = self._size(source), self._entries_of(source)
        if size is not None:
            self.sizes[node.id] = size
        if entries is not None:
            self.entries[node.id] = entries

    def _estimated(
        self, node: Call, id: str, target: Seen | None, args: tuple[Seen, ...], costs: list[int]
    ) -> Estimate:
        if id == "conditional":
            return self._conditional(node, args, costs)
        name = self.checked.qualified.get(node.id, node.function)
        for rules, key in ((RULES_BY_EXTENSION, id), (RULES_BY_NAME, name), (RULES_BY_ID, id)):
            rule = rules.get(key)
            found = None if rule is None else rule(target, args)
            if found is not None:
                break
        else:
            found = Estimate(1)
        if id == "add_list":
            self._joined_entries(node)
        return Estimate(plus(found.cost, *costs), found.size)

    def _conditional(self, node: Call, args: tuple[Seen, ...], costs: list[int]) -> Estimate:
        then, otherwise = (self._entries_of(arg) for arg in node.args[1:])
        if then is not None and otherwise is not None:
            self.entries[node.id] = _joined(then, otherwise)
        size = Size(min(args[1].size.low, args[2].size.low), max(args[1].size.high, args[2].size.high))
        return Estimate(plus(costs[0], max(costs[1], costs[2])), size)

    def _joined_entries(self, node: Call) -> None:
        left, right = (self._entries_of(arg) for arg in node.args)
        if left is not None and right is not None:
            self.entries[node.id] = _joined(left, right)

    # --- aggregates ---

    def _list(self, node: ListLiteral) -> int:
        total = plus(LIST, *(self.cost(item) for item in node.items))
        held = _held([self._size_or_unknown(item) for item in node.items])
        self.entries[node.id] = _Entries(True, fixed(1), held)
        return total

    def _map(self, node: MapLiteral) -> int:
        total = plus(MAP, *(self.cost(part) for entry in node.entries for part in (entry.key, entry.value)))
        held_keys = _held([self._size_or_unknown(entry.key) for entry in node.entries])
        held = _held([self._size_or_unknown(entry.value) for entry in node.entries])
        self.entries[node.id] = _Entries(False, held_keys, held)
        return total

    # --- macros ---

    def _fold(self, node: Fold) -> int:
        loop = node.loop
        total = plus(self.cost(node.source), self.cost(loop.init))
        bound = _Local(self._path(loop.init), self._size(loop.init), self._entries_of(loop.init))
        self._bind(loop.accu, bound)
        if node.kind is FoldKind.BIND:
            total = plus(total, self.cost(loop.result))
            self._unbind(loop.accu)
            self._copy_sizes(node, loop.result)
            return total
        body = self._body(node)
        total = plus(total, self.cost(loop.result))
        self._unbind(loop.accu)
        count = self._size_or_unknown(node.source)
        self._fold_sizes(node, count)
        return plus(total, times(count.high, body))

    def _body(self, node: Fold) -> int:
        for name, local in self._walked(node).items():
            self._bind(name, local)
        body = plus(self.cost(node.loop.condition), self.cost(node.loop.step))
        for name in node.names:
            self._unbind(name)
        return body

    def _walked(self, node: Fold) -> dict[str, _Local]:
        source = node.source
        entries = self._entries_of(source)
        is_list = self._type(source).kind is Kind.LIST if entries is None else entries.is_list
        path = self._path(source)
        key = _Local((*path, INDICES if is_list else KEYS), entries and entries.key, None)
        value = _Local((*path, ITEMS if is_list else VALUES), entries and entries.value, None)
        if len(node.names) == 2:
            return dict(zip(node.names, (key, value), strict=True))
        return {node.names[0]: value if is_list else key}

    def _fold_sizes(self, node: Fold, count: Size) -> None:
        init = node.loop.init
        if isinstance(init, Literal):
            self.sizes[node.id] = self._size_or_unknown(init)
        elif isinstance(init, ListLiteral | MapLiteral):
            self.sizes[node.id] = count
            step = self._entries_of(node.loop.step)
            if step is not None:
                self.entries[node.id] = step

    def _optional_map(self, node: OptionalMap) -> int:
        total = self.cost(node.spelled_out)
        self._copy_sizes(node, node.spelled_out)
        return total

    def _bind(self, name: str, local: _Local) -> None:
        self.locals.setdefault(name, []).append(local)

    def _unbind(self, name: str) -> None:
        self.locals[name].pop()


def _is_scalar(one: Type) -> bool:
    if t.is_optional(one):
        return _is_scalar(one.params[0])
    return one.kind in _SCALARS


def _union(one: Size | None, other: Size | None) -> Size | None:
    if one is None or other is None:
        return one or other
    return Size(min(one.low, other.low), max(one.high, other.high))


def _joined(one: _Entries, other: _Entries) -> _Entries:
    key, value = _union(one.key, other.key), _union(one.value, other.value)
    assert key is not None
    assert value is not None
    return _Entries(one.is_list, key, value)


def _held(sizes: list[Size]) -> Size:
    if not sizes:
        return Size(0, 0)
    return Size(min(size.low for size in sizes), max(size.high for size in sizes))


_WAYS: Final[dict[type, Callable[..., int]]] = {
    Literal: _Estimator._literal,
    Ident: _Estimator._ident,
    Select: _Estimator._select,
    Call: _Estimator._call,
    ListLiteral: _Estimator._list,
    MapLiteral: _Estimator._map,
    Fold: _Estimator._fold,
    OptionalMap: _Estimator._optional_map,
}
