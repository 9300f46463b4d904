"""Functions on lists: those of Kubernetes, those of the extension library of CEL, and lists as sets."""

from __future__ import annotations

from collections.abc import Callable
from functools import cmp_to_key
from itertools import pairwise
from typing import Final

from dray.cel import types as t
from dray.cel.declarations import (
    A,
    Function,
    declare_function,
    declare_member_overload,
    declare_overload,
    disable_type_guards,
)
from dray.cel.equality import compare_order, contains_item, is_equal_or_false
from dray.cel.faults import BudgetError, CelError, make_overload_error
from dray.cel.library.operators import to_int64, to_uint64
from dray.cel.times import Duration
from dray.cel.types import Type
from dray.cel.values import MAX_ITEMS, NONE, OptionalValue, UInt, Value, check_size, join_type_names

_List = tuple[Value, ...]


def _is_sorted(items: _List) -> bool:
    return all(compare_order(one, other) <= 0 for one, other in pairwise(items))


def _find_smallest(items: _List) -> Value:
    return _find_extreme(items, "min", 1)


def _find_largest(items: _List) -> Value:
    return _find_extreme(items, "max", -1)


def _find_extreme(items: _List, name: str, worse: int) -> Value:
    if not items:
        raise CelError(f"{name} called on empty list")
    best = items[0]
    for item in items[1:]:
        if compare_order(best, item) == worse:
            best = item
    return best


def _make_sum(zero: Value, add: Callable[[Value, Value], Value]) -> Callable[[_List], Value]:
    kind = type(zero)

    def total(items: _List) -> Value:
        result = zero
        for item in items:
            if type(item) is not kind:
                raise make_overload_error()
            result = add(result, item)
        return result

    return total


def _find_index(items: _List, wanted: Value) -> int:
    return next((place for place, item in enumerate(items) if is_equal_or_false(item, wanted)), -1)


def _find_last_index(items: _List, wanted: Value) -> int:
    backwards = range(len(items) - 1, -1, -1)
    return next((place for place in backwards if is_equal_or_false(items[place], wanted)), -1)


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
        raise make_overload_error("flatten", join_type_names(items))
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


def _sort_list(items: Value) -> _List:
    if type(items) is not tuple:
        raise make_overload_error("sort", join_type_names(items))
    if not items:
        return items
    compare_order(items[0], items[0])
    if any(type(item) is not type(items[0]) for item in items):
        raise CelError("list elements must have the same type")
    return tuple(sorted(items, key=cmp_to_key(compare_order)))


def _remove_duplicates(items: _List) -> _List:
    kept: list[Value] = []
    for item in items:
        if not any(is_equal_or_false(item, other) for other in kept):
            kept.append(item)
    return tuple(kept)


def _make_range(count: int) -> _List:
    return tuple(range(check_size(count)))


def _get_first(items: _List) -> OptionalValue:
    return OptionalValue(items[0]) if items else NONE


def _get_last(items: _List) -> OptionalValue:
    return OptionalValue(items[-1]) if items else NONE


def _has_all(items: _List, wanted: _List) -> bool:
    return all(any(is_equal_or_false(one, item) for item in items) for one in wanted)


def _is_equivalent(left: _List, right: _List) -> bool:
    return _has_all(left, right) and _has_all(right, left)


def _intersects(left: _List, right: _List) -> bool:
    return any(is_equal_or_false(one, other) for one in left for other in right)


def _includes(target: Value, wanted: Value) -> bool:
    """Whether a list contains a value, or a single value equals it: attributes are either."""
    return contains_item(target, wanted) if type(target) is tuple else is_equal_or_false(target, wanted)


_COMPARABLE: Final = (t.INT, t.UINT, t.DOUBLE, t.BOOL, t.DURATION, t.TIMESTAMP, t.STRING, t.BYTES)
_SUMS: Final[dict[Type, Callable[[_List], Value]]] = {
    t.INT: _make_sum(0, lambda a, b: to_int64(a + b)),
    t.UINT: _make_sum(UInt(0), lambda a, b: to_uint64(a + b)),
    t.DOUBLE: _make_sum(0.0, lambda a, b: a + b),
    t.DURATION: _make_sum(Duration(0), lambda a, b: Duration(a.nanos + b.nanos)),
}
_ITEMS: Final = t.make_list_type(A)


def _declare_for_comparable(
    name: str, id: str, result: Type | None, run: Callable[[_List], Value]
) -> Function:
    """A function on lists of anything that has an order; without a result type, it gives an item."""
    kinds = [(kind, kind.name.rpartition(".")[2].lower()) for kind in _COMPARABLE]
    return declare_function(
        name,
        *(
            declare_member_overload(id.format(word), (t.make_list_type(kind),), result or kind, run)
            for kind, word in kinds
        ),
    )


LIBRARY: Final = (
    _declare_for_comparable("isSorted", "list_{}_is_sorted_bool", t.BOOL, _is_sorted),
    _declare_for_comparable("min", "list_{0}_min_{0}", None, _find_smallest),
    _declare_for_comparable("max", "list_{0}_max_{0}", None, _find_largest),
    declare_function(
        "sum",
        *(
            declare_member_overload(f"list_{kind.name}_sum_{kind.name}", (t.make_list_type(kind),), kind, run)
            for kind, run in _SUMS.items()
        ),
    ),
    declare_function(
        "indexOf", declare_member_overload("list_a_index_of_int", (_ITEMS, A), t.INT, _find_index)
    ),
    declare_function(
        "lastIndexOf",
        declare_member_overload("list_a_last_index_of_int", (_ITEMS, A), t.INT, _find_last_index),
    ),
    declare_function("slice", declare_member_overload("list_slice", (_ITEMS, t.INT, t.INT), _ITEMS, _slice)),
    declare_function(
        "flatten",
        declare_member_overload("list_flatten", (t.make_list_type(_ITEMS),), _ITEMS, _flatten),
        declare_member_overload(
            "list_flatten_int", (t.make_list_type(t.DYN), t.INT), t.make_list_type(t.DYN), _flatten
        ),
    ),
    declare_function(
        "sort",
        *(
            disable_type_guards(
                declare_member_overload(
                    f"list_{kind.name}_sort", (t.make_list_type(kind),), t.make_list_type(kind), _sort_list
                )
            )
            for kind in _COMPARABLE
        ),
    ),
    declare_function(
        "distinct", declare_member_overload("list_distinct", (_ITEMS,), _ITEMS, _remove_duplicates)
    ),
    declare_function(
        "reverse", declare_member_overload("list_reverse", (_ITEMS,), _ITEMS, lambda items: items[::-1])
    ),
    declare_function(
        "lists.range", declare_overload("lists_range", (t.INT,), t.make_list_type(t.INT), _make_range)
    ),
    declare_function(
        "first", declare_member_overload("list_first", (_ITEMS,), t.make_optional_type(A), _get_first)
    ),
    declare_function(
        "last", declare_member_overload("list_last", (_ITEMS,), t.make_optional_type(A), _get_last)
    ),
    declare_function(
        "sets.contains", declare_overload("list_sets_contains_list", (_ITEMS, _ITEMS), t.BOOL, _has_all)
    ),
    declare_function(
        "sets.equivalent",
        declare_overload("list_sets_equivalent_list", (_ITEMS, _ITEMS), t.BOOL, _is_equivalent),
    ),
    declare_function(
        "sets.intersects",
        declare_overload("list_sets_intersects_list", (_ITEMS, _ITEMS), t.BOOL, _intersects),
    ),
)

INCLUDES_LIBRARY: Final = tuple(
    declare_function(
        name,
        disable_type_guards(
            declare_member_overload(f"list_{name}_dyn_dyn", (t.DYN, t.DYN), t.BOOL, _includes)
        ),
    )
    for name in ("includes", "include")
)
"""A library of its own: it came later than the others, and environments may lack it."""
