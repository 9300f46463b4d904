"""JSON text and plain values, without loss of digits.

Numbers with a fraction are decoded to `Decimal` and keep every digit when encoded; opaque parameters depend
on it. Every problem with the text is a `DecodeError`. Plain values from callers may hold things that JSON
cannot (NaN, dates, numbers as keys): `find_non_json_values` reports them, because an encoder would silently
change them.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, TypeAlias

import msgspec

from dray.api.fields import ROOT, FieldError, FieldErrorType, FieldPath, TypeMismatch
from dray.errors import DecodeError
from dray.values.quantity import Quantity

Document: TypeAlias = Mapping[str, Any]
"""A JSON object as plain values."""

MAX_DEPTH = 100
"""Deeper nesting is an attack or an accident; no API object needs a tenth of it."""

MAX_VALUES = 1_000_000
"""More values than fit into any object an API server takes."""

MAX_REPORTED_ERRORS = 100
"""Nobody reads more errors about one document."""

MAX_BITS = 13_000
"""Integers of more bits (some 3,900 digits) are beyond what Python turns into text."""


def _encode_custom(value: Any) -> Any:
    if isinstance(value, Quantity):
        return str(value)
    raise TypeError(f"cannot write {type(value).__name__} as JSON")


ENCODER = msgspec.json.Encoder(enc_hook=_encode_custom, decimal_format="number")
_PLAIN = msgspec.json.Decoder(float_hook=Decimal)


def read_json(data: bytes) -> Any:
    """Decode a JSON document to plain values."""
    try:
        return _PLAIN.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as broken:
        raise DecodeError(f"not JSON: {broken}") from None
    except RecursionError:
        raise DecodeError("not JSON we read: nested too deeply") from None
    except ArithmeticError:
        raise DecodeError("not JSON we read: a number with an exponent of more than 17 digits") from None


def write_json(value: Any) -> bytes:
    """Encode plain values or structs as JSON."""
    try:
        return ENCODER.encode(value)
    except RecursionError:
        raise DecodeError("cannot be written as JSON: nested too deeply") from None
    except (TypeError, ValueError, OverflowError, msgspec.MsgspecError) as broken:
        raise DecodeError(f"cannot be written as JSON: {broken}") from None


_LONG_NUMBER = re.compile(rb"\d{3900}")


def is_certainly_json(data: bytes) -> bool:
    """Whether it is certain that `find_non_json_values` reports nothing for the values of a readable text.

    The text is enough: without many brackets nothing is deep, and the decoder reads no lone surrogates.
    """
    return (
        len(data) <= MAX_VALUES
        and data.count(b"{") + data.count(b"[") <= MAX_DEPTH
        and (len(data) < MAX_BITS // 4 or _LONG_NUMBER.search(data) is None)
    )


def is_json(data: bytes, value: Any) -> bool:
    """Whether `find_non_json_values` reports nothing for the value that was decoded from a text.

    A short text without long numbers can only be nested too deeply.
    """
    if is_certainly_json(data):
        return True
    if len(data) > MAX_VALUES or _LONG_NUMBER.search(data) is not None:
        return not find_non_json_values(value)
    level = [value] if type(value) in _CONTAINERS else []
    for _ in range(MAX_DEPTH):
        level = [
            item
            for container in level
            for item in (container.values() if type(container) is dict else container)
            if type(item) in _CONTAINERS
        ]
        if not level:
            return True
    return False


_CONTAINERS = frozenset({dict, list})


def find_non_json_values(document: Any, path: FieldPath = ROOT) -> list[FieldError]:
    """Return an error for every plain value that JSON cannot hold, or only beyond `MAX_DEPTH` or
    `MAX_VALUES`.
    """
    remaining = [MAX_VALUES]
    if _fits_json(document, 0, remaining):
        return []
    checker = _JsonChecker()
    if remaining[0] >= 0:
        checker.visit(document, path, 0)
    if min(remaining[0], checker.remaining_values) < 0:
        checker.errors.append(_build_error(path, document, f"more than {MAX_VALUES} values"))
    return checker.errors


def _fits_json(value: Any, depth: int, remaining: list[int]) -> bool:
    """Whether JSON can hold a value; a quick test, paths are computed only when the answer is no.

    Values are counted down in `remaining`: a list that contains itself, or that occurs in many places, has no
    end in JSON.
    """
    value_type = type(value)
    if value_type is dict:
        remaining[0] -= len(value)
        if depth >= MAX_DEPTH or remaining[0] < 0:
            return False
        for key, item in value.items():
            if type(key) is not str or not (key.isascii() or _is_unicode(key)):
                return False
            # Most values are texts, and calling a function for each would take longer than the test.
            if type(item) is str:
                if not (item.isascii() or _is_unicode(item)):
                    return False
            elif item is not None and not _fits_json(item, depth + 1, remaining):
                return False
        return True
    if value_type is list or value_type is tuple:
        remaining[0] -= len(value)
        return (
            depth < MAX_DEPTH
            and remaining[0] >= 0
            and all(_fits_json(item, depth + 1, remaining) for item in value)
        )
    if value_type is str:
        return value.isascii() or _is_unicode(value)
    return _explain_scalar(value) is None


class _JsonChecker:
    """The slow, exact check: reports every value that is not JSON with its path, up to a limit."""

    def __init__(self) -> None:
        self.errors: list[FieldError] = []
        self.remaining_values = MAX_VALUES

    def visit(self, value: Any, path: FieldPath, depth: int) -> None:
        if isinstance(value, dict | list | tuple):
            self.remaining_values -= len(value)
            if self.remaining_values < 0 or len(self.errors) >= MAX_REPORTED_ERRORS:
                return
            if depth >= MAX_DEPTH:
                self.errors.append(_build_error(path, value, f"nested more than {MAX_DEPTH} levels deep"))
            elif isinstance(value, dict):
                self._visit_map(value, path, depth)
            else:
                for i, item in enumerate(value):
                    self.visit(item, path.index(i), depth + 1)
            return
        why = _explain_text(value) if isinstance(value, str) else _explain_scalar(value)
        if why is not None:
            mismatch = None if _is_json_type(value) else TypeMismatch("a JSON value", _quote_type(value))
            self.errors.append(_build_error(path, value, why, mismatch))

    def _visit_map(self, value: dict[Any, Any], path: FieldPath, depth: int) -> None:
        for key, item in value.items():
            if not isinstance(key, str) or not _is_unicode(key):
                self.errors.append(
                    _build_error(path.key(ascii(key)), key, "expected a key that is Unicode text")
                )
            else:
                self.visit(item, path.child(key), depth + 1)


def _build_error(
    path: FieldPath, value: Any, detail: str, mismatch: TypeMismatch | None = None
) -> FieldError:
    shown = ascii(value) if isinstance(value, str | float | Decimal) else f"<{type(value).__name__}>"
    return FieldError(FieldErrorType.TYPE_INVALID, str(path), shown, detail, mismatch)


def _is_json_type(value: Any) -> bool:
    return value is None or isinstance(value, str | bool | int | float | Decimal | dict | list | tuple)


def _quote_type(value: Any) -> str:
    return f"`{type(value).__name__}`"


def _explain_scalar(value: Any) -> str | None:
    if value is None or isinstance(value, bool):
        return None
    if isinstance(value, int):
        return None if value.bit_length() <= MAX_BITS else "a number with too many digits"
    if isinstance(value, float):
        return None if math.isfinite(value) else "expected a finite number"
    if isinstance(value, Decimal):
        return None if value.is_finite() else "expected a finite number"
    return f"expected a JSON value, got {_quote_type(value)}"


def _explain_text(value: str) -> str | None:
    return None if _is_unicode(value) else "expected text that is valid Unicode"


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:  # half of a surrogate pair
        return False
    return True


def find_duplicate_fields(data: bytes) -> tuple[str, ...]:
    """Return the paths of fields that occur twice in one JSON object; decoders silently keep the last."""
    if _has_certainly_no_duplicates(data):
        return ()
    found: list[str] = []
    try:
        json.loads(data, object_pairs_hook=_require_distinct)
    except _DuplicateFieldError:
        try:
            _collect_duplicates(json.loads(data, object_pairs_hook=_Pairs), ROOT, found)
        except (ValueError, RecursionError) as broken:
            raise DecodeError(f"not JSON: {broken}") from None
    except (ValueError, RecursionError) as broken:
        raise DecodeError(f"not JSON: {broken}") from None
    return tuple(found)


def _has_certainly_no_duplicates(data: bytes) -> bool:
    """Whether it is certain that no field occurs twice: the text has as many quotes as when it is encoded
    again.

    A lost field takes the quotes around its name with it; only a quote escaped by its number could make up
    for them.
    """
    if b"\\u0022" in data:
        return False
    try:
        return data.count(b'"') == ENCODER.encode(_PLAIN.decode(data)).count(b'"')
    except (msgspec.MsgspecError, ValueError, RecursionError, ArithmeticError):
        return False


class _DuplicateFieldError(Exception):
    """A field occurs twice; a second, slower reading finds its path."""


class _Pairs(list[tuple[str, Any]]):
    """A JSON object with every entry as written."""


def _require_distinct(pairs: list[tuple[str, Any]]) -> None:
    if len(dict(pairs)) != len(pairs):
        raise _DuplicateFieldError


def _collect_duplicates(value: Any, path: FieldPath, found: list[str]) -> None:
    if isinstance(value, _Pairs):
        seen: set[str] = set()
        for name, item in value:
            child = path.child(name)
            if name in seen:
                found.append(str(child))
            seen.add(name)
            _collect_duplicates(item, child, found)
    elif isinstance(value, list):
        for i, item in enumerate(value):
            _collect_duplicates(item, path.index(i), found)
