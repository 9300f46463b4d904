"""A protobuf body to a JSON document: the envelope, then the message inside by the table of messages.

Theory of operation: Kubernetes wraps a message into `runtime.Unknown`, which says what kind it is, behind
four bytes of magic. A message is read field by field; what the table does not name is passed over, as Go
does. Go writes zero values that JSON leaves out, so a zero is kept only where the table says that Go tells it
from nothing. The depth is that of the table, and a budget bounds how many values come out of a body.

Rules for this file: hostile bytes end in a `ApiStatusError` of 400 and nothing else.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Any, Final

from dray.api.json_text import read_json
from dray.errors import DecodeError
from dray.server.http.errors import ApiStatusError, new_bad_request, new_unsupported_media_type
from dray.server.http.protobuf.messages import DELETE_OPTIONS, ROOT_MESSAGES, MessageField, load_messages
from dray.server.http.protobuf.wire_format import (
    BYTES,
    VARINT,
    MalformedProtobufError,
    iter_fields,
    to_signed,
)
from dray.server.http.requests import JSON, PROTOBUF, YAML

PROTOBUF_MAGIC: Final = b"k8s\x00"
UNSUPPORTED_HINT: Final = (
    "; send JSON: daemons with --kube-api-content-type=application/json, "
    "kubectl with `--dry-run=client -o yaml | kubectl apply -f -`"
)
MAX_VALUES: Final = 200_000
"""More values than any of these kinds needs; two bytes can stand for an object of a hundred."""


def decode(body: bytes) -> dict[str, Any]:
    """The document of a protobuf body; an `ApiStatusError` of 400 or 415 when it cannot be read."""
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
    parts = {number: value for number, shape, value in iter_fields(envelope) if shape == BYTES}
    names = {
        number: value
        for number, shape, value in iter_fields(_require_bytes(parts.get(1, b"")))
        if shape == BYTES
    }
    api_version, kind = _decode_text(names.get(1, b"")), _decode_text(names.get(2, b""))
    encoding, media = _decode_text(parts.get(3, b"")), _decode_text(parts.get(4, b""))
    raw = _require_bytes(parts.get(2, b""))
    if media == JSON and not encoding:
        document = read_json(raw)
        if not isinstance(document, dict):
            raise MalformedProtobufError("the JSON inside is not an object")
        return document
    message = DELETE_OPTIONS if kind == DELETE_OPTIONS else ROOT_MESSAGES.get((api_version, kind))
    if message is None or encoding or media not in ("", PROTOBUF):
        raise _build_unsupported(api_version, kind)
    return {"apiVersion": api_version, "kind": kind, **_MessageReader().read_message(message, raw)}


def _build_unsupported(api_version: str, kind: str) -> ApiStatusError:
    what = f"; {kind or 'an object'} in {api_version or 'no version'} is not read from protobuf"
    return new_unsupported_media_type((JSON, YAML), what + UNSUPPORTED_HINT)


class _MessageReader:
    """Reads messages of one body."""

    def __init__(self) -> None:
        self._left = MAX_VALUES

    def read_message(self, name: str, data: bytes) -> dict[str, Any]:
        known = load_messages()[name]
        document: dict[str, Any] = {}
        for number, shape, value in iter_fields(data):
            self._left -= 1
            if self._left < 0:
                raise MalformedProtobufError(f"it holds more than {MAX_VALUES} values")
            member = known.get(number)
            if member is not None:
                self._set_member(document, member, shape, value)
        return document

    def _set_member(
        self, document: dict[str, Any], member: MessageField, wire_type: int, value: int | bytes
    ) -> None:
        match member.modifier:
            case "[]":
                document.setdefault(member.name, []).append(self._read_value(member.type, wire_type, value))
            case "{}":
                document.setdefault(member.name, {}).update([self._read_map_entry(member.type, value)])
            case "+":
                document |= self._read_value(member.type, wire_type, value)
            case mark:
                read = self._read_value(member.type, wire_type, value)
                if read is None or not (read or mark):
                    document.pop(member.name, None)
                else:
                    document[member.name] = read

    def _read_map_entry(self, kind: str, data: int | bytes) -> tuple[str, Any]:
        """An entry of a map is a message of key and value; either may be missing and is zero then."""
        key, read = "", self._read_value(kind, _WIRE_TYPES.get(kind, BYTES), _ZEROS.get(kind, b""))
        for number, shape, value in iter_fields(_require_bytes(data)):
            if number == 1:
                key = _decode_text(value)
            elif number == 2:
                read = self._read_value(kind, shape, value)
        return key, read

    def _read_value(self, kind: str, wire_type: int, value: int | bytes) -> Any:
        if wire_type != _WIRE_TYPES.get(kind, BYTES):
            raise MalformedProtobufError(f"a field of type {kind} has the wire type {wire_type}")
        leaf = LEAF_DECODERS.get(kind)
        return leaf(value) if leaf is not None else self.read_message(kind, _require_bytes(value))


def _require_bytes(value: int | bytes) -> bytes:
    if isinstance(value, int):
        raise MalformedProtobufError("a number stands where bytes are expected")
    return value


def _require_number(value: int | bytes) -> int:
    if isinstance(value, bytes):
        raise MalformedProtobufError("bytes stand where a number is expected")
    return value


def _decode_text(value: int | bytes) -> str:
    try:
        return _require_bytes(value).decode()
    except UnicodeDecodeError:
        raise MalformedProtobufError("a text is not valid UTF-8") from None


def _read_field(value: int | bytes, number: int, empty: int | bytes) -> int | bytes:
    """The last occurrence of one field of a small message, which is the one that counts."""
    found = empty
    for known, shape, inner in iter_fields(_require_bytes(value)):
        if known == number and (shape == VARINT) == isinstance(empty, int):
            found = inner
    return found


def _decode_timestamp(value: int | bytes) -> datetime | None:
    """A time of seconds and nanoseconds; an empty one is Go's zero time, which JSON shows as null."""
    if not _require_bytes(value):
        return None
    seconds = to_signed(_require_number(_read_field(value, 1, 0)), 64)
    nanos = to_signed(_require_number(_read_field(value, 2, 0)), 32)
    try:
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds, microseconds=nanos // 1000)
    except OverflowError:
        raise MalformedProtobufError("a time lies outside the years 1 to 9999") from None


def _decode_time(value: int | bytes) -> str | None:
    moment = _decode_timestamp(value)
    return None if moment is None else f"{moment:%Y-%m-%dT%H:%M:%SZ}".rjust(20, "0")


def _decode_micro_time(value: int | bytes) -> str | None:
    moment = _decode_timestamp(value)
    return None if moment is None else f"{moment:%Y-%m-%dT%H:%M:%S.%fZ}".rjust(27, "0")


def _decode_json(value: int | bytes) -> Any:
    text = _require_bytes(_read_field(value, 1, b""))
    return read_json(text) if text else None


def _decode_strings(value: int | bytes) -> list[str]:
    return [
        _decode_text(inner)
        for number, shape, inner in iter_fields(_require_bytes(value))
        if (number, shape) == (1, BYTES)
    ]


LEAF_DECODERS: Final[Mapping[str, Callable[[int | bytes], Any]]] = MappingProxyType(
    {
        "string": _decode_text,
        "bytes": lambda value: base64.b64encode(_require_bytes(value)).decode(),
        "bool": lambda value: bool(_require_number(value)),
        "int32": lambda value: to_signed(_require_number(value), 32),
        "int64": lambda value: to_signed(_require_number(value), 64),
        "Time": _decode_time,
        "MicroTime": _decode_micro_time,
        "Quantity": lambda value: _decode_text(_read_field(value, 1, b"")),
        "Json": _decode_json,
        "Strings": _decode_strings,
    }
)
"""Types without fields in the table, and how they are read."""

_WIRE_TYPES: Final[Mapping[str, int]] = MappingProxyType({"bool": VARINT, "int32": VARINT, "int64": VARINT})
_ZEROS: Final[Mapping[str, int | bytes]] = MappingProxyType({"bool": 0, "int32": 0, "int64": 0})
