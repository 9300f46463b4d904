"""The operators: arithmetic within 64 bits, comparison, membership, indexing."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

from dray.cel import types as t
from dray.cel.declarations import A, Function, K, Overload, V, careful, free, function, shared
from dray.cel.equality import NUMBERS, contains, equal, order, unequal
from dray.cel.faults import CelError, no_such_overload
from dray.cel.syntax.literals import MAX_INT, MAX_UINT, MIN_INT
from dray.cel.times import Duration, Timestamp
from dray.cel.types import Type
from dray.cel.values import MAPS, MAX_ITEMS, MAX_TEXT, NONE, Optional, UInt, Value, found, type_name, within


def as_int(value: int) -> int:
    """A whole number, unless it leaves 64 bits."""
    if not MIN_INT <= value <= MAX_INT:
        raise CelError("integer overflow")
    return value


def as_uint(value: int) -> UInt:
    """A whole number that is not negative, unless it leaves 64 bits."""
    if not 0 <= value <= MAX_UINT:
        raise CelError("unsigned integer overflow")
    return UInt(value)


def _nonzero(value: int, verb: str) -> int:
    if value == 0:
        raise CelError(f"{verb} by zero")
    return value


def _quotient(left: int, right: int) -> int:
    whole = abs(left) // abs(_nonzero(right, "division"))
    return whole if (left < 0) == (right < 0) else -whole


def _remainder(left: int, right: int) -> int:
    rest = abs(left) % abs(_nonzero(right, "modulus"))
    return -rest if left < 0 else rest


def _divide(left: float, right: float) -> float:
    if right:
        return left / right
    if not left or math.isnan(left) or math.isnan(right):
        return math.nan
    return math.copysign(math.inf, left) * math.copysign(1.0, right)


def _join_text(left: str, right: str) -> str:
    within(len(left) + len(right), MAX_TEXT)
    return left + right


def _join_bytes(left: bytes, right: bytes) -> bytes:
    within(len(left) + len(right), MAX_TEXT)
    return left + right


def _join_lists(left: tuple[Value, ...], right: tuple[Value, ...]) -> tuple[Value, ...]:
    within(len(left) + len(right), MAX_ITEMS)
    return left + right


def at(container: Value, index: Value) -> Value:
    """`container[index]`: an item of a list, a value of a map, or the same inside an optional."""
    kind = type(container)
    if kind in MAPS:
        try:
            return container[found(container, index)]
        except KeyError:
            raise CelError(f"no such key: {key_text(index)}") from None
    if kind is tuple:
        return _item(container, index)
    if kind is Optional:
        return at_if_there(container, index)
    raise CelError(f"no such key: {key_text(index)}")


def _item(items: tuple[Value, ...], index: Value) -> Value:
    whole = type(index) in (int, UInt) or (type(index) is float and index.is_integer())
    if not whole:
        raise CelError(f"unsupported index type '{type_name(index)}' in list")
    if not 0 <= index < len(items):
        raise CelError(f"index out of bounds: {key_text(index)}")
    return items[int(index)]


def at_if_there(container: Value, index: Value) -> Optional:
    """`container[?index]`: nothing instead of an error when the place is not there."""
    kind = type(container)
    if kind is Optional:
        return NONE if container is NONE else at_if_there(container.value, index)
    if kind is tuple:
        beyond = type(index) in NUMBERS and not 0 <= index < len(container)
        return NONE if beyond else Optional(_item(container, index))
    if kind not in MAPS:
        return NONE
    try:
        return Optional(container[found(container, index)])
    except KeyError:
        return NONE


def key_text(key: Value) -> str:
    """A key as messages show it."""
    if type(key) is bool:
        return "true" if key else "false"
    return str(int(key)) if type(key) is UInt else str(key)[:200]


def _same(sign: str, kind: Type, run: Callable[..., Value]) -> Overload:
    """An operator that takes two of a kind and gives one of that kind."""
    return free(f"{sign}_{_WORD.get(kind, kind.name)}", (kind, kind), kind, run)


_WORD: Final = {t.INT: "int64", t.UINT: "uint64", t.DURATION: "duration", t.TIMESTAMP: "timestamp"}

_ARITHMETIC: Final = (
    function(
        "_+_",
        _same("add", t.INT, lambda a, b: as_int(a + b)),
        _same("add", t.UINT, lambda a, b: as_uint(a + b)),
        _same("add", t.DOUBLE, lambda a, b: a + b),
        _same("add", t.STRING, _join_text),
        _same("add", t.BYTES, _join_bytes),
        free("add_list", (t.list_of(A), t.list_of(A)), t.list_of(A), _join_lists),
        free(
            "add_duration_duration",
            (t.DURATION, t.DURATION),
            t.DURATION,
            lambda a, b: Duration(a.nanos + b.nanos),
        ),
        free(
            "add_timestamp_duration",
            (t.TIMESTAMP, t.DURATION),
            t.TIMESTAMP,
            lambda a, b: Timestamp(a.nanos + b.nanos),
        ),
        free(
            "add_duration_timestamp",
            (t.DURATION, t.TIMESTAMP),
            t.TIMESTAMP,
            lambda a, b: Timestamp(a.nanos + b.nanos),
        ),
    ),
    function(
        "_-_",
        _same("subtract", t.INT, lambda a, b: as_int(a - b)),
        _same("subtract", t.UINT, lambda a, b: as_uint(a - b)),
        _same("subtract", t.DOUBLE, lambda a, b: a - b),
        free(
            "subtract_duration_duration",
            (t.DURATION, t.DURATION),
            t.DURATION,
            lambda a, b: Duration(a.nanos - b.nanos),
        ),
        free(
            "subtract_timestamp_duration",
            (t.TIMESTAMP, t.DURATION),
            t.TIMESTAMP,
            lambda a, b: Timestamp(a.nanos - b.nanos),
        ),
        free(
            "subtract_timestamp_timestamp",
            (t.TIMESTAMP, t.TIMESTAMP),
            t.DURATION,
            lambda a, b: Duration(a.nanos - b.nanos),
        ),
    ),
    function(
        "_*_",
        _same("multiply", t.INT, lambda a, b: as_int(a * b)),
        _same("multiply", t.UINT, lambda a, b: as_uint(a * b)),
        _same("multiply", t.DOUBLE, lambda a, b: a * b),
    ),
    function(
        "_/_",
        _same("divide", t.INT, lambda a, b: as_int(_quotient(a, b))),
        _same("divide", t.UINT, lambda a, b: as_uint(_quotient(a, b))),
        _same("divide", t.DOUBLE, _divide),
    ),
    function(
        "_%_",
        _same("modulo", t.INT, lambda a, b: as_int(_remainder(a, b))),
        _same("modulo", t.UINT, lambda a, b: as_uint(_remainder(a, b))),
    ),
    function(
        "-_",
        free("negate_int64", (t.INT,), t.INT, lambda a: as_int(-a)),
        free("negate_double", (t.DOUBLE,), t.DOUBLE, lambda a: -a),
    ),
)

_ORDERED: Final = (t.BOOL, t.INT, t.UINT, t.DOUBLE, t.STRING, t.BYTES, t.TIMESTAMP, t.DURATION)
_NUMERIC: Final = (t.INT, t.UINT, t.DOUBLE)
_ORDERINGS: Final[dict[str, tuple[str, Callable[[Value, Value], bool]]]] = {
    "_<_": ("less", lambda a, b: order(a, b) < 0),
    "_<=_": ("less_equals", lambda a, b: order(a, b) <= 0),
    "_>_": ("greater", lambda a, b: order(a, b) > 0),
    "_>=_": ("greater_equals", lambda a, b: order(a, b) >= 0),
}


def _ordering(sign: str, word: str, run: Callable[[Value, Value], bool]) -> Function:
    """Values of one type are ordered, and numbers also across their types."""
    alike = [(one, one) for one in _ORDERED]
    mixed = [(one, other) for one in _NUMERIC for other in _NUMERIC if one is not other]
    overloads = []
    for one, other in [*alike, *mixed]:
        words = [word, _WORD.get(one, one.name)] + ([] if one is other else [_WORD.get(other, other.name)])
        overloads.append(careful(free("_".join(words), (one, other), t.BOOL, run)))
    return function(sign, *overloads)


def _is_in(item: Value, container: Value) -> bool:
    return contains(container, item)


def _not(value: Value) -> bool:
    if type(value) is not bool:
        raise no_such_overload()
    return not value


def _planned_elsewhere(*_: Value) -> Value:
    raise AssertionError("this operator decides which of its arguments is evaluated")


_OPTIONAL_LIST: Final = t.optional_of(t.list_of(V))
_OPTIONAL_MAP: Final = t.optional_of(t.map_of(K, V))

_COMPARISON: Final = (
    function("_==_", careful(free("equals", (A, A), t.BOOL, equal))),
    function("_!=_", careful(free("not_equals", (A, A), t.BOOL, unequal))),
    *(_ordering(sign, word, run) for sign, (word, run) in _ORDERINGS.items()),
    function(
        "@in",
        careful(free("in_list", (A, t.list_of(A)), t.BOOL, _is_in)),
        careful(free("in_map", (K, t.map_of(K, V)), t.BOOL, _is_in)),
    ),
)

_STRUCTURE: Final = (
    function("!_", careful(free("logical_not", (t.BOOL,), t.BOOL, _not))),
    function("_&&_", free("logical_and", (t.BOOL, t.BOOL), t.BOOL, _planned_elsewhere)),
    function("_||_", free("logical_or", (t.BOOL, t.BOOL), t.BOOL, _planned_elsewhere)),
    function("_?_:_", free("conditional", (t.BOOL, A, A), A, _planned_elsewhere)),
    function("@not_strictly_false", free("not_strictly_false", (t.BOOL,), t.BOOL, _planned_elsewhere)),
    function(
        "cel.@mapInsert",
        free("@mapInsert_map_key_value", (t.map_of(K, V), K, V), t.map_of(K, V), _planned_elsewhere),
        free("@mapInsert_map_map", (t.map_of(K, V), t.map_of(K, V)), t.map_of(K, V), _planned_elsewhere),
    ),
    function(
        "_[_]",
        careful(free("index_list", (t.list_of(A), t.INT), A, at)),
        careful(free("index_map", (t.map_of(K, V), K), V, at)),
        careful(free("optional_list_index_int", (_OPTIONAL_LIST, t.INT), t.optional_of(V), at)),
        careful(free("optional_map_index_value", (_OPTIONAL_MAP, K), t.optional_of(V), at)),
    ),
    function(
        "_[?_]",
        careful(free("list_optindex_optional_int", (t.list_of(V), t.INT), t.optional_of(V), at_if_there)),
        careful(free("map_optindex_optional_value", (t.map_of(K, V), K), t.optional_of(V), at_if_there)),
        careful(
            free(
                "optional_list_optindex_optional_int", (_OPTIONAL_LIST, t.INT), t.optional_of(V), at_if_there
            )
        ),
        careful(
            free("optional_map_optindex_optional_value", (_OPTIONAL_MAP, K), t.optional_of(V), at_if_there)
        ),
    ),
)

LIBRARY: Final = tuple(shared(one) for one in (*_ARITHMETIC, *_COMPARISON, *_STRUCTURE))
