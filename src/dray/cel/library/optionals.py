"""Optional values: a value, or nothing."""

from __future__ import annotations

from typing import Final

from dray.cel import types as t
from dray.cel.declarations import A, free, function, member
from dray.cel.faults import CelError
from dray.cel.times import Duration
from dray.cel.values import EMPTY_MAP, NONE, Optional, UInt, Value

_ZEROS: Final = (None, False, 0, UInt(0), 0.0, "", b"", (), EMPTY_MAP, Duration(0))


def _of_non_zero(value: Value) -> Optional:
    empty = any(type(value) is type(zero) and value == zero for zero in _ZEROS)
    return NONE if empty else Optional(value)


def value_of(optional: Optional) -> Value:
    """What is inside; an error when that is nothing."""
    if optional is NONE:
        raise CelError("optional.none() dereference")
    return optional.value


def _unwrapped(items: tuple[Optional, ...]) -> tuple[Value, ...]:
    return tuple(item.value for item in items if type(item) is Optional and item is not NONE)


def _chosen_lazily(*_: Value) -> Value:
    raise AssertionError("the alternative is evaluated only when it is needed")


_OPTIONAL: Final = t.optional_of(A)

LIBRARY: Final = (
    function("optional.of", free("optional_of", (A,), _OPTIONAL, Optional)),
    function("optional.ofNonZeroValue", free("optional_ofNonZeroValue", (A,), _OPTIONAL, _of_non_zero)),
    function("optional.none", free("optional_none", (), _OPTIONAL, lambda: NONE)),
    function("optional.unwrap", free("optional_unwrap", (t.list_of(_OPTIONAL),), t.list_of(A), _unwrapped)),
    function("unwrapOpt", member("optional_unwrapOpt", (t.list_of(_OPTIONAL),), t.list_of(A), _unwrapped)),
    function("value", member("optional_value", (_OPTIONAL,), A, value_of)),
    function("hasValue", member("optional_hasValue", (_OPTIONAL,), t.BOOL, lambda one: one is not NONE)),
    function("or", member("optional_or_optional", (_OPTIONAL, _OPTIONAL), _OPTIONAL, _chosen_lazily)),
    function("orValue", member("optional_orValue_value", (_OPTIONAL, A), A, _chosen_lazily)),
)
