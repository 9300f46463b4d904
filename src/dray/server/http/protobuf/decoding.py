"""A protobuf body to a JSON document: the envelope, then the message inside by the table of messages.

Theory of operation: Kubernetes wraps a message into `runtime.Unknown`, which says what kind it is, behind
four bytes of magic. A message is read field by field; what the table does not name is passed over, as Go
does. Go writes zero values that JSON leaves out, so a zero is kept only where the table says that Go tells it
from nothing. The depth is that of the table, and a budget bounds how many values come out of a body.

Rules for this file: hostile bytes end in a `Failure` of 400 and nothing else.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Any, Final

from dray.api.json_text import read_json
from dray.errors import DecodeError
from dray.server.http.content_negotiation import JSON, PROTOBUF, YAML
from dray.server.http.errors import Failure, bad_request, unsupported_media
from dray.server.http.protobuf.messages import OPTIONS, ROOTS, Member, messages
from dray.server.http.protobuf.wire_format import BYTES, VARINT, Malformed, fields, signed

MAGIC: Final = b"k8s\x00"
HINT: Final = (
    "; send JSON: daemons with --kube-api-content-type=application/json, "
    "kubectl with `--dry-run=client -o yaml | kubectl apply -f -`"
)
MOST_VALUES: Final = 200_000
"""More values than any of these kinds needs; two bytes can stand for an object of a hundred."""


def decode(body: bytes) -> dict[str, Any]:
    """The document that a protobuf body stands for; a `Failure` of 400 or 415 when it cannot be read."""
    if not body.startswith(MAGIC):
        raise bad_request("the body is not Kubernetes protobuf: it does not begin with `k8s` and a zero byte")
    try:
        return _opened(body[len(MAGIC) :])
    except Malformed as broken:
        raise bad_request(f"the body is not Kubernetes protobuf: {broken}") from None
    except DecodeError as broken:
        raise bad_request(f"the body holds a value that is {broken}") from None


def _opened(envelope: bytes) -> dict[str, Any]:
    parts = {number: value for number, shape, value in fields(envelope) if shape == BYTES}
    names = {number: value for number, shape, value in fields(_bytes(parts.get(1, b""))) if shape == BYTES}
    api_version, kind = _text(names.get(1, b"")), _text(names.get(2, b""))
    encoding, media = _text(parts.get(3, b"")), _text(parts.get(4, b""))
    raw = _bytes(parts.get(2, b""))
    if media == JSON and not encoding:
        document = read_json(raw)
        if not isinstance(document, dict):
            raise Malformed("the JSON inside is not an object")
        return document
    message = OPTIONS if kind == OPTIONS else ROOTS.get((api_version, kind))
    if message is None or encoding or media not in ("", PROTOBUF):
        raise _unsupported(api_version, kind)
    return {"apiVersion": api_version, "kind": kind, **_Reader().message(message, raw)}


def _unsupported(api_version: str, kind: str) -> Failure:
    what = f"; {kind or 'an object'} in {api_version or 'no version'} is not read from protobuf"
    return unsupported_media((JSON, YAML), what + HINT)


class _Reader:
    """Reads messages of one body."""

    def __init__(self) -> None:
        self._left = MOST_VALUES

    def message(self, name: str, data: bytes) -> dict[str, Any]:
        known = messages()[name]
        document: dict[str, Any] = {}
        for number, shape, value in fields(data):
            self._left -= 1
            if self._left < 0:
                raise Malformed(f"it holds more than {MOST_VALUES} values")
            member = known.get(number)
            if member is not None:
                self._put(document, member, shape, value)
        return document

    def _put(self, document: dict[str, Any], member: Member, shape: int, value: int | bytes) -> None:
        match member.mark:
            case "[]":
                document.setdefault(member.name, []).append(self._value(member.type, shape, value))
            case "{}":
                document.setdefault(member.name, {}).update([self._entry(member.type, value)])
            case "+":
                document |= self._value(member.type, shape, value)
            case mark:
                read = self._value(member.type, shape, value)
                if read is None or not (read or mark):
                    document.pop(member.name, None)
                else:
                    document[member.name] = read

    def _entry(self, kind: str, data: int | bytes) -> tuple[str, Any]:
        """An entry of a map is a message of key and value; either may be missing and is zero then."""
        key, read = "", self._value(kind, _SHAPES.get(kind, BYTES), _ZEROS.get(kind, b""))
        for number, shape, value in fields(_bytes(data)):
            if number == 1:
                key = _text(value)
            elif number == 2:
                read = self._value(kind, shape, value)
        return key, read

    def _value(self, kind: str, shape: int, value: int | bytes) -> Any:
        if shape != _SHAPES.get(kind, BYTES):
            raise Malformed(f"a field of type {kind} has the wire type {shape}")
        leaf = LEAVES.get(kind)
        return leaf(value) if leaf is not None else self.message(kind, _bytes(value))


def _bytes(value: int | bytes) -> bytes:
    if isinstance(value, int):
        raise Malformed("a number stands where bytes are expected")
    return value


def _number(value: int | bytes) -> int:
    if isinstance(value, bytes):
        raise Malformed("bytes stand where a number is expected")
    return value


def _text(value: int | bytes) -> str:
    try:
        return _bytes(value).decode()
    except UnicodeDecodeError:
        raise Malformed("a text is not valid UTF-8") from None


def _first(value: int | bytes, number: int, empty: int | bytes) -> int | bytes:
    """The last occurrence of one field of a small message, which is the one that counts."""
    found = empty
    for known, shape, inner in fields(_bytes(value)):
        if known == number and (shape == VARINT) == isinstance(empty, int):
            found = inner
    return found


def _moment(value: int | bytes) -> datetime | None:
    """A time of seconds and nanoseconds; an empty one is Go's zero time, which JSON shows as null."""
    if not _bytes(value):
        return None
    seconds = signed(_number(_first(value, 1, 0)), 64)
    nanos = signed(_number(_first(value, 2, 0)), 32)
    try:
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds, microseconds=nanos // 1000)
    except OverflowError:
        raise Malformed("a time lies outside the years 1 to 9999") from None


def _time(value: int | bytes) -> str | None:
    moment = _moment(value)
    return None if moment is None else f"{moment:%Y-%m-%dT%H:%M:%SZ}".rjust(20, "0")


def _micro_time(value: int | bytes) -> str | None:
    moment = _moment(value)
    return None if moment is None else f"{moment:%Y-%m-%dT%H:%M:%S.%fZ}".rjust(27, "0")


def _json(value: int | bytes) -> Any:
    text = _bytes(_first(value, 1, b""))
    return read_json(text) if text else None


def _strings(value: int | bytes) -> list[str]:
    return [_text(inner) for number, shape, inner in fields(_bytes(value)) if (number, shape) == (1, BYTES)]


LEAVES: Final[Mapping[str, Callable[[int | bytes], Any]]] = MappingProxyType(
    {
        "string": _text,
        "bytes": lambda value: base64.b64encode(_bytes(value)).decode(),
        "bool": lambda value: bool(_number(value)),
        "int32": lambda value: signed(_number(value), 32),
        "int64": lambda value: signed(_number(value), 64),
        "Time": _time,
        "MicroTime": _micro_time,
        "Quantity": lambda value: _text(_first(value, 1, b"")),
        "Json": _json,
        "Strings": _strings,
    }
)
"""Types without fields in the table, and how they are read."""

_SHAPES: Final[Mapping[str, int]] = MappingProxyType({"bool": VARINT, "int32": VARINT, "int64": VARINT})
_ZEROS: Final[Mapping[str, int | bytes]] = MappingProxyType({"bool": 0, "int32": 0, "int64": 0})
