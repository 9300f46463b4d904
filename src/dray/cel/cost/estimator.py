"""The estimator of the worst-case cost of an expression, whatever it is evaluated with.

Theory of operation: the estimator walks the checked tree once. Every node has a cost, and a size where one is
known: literals have their own, parts of variables get theirs from the declared size bounds (followed by
path), results of calls from `call_estimates`. A loop costs its body times the size of what it iterates over.
Numbers saturate at 2^64-1, which means "no bound". The figures are those of Kubernetes; `call_costs` has the
costs at run time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from dray.cel import types as t
from dray.cel.checking.checker import CheckResult
from dray.cel.cost.call_costs import IDENT_COST, LIST_COST, MAP_COST
from dray.cel.cost.call_estimates import (
    ESTIMATES_BY_EXTENSION,
    ESTIMATES_BY_ID,
    ESTIMATES_BY_NAME,
    CallEstimate,
    EstimatedArgument,
)
from dray.cel.cost.size_bounds import INDICES, ITEMS, KEYS, VALUES, SizeBound, SizePath, find_size_bound
from dray.cel.cost.sizes import UNKNOWN, SizeRange, add_saturating, make_exact_size, multiply_saturating
from dray.cel.syntax.ast import (
    Comprehension,
    ComprehensionKind,
    FunctionCall,
    Ident,
    ListLiteral,
    Literal,
    MapLiteral,
    Node,
    OptionalMap,
    Select,
    get_children,
)
from dray.cel.syntax.macros import ACCUMULATOR
from dray.cel.syntax.traversal import MAX_RECURSION_DEPTH, visit_bottom_up
from dray.cel.types import Type, TypeKind
from dray.cel.values import SIZED_TYPES

_SCALAR_KINDS: Final = frozenset(
    {TypeKind.BOOL, TypeKind.INT, TypeKind.UINT, TypeKind.DOUBLE, TypeKind.DURATION, TypeKind.TIMESTAMP}
)
_SELECTABLE_KINDS: Final = frozenset({TypeKind.MAP, TypeKind.STRUCT, TypeKind.VARIABLE})


class _EntrySizes(NamedTuple):
    """The sizes of the entries of a list or map."""

    is_list: bool
    key: SizeRange
    value: SizeRange


class _Local(NamedTuple):
    """A name that a macro binds."""

    path: SizePath
    size: SizeRange | None
    entries: _EntrySizes | None


def estimate_worst_cost(root: Node, checked: CheckResult, size_bounds: Mapping[str, SizeBound]) -> int:
    """The most the expression can cost; 2^64-1 when there is no bound."""
    return _Estimator(checked, size_bounds).estimate(root)


class _Estimator:
    """One walk over one tree."""

    def __init__(self, checked: CheckResult, size_bounds: Mapping[str, SizeBound]) -> None:
        self.checked = checked
        self.size_bounds = size_bounds
        self.locals: dict[str, list[_Local]] = {}
        self.costs: dict[int, int] = {}
        self.sizes: dict[int, SizeRange] = {}
        self.entries: dict[int, _EntrySizes] = {}
        self.paths: dict[int, SizePath] = {}

    def estimate(self, node: Node) -> int:
        known = self.costs.get(node.id)
        if known is not None:
            return known
        if node.depth > MAX_RECURSION_DEPTH:
            visit_bottom_up(node, self.costs, self._get_children_first, self._visit)
        return self._visit(node)

    def _visit(self, node: Node) -> int:
        found = self.costs[node.id] = _VISITORS[type(node)](self, node)
        return found

    def _get_children_first(self, node: Node) -> tuple[Node, ...]:
        match node:
            case Comprehension():
                return (node.source,)
            case OptionalMap():
                return (node.target,)
            case FunctionCall() if node.id in self.checked.qualified:
                return node.args
            case Select() if node.id in self.checked.qualified:
                return ()
            case _:
                return get_children(node)

    def _get_type(self, node: Node) -> Type:
        return self.checked.types[node.id]

    def _find_local(self, name: str) -> _Local | None:
        bound = self.locals.get(name)
        return bound[-1] if bound else None

    # --- sizes and paths ---

    def _get_path(self, node: Node) -> SizePath:
        if isinstance(node, Ident):
            local = self._find_local(node.name)
            if local is not None:
                return local.path
        return self.paths.get(node.id, ())

    def _find_size(self, node: Node) -> SizeRange | None:
        known = self.sizes.get(node.id)
        if known is not None:
            return known
        match node:
            case Literal():
                return make_exact_size(len(node.value) if type(node.value) in SIZED_TYPES else 1)
            case ListLiteral():
                return make_exact_size(len(node.items))
            case MapLiteral():
                return make_exact_size(len(node.entries))
            case _:
                return self._find_declared_size(node)

    def _find_declared_size(self, node: Node) -> SizeRange | None:
        bound = find_size_bound(self.size_bounds, self._get_path(node))
        if bound is not None:
            found = self.sizes[node.id] = SizeRange(0, bound.size)
            return found
        if _is_scalar(self._get_type(node)):
            return make_exact_size(1)
        local = self._find_local(node.name) if isinstance(node, Ident) else None
        return None if local is None else local.size

    def _get_size(self, node: Node) -> SizeRange:
        found = self._find_size(node)
        return UNKNOWN if found is None else found

    def _find_entry_sizes(self, node: Node) -> _EntrySizes | None:
        known = self.entries.get(node.id)
        if known is None and isinstance(node, Ident):
            local = self._find_local(node.name)
            return None if local is None else local.entries
        return known

    def _describe_argument(self, node: Node) -> EstimatedArgument:
        path = self._get_path(node)
        items = None
        if self._get_type(node).params:
            bound = (
                None
                if path[:1] == (ACCUMULATOR,)
                else find_size_bound(self.size_bounds, (*path, ITEMS) if path else ())
            )
            items = UNKNOWN if bound is None else SizeRange(0, bound.size)
        return EstimatedArgument(node, self._get_type(node), self._get_size(node), items)

    # --- leaves and selections ---

    def _estimate_literal(self, node: Literal) -> int:
        return 0

    def _estimate_ident(self, node: Ident) -> int:
        local = self._find_local(node.name)
        self.paths[node.id] = (node.name,) if local is None else local.path
        return IDENT_COST

    def _estimate_select(self, node: Select) -> int:
        if node.id in self.checked.qualified:
            return IDENT_COST
        inside = self.estimate(node.operand)
        if node.test:
            return inside
        if node.optional:
            return add_saturating(inside, 1)
        self.paths[node.id] = (*self._get_path(node.operand), node.field)
        return (
            add_saturating(inside, IDENT_COST)
            if self._get_type(node.operand).kind in _SELECTABLE_KINDS
            else inside
        )

    # --- calls ---

    def _estimate_call(self, node: FunctionCall) -> int:
        if node.function == "dyn" and node.target is None:
            return self._estimate_dyn(node)
        args = [self.estimate(arg) for arg in node.args]
        target = None if node.id in self.checked.qualified else node.target
        inside = 0 if target is None else self.estimate(target)
        seen = tuple(self._describe_argument(arg) for arg in node.args)
        seen_target = None if target is None else self._describe_argument(target)
        worst, size = 0, None
        for overload in self.checked.overloads.get(node.id, ()):
            estimate = self._estimate_overload(node, overload.id, seen_target, seen, args)
            worst = max(worst, estimate.cost)
            size = _unite_sizes(size, estimate.size)
            if overload.id in ("index_list", "index_map"):
                size = self._estimate_index_size(node, overload.id == "index_list")
            if size is None:
                size = self._find_size(node)
        if size is not None:
            self.sizes[node.id] = size
        return add_saturating(inside, worst)

    def _estimate_dyn(self, node: FunctionCall) -> int:
        inside = self.estimate(node.args[0])
        self._copy_sizes(node, node.args[0])
        return add_saturating(inside, 1)

    def _estimate_index_size(self, node: FunctionCall, is_list: bool) -> SizeRange | None:
        container = node.args[0]
        entries = self._find_entry_sizes(container)
        self.paths[node.id] = (*self._get_path(container), ITEMS if is_list else VALUES)
        return None if entries is None else entries.value

    def _copy_sizes(self, node: Node, source: Node) -> None:
        size, entries = self._find_size(source), self._find_entry_sizes(source)
        if size is not None:
            self.sizes[node.id] = size
        if entries is not None:
            self.entries[node.id] = entries

    def _estimate_overload(
        self,
        node: FunctionCall,
        id: str,
        target: EstimatedArgument | None,
        args: tuple[EstimatedArgument, ...],
        costs: list[int],
    ) -> CallEstimate:
        if id == "conditional":
            return self._estimate_conditional(node, args, costs)
        name = self.checked.qualified.get(node.id, node.function)
        for rules, key in ((ESTIMATES_BY_EXTENSION, id), (ESTIMATES_BY_NAME, name), (ESTIMATES_BY_ID, id)):
            rule = rules.get(key)
            found = None if rule is None else rule(target, args)
            if found is not None:
                break
        else:
            found = CallEstimate(1)
        if id == "add_list":
            self._join_entries(node)
        return CallEstimate(add_saturating(found.cost, *costs), found.size)

    def _estimate_conditional(
        self, node: FunctionCall, args: tuple[EstimatedArgument, ...], costs: list[int]
    ) -> CallEstimate:
        then, otherwise = (self._find_entry_sizes(arg) for arg in node.args[1:])
        if then is not None and otherwise is not None:
            self.entries[node.id] = _unite_entries(then, otherwise)
        size = SizeRange(min(args[1].size.low, args[2].size.low), max(args[1].size.high, args[2].size.high))
        return CallEstimate(add_saturating(costs[0], max(costs[1], costs[2])), size)

    def _join_entries(self, node: FunctionCall) -> None:
        left, right = (self._find_entry_sizes(arg) for arg in node.args)
        if left is not None and right is not None:
            self.entries[node.id] = _unite_entries(left, right)

    # --- aggregates ---

    def _estimate_list(self, node: ListLiteral) -> int:
        total = add_saturating(LIST_COST, *(self.estimate(item) for item in node.items))
        held = _unite_all_sizes([self._get_size(item) for item in node.items])
        self.entries[node.id] = _EntrySizes(True, make_exact_size(1), held)
        return total

    def _estimate_map(self, node: MapLiteral) -> int:
        total = add_saturating(
            MAP_COST, *(self.estimate(part) for entry in node.entries for part in (entry.key, entry.value))
        )
        held_keys = _unite_all_sizes([self._get_size(entry.key) for entry in node.entries])
        held = _unite_all_sizes([self._get_size(entry.value) for entry in node.entries])
        self.entries[node.id] = _EntrySizes(False, held_keys, held)
        return total

    # --- macros ---

    def _estimate_comprehension(self, node: Comprehension) -> int:
        loop = node.loop
        total = add_saturating(self.estimate(node.source), self.estimate(loop.init))
        bound = _Local(
            self._get_path(loop.init), self._find_size(loop.init), self._find_entry_sizes(loop.init)
        )
        self._bind(loop.accu, bound)
        if node.kind is ComprehensionKind.BIND:
            total = add_saturating(total, self.estimate(loop.result))
            self._unbind(loop.accu)
            self._copy_sizes(node, loop.result)
            return total
        body = self._estimate_body(node)
        total = add_saturating(total, self.estimate(loop.result))
        self._unbind(loop.accu)
        count = self._get_size(node.source)
        self._set_comprehension_sizes(node, count)
        return add_saturating(total, multiply_saturating(count.high, body))

    def _estimate_body(self, node: Comprehension) -> int:
        for name, local in self._get_iteration_locals(node).items():
            self._bind(name, local)
        body = add_saturating(self.estimate(node.loop.condition), self.estimate(node.loop.step))
        for name in node.names:
            self._unbind(name)
        return body

    def _get_iteration_locals(self, node: Comprehension) -> dict[str, _Local]:
        source = node.source
        entries = self._find_entry_sizes(source)
        is_list = self._get_type(source).kind is TypeKind.LIST if entries is None else entries.is_list
        path = self._get_path(source)
        key = _Local((*path, INDICES if is_list else KEYS), entries and entries.key, None)
        value = _Local((*path, ITEMS if is_list else VALUES), entries and entries.value, None)
        if len(node.names) == 2:
            return dict(zip(node.names, (key, value), strict=True))
        return {node.names[0]: value if is_list else key}

    def _set_comprehension_sizes(self, node: Comprehension, count: SizeRange) -> None:
        init = node.loop.init
        if isinstance(init, Literal):
            self.sizes[node.id] = self._get_size(init)
        elif isinstance(init, ListLiteral | MapLiteral):
            self.sizes[node.id] = count
            step = self._find_entry_sizes(node.loop.step)
            if step is not None:
                self.entries[node.id] = step

    def _estimate_optional_map(self, node: OptionalMap) -> int:
        total = self.estimate(node.expansion)
        self._copy_sizes(node, node.expansion)
        return total

    def _bind(self, name: str, local: _Local) -> None:
        self.locals.setdefault(name, []).append(local)

    def _unbind(self, name: str) -> None:
        self.locals[name].pop()


def _is_scalar(one: Type) -> bool:
    if t.is_optional(one):
        return _is_scalar(one.params[0])
    return one.kind in _SCALAR_KINDS


def _unite_sizes(one: SizeRange | None, other: SizeRange | None) -> SizeRange | None:
    if one is None or other is None:
        return one or other
    return SizeRange(min(one.low, other.low), max(one.high, other.high))


def _unite_entries(one: _EntrySizes, other: _EntrySizes) -> _EntrySizes:
    key, value = _unite_sizes(one.key, other.key), _unite_sizes(one.value, other.value)
    assert key is not None
    assert value is not None
    return _EntrySizes(one.is_list, key, value)


def _unite_all_sizes(sizes: list[SizeRange]) -> SizeRange:
    if not sizes:
        return SizeRange(0, 0)
    return SizeRange(min(size.low for size in sizes), max(size.high for size in sizes))


_VISITORS: Final[dict[type, Callable[..., int]]] = {
    Literal: _Estimator._estimate_literal,
    Ident: _Estimator._estimate_ident,
    Select: _Estimator._estimate_select,
    FunctionCall: _Estimator._estimate_call,
    ListLiteral: _Estimator._estimate_list,
    MapLiteral: _Estimator._estimate_map,
    Comprehension: _Estimator._estimate_comprehension,
    OptionalMap: _Estimator._estimate_optional_map,
}
