"""A minimal protobuf encoder, so that tests can build arbitrary bytes."""

from __future__ import annotations


def number(value: int) -> bytes:
    """Encode a varint."""
    value &= 0xFFFF_FFFF_FFFF_FFFF
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def put(field: int, value: int | str | bytes) -> bytes:
    """Encode one field: an integer as a varint, anything else with its length."""
    if isinstance(value, int):
        return number(field << 3) + number(value)
    data = value.encode() if isinstance(value, str) else value
    return number(field << 3 | 2) + number(len(data)) + data


def message(*fields: tuple[int, int | str | bytes]) -> bytes:
    return b"".join(put(field, value) for field, value in fields)


def body(api_version: str, kind: str, raw: bytes, *more: tuple[int, int | str | bytes]) -> bytes:
    """Build a request body: the message in its envelope after the magic prefix."""
    return b"k8s\x00" + message((1, message((1, api_version), (2, kind))), (2, raw), *more)
