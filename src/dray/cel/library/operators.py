"""The operators: arithmetic within 64 bits, comparison, membership, indexing."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

from dray.cel import types as t
from dray.cel.declarations import (
    A,
    Function,
    K,
    Overload,
    V,
    declare_function,
    declare_overload,
    disable_type_guards,
    dispatch_by_value,
)
from dray.cel.equality import NUMBER_TYPES, compare_order, contains_item, is_equal, is_unequal
from dray.cel.faults import CelError, make_key_error, make_overload_error
from dray.cel.syntax.literals import MAX_INT, MAX_UINT, MIN_INT
from dray.cel.times import Duration, Timestamp
from dray.cel.types import Type
from dray.cel.values import (
    MAP_TYPES,
    MAX_ITEMS,
    MAX_TEXT_LENGTH,
    NONE,
    OptionalValue,
    UInt,
    Value,
    check_size,
    find_map_key,
    get_type_name,
)


def to_int64(value: int) -> int:
    """A whole number, unless it leaves 64 bits."""
    if not MIN_INT <= value <= MAX_INT:
        raise CelError("integer overflow")
    return value


def to_uint64(value: int) -> UInt:
    """A whole number that is not negative, unless it leaves 64 bits."""
    if not 0 <= value <= MAX_UINT:
        raise CelError("unsigned integer overflow")
    return UInt(value)


def _check_nonzero(value: int, verb: str) -> int:
    if value == 0:
        raise CelError(f"{verb} by zero")
    return value


def _divide_integers(left: int, right: int) -> int:
    whole = abs(left) // abs(_check_nonzero(right, "division"))
    return whole if (left < 0) == (right < 0) else -whole


def _compute_remainder(left: int, right: int) -> int:
    rest = abs(left) % abs(_check_nonzero(right, "modulus"))
    return -rest if left < 0 else rest


def _divide(left: float, right: float) -> float:
    if right:
        return left / right
    if not left or math.isnan(left) or math.isnan(right):
        return math.nan
    return math.copysign(math.inf, left) * math.copysign(1.0, right)


def _join_text(left: str, right: str) -> str:
    check_size(len(left) + len(right), MAX_TEXT_LENGTH)
    return left + right


def _join_bytes(left: bytes, right: bytes) -> bytes:
    check_size(len(left) + len(right), MAX_TEXT_LENGTH)
    return left + right


def _join_lists(left: tuple[Value, ...], right: tuple[Value, ...]) -> tuple[Value, ...]:
    check_size(len(left) + len(right), MAX_ITEMS)
    return left + right


def get_element(container: Value, index: Value) -> Value:
    """`container[index]`: an item of a list, a value of a map, or the same inside an optional."""
    kind = type(container)
    if kind in MAP_TYPES:
        try:
            return container[find_map_key(container, index)]
        except KeyError:
            raise make_key_error(format_key(index)) from None
    if kind is tuple:
        return _get_list_item(container, index)
    if kind is OptionalValue:
        return get_optional_element(container, index)
    raise make_key_error(format_key(index))


def _get_list_item(items: tuple[Value, ...], index: Value) -> Value:
    whole = type(index) in (int, UInt) or (type(index) is float and index.is_integer())
    if not whole:
        raise CelError(f"unsupported index type '{get_type_name(index)}' in list")
    if not 0 <= index < len(items):
        raise CelError(f"index out of bounds: {format_key(index)}")
    return items[int(index)]


def get_optional_element(container: Value, index: Value) -> OptionalValue:
    """`container[?index]`: nothing instead of an error when the place is not there."""
    kind = type(container)
    if kind is OptionalValue:
        return NONE if container is NONE else get_optional_element(container.value, index)
    if kind is tuple:
        beyond = type(index) in NUMBER_TYPES and not 0 <= index < len(container)
        return NONE if beyond else OptionalValue(_get_list_item(container, index))
    if kind not in MAP_TYPES:
        return NONE
    try:
        return OptionalValue(container[find_map_key(container, index)])
    except KeyError:
        return NONE


def format_key(key: Value) -> str:
    """A key as messages show it."""
    if type(key) is bool:
        return "true" if key else "false"
    return str(int(key)) if type(key) is UInt else str(key)[:200]


def _declare_binary_operator(sign: str, kind: Type, run: Callable[..., Value]) -> Overload:
    """An operator that takes two of a kind and gives one of that kind."""
    return declare_overload(f"{sign}_{_TYPE_WORDS.get(kind, kind.name)}", (kind, kind), kind, run)


_TYPE_WORDS: Final = {t.INT: "int64", t.UINT: "uint64", t.DURATION: "duration", t.TIMESTAMP: "timestamp"}

_ARITHMETIC: Final = (
    declare_function(
        "_+_",
        _declare_binary_operator("add", t.INT, lambda a, b: to_int64(a + b)),
        _declare_binary_operator("add", t.UINT, lambda a, b: to_uint64(a + b)),
        _declare_binary_operator("add", t.DOUBLE, lambda a, b: a + b),
        _declare_binary_operator("add", t.STRING, _join_text),
        _declare_binary_operator("add", t.BYTES, _join_bytes),
        declare_overload(
            "add_list", (t.make_list_type(A), t.make_list_type(A)), t.make_list_type(A), _join_lists
        ),
        declare_overload(
            "add_duration_duration",
            (t.DURATION, t.DURATION),
            t.DURATION,
            lambda a, b: Duration(a.nanos + b.nanos),
        ),
        declare_overload(
            "add_timestamp_duration",
            (t.TIMESTAMP, t.DURATION),
            t.TIMESTAMP,
            lambda a, b: Timestamp(a.nanos + b.nanos),
        ),
        declare_overload(
            "add_duration_timestamp",
            (t.DURATION, t.TIMESTAMP),
            t.TIMESTAMP,
            lambda a, b: Timestamp(a.nanos + b.nanos),
        ),
    ),
    declare_function(
        "_-_",
        _declare_binary_operator("subtract", t.INT, lambda a, b: to_int64(a - b)),
        _declare_binary_operator("subtract", t.UINT, lambda a, b: to_uint64(a - b)),
        _declare_binary_operator("subtract", t.DOUBLE, lambda a, b: a - b),
        declare_overload(
            "subtract_duration_duration",
            (t.DURATION, t.DURATION),
            t.DURATION,
            lambda a, b: Duration(a.nanos - b.nanos),
        ),
        declare_overload(
            "subtract_timestamp_duration",
            (t.TIMESTAMP, t.DURATION),
            t.TIMESTAMP,
            lambda a, b: Timestamp(a.nanos - b.nanos),
        ),
        declare_overload(
            "subtract_timestamp_timestamp",
            (t.TIMESTAMP, t.TIMESTAMP),
            t.DURATION,
            lambda a, b: Duration(a.nanos - b.nanos),
        ),
    ),
    declare_function(
        "_*_",
        _declare_binary_operator("multiply", t.INT, lambda a, b: to_int64(a * b)),
        _declare_binary_operator("multiply", t.UINT, lambda a, b: to_uint64(a * b)),
        _declare_binary_operator("multiply", t.DOUBLE, lambda a, b: a * b),
    ),
    declare_function(
        "_/_",
        _declare_binary_operator("divide", t.INT, lambda a, b: to_int64(_divide_integers(a, b))),
        _declare_binary_operator("divide", t.UINT, lambda a, b: to_uint64(_divide_integers(a, b))),
        _declare_binary_operator("divide", t.DOUBLE, _divide),
    ),
    declare_function(
        "_%_",
        _declare_binary_operator("modulo", t.INT, lambda a, b: to_int64(_compute_remainder(a, b))),
        _declare_binary_operator("modulo", t.UINT, lambda a, b: to_uint64(_compute_remainder(a, b))),
    ),
    declare_function(
        "-_",
        declare_overload("negate_int64", (t.INT,), t.INT, lambda a: to_int64(-a)),
        declare_overload("negate_double", (t.DOUBLE,), t.DOUBLE, lambda a: -a),
    ),
)

_ORDERED: Final = (t.BOOL, t.INT, t.UINT, t.DOUBLE, t.STRING, t.BYTES, t.TIMESTAMP, t.DURATION)
_NUMERIC: Final = (t.INT, t.UINT, t.DOUBLE)
_ORDERINGS: Final[dict[str, tuple[str, Callable[[Value, Value], bool]]]] = {
    "_<_": ("less", lambda a, b: compare_order(a, b) < 0),
    "_<=_": ("less_equals", lambda a, b: compare_order(a, b) <= 0),
    "_>_": ("greater", lambda a, b: compare_order(a, b) > 0),
    "_>=_": ("greater_equals", lambda a, b: compare_order(a, b) >= 0),
}


def _declare_ordering(sign: str, word: str, run: Callable[[Value, Value], bool]) -> Function:
    """Values of one type are ordered, and numbers also across their types."""
    alike = [(one, one) for one in _ORDERED]
    mixed = [(one, other) for one in _NUMERIC for other in _NUMERIC if one is not other]
    overloads = []
    for one, other in [*alike, *mixed]:
        words = [word, _TYPE_WORDS.get(one, one.name)] + (
            [] if one is other else [_TYPE_WORDS.get(other, other.name)]
        )
        overloads.append(disable_type_guards(declare_overload("_".join(words), (one, other), t.BOOL, run)))
    return declare_function(sign, *overloads)


def _is_in(item: Value, container: Value) -> bool:
    return contains_item(container, item)


def _negate_bool(value: Value) -> bool:
    if type(value) is not bool:
        raise make_overload_error()
    return not value


def _reject_direct_call(*_: Value) -> Value:
    raise AssertionError("this operator decides which of its arguments is evaluated")


_OPTIONAL_LIST: Final = t.make_optional_type(t.make_list_type(V))
_OPTIONAL_MAP: Final = t.make_optional_type(t.make_map_type(K, V))

_COMPARISON: Final = (
    declare_function("_==_", disable_type_guards(declare_overload("equals", (A, A), t.BOOL, is_equal))),
    declare_function("_!=_", disable_type_guards(declare_overload("not_equals", (A, A), t.BOOL, is_unequal))),
    *(_declare_ordering(sign, word, run) for sign, (word, run) in _ORDERINGS.items()),
    declare_function(
        "@in",
        disable_type_guards(declare_overload("in_list", (A, t.make_list_type(A)), t.BOOL, _is_in)),
        disable_type_guards(declare_overload("in_map", (K, t.make_map_type(K, V)), t.BOOL, _is_in)),
    ),
)

_STRUCTURE: Final = (
    declare_function(
        "!_", disable_type_guards(declare_overload("logical_not", (t.BOOL,), t.BOOL, _negate_bool))
    ),
    declare_function("_&&_", declare_overload("logical_and", (t.BOOL, t.BOOL), t.BOOL, _reject_direct_call)),
    declare_function("_||_", declare_overload("logical_or", (t.BOOL, t.BOOL), t.BOOL, _reject_direct_call)),
    declare_function("_?_:_", declare_overload("conditional", (t.BOOL, A, A), A, _reject_direct_call)),
    declare_function(
        "@not_strictly_false", declare_overload("not_strictly_false", (t.BOOL,), t.BOOL, _reject_direct_call)
    ),
    declare_function(
        "cel.@mapInsert",
        declare_overload(
            "@mapInsert_map_key_value",
            (t.make_map_type(K, V), K, V),
            t.make_map_type(K, V),
            _reject_direct_call,
        ),
        declare_overload(
            "@mapInsert_map_map",
            (t.make_map_type(K, V), t.make_map_type(K, V)),
            t.make_map_type(K, V),
            _reject_direct_call,
        ),
    ),
    declare_function(
        "_[_]",
        disable_type_guards(declare_overload("index_list", (t.make_list_type(A), t.INT), A, get_element)),
        disable_type_guards(declare_overload("index_map", (t.make_map_type(K, V), K), V, get_element)),
        disable_type_guards(
            declare_overload(
                "optional_list_index_int", (_OPTIONAL_LIST, t.INT), t.make_optional_type(V), get_element
            )
        ),
        disable_type_guards(
            declare_overload(
                "optional_map_index_value", (_OPTIONAL_MAP, K), t.make_optional_type(V), get_element
            )
        ),
    ),
    declare_function(
        "_[?_]",
        disable_type_guards(
            declare_overload(
                "list_optindex_optional_int",
                (t.make_list_type(V), t.INT),
                t.make_optional_type(V),
                get_optional_element,
            )
        ),
        disable_type_guards(
            declare_overload(
                "map_optindex_optional_value",
                (t.make_map_type(K, V), K),
                t.make_optional_type(V),
                get_optional_element,
            )
        ),
        disable_type_guards(
            declare_overload(
                "optional_list_optindex_optional_int",
                (_OPTIONAL_LIST, t.INT),
                t.make_optional_type(V),
                get_optional_element,
            )
        ),
        disable_type_guards(
            declare_overload(
                "optional_map_optindex_optional_value",
                (_OPTIONAL_MAP, K),
                t.make_optional_type(V),
                get_optional_element,
            )
        ),
    ),
)

LIBRARY: Final = tuple(dispatch_by_value(one) for one in (*_ARITHMETIC, *_COMPARISON, *_STRUCTURE))
