"""Conversions between types, sizes, and types as values."""

from __future__ import annotations

import math
import re
from typing import Final

from dray.cel import types as t
from dray.cel.declarations import (
    A,
    K,
    V,
    declare_function,
    declare_member_overload,
    declare_overload,
    dispatch_by_value,
)
from dray.cel.faults import CelError
from dray.cel.library.double_text import format_double
from dray.cel.library.operators import to_int64, to_uint64
from dray.cel.times import SECOND, Duration, Timestamp, parse_duration, parse_timestamp
from dray.cel.values import TypeName, UInt, Value, get_type_name

_WHOLE = re.compile(r"[+-]?[0-9]{1,40}", re.ASCII)
_DIGITS = re.compile(r"[0-9]{1,40}", re.ASCII)
_FLOAT = re.compile(
    r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|[+-]?inf(?:inity)?|nan", re.ASCII | re.IGNORECASE
)
_BOOLS: Final = {
    **dict.fromkeys(("1", "t", "T", "TRUE", "true", "True"), True),
    **dict.fromkeys(("0", "f", "F", "FALSE", "false", "False"), False),
}
_MAX_WORD: Final = 1000
_SIZED: Final = (t.STRING, t.BYTES, t.make_list_type(A), t.make_map_type(K, V))


def _make_conversion_error(source: str, target: str) -> CelError:
    return CelError(f"type conversion error from '{source}' to '{target}'")


def _parse_int(text: str) -> int:
    if not _WHOLE.fullmatch(text):
        raise _make_conversion_error("string", "int")
    try:
        return to_int64(int(text))
    except CelError:
        raise _make_conversion_error("string", "int") from None


def _parse_uint(text: str) -> UInt:
    if not _DIGITS.fullmatch(text):
        raise _make_conversion_error("string", "uint")
    try:
        return to_uint64(int(text))
    except CelError:
        raise _make_conversion_error("string", "uint") from None


def _convert_double_to_int(value: float) -> int:
    if math.isnan(value) or not -(2.0**63) < value < 2.0**63:
        raise CelError("integer overflow")
    return int(value)


def _convert_double_to_uint(value: float) -> UInt:
    if math.isnan(value) or not 0 <= value < 2.0**64:
        raise CelError("unsigned integer overflow")
    return UInt(int(value))


def _parse_double(text: str) -> float:
    if len(text) > _MAX_WORD or not _FLOAT.fullmatch(text):
        raise _make_conversion_error("string", "double")
    value = float(text)
    if math.isinf(value) and "inf" not in text.lower():
        raise _make_conversion_error("string", "double")
    return value


def _parse_bool(text: str) -> bool:
    if text not in _BOOLS:
        raise _make_conversion_error("string", "bool")
    return _BOOLS[text]


def _decode_bytes(value: bytes) -> str:
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        raise CelError("invalid UTF-8 in bytes, cannot convert to string") from None


def _return_unchanged(value: Value) -> Value:
    return value


_BY_VALUE: Final = (
    declare_function(
        "int",
        declare_overload("int64_to_int64", (t.INT,), t.INT, _return_unchanged),
        declare_overload("double_to_int64", (t.DOUBLE,), t.INT, _convert_double_to_int),
        declare_overload("duration_to_int64", (t.DURATION,), t.INT, lambda value: value.nanos),
        declare_overload("string_to_int64", (t.STRING,), t.INT, _parse_int),
        declare_overload("timestamp_to_int64", (t.TIMESTAMP,), t.INT, lambda value: value.nanos // SECOND),
        declare_overload("uint64_to_int64", (t.UINT,), t.INT, lambda value: to_int64(int(value))),
    ),
    declare_function(
        "uint",
        declare_overload("uint64_to_uint64", (t.UINT,), t.UINT, _return_unchanged),
        declare_overload("double_to_uint64", (t.DOUBLE,), t.UINT, _convert_double_to_uint),
        declare_overload("int64_to_uint64", (t.INT,), t.UINT, to_uint64),
        declare_overload("string_to_uint64", (t.STRING,), t.UINT, _parse_uint),
    ),
    declare_function(
        "double",
        declare_overload("double_to_double", (t.DOUBLE,), t.DOUBLE, _return_unchanged),
        declare_overload("int64_to_double", (t.INT,), t.DOUBLE, float),
        declare_overload("string_to_double", (t.STRING,), t.DOUBLE, _parse_double),
        declare_overload("uint64_to_double", (t.UINT,), t.DOUBLE, float),
    ),
    declare_function(
        "bool",
        declare_overload("bool_to_bool", (t.BOOL,), t.BOOL, _return_unchanged),
        declare_overload("string_to_bool", (t.STRING,), t.BOOL, _parse_bool),
    ),
    declare_function(
        "string",
        declare_overload("string_to_string", (t.STRING,), t.STRING, _return_unchanged),
        declare_overload("bool_to_string", (t.BOOL,), t.STRING, lambda value: "true" if value else "false"),
        declare_overload("bytes_to_string", (t.BYTES,), t.STRING, _decode_bytes),
        declare_overload("double_to_string", (t.DOUBLE,), t.STRING, format_double),
        declare_overload("duration_to_string", (t.DURATION,), t.STRING, str),
        declare_overload("int64_to_string", (t.INT,), t.STRING, str),
        declare_overload("timestamp_to_string", (t.TIMESTAMP,), t.STRING, str),
        declare_overload("uint64_to_string", (t.UINT,), t.STRING, lambda value: str(int(value))),
    ),
    declare_function(
        "bytes",
        declare_overload("bytes_to_bytes", (t.BYTES,), t.BYTES, _return_unchanged),
        declare_overload(
            "string_to_bytes", (t.STRING,), t.BYTES, lambda value: value.encode("utf-8", "replace")
        ),
    ),
    declare_function(
        "duration",
        declare_overload("duration_to_duration", (t.DURATION,), t.DURATION, _return_unchanged),
        declare_overload("int64_to_duration", (t.INT,), t.DURATION, Duration),
        declare_overload("string_to_duration", (t.STRING,), t.DURATION, parse_duration),
    ),
    declare_function(
        "timestamp",
        declare_overload("timestamp_to_timestamp", (t.TIMESTAMP,), t.TIMESTAMP, _return_unchanged),
        declare_overload(
            "int64_to_timestamp", (t.INT,), t.TIMESTAMP, lambda value: Timestamp(value * SECOND)
        ),
        declare_overload("string_to_timestamp", (t.STRING,), t.TIMESTAMP, parse_timestamp),
    ),
    declare_function(
        "size",
        *(declare_overload(f"size_{kind.name}", (kind,), t.INT, len) for kind in _SIZED),
        *(declare_member_overload(f"{kind.name}_size", (kind,), t.INT, len) for kind in _SIZED),
    ),
)

LIBRARY: Final = (
    *map(dispatch_by_value, _BY_VALUE),
    declare_function("dyn", declare_overload("to_dyn", (A,), t.DYN, _return_unchanged)),
    declare_function(
        "type",
        declare_overload("type", (A,), t.make_type_type(A), lambda value: TypeName(get_type_name(value))),
    ),
)
