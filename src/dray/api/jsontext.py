"""JSON text and plain values, without losing a digit.

Numbers with a fraction are `Decimal`s on the way in and keep every digit on the way out; opaque
parameters depend on it. Whatever is wrong with the text is a `DecodeError`, never a surprise.
"""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import msgspec

from dray.api.fields import ROOT, Path
from dray.errors import DecodeError
from dray.values.quantity import Quantity


def _write_custom(value: Any) -> Any:
    if isinstance(value, Quantity):
        return str(value)
    raise TypeError(f"cannot write {type(value).__name__} as JSON")


ENCODER = msgspec.json.Encoder(enc_hook=_write_custom, decimal_format="number")
_PLAIN = msgspec.json.Decoder(float_hook=Decimal)


def read_json(data: bytes) -> Any:
    """A JSON document as plain values."""
    try:
        return _PLAIN.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as broken:
        raise DecodeError(f"not JSON: {broken}") from None
    except RecursionError:
        raise DecodeError("not JSON we read: nested too deeply") from None


def write_json(value: Any) -> bytes:
    """Plain values or structs as JSON."""
    try:
        return ENCODER.encode(value)
    except RecursionError:
        raise DecodeError("cannot be written as JSON: nested too deeply") from None
    except (TypeError, ValueError, OverflowError, msgspec.MsgspecError) as broken:
        raise DecodeError(f"cannot be written as JSON: {broken}") from None


def duplicate_fields(data: bytes) -> tuple[str, ...]:
    """Paths of fields that stand twice in one JSON object; decoders keep the last and say nothing."""
    try:
        json.loads(data, object_pairs_hook=_all_different)
    except _TwiceError:
        found: list[str] = []
        _collect_duplicates(json.loads(data, object_pairs_hook=_Pairs), ROOT, found)
        return tuple(found)
    except (ValueError, RecursionError) as broken:
        raise DecodeError(f"not JSON: {broken}") from None
    return ()


class _TwiceError(Exception):
    """A field stands twice; where is found out by a second, slower reading."""


class _Pairs(list[tuple[str, Any]]):
    """A JSON object with every entry it was written with."""


def _all_different(pairs: list[tuple[str, Any]]) -> None:
    if len(dict(pairs)) != len(pairs):
        raise _TwiceError


def _collect_duplicates(value: Any, path: Path, found: list[str]) -> None:
    if isinstance(value, _Pairs):
        seen: set[str] = set()
        for name, item in value:
            child = path.field(name)
            if name in seen:
                found.append(str(child))
            seen.add(name)
            _collect_duplicates(item, child, found)
    elif isinstance(value, list):
        for i, item in enumerate(value):
            _collect_duplicates(item, path.index(i), found)
