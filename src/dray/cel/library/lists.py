"""Functions on lists: those of Kubernetes, those of the extension library of CEL, and lists as sets."""

from __future__ import annotations

from collections.abc import Callable
from functools import cmp_to_key
from itertools import pairwise
from typing import Final

from dray.cel import types as t
from dray.cel.declarations import A, Function, careful, free, function, member
from dray.cel.equality import contains, order, same
from dray.cel.faults import BudgetError, CelError, no_such_overload
from dray.cel.library.operators import as_int, as_uint
from dray.cel.times import Duration
from dray.cel.types import Type
from dray.cel.values import MAX_ITEMS, NONE, Optional, UInt, Value, type_names, within

_List = tuple[Value, ...]
_MAX_NESTING: Final = 100


def _is_sorted(items: _List) -> bool:
    return all(order(one, other) <= 0 for one, other in pairwise(items))


def _smallest(items: _List) -> Value:
    return _best(items, "min", 1)


def _largest(items: _List) -> Value:
    return _best(items, "max", -1)


def _best(items: _List, name: str, worse: int) -> Value:
    if not items:
        raise CelError(f"{name} called on empty list")
    best = items[0]
    for item in items[1:]:
        if order(best, item) == worse:
            best = item
    return best


def _sum_of(zero: Value, add: Callable[[Value, Value], Value]) -> Callable[[_List], Value]:
    kind = type(zero)

    def total(items: _List) -> Value:
        result = zero
        for item in items:
            if type(item) is not kind:
                raise no_such_overload()
            result = add(result, item)
        return result

    return total


def _index_of(items: _List, wanted: Value) -> int:
    return next((place for place, item in enumerate(items) if same(item, wanted)), -1)


def _last_index_of(items: _List, wanted: Value) -> int:
    backwards = range(len(items) - 1, -1, -1)
    return next((place for place in backwards if same(items[place], wanted)), -1)


def _slice(items: _List, start: int, end: int) -> _List:
    if start < 0 or end < 0:
        raise CelError(f"cannot slice({start}, {end}), negative indexes not supported")
    if start > end:
        raise CelError(f"cannot slice({start}, {end}), start index must be less than or equal to end index")
    if end > len(items):
        raise CelError(f"cannot slice({start}, {end}), list is length {len(items)}")
    return items[start:end]


def _flatten(items: Value, levels: int = 1) -> _List:
    if type(items) is not tuple:
        raise no_such_overload("flatten", type_names(items))
    if levels < 0:
        raise CelError("level must be non-negative")
    flat: list[Value] = []
    waiting = [(items, 0)]
    # Lists can share parts, so the flat one may be far longer than what it is made of.
    while waiting:
        one, depth = waiting.pop()
        if type(one) is not tuple or depth > levels:
            flat.append(one)
        else:
            waiting += [(item, depth + 1) for item in reversed(one)]
        if len(flat) + len(waiting) > MAX_ITEMS:
            raise BudgetError
    return tuple(flat)


def _sorted(items: Value) -> _List:
    if type(items) is not tuple:
        raise no_such_overload("sort", type_names(items))
    if not items:
        return items
    order(items[0], items[0])
    if any(type(item) is not type(items[0]) for item in items):
        raise CelError("list elements must have the same type")
    return tuple(sorted(items, key=cmp_to_key(order)))


def _distinct(items: _List) -> _List:
    kept: list[Value] = []
    for item in items:
        if not any(same(item, other) for other in kept):
            kept.append(item)
    return tuple(kept)


def _range(count: int) -> _List:
    return tuple(range(within(count)))


def _first(items: _List) -> Optional:
    return Optional(items[0]) if items else NONE


def _last(items: _List) -> Optional:
    return Optional(items[-1]) if items else NONE


def _has_all(items: _List, wanted: _List) -> bool:
    return all(any(same(one, item) for item in items) for one in wanted)


def _is_equivalent(left: _List, right: _List) -> bool:
    return _has_all(left, right) and _has_all(right, left)


def _intersects(left: _List, right: _List) -> bool:
    return any(same(one, other) for one in left for other in right)


def _includes(target: Value, wanted: Value) -> bool:
    """Whether a list holds a value, or a single value is it: one question for both shapes of an attribute."""
    return contains(target, wanted) if type(target) is tuple else same(target, wanted)


_COMPARABLE: Final = (t.INT, t.UINT, t.DOUBLE, t.BOOL, t.DURATION, t.TIMESTAMP, t.STRING, t.BYTES)
_SUMS: Final[dict[Type, Callable[[_List], Value]]] = {
    t.INT: _sum_of(0, lambda a, b: as_int(a + b)),
    t.UINT: _sum_of(UInt(0), lambda a, b: as_uint(a + b)),
    t.DOUBLE: _sum_of(0.0, lambda a, b: a + b),
    t.DURATION: _sum_of(Duration(0), lambda a, b: Duration(a.nanos + b.nanos)),
}
_ITEMS: Final = t.list_of(A)


def _for_comparable(name: str, id: str, result: Type | None, run: Callable[[_List], Value]) -> Function:
    """A function on lists of anything that has an order; without a result type, it gives an item."""
    kinds = [(kind, kind.name.rpartition(".")[2].lower()) for kind in _COMPARABLE]
    return function(
        name,
        *(member(id.format(word), (t.list_of(kind),), result or kind, run) for kind, word in kinds),
    )


LIBRARY: Final = (
    _for_comparable("isSorted", "list_{}_is_sorted_bool", t.BOOL, _is_sorted),
    _for_comparable("min", "list_{0}_min_{0}", None, _smallest),
    _for_comparable("max", "list_{0}_max_{0}", None, _largest),
    function(
        "sum",
        *(
            member(f"list_{kind.name}_sum_{kind.name}", (t.list_of(kind),), kind, run)
            for kind, run in _SUMS.items()
        ),
    ),
    function("indexOf", member("list_a_index_of_int", (_ITEMS, A), t.INT, _index_of)),
    function("lastIndexOf", member("list_a_last_index_of_int", (_ITEMS, A), t.INT, _last_index_of)),
    function("slice", member("list_slice", (_ITEMS, t.INT, t.INT), _ITEMS, _slice)),
    function(
        "flatten",
        member("list_flatten", (t.list_of(_ITEMS),), _ITEMS, _flatten),
        member("list_flatten_int", (t.list_of(t.DYN), t.INT), t.list_of(t.DYN), _flatten),
    ),
    function(
        "sort",
        *(
            careful(member(f"list_{kind.name}_sort", (t.list_of(kind),), t.list_of(kind), _sorted))
            for kind in _COMPARABLE
        ),
    ),
    function("distinct", member("list_distinct", (_ITEMS,), _ITEMS, _distinct)),
    function("reverse", member("list_reverse", (_ITEMS,), _ITEMS, lambda items: items[::-1])),
    function("lists.range", free("lists_range", (t.INT,), t.list_of(t.INT), _range)),
    function("first", member("list_first", (_ITEMS,), t.optional_of(A), _first)),
    function("last", member("list_last", (_ITEMS,), t.optional_of(A), _last)),
    function("sets.contains", free("list_sets_contains_list", (_ITEMS, _ITEMS), t.BOOL, _has_all)),
    function("sets.equivalent", free("list_sets_equivalent_list", (_ITEMS, _ITEMS), t.BOOL, _is_equivalent)),
    function("sets.intersects", free("list_sets_intersects_list", (_ITEMS, _ITEMS), t.BOOL, _intersects)),
)

INCLUDES: Final = tuple(
    function(name, careful(member(f"list_{name}_dyn_dyn", (t.DYN, t.DYN), t.BOOL, _includes)))
    for name in ("includes", "include")
)
"""A library of its own: it came later than the others, and environments may lack it."""
