"""Equality and order of values.

Theory of operation: values of different types are unequal, except numbers, which are compared by value across
`int`, `uint` and `double`. Types that Kubernetes adds refuse to be compared with anything else: then the
answer to `==` is an error, not `false`, and `!=` holds. Lists and maps are equal when their parts are.
Comparing is bounded in depth and in steps, because values can share parts and unfold to something enormous.

Kubernetes takes an error inside a list for "equal" (`[semver] == ["x"]` is true there); here it is an error.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

from dray.cel.faults import BudgetError, CelError, no_such_overload
from dray.cel.times import Duration, Timestamp
from dray.cel.values import MAPS, NONE, Optional, TypeName, UInt, Value, found
from dray.values.quantity import Quantity
from dray.values.semver import Version

NUMBERS: Final = frozenset({int, UInt, float})
_PLAIN: Final = frozenset({str, bool, int, float, UInt, bytes, type(None), TypeName, Duration, Timestamp})
_ORDERED: Final = frozenset({str, bytes, bool, Duration, Timestamp})

HOLDING: Final[frozenset[type]] = MAPS | {tuple, Optional}

STRICT: dict[type, str] = {Quantity: "quantity", Version: "semver"}
"""Types that are only comparable with their own family; a library that brings such a type adds it."""

_MAX_DEPTH: Final = 200
_MAX_STEPS: Final = 200_000


def equal(left: Value, right: Value) -> bool:
    """Whether two values are equal in CEL; an error where CEL has no answer."""
    kind, other = type(left), type(right)
    if kind is other and kind in _PLAIN:
        return bool(left == right)
    if kind in NUMBERS:
        return other in NUMBERS and bool(left == right)
    if kind in _PLAIN:
        return False
    if kind in STRICT:
        if STRICT[kind] != STRICT.get(other):
            raise no_such_overload()
        return bool(left == right)
    return _Deep().equal(left, right, 0)


def unequal(left: Value, right: Value) -> bool:
    """Whether `left != right` holds; as in cel-go also where the two cannot be compared."""
    strict = STRICT.get(type(left))
    if strict is not None and strict != STRICT.get(type(right)):
        return True
    return not equal(left, right)


def same(left: Value, right: Value) -> bool:
    """Like `equal`, where a comparison that fails counts as different: `in`, `includes`, `indexOf`."""
    try:
        return equal(left, right)
    except CelError:
        return False


def order(left: Value, right: Value) -> int:
    """-1, 0 or 1; an error for values that have no order."""
    kind, other = type(left), type(right)
    if kind in NUMBERS and other in NUMBERS:
        if left != left or right != right:
            raise CelError("NaN values cannot be ordered")
    elif kind is not other or kind not in _ORDERED:
        raise no_such_overload()
    return int(left > right) - int(left < right)


class _Deep:
    """One comparison of lists, maps or optionals, with the steps it has taken."""

    __slots__ = ("steps",)

    def __init__(self) -> None:
        self.steps = 0

    def equal(self, left: Value, right: Value, depth: int) -> bool:
        kind, other = type(left), type(right)
        if kind is tuple:
            return other is tuple and self._lists(left, right, depth)
        if kind in MAPS:
            return other in MAPS and self._maps(left, right, depth)
        if kind is Optional:
            return other is Optional and self._optionals(left, right, depth)
        return equal(left, right)

    def _step(self, count: int, depth: int) -> None:
        self.steps += count
        if self.steps > _MAX_STEPS:
            raise BudgetError
        if depth > _MAX_DEPTH:
            raise CelError("values are nested too deeply to be compared")

    def _lists(self, left: tuple[Value, ...], right: tuple[Value, ...], depth: int) -> bool:
        if len(left) != len(right):
            return False
        self._step(len(left), depth)
        return all(self.equal(one, two, depth + 1) for one, two in zip(left, right, strict=True))

    def _maps(self, left: dict[Any, Value], right: dict[Any, Value], depth: int) -> bool:
        if len(left) != len(right):
            return False
        self._step(len(left), depth)
        return all(key in right and self.equal(value, right[key], depth + 1) for key, value in left.items())

    def _optionals(self, left: Optional, right: Optional, depth: int) -> bool:
        if left is NONE or right is NONE:
            return left is right
        self._step(1, depth)
        return self.equal(left.value, right.value, depth + 1)


def bulk(value: Value) -> int:
    """How many parts a value unfolds to; those that are used twice count twice."""
    count = 0
    waiting = [value]
    while waiting:
        one = waiting.pop()
        kind = type(one)
        if kind is tuple:
            inside: Collection[Value] = one
        elif kind in MAPS:
            inside = one.values()
        elif kind is Optional:
            inside = () if one is NONE else (one.value,)
        else:
            continue
        count += len(inside)
        if count > _MAX_STEPS:
            raise BudgetError
        waiting += [part for part in inside if type(part) in HOLDING]
    return count


def contains(container: Value, item: Value) -> bool:
    """`item in container` for a list or a map."""
    kind = type(container)
    if kind is tuple:
        # Strings and numbers compare in Python as in CEL; everything else, and `True`, does not.
        if type(item) is str:
            return any(type(one) is str and one == item for one in container)
        return any(same(item, one) for one in container)
    if kind in MAPS:
        key = found(container, item)
        return key is not None and key in container
    raise no_such_overload()
