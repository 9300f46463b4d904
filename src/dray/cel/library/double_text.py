"""Doubles as text, the way Go writes them."""

from __future__ import annotations

import math

_EXPONENT_FROM = 6


def format_double(value: float) -> str:
    """The shortest text that reads back as the same number: `3`, `0.1`, `1e+06`, `NaN`, `+Inf`."""
    odd = _format_special(value)
    if odd is not None:
        return odd
    sign, digits, point = _split_shortest(value)
    power = point - 1
    if not digits or -5 < power < _EXPONENT_FROM:
        return sign + _place_decimal_point(digits, point)
    fraction = f".{digits[1:]}" if len(digits) > 1 else ""
    return f"{sign}{digits[0]}{fraction}e{'-' if power < 0 else '+'}{abs(power):02d}"


def format_double_plain(value: float) -> str:
    """The same without an exponent, however long."""
    odd = _format_special(value)
    if odd is not None:
        return odd
    sign, digits, point = _split_shortest(value)
    return sign + _place_decimal_point(digits, point)


def _format_special(value: float) -> str | None:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return None


def _split_shortest(value: float) -> tuple[str, str, int]:
    """Sign, digits without zeros at the ends, and how many of them stand before the decimal point."""
    mantissa, _, exponent = repr(value).partition("e")
    sign = "-" if mantissa.startswith("-") else ""
    whole, _, fraction = mantissa.lstrip("-").partition(".")
    written = whole + fraction
    digits = written.lstrip("0")
    point = len(whole) - (len(written) - len(digits)) + int(exponent or "0")
    return sign, digits.rstrip("0"), point


def _place_decimal_point(digits: str, point: int) -> str:
    if not digits:
        return "0"
    if point <= 0:
        return f"0.{'0' * -point}{digits}"
    if point >= len(digits):
        return digits + "0" * (point - len(digits))
    return f"{digits[:point]}.{digits[point:]}"
