"""The wire format of protobuf: numbers and lengths, without any idea of what they mean.

Rules for this file: whatever the bytes are, the outcome is fields or a `MalformedProtobufError`.
"""

from __future__ import annotations

from collections.abc import Iterator

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
_FIXED = {FIXED64: 8, FIXED32: 4}
_MAX_VARINT_BYTES = 10
"""Bytes of the longest number there is."""

WireField = tuple[int, int, int | bytes]
"""Number, wire type, and what stands there."""


class MalformedProtobufError(ValueError):
    """Bytes that are not protobuf, or not the message they should be."""


def iter_fields(data: bytes) -> Iterator[WireField]:
    """The fields of a message, in order."""
    position, end = 0, len(data)
    while position < end:
        mark, position = _read_varint(data, position)
        number, shape = mark >> 3, mark & 7
        if number == 0:
            raise MalformedProtobufError("a field has the number 0")
        if shape == VARINT:
            value, position = _read_varint(data, position)
            yield number, shape, value
            continue
        if shape == BYTES:
            length, position = _read_varint(data, position)
        elif shape in _FIXED:
            length = _FIXED[shape]
        else:
            raise MalformedProtobufError(f"field {number} has the wire type {shape}, which is not in use")
        if length > end - position:
            raise MalformedProtobufError(
                f"field {number} claims {length} bytes where {end - position} are left"
            )
        yield number, shape, data[position : position + length]
        position += length


def _read_varint(data: bytes, position: int) -> tuple[int, int]:
    """A number of seven bits a byte, and where it ends."""
    value = shift = 0
    for offset in range(position, position + _MAX_VARINT_BYTES):
        if offset >= len(data):
            raise MalformedProtobufError("it ends in the middle of a number")
        byte = data[offset]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFF_FFFF_FFFF_FFFF, offset + 1
        shift += 7
    raise MalformedProtobufError(f"a number is longer than {_MAX_VARINT_BYTES} bytes")


def to_signed(value: int, bits: int) -> int:
    """A number of so many bits that may be below zero."""
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value
