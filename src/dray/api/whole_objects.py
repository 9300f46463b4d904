"""Whole objects of open kinds: decoded with every field of their kind, checked, and brought to one form.

Theory of operation: dray reads a part of an open kind (its projection) and stores the whole. The types of
`messages.object_types` know every field of the kind, so decoding into them checks a body, and encoding again
writes it as Kubernetes would: without nulls, unknown fields and empty values, with the fields that clients
always find there. Both run at the speed of the codec. A body that does not fit takes the slow path of
`decode_report`, which reports every wrong type and every unknown field and keeps the rest.

Rules for this file: kinds without a table are left to `codec`. Pods in the spellings of KEP-3063 are stored
in the current ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import msgspec

from dray.api.codec import DecodedObject, build_decode_error, decode_projection, get_decoder, has_legacy_text
from dray.api.conversion import events, normalize_document
from dray.api.decode_report import DecodeReport, UnknownField, check_document
from dray.api.json_text import (
    ENCODER,
    find_non_json_values,
    is_certainly_json,
    is_json,
    read_json,
    write_json,
)
from dray.api.kinds import Kind, get_kind
from dray.api.messages.object_types import find_object_type

_REFUSED = (msgspec.MsgspecError, UnicodeDecodeError, TypeError, ValueError, ArithmeticError, RecursionError)


def has_object_type(kind: Kind, version: str) -> bool:
    """Whether every field of a kind is known."""
    return kind.open and find_object_type(kind.format_api_version(version), kind.name) is not None


@lru_cache(maxsize=256)
def _encode_empty_object(kind: Kind) -> bytes:
    object_type = find_object_type(kind.internal_api_version, kind.name) if kind.open else None
    return b"{}" if object_type is None else ENCODER.encode(object_type())


def build_empty_status(kind: Kind) -> Any:
    """Build the status that clients find in objects of a kind that have none; None when they find nothing."""
    return read_json(_encode_empty_object(kind)).get("status")


def decode_text(kind: Kind, version: str, data: bytes) -> DecodedObject | None:
    """Decode a body of JSON that is well-formed; None when the slow path must look at it."""
    object_type = find_object_type(kind.format_api_version(version), kind.name)
    if object_type is None:
        return None
    try:
        obj: Any = get_decoder(object_type).decode(data)
    except _REFUSED:
        return None
    api_version = kind.format_api_version(version)
    if (obj.apiVersion or api_version) != api_version or (obj.kind or kind.name) != kind.name:
        return None
    obj.apiVersion, obj.kind = api_version, kind.name
    text = ENCODER.encode(obj)
    if has_legacy_text(kind, text) or not (is_certainly_json(data) or is_json(text, read_json(text))):
        return None
    return _build_object(kind, version, text, ())


def decode_whole_document(
    kind: Kind, version: str, document: Mapping[str, Any], *, trusted: bool = False
) -> DecodedObject:
    """Decode a document that names its kind and version; raises `DecodeError` with every problem.

    A `trusted` document holds only values JSON can hold.
    """
    return _build_object(kind, version, *_normalize_document(kind, version, document, trusted=trusted))


def decode_parts(kind: Kind, document: Mapping[str, Any], *, trusted: bool = False) -> DecodedObject:
    """Decode a document that has only some of the top-level fields of its kind, in the storage version.

    It is checked and brought to its form as a whole document would be; fields that it does not have stay
    away.
    """
    text, unknown = _normalize_document(kind, kind.version, document, trusted=trusted)
    parts = {name: part for name, part in read_json(text).items() if name in document}
    return DecodedObject(kind, kind.version, decode_projection(kind, parts), unknown, parts)


def _normalize_document(
    kind: Kind, version: str, document: Mapping[str, Any], *, trusted: bool
) -> tuple[bytes, tuple[UnknownField, ...]]:
    """Return the text of a document in its one form, and the unknown fields that it had."""
    object_type = find_object_type(kind.format_api_version(version), kind.name)
    assert object_type is not None, kind
    errors = [] if trusted else find_non_json_values(document)
    if errors:
        raise build_decode_error(kind, version, errors)
    given = normalize_document(kind, document)
    try:
        return _normalize(object_type, ENCODER.encode(given)), ()
    except _REFUSED:
        pass  # the slow path below reports every problem
    fitted, found = check_document(given, object_type)
    if found.type_errors:
        raise build_decode_error(kind, version, found.type_errors)
    return _normalize(object_type, write_json(fitted)), tuple(found.unknown_fields)


def check_message(
    api_version: str, name: str, document: Mapping[str, Any]
) -> tuple[Mapping[str, Any], DecodeReport]:
    """Check a document of a kind that is not stored, such as a review; return the part that fits it.

    A kind without a table is not checked.
    """
    object_type = find_object_type(api_version, name)
    if object_type is None:
        return document, DecodeReport()
    try:
        get_decoder(object_type).decode(ENCODER.encode(document))
    except _REFUSED:
        return check_document(document, object_type)
    return document, DecodeReport()


def _normalize(object_type: type[msgspec.Struct], data: bytes) -> bytes:
    return ENCODER.encode(get_decoder(object_type).decode(data))


def _build_object(kind: Kind, version: str, text: bytes, unknown: tuple[UnknownField, ...]) -> DecodedObject:
    if kind.stored_as is not None:
        kind, version = get_kind(*kind.stored_as), "v1"
        object_type = find_object_type(version, kind.name)
        assert object_type is not None
        text = _normalize(object_type, write_json(events.convert_to_core(read_json(text))))
    document = read_json(text)
    return DecodedObject(kind, version, decode_projection(kind, document, text), unknown, document)
