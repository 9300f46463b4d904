"""Decoding of Kubernetes protobuf to JSON documents.

Theory of operation: Kubernetes wraps a message into `runtime.Unknown`, which names its kind, behind a magic
prefix of four bytes. Fields that a table does not name are ignored, as in Go. Go writes zero values that JSON
leaves out, so a zero is kept only where the table says so; a message without fields is shown as `{}`, as Go's
JSON does. The depth is that of the tables, and a budget
limits how many values come out of a body. Hostile bytes end in a `MalformedProtobufError` and nothing else.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Any, Final

from dray.api.json_text import read_json
from dray.api.messages.field_tables import INLINE, LIST, MAP
from dray.errors import DecodeError
from dray.wire.kubernetes.message_tables import (
    MAGIC,
    MessageType,
    UnknownMessageError,
    find_message,
    find_root_message,
    get_envelope,
)
from dray.wire.protobuf import MalformedProtobufError, ProtobufMessage

JSON: Final = "application/json"
PROTOBUF: Final = "application/vnd.kubernetes.protobuf"
MAX_VALUES: Final = 200_000
"""More values than any object needs; two bytes can stand for an object of a hundred."""
MAX_DEPTH: Final = 64
"""Messages inside of messages: a few kinds contain themselves."""
_STRING_KIND: Final = 1
"""The `type` of an `IntOrString` that is a string."""


@dataclass(frozen=True, slots=True)
class Envelope:
    """The content of a body, and what it says it is."""

    api_version: str
    kind: str
    raw: bytes
    content_type: str
    content_encoding: str


def decode_envelope(body: bytes) -> Envelope:
    """Take a message out of its envelope; raises `MalformedProtobufError`."""
    if not body.startswith(MAGIC):
        raise MalformedProtobufError("it does not begin with `k8s` and a zero byte")
    unknown = get_envelope("Unknown").decode(body[len(MAGIC) :])
    names = get_envelope("TypeMeta").decode(unknown.typeMeta)
    texts = (names.apiVersion, names.kind, unknown.contentType, unknown.contentEncoding)
    api_version, kind, media, encoding = (_check_text(each) for each in texts)
    return Envelope(api_version, kind, unknown.raw, media, encoding)


def decode(body: bytes, default_names: tuple[str, str] = ("", "")) -> dict[str, Any]:
    """Decode a body to a document; `default_names` are API version and kind of one that does not name them.

    Raises `MalformedProtobufError`, `DecodeError` for a value that JSON cannot have, and
    `UnknownMessageError` for a kind without a message.
    """
    envelope = decode_envelope(body)
    if envelope.content_type == JSON and not envelope.content_encoding:
        document = read_json(envelope.raw)
        if not isinstance(document, dict):
            raise MalformedProtobufError("the JSON inside is not an object")
        return document
    if envelope.content_encoding or envelope.content_type not in ("", PROTOBUF):
        what = f"{envelope.content_type} {envelope.content_encoding}".strip()
        raise UnknownMessageError(f"an envelope with {what} cannot be read")
    api_version, kind = envelope.api_version, envelope.kind
    message = find_root_message(api_version or default_names[0], kind or default_names[1])
    names = {"apiVersion": api_version, "kind": kind} if api_version or kind else {}
    return {**names, **_MessageReader().read_message(message, envelope.raw)}


class _MessageReader:
    """Reads the messages of one body."""

    def __init__(self) -> None:
        self._remaining = MAX_VALUES
        self._depth = 0

    def read_message(self, message_type: MessageType, data: bytes) -> dict[str, Any]:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise MalformedProtobufError(f"it has more than {MAX_DEPTH} messages inside of each other")
        known, document = message_type.fields, dict[str, Any]()
        for descriptor, value in message_type.decode(data).ListFields():
            field = known[descriptor.number]
            if field.modifier == LIST:
                self._count_values(len(value))
                document[field.name] = [self._read_value(message_type, field.type, each) for each in value]
            elif field.modifier == MAP:
                self._count_values(len(value))
                document[field.name] = dict(self._read_entries(message_type, field.type, value))
            elif field.modifier == INLINE:
                document |= self._read_value(message_type, field.type, value)
            else:
                self._count_values(1)
                read = self._read_value(message_type, field.type, value)
                if read is not None and (read or field.modifier or field.type not in LEAF_DECODERS):
                    document[field.name] = read
        self._depth -= 1
        return document

    def _read_entries(
        self, holder: MessageType, value_type: str, entries: Iterable[bytes]
    ) -> Iterable[tuple[str, Any]]:
        """Read the entries of a map, which are messages of key and value; an absent one is zero."""
        entry_type = get_envelope("StringEntry" if value_type == "string" else "BytesEntry")
        for each in entries:
            entry = entry_type.decode(each)
            yield _check_text(entry.key), self._read_value(holder, value_type, entry.value)

    def _read_value(self, holder: MessageType, value_type: str, value: Any) -> Any:
        decoder = LEAF_DECODERS.get(value_type)
        if decoder is not None:
            return decoder(value)
        return self.read_message(find_message(value_type, holder.file), value)

    def _count_values(self, count: int) -> None:
        self._remaining -= count
        if self._remaining < 0:
            raise MalformedProtobufError(f"it holds more than {MAX_VALUES} values")


def _decode_leaf(name: str, data: bytes) -> ProtobufMessage:
    return get_envelope(name).decode(data)


def _check_text(value: str | bytes) -> str:
    """Return a text; the runtime returns bytes for one that is not valid UTF-8."""
    if isinstance(value, bytes):
        raise MalformedProtobufError("a text is not valid UTF-8")
    return value


def _decode_timestamp(value: bytes) -> datetime | None:
    """Decode a time of seconds and nanoseconds; an empty one is Go's zero time, which JSON shows as null."""
    if not value:
        return None
    moment = _decode_leaf("Timestamp", value)
    try:
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(
            seconds=moment.seconds, microseconds=moment.nanos // 1000
        )
    except OverflowError:
        raise MalformedProtobufError("a time lies outside the years 1 to 9999") from None


def _decode_time(value: bytes) -> str | None:
    moment = _decode_timestamp(value)
    return None if moment is None else f"{moment:%Y-%m-%dT%H:%M:%SZ}".rjust(20, "0")


def _decode_micro_time(value: bytes) -> str | None:
    moment = _decode_timestamp(value)
    return None if moment is None else f"{moment:%Y-%m-%dT%H:%M:%S.%fZ}".rjust(27, "0")


def _decode_json(value: bytes) -> Any:
    text = _decode_leaf("RawJson", value).raw
    if not text:
        return None
    try:
        return read_json(text)
    except DecodeError as broken:
        raise MalformedProtobufError(f"a value inside is {broken}") from None


def _decode_int_or_string(value: bytes) -> int | str:
    either = _decode_leaf("IntOrString", value)
    return _check_text(either.strVal) if either.type == _STRING_KIND else int(either.intVal)


LEAF_DECODERS: Final[Mapping[str, Callable[[Any], Any]]] = MappingProxyType(
    {
        "string": _check_text,
        "bytes": lambda value: base64.b64encode(value).decode(),
        "bool": bool,
        "int32": int,
        "int64": int,
        "Time": _decode_time,
        "MicroTime": _decode_micro_time,
        "Quantity": lambda value: _check_text(_decode_leaf("QuantityText", value).string),
        "Json": _decode_json,
        "FieldsV1": _decode_json,
        "IntOrString": _decode_int_or_string,
        "Strings": lambda value: [_check_text(each) for each in _decode_leaf("StringList", value).items],
    }
)
"""Decoders of the types that have no fields in the tables."""
