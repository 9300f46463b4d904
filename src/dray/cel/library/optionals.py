"""Optional values: a value, or nothing."""

from __future__ import annotations

from typing import Final

from dray.cel import types as t
from dray.cel.declarations import A, declare_function, declare_member_overload, declare_overload
from dray.cel.faults import CelError
from dray.cel.times import Duration
from dray.cel.values import EMPTY_MAP, NONE, OptionalValue, UInt, Value

_ZEROS: Final = (None, False, 0, UInt(0), 0.0, "", b"", (), EMPTY_MAP, Duration(0))


def _wrap_non_zero(value: Value) -> OptionalValue:
    empty = any(type(value) is type(zero) and value == zero for zero in _ZEROS)
    return NONE if empty else OptionalValue(value)


def unwrap_optional(optional: OptionalValue) -> Value:
    """What is inside; an error when that is nothing."""
    if optional is NONE:
        raise CelError("optional.none() dereference")
    return optional.value


def _unwrap_all(items: tuple[OptionalValue, ...]) -> tuple[Value, ...]:
    return tuple(item.value for item in items if type(item) is OptionalValue and item is not NONE)


def _reject_direct_call(*_: Value) -> Value:
    raise AssertionError("the alternative is evaluated only when it is needed")


_OPTIONAL: Final = t.make_optional_type(A)

LIBRARY: Final = (
    declare_function("optional.of", declare_overload("optional_of", (A,), _OPTIONAL, OptionalValue)),
    declare_function(
        "optional.ofNonZeroValue",
        declare_overload("optional_ofNonZeroValue", (A,), _OPTIONAL, _wrap_non_zero),
    ),
    declare_function("optional.none", declare_overload("optional_none", (), _OPTIONAL, lambda: NONE)),
    declare_function(
        "optional.unwrap",
        declare_overload("optional_unwrap", (t.make_list_type(_OPTIONAL),), t.make_list_type(A), _unwrap_all),
    ),
    declare_function(
        "unwrapOpt",
        declare_member_overload(
            "optional_unwrapOpt", (t.make_list_type(_OPTIONAL),), t.make_list_type(A), _unwrap_all
        ),
    ),
    declare_function("value", declare_member_overload("optional_value", (_OPTIONAL,), A, unwrap_optional)),
    declare_function(
        "hasValue",
        declare_member_overload("optional_hasValue", (_OPTIONAL,), t.BOOL, lambda one: one is not NONE),
    ),
    declare_function(
        "or",
        declare_member_overload(
            "optional_or_optional", (_OPTIONAL, _OPTIONAL), _OPTIONAL, _reject_direct_call
        ),
    ),
    declare_function(
        "orValue", declare_member_overload("optional_orValue_value", (_OPTIONAL, A), A, _reject_direct_call)
    ),
)
