"""Encoding of JSON documents to Kubernetes protobuf, the reverse of `decoding`.

Theory of operation: Go writes the zero values of all fields without a pointer; readers do not tell them from
absent ones, so they are left out here. Fields that a table does not name are left out, too, as Go would. A
value of another type than its field is an error that names the field, because nothing else of the object
could be trusted.

Rules for this file: map entries are written in the order of their keys, so that equal documents have equal
bytes.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, Final

from dray.api.json_text import write_json
from dray.api.messages.field_tables import INLINE, LIST, MAP, FieldDefinition
from dray.errors import DrayError
from dray.wire.kubernetes.message_tables import (
    MAGIC,
    MessageType,
    find_message,
    find_root_message,
    get_envelope,
)

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_STRING_KIND: Final = 1


class UnencodableValueError(DrayError):
    """A value of another type than protobuf has for its field."""


def encode(document: Mapping[str, Any]) -> bytes:
    """Encode a document in its envelope.

    Raises `UnknownMessageError` for a kind without a message, and `UnencodableValueError`.
    """
    api_version, kind = str(document.get("apiVersion") or ""), str(document.get("kind") or "")
    raw = _encode_message(find_root_message(api_version, kind), document, "")
    return _wrap(api_version, kind, raw)


def encode_watch_event(event_type: str, encoded_object: bytes) -> bytes:
    """Encode an event of a watch, whose object is encoded already, with its length before it."""
    raw = _build("RawJson", raw=encoded_object)
    event = get_envelope("WatchEvent").message_class(type=event_type, object=raw).SerializeToString()
    return len(event).to_bytes(4, "big") + bytes(event)


def _wrap(api_version: str, kind: str, raw: bytes) -> bytes:
    names = _build("TypeMeta", apiVersion=api_version, kind=kind)
    return MAGIC + _build("Unknown", typeMeta=names, raw=raw, contentEncoding="", contentType="")


def _build(name: str, **fields: Any) -> bytes:
    return bytes(get_envelope(name).message_class(**fields).SerializeToString())


def _encode_message(message_type: MessageType, document: Any, where: str) -> bytes:
    if not isinstance(document, Mapping):
        raise _build_mismatch(where, "an object", document)
    values: dict[str, Any] = {}
    for number, field in message_type.fields.items():
        if field.modifier == INLINE:
            inlined = _encode_message(find_message(field.type, message_type.file), document, where)
            if inlined:
                values[f"inlined{number}"] = inlined
        elif (given := document.get(field.name)) is not None:
            path = f"{where}.{field.name}" if where else field.name
            values[field.name] = _encode_field(message_type, field, given, path)
    try:
        return bytes(message_type.message_class(**values).SerializeToString())
    except (TypeError, ValueError) as wrong:
        raise UnencodableValueError(f"{where or message_type.name}: {wrong}") from None


def _encode_field(holder: MessageType, field: FieldDefinition, given: Any, path: str) -> Any:
    if field.modifier == LIST:
        if not isinstance(given, list | tuple):
            raise _build_mismatch(path, "a list", given)
        return [_encode_value(holder, field.type, each, f"{path}[{i}]") for i, each in enumerate(given)]
    if field.modifier == MAP:
        if not isinstance(given, Mapping):
            raise _build_mismatch(path, "an object", given)
        entry = "StringEntry" if field.type == "string" else "BytesEntry"
        encoded = {
            key: _encode_value(holder, field.type, given[key], f"{path}[{key}]")
            for key in sorted(given)
            if given[key] is not None
        }
        return [_build(entry, key=key, value=encoded.get(key)) for key in sorted(given)]
    return _encode_value(holder, field.type, given, path)


def _encode_value(holder: MessageType, value_type: str, value: Any, path: str) -> Any:
    encoder = LEAF_ENCODERS.get(value_type)
    if encoder is None:
        return _encode_message(find_message(value_type, holder.file), value, path)
    try:
        return encoder(value)
    except (TypeError, ValueError):
        raise _build_mismatch(path, value_type, value) from None


def _build_mismatch(path: str, expected: str, value: Any) -> UnencodableValueError:
    shown = repr(value)
    shown = shown if len(shown) <= 60 else f"{shown[:57]}..."
    return UnencodableValueError(f"{path or 'the object'}: expected {expected}, not {shown}")


def _check_type(expected: type) -> Callable[[Any], Any]:
    def check(value: Any) -> Any:
        if type(value) is not expected:
            raise TypeError
        return value

    return check


def _decode_base64(value: Any) -> bytes:
    try:
        return base64.b64decode(value, validate=True)
    except binascii.Error as wrong:
        raise ValueError(str(wrong)) from None


def _encode_time(value: Any) -> bytes:
    moment = datetime.fromisoformat(value)
    elapsed = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - _EPOCH
    seconds = elapsed.days * 86_400 + elapsed.seconds
    return _build("Timestamp", seconds=seconds, nanos=elapsed.microseconds * 1000)


def _encode_quantity(value: Any) -> bytes:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise TypeError
    return _build("QuantityText", string=str(value))


def _encode_int_or_string(value: Any) -> bytes:
    if isinstance(value, str):
        return _build("IntOrString", type=_STRING_KIND, intVal=0, strVal=value)
    return _build("IntOrString", type=0, intVal=_check_type(int)(value), strVal="")


LEAF_ENCODERS: Final[Mapping[str, Callable[[Any], Any]]] = MappingProxyType(
    {
        "string": _check_type(str),
        "bytes": _decode_base64,
        "bool": _check_type(bool),
        "int32": _check_type(int),
        "int64": _check_type(int),
        "Time": _encode_time,
        "MicroTime": _encode_time,
        "Quantity": _encode_quantity,
        "Json": lambda value: _build("RawJson", raw=write_json(value)),
        "FieldsV1": lambda value: _build("RawJson", raw=write_json(value)),
        "IntOrString": _encode_int_or_string,
        "Strings": lambda value: _build("StringList", items=value),
    }
)
"""Encoders of the types that have no fields in the tables."""
