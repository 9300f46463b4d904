"""Conversions between types, sizes, and types as values."""

from __future__ import annotations

import math
import re
from typing import Final

from dray.cel import types as t
from dray.cel.declarations import A, K, V, free, function, member, shared
from dray.cel.faults import CelError
from dray.cel.library.double_text import number_text
from dray.cel.library.operators import as_int, as_uint
from dray.cel.times import SECOND, Duration, Timestamp, parse_duration, parse_timestamp
from dray.cel.values import TypeName, UInt, Value, type_name

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
_SIZED: Final = (t.STRING, t.BYTES, t.list_of(A), t.map_of(K, V))


def _fails(source: str, target: str) -> CelError:
    return CelError(f"type conversion error from '{source}' to '{target}'")


def _int_of_text(text: str) -> int:
    if not _WHOLE.fullmatch(text):
        raise _fails("string", "int")
    try:
        return as_int(int(text))
    except CelError:
        raise _fails("string", "int") from None


def _uint_of_text(text: str) -> UInt:
    if not _DIGITS.fullmatch(text):
        raise _fails("string", "uint")
    try:
        return as_uint(int(text))
    except CelError:
        raise _fails("string", "uint") from None


def _int_of_double(value: float) -> int:
    if math.isnan(value) or not -(2.0**63) < value < 2.0**63:
        raise CelError("integer overflow")
    return int(value)


def _uint_of_double(value: float) -> UInt:
    if math.isnan(value) or not 0 <= value < 2.0**64:
        raise CelError("unsigned integer overflow")
    return UInt(int(value))


def _double_of_text(text: str) -> float:
    if len(text) > _MAX_WORD or not _FLOAT.fullmatch(text):
        raise _fails("string", "double")
    value = float(text)
    if math.isinf(value) and "inf" not in text.lower():
        raise _fails("string", "double")
    return value


def _bool_of_text(text: str) -> bool:
    if text not in _BOOLS:
        raise _fails("string", "bool")
    return _BOOLS[text]


def _text_of_bytes(value: bytes) -> str:
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        raise CelError("invalid UTF-8 in bytes, cannot convert to string") from None


def _same(value: Value) -> Value:
    return value


_BY_VALUE: Final = (
    function(
        "int",
        free("int64_to_int64", (t.INT,), t.INT, _same),
        free("double_to_int64", (t.DOUBLE,), t.INT, _int_of_double),
        free("duration_to_int64", (t.DURATION,), t.INT, lambda value: value.nanos),
        free("string_to_int64", (t.STRING,), t.INT, _int_of_text),
        free("timestamp_to_int64", (t.TIMESTAMP,), t.INT, lambda value: value.nanos // SECOND),
        free("uint64_to_int64", (t.UINT,), t.INT, lambda value: as_int(int(value))),
    ),
    function(
        "uint",
        free("uint64_to_uint64", (t.UINT,), t.UINT, _same),
        free("double_to_uint64", (t.DOUBLE,), t.UINT, _uint_of_double),
        free("int64_to_uint64", (t.INT,), t.UINT, as_uint),
        free("string_to_uint64", (t.STRING,), t.UINT, _uint_of_text),
    ),
    function(
        "double",
        free("double_to_double", (t.DOUBLE,), t.DOUBLE, _same),
        free("int64_to_double", (t.INT,), t.DOUBLE, float),
        free("string_to_double", (t.STRING,), t.DOUBLE, _double_of_text),
        free("uint64_to_double", (t.UINT,), t.DOUBLE, float),
    ),
    function(
        "bool",
        free("bool_to_bool", (t.BOOL,), t.BOOL, _same),
        free("string_to_bool", (t.STRING,), t.BOOL, _bool_of_text),
    ),
    function(
        "string",
        free("string_to_string", (t.STRING,), t.STRING, _same),
        free("bool_to_string", (t.BOOL,), t.STRING, lambda value: "true" if value else "false"),
        free("bytes_to_string", (t.BYTES,), t.STRING, _text_of_bytes),
        free("double_to_string", (t.DOUBLE,), t.STRING, number_text),
        free("duration_to_string", (t.DURATION,), t.STRING, str),
        free("int64_to_string", (t.INT,), t.STRING, str),
        free("timestamp_to_string", (t.TIMESTAMP,), t.STRING, str),
        free("uint64_to_string", (t.UINT,), t.STRING, lambda value: str(int(value))),
    ),
    function(
        "bytes",
        free("bytes_to_bytes", (t.BYTES,), t.BYTES, _same),
        free("string_to_bytes", (t.STRING,), t.BYTES, lambda value: value.encode("utf-8", "replace")),
    ),
    function(
        "duration",
        free("duration_to_duration", (t.DURATION,), t.DURATION, _same),
        free("int64_to_duration", (t.INT,), t.DURATION, Duration),
        free("string_to_duration", (t.STRING,), t.DURATION, parse_duration),
    ),
    function(
        "timestamp",
        free("timestamp_to_timestamp", (t.TIMESTAMP,), t.TIMESTAMP, _same),
        free("int64_to_timestamp", (t.INT,), t.TIMESTAMP, lambda value: Timestamp(value * SECOND)),
        free("string_to_timestamp", (t.STRING,), t.TIMESTAMP, parse_timestamp),
    ),
    function(
        "size",
        *(free(f"size_{kind.name}", (kind,), t.INT, len) for kind in _SIZED),
        *(member(f"{kind.name}_size", (kind,), t.INT, len) for kind in _SIZED),
    ),
)

LIBRARY: Final = (
    *map(shared, _BY_VALUE),
    function("dyn", free("to_dyn", (A,), t.DYN, _same)),
    function("type", free("type", (A,), t.type_of(A), lambda value: TypeName(type_name(value)))),
)
