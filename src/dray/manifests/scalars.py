"""Resolution of YAML scalars: the rules of YAML 1.1 as Kubernetes tools apply them.

Theory of operation: the tools around Kubernetes read YAML with one Go library and send JSON. What that
library takes for a boolean, a null or a number is one here too (`on`, `NO`, `y`, `0x1F`, `0777`, `1_000`,
`1e3`); what it leaves as text stays text (dates, `1:30`). Numbers with a fraction become `Decimal`, because a
binary float would be another number; one without a remainder is an integer, as it is after a round trip
through JSON.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from types import MappingProxyType

Scalar = str | int | bool | Decimal | None

_TRUE = ("y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON")
_FALSE = ("n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF")
_NULL = ("", "~", "null", "Null", "NULL")

KEYWORDS: Mapping[str, bool | None] = MappingProxyType(
    {**dict.fromkeys(_TRUE, True), **dict.fromkeys(_FALSE, False), **dict.fromkeys(_NULL)}
)
"""Words that are not text unless they are quoted."""

NON_FINITE = frozenset(
    {".nan", ".NaN", ".NAN"} | {sign + word for sign in ("", "+", "-") for word in (".inf", ".Inf", ".INF")}
)
"""Numbers that JSON, and so an API server, cannot hold."""

_INTEGER = re.compile(
    r"([-+]?)(?:0[bB](?P<b>[01]+)|0[xX](?P<x>[0-9a-fA-F]+)|0[oO]?(?P<o>[0-7]+)|(?P<d>0|[1-9][0-9]*))"
)
_FRACTION = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_BASES = {"b": 2, "x": 16, "o": 8, "d": 10}
_MAX_DIGITS = 400
"""More digits than any number an API server reads; such a word stays text."""
_MAX_EXPONENT = 308
_MAX_INTEGER_DIGITS = 21
"""Up to this many digits Go writes a whole number without an exponent, so it reads as an integer again."""


def resolve_scalar(word: str) -> Scalar:
    """Return the value of an unquoted word."""
    if word in KEYWORDS:
        return KEYWORDS[word]
    if word[0] in "+-.0123456789" and len(word) <= _MAX_DIGITS:
        return _resolve_number(word)
    return word


def _resolve_number(word: str) -> Scalar:
    digits = word.replace("_", "")
    found = _INTEGER.fullmatch(digits)
    if found and found.lastgroup:
        value = int(found[found.lastgroup], _BASES[found.lastgroup])
        return -value if found[1] == "-" else value
    if _FRACTION.fullmatch(digits):
        value_or_none = parse_exact_number(digits)
        return word if value_or_none is None else value_or_none
    return word


def parse_exact_number(digits: str) -> int | Decimal | None:
    """Parse a decimal number without loss; None when it is larger than any number an API server reads."""
    try:
        number = Decimal(digits)
    except InvalidOperation:  # an exponent beyond what even Decimal holds
        return None
    size = number.adjusted()
    if size > _MAX_EXPONENT:
        return None
    if size < _MAX_INTEGER_DIGITS and number == number.to_integral_value():
        return int(number)
    return number


def to_key_text(value: object) -> str | None:
    """Return the text that a key becomes in JSON; None when it cannot be a key."""
    match value:
        case str():
            return value
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case Decimal():
            return str(value)
        case _:
            return None
