"""Equality and order of CEL values.

Theory of operation: values of different types are unequal, except numbers, which are compared by value across
`int`, `uint` and `double`. Types that Kubernetes adds cannot be compared with other types: then `==` is an
error, not `false`, and `!=` is true. Lists and maps are equal when their entries are. Comparisons are bounded
in depth and in steps, because values can share parts and expand to an enormous size.

Kubernetes takes an error inside a list for "equal" (`[semver] == ["x"]` is true there); here it is an error.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

from dray.cel.faults import BudgetError, CelError, make_overload_error
from dray.cel.times import Duration, Timestamp
from dray.cel.values import MAP_TYPES, NONE, OptionalValue, TypeName, UInt, Value, find_map_key
from dray.values.quantity import Quantity
from dray.values.semver import Version

NUMBER_TYPES: Final = frozenset({int, UInt, float})
_PLAIN_TYPES: Final = frozenset(
    {str, bool, int, float, UInt, bytes, type(None), TypeName, Duration, Timestamp}
)
_ORDERED_TYPES: Final = frozenset({str, bytes, bool, Duration, Timestamp})

CONTAINER_TYPES: Final[frozenset[type]] = MAP_TYPES | {tuple, OptionalValue}

STRICT_TYPES: dict[type, str] = {Quantity: "quantity", Version: "semver"}
"""Types that are only comparable with their own family; a library that brings such a type adds it."""

_MAX_DEPTH: Final = 200
_MAX_STEPS: Final = 200_000


def is_equal(left: Value, right: Value) -> bool:
    """Whether two values are equal in CEL; an error where CEL has no answer."""
    kind, other = type(left), type(right)
    if kind is other and kind in _PLAIN_TYPES:
        return bool(left == right)
    if kind in NUMBER_TYPES:
        return other in NUMBER_TYPES and bool(left == right)
    if kind in _PLAIN_TYPES:
        return False
    if kind in STRICT_TYPES:
        if STRICT_TYPES[kind] != STRICT_TYPES.get(other):
            raise make_overload_error()
        return bool(left == right)
    return _DeepComparison().is_equal(left, right, 0)


def is_unequal(left: Value, right: Value) -> bool:
    """Whether `left != right` holds; as in cel-go also where the two cannot be compared."""
    strict = STRICT_TYPES.get(type(left))
    if strict is not None and strict != STRICT_TYPES.get(type(right)):
        return True
    return not is_equal(left, right)


def is_equal_or_false(left: Value, right: Value) -> bool:
    """Like `is_equal`, where a comparison that fails counts as different: `in`, `includes`, `indexOf`."""
    try:
        return is_equal(left, right)
    except CelError:
        return False


def compare_order(left: Value, right: Value) -> int:
    """-1, 0 or 1; an error for values that have no order."""
    kind, other = type(left), type(right)
    if kind in NUMBER_TYPES and other in NUMBER_TYPES:
        if left != left or right != right:
            raise CelError("NaN values cannot be ordered")
    elif kind is not other or kind not in _ORDERED_TYPES:
        raise make_overload_error()
    return int(left > right) - int(left < right)


class _DeepComparison:
    """One comparison of lists, maps or optionals, with the steps it has taken."""

    __slots__ = ("steps",)

    def __init__(self) -> None:
        self.steps = 0

    def is_equal(self, left: Value, right: Value, depth: int) -> bool:
        kind, other = type(left), type(right)
        if kind is tuple:
            return other is tuple and self._are_lists_equal(left, right, depth)
        if kind in MAP_TYPES:
            return other in MAP_TYPES and self._are_maps_equal(left, right, depth)
        if kind is OptionalValue:
            return other is OptionalValue and self._are_optionals_equal(left, right, depth)
        return is_equal(left, right)

    def _count_steps(self, count: int, depth: int) -> None:
        self.steps += count
        if self.steps > _MAX_STEPS:
            raise BudgetError
        if depth > _MAX_DEPTH:
            raise CelError("values are nested too deeply to be compared")

    def _are_lists_equal(self, left: tuple[Value, ...], right: tuple[Value, ...], depth: int) -> bool:
        if len(left) != len(right):
            return False
        self._count_steps(len(left), depth)
        return all(self.is_equal(one, two, depth + 1) for one, two in zip(left, right, strict=True))

    def _are_maps_equal(self, left: dict[Any, Value], right: dict[Any, Value], depth: int) -> bool:
        if len(left) != len(right):
            return False
        self._count_steps(len(left), depth)
        return all(
            key in right and self.is_equal(value, right[key], depth + 1) for key, value in left.items()
        )

    def _are_optionals_equal(self, left: OptionalValue, right: OptionalValue, depth: int) -> bool:
        if left is NONE or right is NONE:
            return left is right
        self._count_steps(1, depth)
        return self.is_equal(left.value, right.value, depth + 1)


def count_parts(value: Value) -> int:
    """How many parts a value expands to; parts that are used twice count twice."""
    count = 0
    waiting = [value]
    while waiting:
        one = waiting.pop()
        kind = type(one)
        if kind is tuple:
            inside: Collection[Value] = one
        elif kind in MAP_TYPES:
            inside = one.values()
        elif kind is OptionalValue:
            inside = () if one is NONE else (one.value,)
        else:
            continue
        count += len(inside)
        if count > _MAX_STEPS:
            raise BudgetError
        waiting += [part for part in inside if type(part) in CONTAINER_TYPES]
    return count


def contains_item(container: Value, item: Value) -> bool:
    """`item in container` for a list or a map."""
    kind = type(container)
    if kind is tuple:
        # Strings and numbers compare in Python as in CEL; everything else, and `True`, does not.
        if type(item) is str:
            return any(type(one) is str and one == item for one in container)
        return any(is_equal_or_false(item, one) for one in container)
    if kind in MAP_TYPES:
        key = find_map_key(container, item)
        return key is not None and key in container
    raise make_overload_error()
