"""The `format` function of strings: `"%s has %d".format([name, count])`.

A clause is `%` with an optional precision and one letter: `s` any value, `d` whole numbers, `f` and `e`
numbers, `b` binary, `o` octal, `x` and `X` hexadecimal (also of strings and bytes). Nothing may be left over.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Final

from dray.cel.faults import BudgetError, CelError
from dray.cel.library.double_text import format_double_plain
from dray.cel.times import Duration, Timestamp
from dray.cel.values import (
    MAP_TYPES,
    MAX_TEXT_LENGTH,
    TypeName,
    UInt,
    Value,
    check_size,
    get_type_name,
    iterate_keys,
)

_CLAUSE = re.compile(r"%(?:(%)|(?:\.([0-9]+))?([A-Za-z])|)", re.ASCII)
_MAX_PRECISION: Final = 1000
_MAX_PARTS: Final = 100_000
_MAX_DEPTH: Final = 100
_SUPERSCRIPTS: Final = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
_INFINITE: Final = {math.inf: "∞", -math.inf: "-∞"}


def format_template(template: str, arguments: tuple[Value, ...]) -> str:
    """The template with each clause replaced by an argument."""
    pieces: list[str] = []
    place = used = 0
    for clause in _CLAUSE.finditer(template):
        pieces.append(template[place : clause.start()])
        place = clause.end()
        if clause[1]:
            pieces.append("%")
            continue
        if clause[3] is None:
            raise _make_format_error(
                "unexpected end of format string"
                if place == len(template)
                else "unrecognized formatting clause"
            )
        if used >= len(arguments):
            raise CelError(f"index {used} out of range")
        pieces.append(_format_clause(clause[3], clause[2], arguments[used]))
        used += 1
    if used < len(arguments):
        raise CelError(
            f"too many arguments supplied to string.format (expected {used}, got {len(arguments)})"
        )
    pieces.append(template[place:])
    check_size(sum(map(len, pieces)), MAX_TEXT_LENGTH)
    return "".join(pieces)


def _make_format_error(reason: str) -> CelError:
    return CelError(f"could not parse formatting clause: {reason}")


def _format_clause(letter: str, digits: str | None, value: Value) -> str:
    format_clause = _CLAUSE_FORMATTERS.get(letter)
    if format_clause is None:
        raise _make_format_error(f'unrecognized formatting clause "{letter}"')
    if digits is not None and (len(digits) > 6 or int(digits) > _MAX_PRECISION):
        raise _make_format_error(f"precision is larger than {_MAX_PRECISION}")
    return format_clause(value, 6 if digits is None else int(digits))


def _make_type_error(clause: str, wanted: str, value: Value) -> CelError:
    return CelError(
        f"error during formatting: {clause} clause can only be used on {wanted}, was given "
        f"{get_type_name(value)}"
    )


def _format_decimal(value: Value, _: int) -> str:
    if type(value) not in (int, UInt):
        raise _make_type_error("decimal", "integers", value)
    return str(int(value))


def _format_fixed(value: Value, precision: int) -> str:
    number = _to_double(value, "fixed-point")
    return _INFINITE.get(number) or ("NaN" if math.isnan(number) else f"{number:.{precision}f}")


def _format_scientific(value: Value, precision: int) -> str:
    number = _to_double(value, "scientific")
    if math.isnan(number) or math.isinf(number):
        return _INFINITE.get(number, "NaN")
    mantissa, _, exponent = f"{number:.{precision}e}".partition("e")
    return f"{mantissa}\u202f×\u202f10{exponent.lstrip('+').translate(_SUPERSCRIPTS)}"


def _to_double(value: Value, clause: str) -> float:
    if type(value) is not float:
        raise _make_type_error(clause, "doubles", value)
    return value


def _format_binary(value: Value, _: int) -> str:
    if type(value) not in (int, UInt, bool):
        raise _make_type_error("binary", "integers and bools", value)
    return f"{int(value):b}"


def _format_octal(value: Value, _: int) -> str:
    if type(value) not in (int, UInt):
        raise _make_type_error("octal", "integers", value)
    return f"{int(value):o}"


def _format_hexadecimal(value: Value, _: int) -> str:
    if type(value) in (int, UInt):
        return f"{int(value):x}"
    if type(value) is str:
        return value.encode("utf-8", "replace").hex()
    if type(value) is bytes:
        return value.hex()
    raise _make_type_error("hex", "integers, byte buffers, and strings", value)


def _format_any(value: Value, _: int) -> str:
    return _ValueFormatter().format_value(value, 0)


class _ValueFormatter:
    """One value as text, with the number of parts written so far."""

    __slots__ = ("parts",)

    def __init__(self) -> None:
        self.parts = 0

    def format_value(self, value: Value, depth: int) -> str:
        self.parts += 1
        if self.parts > _MAX_PARTS:
            raise BudgetError
        if depth > _MAX_DEPTH:
            raise CelError("error during formatting: value is nested too deeply")
        kind = type(value)
        if kind is tuple:
            return f"[{', '.join(self._format_inner(item, depth + 1) for item in value)}]"
        if kind in MAP_TYPES:
            entries = {
                self._format_inner(key, depth + 1): value[raw]
                for key, raw in zip(iterate_keys(value), value, strict=True)
            }
            formatted = (f"{key}:{self._format_inner(entries[key], depth + 1)}" for key in sorted(entries))
            return f"{{{', '.join(formatted)}}}"
        plain = _PLAIN.get(kind)
        if plain is None:
            raise _make_type_error(
                "string",
                "strings, bools, bytes, ints, doubles, maps, lists, types, durations, and timestamps",
                value,
            )
        return plain(value)

    def _format_inner(self, value: Value, depth: int) -> str:
        text = self.format_value(value, depth)
        return f'"{text}"' if type(value) is str else text


_PLAIN: Final[dict[type, Callable[[Value], str]]] = {
    str: str,
    bool: lambda value: "true" if value else "false",
    bytes: lambda value: value.decode("utf-8", "replace"),
    int: str,
    UInt: lambda value: str(int(value)),
    float: lambda value: _INFINITE.get(value) or format_double_plain(value),
    type(None): lambda _: "null",
    TypeName: lambda value: value.name,
    Duration: str,
    Timestamp: str,
}

_CLAUSE_FORMATTERS: Final[dict[str, Callable[[Value, int], str]]] = {
    "s": _format_any,
    "d": _format_decimal,
    "f": _format_fixed,
    "e": _format_scientific,
    "b": _format_binary,
    "o": _format_octal,
    "x": _format_hexadecimal,
    "X": lambda value, precision: _format_hexadecimal(value, precision).upper(),
}
