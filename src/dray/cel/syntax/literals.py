"""Values of literals: numbers within 64 bits, strings and bytes with their escapes."""

from __future__ import annotations

import math
import re
from typing import Final

from dray.cel.values import UInt

MIN_INT: Final = -(2**63)
MAX_INT: Final = 2**63 - 1
MAX_UINT: Final = 2**64 - 1

# No number of 64 bits has more digits; Python refuses to convert very long ones.
_MAX_DIGITS: Final = 400
_PLAIN_ESCAPES: Final = {
    "a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v",
    "\\": "\\", "'": "'", '"': '"', "`": "`", "?": "?",
}  # fmt: skip
_ESCAPE = re.compile(
    r"\\(?:([abfnrtv\\'\"`?])|[xX]([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([0-3][0-7]{2}))"
)


class LiteralError(ValueError):
    """A literal without a value; the text says why."""


def parse_int(word: str) -> int:
    """`7`, `-7`, `0x1F`."""
    value = _parse_whole_number(word)
    if value is None or not MIN_INT <= value <= MAX_INT:
        raise LiteralError("invalid int literal")
    return value


def parse_uint(word: str) -> UInt:
    """`7u`, `0x1Fu`."""
    value = _parse_whole_number(word[:-1])
    if value is None or not 0 <= value <= MAX_UINT:
        raise LiteralError("invalid uint literal")
    return UInt(value)


def parse_double(word: str) -> float:
    """`1.5`, `1e3`, `-.5`."""
    value = float(word)
    if math.isinf(value):
        raise LiteralError("invalid double literal")
    return value


def _parse_whole_number(word: str) -> int | None:
    if len(word) > _MAX_DIGITS:
        return None
    negative = word.startswith("-")
    digits = word.lstrip("-")
    value = int(digits, 16) if digits.startswith("0x") else int(digits)
    return -value if negative else value


def parse_string(word: str) -> str:
    """A quoted text, with its escapes turned into characters."""
    body, raw = _strip_quotes(word)
    return body if raw else _unescape(body)


def parse_bytes(word: str) -> bytes:
    """A quoted text with `b` before it: characters become UTF-8, numeric escapes single bytes."""
    body, raw = _strip_quotes(word[1:])
    if raw:
        return body.encode("utf-8", "replace")
    result = bytearray()
    place = 0
    for match in _find_escapes(body):
        result += body[place : match.start()].encode("utf-8", "replace")
        if match[3] or match[4]:
            raise LiteralError("invalid bytes literal: a code point escape stands for no byte")
        result += bytes([_decode_escape(match)])
        place = match.end()
    return bytes(result + body[place:].encode("utf-8", "replace"))


def _strip_quotes(word: str) -> tuple[str, bool]:
    raw = word[0] in "rR"
    quoted = (word[1:] if raw else word).replace("\r\n", "\n")
    width = 3 if quoted[:3] in ('"""', "'''") and len(quoted) >= 6 else 1
    return quoted[width:-width], raw


def _unescape(body: str) -> str:
    if "\\" not in body:
        return body
    result: list[str] = []
    place = 0
    for match in _find_escapes(body):
        result += (body[place : match.start()], chr(_check_code_point(_decode_escape(match))))
        place = match.end()
    return "".join((*result, body[place:]))


def _find_escapes(body: str) -> list[re.Match[str]]:
    found: list[re.Match[str]] = []
    place = body.find("\\")
    while place >= 0:
        match = _ESCAPE.match(body, place)
        if match is None:
            raise LiteralError(f"unable to unescape string: {body[place : place + 2]!a} is no escape")
        found.append(match)
        place = body.find("\\", match.end())
    return found


def _decode_escape(match: re.Match[str]) -> int:
    if match[1]:
        return ord(_PLAIN_ESCAPES[match[1]])
    if match[5]:
        return int(match[5], 8)
    return int(match[2] or match[3] or match[4], 16)


def _check_code_point(code: int) -> int:
    if code > 0x10FFFF or 0xD800 <= code <= 0xDFFF:
        raise LiteralError("unable to unescape string: no such code point")
    return code
