"""Codec: decodes bytes and documents into objects, and encodes objects.

Theory of operation: a clean document is decoded straight into the structs of the version it was written in;
an older version is then converted to the internal one and decoded again. A document with an unknown field, a
wrong type or a null takes the slow path: `check_document` compares it with the same struct type and reports
everything that does not fit, and the rest goes through the same decoder. There is one decoder, so there is
one meaning.

Rules for this file: decoding never validates values, applies defaults or reads gates. Unknown fields are
reported, not refused: the caller decides whether they are an error (`fieldValidation`).
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
from dray.api.decode_report import UnknownField, check_document, describe_json_type
from dray.api.fields import FieldError
from dray.api.json_text import ENCODER, find_non_json_values, is_json, read_json, write_json
from dray.api.kinds import KINDS, Kind, get_kind_by_type, parse_document_kind
from dray.api.unknown_fields import remove_mark
from dray.errors import DecodeError
from dray.values.quantity import Quantity, QuantityError


class DecodedObject(msgspec.Struct, frozen=True):
    """A decoded object, its kind and version, and the fields that are unknown.

    `document` is set for open kinds, whose unknown fields must survive; closed kinds are complete in
    `object`.
    """

    kind: Kind
    version: str
    object: Any
    unknown_fields: tuple[UnknownField, ...] = ()
    document: Mapping[str, Any] | None = None


class _Envelope(msgspec.Struct, rename="camel"):
    api_version: Any = None
    kind: Any = None


# The cache answers most calls without entering Python: objects repeat few quantities many times. Numbers with
# a fraction bypass it: equal `Decimal`s may be written differently, and a cache mixes them up.
@lru_cache(maxsize=4096, typed=True)
def _decode_custom(struct_type: type, value: Any) -> Any:
    if struct_type is Quantity and isinstance(value, str | int) and not isinstance(value, bool):
        try:
            return Quantity.parse(value)
        except QuantityError as refused:
            raise ValueError(str(refused)) from None
    raise TypeError(f"expected a quantity, got `{type(value).__name__}`")


_ENVELOPE = msgspec.json.Decoder(_Envelope)


@lru_cache(maxsize=256)
def _get_cached_decoder(struct_type: type) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(struct_type, dec_hook=_decode_custom, float_hook=Decimal)


def get_decoder(struct_type: type) -> msgspec.json.Decoder[Any]:
    """Return a decoder for values built around objects, such as lists and watch events."""
    return _get_cached_decoder(struct_type)


_HEADER = re.compile(
    rb'\s*\{\s*"(apiVersion|kind)"\s*:\s*"([^"\\]*)"\s*,\s*"(?!\1)(?:apiVersion|kind)"\s*:\s*"([^"\\]*)"'
)
_KIND_BY_HEADER: Mapping[tuple[bytes, bytes], tuple[Kind, str]] = MappingProxyType(
    {
        pair: (kind, version)
        for kind in KINDS
        for version in kind.versions
        for name, api_version in [(kind.name.encode(), kind.format_api_version(version).encode())]
        for pair in ((name, api_version), (api_version, name))
    }
)


def _guess_kind(data: bytes) -> tuple[Kind, str] | None:
    """Guess kind and version from the first two fields, where most writers put them."""
    found = _HEADER.match(data)
    return _KIND_BY_HEADER.get(found.group(2, 3)) if found is not None else None  # type: ignore[arg-type]


def _read_envelope(data: bytes) -> tuple[Kind, str]:
    """Read kind and version from wherever they stand in an object."""
    envelope = _ENVELOPE.decode(data)
    return parse_document_kind({"apiVersion": envelope.api_version, "kind": envelope.kind})


def decode(data: bytes) -> DecodedObject:
    """Decode one object from JSON; raises `DecodeError` with every problem found."""
    try:
        kind, version = _guess_kind(data) or _read_envelope(data)
        if version == kind.version and not kind.open:
            obj = _get_cached_decoder(kind.type).decode(data)
            if obj.kind == kind.name and obj.api_version == kind.internal_api_version:
                return DecodedObject(kind, version, obj)
        elif version == kind.version:
            return _decode_open(kind, data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, ArithmeticError):
        pass  # decode_document reports every problem
    return decode_document(read_json(data))


def _decode_open(kind: Kind, data: bytes) -> DecodedObject:
    """Decode an object of an open kind; a text that needs no careful check is decoded directly."""
    document = read_json(data)
    if not is_json(data, document):
        return decode_document(document)
    given = conversion.normalize_document(kind, document)
    if given is not document or document["kind"] != kind.name:
        return decode_document(document)
    return DecodedObject(kind, kind.version, _get_cached_decoder(kind.type).decode(data), (), document)


_LEGACY_POD_MARKERS = (b'"claims":["', b'"template":{')
"""Fragments of the text of pods in the spellings of KEP-3063, as dray writes JSON; other pods may have them,
too.
"""


def has_legacy_text(kind: Kind, text: bytes) -> bool:
    """Whether the text of an object may have spellings of KEP-3063."""
    claims, template = _LEGACY_POD_MARKERS
    return kind.name == "Pod" and (template in text or claims in text)


def decode_stored(kind: Kind, data: bytes) -> Any:
    """Decode the struct of an object that the server stored, in the internal version; it was checked when
    written.
    """
    try:
        if has_legacy_text(kind, data):
            data = ENCODER.encode(conversion.normalize_document(kind, read_json(data)))
        return _get_cached_decoder(kind.type).decode(data)
    except msgspec.MsgspecError:
        return decode_document(read_json(data)).object


def decode_projection(kind: Kind, document: Mapping[str, Any], text: bytes | None = None) -> Any:
    """Decode the struct of an open kind's document, in the internal version, which was read from JSON.

    `text` is the document as JSON in current spellings, where the caller has it.
    """
    try:
        return _get_cached_decoder(kind.type).decode(text or _normalize_text(kind, document)[1])
    except (msgspec.MsgspecError, TypeError, ValueError, ArithmeticError):
        return decode_document(document).object


def _normalize_text(kind: Kind, document: Mapping[str, Any]) -> tuple[Mapping[str, Any], bytes]:
    """Return a document in current spellings, and its text, which shows quickly whether there is anything to
    do.
    """
    text = ENCODER.encode(document)
    if not has_legacy_text(kind, text):
        return document, text
    tidied = conversion.normalize_document(kind, document)
    return tidied, text if tidied is document else ENCODER.encode(tidied)


def decode_document(document: Any, *, trusted: bool = False) -> DecodedObject:
    """Decode one object from a document of plain values, in any version served.

    A `trusted` document was read from JSON and is no deeper than that: it holds only values JSON can hold.
    """
    if not isinstance(document, dict):
        raise DecodeError(
            f"expected an object with `apiVersion` and `kind`, got {describe_json_type(document)}"
        )
    kind, version = parse_document_kind(document)
    errors = [] if trusted else find_non_json_values(document)
    if errors:
        raise build_decode_error(kind, version, errors)
    struct_type = conversion.get_struct_type(kind, version)
    open_document = document if kind.open else None
    try:
        given, text = _normalize_text(kind, document)
        obj = _get_cached_decoder(struct_type).decode(text)
        if version != kind.version:
            obj = _get_cached_decoder(kind.type).decode(
                ENCODER.encode(conversion.convert_to_internal(kind, version, given))
            )
        return DecodedObject(kind, version, obj, (), open_document)
    except (msgspec.MsgspecError, TypeError, ValueError, ArithmeticError):
        pass  # the slow path below reports every problem
    fitted, found = check_document(conversion.normalize_document(kind, document), struct_type)
    if found.type_errors:
        raise build_decode_error(kind, version, found.type_errors)
    obj = _get_cached_decoder(kind.type).decode(
        write_json(conversion.convert_to_internal(kind, version, fitted))
    )
    return DecodedObject(kind, version, obj, tuple(found.unknown_fields), open_document)


def build_decode_error(kind: Kind, version: str, problems: Sequence[FieldError]) -> DecodeError:
    """Build the error for a document with values that do not fit its kind."""
    what = "; ".join(str(problem) for problem in problems)
    return DecodeError(f'{kind.name} in version "{version}" cannot be read: {what}', problems)


def encode(obj: msgspec.Struct, version: str | None = None) -> bytes:
    """Encode an object of a closed kind as JSON, in the internal version or another one served."""
    kind = get_kind_by_type(type(obj))
    if version is None or version == kind.version:
        return write_json(remove_mark(obj))
    return write_json(to_document(obj, version))


def to_document(obj: msgspec.Struct, version: str | None = None) -> dict[str, Any]:
    """Return an object of a closed kind as plain values, in the internal version or another one served."""
    kind = get_kind_by_type(type(obj))
    document: dict[str, Any] = read_json(write_json(remove_mark(obj)))
    if version is None or version == kind.version:
        return document
    if version not in kind.versions:
        raise DecodeError(
            f"{kind.name} is not served in `{version}`; expected one of {', '.join(kind.versions)}"
        )
    return conversion.convert_from_internal(kind, version, document)
