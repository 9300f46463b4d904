"""Decoding of Kubernetes protobuf bodies to JSON documents.

Theory of operation: Kubernetes wraps a message into `runtime.Unknown`, which names its kind, behind a magic
prefix of four bytes. The message classes come from the tables of this package; fields that a table does not
name are ignored, as in Go. Go writes zero values that JSON leaves out, so a zero is kept only where the table
says that Go tells it from an absent value. The depth is that of the tables, and a budget limits how many
values come out of a body. Hostile bytes end in an `ApiStatusError` of 400 and nothing else.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Any, Final

from dray.api.json_text import read_json
from dray.errors import DecodeError
from dray.server.http.errors import ApiStatusError, new_bad_request, new_unsupported_media_type
from dray.server.http.protobuf.messages import DELETE_OPTIONS, INLINE, MAP, ROOT_MESSAGES, load_messages
from dray.server.http.requests import JSON, PROTOBUF, YAML
from dray.wire.protobuf import LIST, MalformedProtobufError, ProtobufMessage

PROTOBUF_MAGIC: Final = b"k8s\x00"
UNSUPPORTED_HINT: Final = (
    "; send JSON: daemons with --kube-api-content-type=application/json, "
    "kubectl with `--dry-run=client -o yaml | kubectl apply -f -`"
)
MAX_VALUES: Final = 200_000
"""More values than any of these kinds needs; two bytes can stand for an object of a hundred."""


def decode(body: bytes) -> dict[str, Any]:
    """Decode a protobuf body; raises an `ApiStatusError` of 400 or 415."""
    if not body.startswith(PROTOBUF_MAGIC):
        raise new_bad_request(
            "the body is not Kubernetes protobuf: it does not begin with `k8s` and a zero byte"
        )
    try:
        return _open_envelope(body[len(PROTOBUF_MAGIC) :])
    except MalformedProtobufError as broken:
        raise new_bad_request(f"the body is not Kubernetes protobuf: {broken}") from None
    except DecodeError as broken:
        raise new_bad_request(f"the body holds a value that is {broken}") from None


def _open_envelope(envelope: bytes) -> dict[str, Any]:
    unknown = _decode_message("Unknown", envelope)
    names = _decode_message("TypeMeta", unknown.typeMeta)
    api_version, kind = _check_text(names.apiVersion), _check_text(names.kind)
    encoding, media = _check_text(unknown.contentEncoding), _check_text(unknown.contentType)
    if media == JSON and not encoding:
        document = read_json(unknown.raw)
        if not isinstance(document, dict):
            raise MalformedProtobufError("the JSON inside is not an object")
        return document
    message = DELETE_OPTIONS if kind == DELETE_OPTIONS else ROOT_MESSAGES.get((api_version, kind))
    if message is None or encoding or media not in ("", PROTOBUF):
        raise _build_unsupported(api_version, kind)
    return {"apiVersion": api_version, "kind": kind, **_MessageReader().read_message(message, unknown.raw)}


def _build_unsupported(api_version: str, kind: str) -> ApiStatusError:
    what = f"; {kind or 'an object'} in {api_version or 'no version'} is not read from protobuf"
    return new_unsupported_media_type((JSON, YAML), what + UNSUPPORTED_HINT)


class _MessageReader:
    """Reads the messages of one body."""

    def __init__(self) -> None:
        self._remaining = MAX_VALUES

    def read_message(self, name: str, data: bytes) -> dict[str, Any]:
        known = load_messages()[name].fields
        document: dict[str, Any] = {}
        for descriptor, value in _decode_message(name, data).ListFields():
            field = known[descriptor.number]
            match field.modifier:
                case modifier if modifier == LIST:
                    self._count_values(len(value))
                    document[field.name] = [self._read_value(field.type, each) for each in value]
                case modifier if modifier == MAP:
                    self._count_values(len(value))
                    document[field.name] = dict(self._read_entries(field.type, value))
                case modifier if modifier == INLINE:
                    document |= self._read_value(field.type, value)
                case modifier:
                    self._count_values(1)
                    read = self._read_value(field.type, value)
                    if read is not None and (read or modifier):
                        document[field.name] = read
        return document

    def _read_entries(self, value_type: str, entries: Iterable[bytes]) -> Iterable[tuple[str, Any]]:
        """Read the entries of a map, which are messages of key and value; an absent one is zero."""
        entry_type = "StringEntry" if value_type == "string" else "BytesEntry"
        for each in entries:
            entry = _decode_message(entry_type, each)
            yield _check_text(entry.key), self._read_value(value_type, entry.value)

    def _read_value(self, value_type: str, value: Any) -> Any:
        decoder = LEAF_DECODERS.get(value_type)
        return decoder(value) if decoder is not None else self.read_message(value_type, value)

    def _count_values(self, count: int) -> None:
        self._remaining -= count
        if self._remaining < 0:
            raise MalformedProtobufError(f"it holds more than {MAX_VALUES} values")


def _decode_message(name: str, data: bytes) -> ProtobufMessage:
    return load_messages()[name].decode(data)


def _check_text(value: str | bytes) -> str:
    """Return a text; the runtime returns bytes for one that is not valid UTF-8."""
    if isinstance(value, bytes):
        raise MalformedProtobufError("a text is not valid UTF-8")
    return value


def _decode_timestamp(value: bytes) -> datetime | None:
    """Decode a time of seconds and nanoseconds; an empty one is Go's zero time, which JSON shows as null."""
    if not value:
        return None
    moment = _decode_message("Timestamp", value)
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
    text = _decode_message("RawJson", value).raw
    return read_json(text) if text else None


LEAF_DECODERS: Final[Mapping[str, Callable[[Any], Any]]] = MappingProxyType(
    {
        "string": _check_text,
        "bytes": lambda value: base64.b64encode(value).decode(),
        "bool": bool,
        "int32": int,
        "int64": int,
        "Time": _decode_time,
        "MicroTime": _decode_micro_time,
        "Quantity": lambda value: _check_text(_decode_message("QuantityText", value).string),
        "Json": _decode_json,
        "Strings": lambda value: [_check_text(each) for each in _decode_message("StringList", value).items],
    }
)
"""Decoders of the types that have no fields in the tables."""
