"""Bytes and documents to objects, and back.

Theory of operation: a clean document is decoded by machine, straight into the structs of the version it
was written in; an older version is then rewritten `up` and decoded again. Anything else (an unknown
field, a wrong type, a null) takes the long way: `examine` against the same shape finds everything that
does not fit, and what fits goes through the same decoder. There is one decoder, so there is one meaning.

Rules for this file: decoding never judges values, fills in defaults or asks gates. Unknown fields are
reported, not refused: whether they are an error is the caller's choice (`fieldValidation`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from functools import lru_cache
from types import MappingProxyType
from typing import Any

import msgspec

from dray.api import conversion
from dray.api.decode_report import UnknownField, examine, json_name
from dray.api.fields import FieldError
from dray.api.json_text import ENCODER, not_json, read_json, surely_json, write_json
from dray.api.kinds import KINDS, Kind, kind_of, kind_of_type
from dray.errors import DecodeError
from dray.values.quantity import Quantity, QuantityError


class Decoded(msgspec.Struct, frozen=True):
    """An object as it came in: what it is, and what was not understood.

    `document` is set for open kinds, whose unknown fields must survive; closed kinds are whole in `object`.
    """

    kind: Kind
    version: str
    object: Any
    unknown: tuple[UnknownField, ...] = ()
    document: Mapping[str, Any] | None = None


class _Envelope(msgspec.Struct, rename="camel"):
    api_version: Any = None
    kind: Any = None


# The cache answers most calls without entering Python: objects repeat few quantities many times. Numbers
# with a fraction go the long way: equal `Decimal`s may be written differently, and a cache mixes them up.
@lru_cache(maxsize=4096, typed=True)
def _read_custom(shape: type, value: Any) -> Any:
    if shape is Quantity and isinstance(value, str | int) and not isinstance(value, bool):
        try:
            return Quantity.parse(value)
        except QuantityError as refused:
            raise ValueError(str(refused)) from None
    raise TypeError(f"expected a quantity, got `{type(value).__name__}`")


_ENVELOPE = msgspec.json.Decoder(_Envelope)


@lru_cache(maxsize=256)
def _decoder(shape: type) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(shape, dec_hook=_read_custom, float_hook=Decimal)


def decoder_of(shape: type) -> msgspec.json.Decoder[Any]:
    """A decoder for values built around objects, such as lists and events of a watch."""
    return _decoder(shape)


_OPENING = re.compile(
    rb'\s*\{\s*"(apiVersion|kind)"\s*:\s*"([^"\\]*)"\s*,\s*"(?!\1)(?:apiVersion|kind)"\s*:\s*"([^"\\]*)"'
)
_BY_OPENING: Mapping[tuple[bytes, bytes], tuple[Kind, str]] = MappingProxyType(
    {
        pair: (kind, version)
        for kind in KINDS
        for version in kind.versions
        for name, api_version in [(kind.name.encode(), kind.api_version(version).encode())]
        for pair in ((name, api_version), (api_version, name))
    }
)


def _opening(data: bytes) -> tuple[Kind, str] | None:
    """What an object most likely is, by its first two fields: writers put kind and version there."""
    found = _OPENING.match(data)
    return _BY_OPENING.get(found.group(2, 3)) if found is not None else None  # type: ignore[arg-type]


def _envelope(data: bytes) -> tuple[Kind, str]:
    """What an object says it is, wherever it says it."""
    envelope = _ENVELOPE.decode(data)
    return kind_of({"apiVersion": envelope.api_version, "kind": envelope.kind})


def decode(data: bytes) -> Decoded:
    """Read one object from JSON; raises `DecodeError` with every problem found."""
    try:
        kind, version = _opening(data) or _envelope(data)
        if version == kind.version and not kind.open:
            obj = _decoder(kind.type).decode(data)
            if obj.kind == kind.name and obj.api_version == kind.internal_api_version:
                return Decoded(kind, version, obj)
        elif version == kind.version and surely_json(data):
            return _open(kind, data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, ArithmeticError):
        pass  # the way over the document says what is wrong, completely
    return decode_document(read_json(data))


def _open(kind: Kind, data: bytes) -> Decoded:
    """An object of an open kind whose text holds nothing strange."""
    document = read_json(data)
    given = conversion.tidied(kind, document)
    if given is not document or document["kind"] != kind.name:
        return decode_document(document)
    return Decoded(kind, kind.version, _decoder(kind.type).decode(data), (), document)


_OLD_SPELLINGS = (b'"claims":["', b'"template":{')
"""What the texts of pods in the spellings of KEP-3063 have, as we write them; others may have it, too."""


def decode_kept(kind: Kind, data: bytes) -> Any:
    """The struct of an object that a server wrote, in the internal version; what it wrote it had checked."""
    try:
        if kind.name == "Pod" and any(text in data for text in _OLD_SPELLINGS):
            data = ENCODER.encode(conversion.tidied(kind, read_json(data)))
        return _decoder(kind.type).decode(data)
    except msgspec.MsgspecError:
        return decode_document(read_json(data)).object


def view_of(kind: Kind, document: Mapping[str, Any]) -> Any:
    """The struct of a document of an open kind in the internal version, made of what was read as JSON."""
    try:
        return _decoder(kind.type).decode(_tidied_text(kind, document)[1])
    except (msgspec.MsgspecError, TypeError, ValueError, ArithmeticError):
        return decode_document(document).object


def _tidied_text(kind: Kind, document: Mapping[str, Any]) -> tuple[Mapping[str, Any], bytes]:
    """A document in today's spellings, and its text, which tells quickly whether there is anything to do."""
    text = ENCODER.encode(document)
    if kind.name != "Pod" or not any(old in text for old in _OLD_SPELLINGS):
        return document, text
    tidied = conversion.tidied(kind, document)
    return tidied, text if tidied is document else ENCODER.encode(tidied)


def decode_document(document: Any, *, sound: bool = False) -> Decoded:
    """Read one object from a document of plain values, in any version served.

    A document that is made of what was read as JSON, and is no deeper, is `sound`: it holds nothing strange.
    """
    if not isinstance(document, dict):
        raise DecodeError(f"expected an object with `apiVersion` and `kind`, got {json_name(document)}")
    kind, version = kind_of(document)
    strange = [] if sound else not_json(document)
    if strange:
        raise _unreadable(kind, version, strange)
    shape = conversion.shape_of(kind, version)
    kept = document if kind.open else None
    try:
        given, text = _tidied_text(kind, document)
        obj = _decoder(shape).decode(text)
        if version != kind.version:
            obj = _decoder(kind.type).decode(ENCODER.encode(conversion.up(kind, version, given)))
        return Decoded(kind, version, obj, (), kept)
    except (msgspec.MsgspecError, TypeError, ValueError, ArithmeticError):
        pass  # the careful way says what is wrong, completely
    fitted, found = examine(conversion.tidied(kind, document), shape)
    if found.wrong:
        raise _unreadable(kind, version, found.wrong)
    obj = _decoder(kind.type).decode(write_json(conversion.up(kind, version, fitted)))
    return Decoded(kind, version, obj, tuple(found.unknown), kept)


def _unreadable(kind: Kind, version: str, problems: Sequence[FieldError]) -> DecodeError:
    what = "; ".join(str(problem) for problem in problems)
    return DecodeError(f'{kind.name} in version "{version}" cannot be read: {what}', problems)


def encode(obj: msgspec.Struct, version: str | None = None) -> bytes:
    """An object of a closed kind as JSON, in the internal version or another one served."""
    kind = kind_of_type(type(obj))
    if version is None or version == kind.version:
        return write_json(obj)
    return write_json(to_document(obj, version))


def to_document(obj: msgspec.Struct, version: str | None = None) -> dict[str, Any]:
    """An object of a closed kind as plain values, in the internal version or another one served."""
    kind = kind_of_type(type(obj))
    document: dict[str, Any] = read_json(write_json(obj))
    if version is None or version == kind.version:
        return document
    if version not in kind.versions:
        raise DecodeError(
            f"{kind.name} is not served in `{version}`; expected one of {', '.join(kind.versions)}"
        )
    return conversion.down(kind, version, document)
