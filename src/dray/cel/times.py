"""Durations and timestamps, exact to the nanosecond.

Theory of operation: both are one whole number of nanoseconds, a duration counted from zero, a timestamp from
1970. Text is that of Go: `1h30m`, `1.5s`, RFC 3339. A duration fits into 64 bits, a timestamp lies in the
years 1 to 9999; everything outside is an error, not a wrapped number.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from dray.cel.faults import CelError

SECOND: Final = 1_000_000_000
_MAX_DURATION: Final = 2**63 - 1
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MIN_TIMESTAMP: Final = -62_135_596_800 * SECOND
_MAX_TIMESTAMP: Final = 253_402_300_800 * SECOND - 1

_UNITS: Final = {
    "ns": 1,
    "us": 1_000,
    "µs": 1_000,
    "μs": 1_000,
    "ms": 1_000_000,
    "s": SECOND,
    "m": 60 * SECOND,
    "h": 3600 * SECOND,
}
_PIECE = re.compile(r"([0-9]*)(?:\.([0-9]*))?(ns|us|µs|μs|ms|s|m|h)", re.ASCII)
_RFC3339 = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})T([0-9]{2}:[0-9]{2}:[0-9]{2})(?:[.,]([0-9]+))?(Z|[+-][0-9]{2}:[0-9]{2})"
)
_OFFSET = re.compile(r"([+-]?)([0-9]{1,2}):([0-9]{2})", re.ASCII)
_MAX_TEXT: Final = 100


@dataclass(frozen=True, slots=True, order=True)
class Duration:
    """A length of time in nanoseconds."""

    nanos: int

    def __post_init__(self) -> None:
        if abs(self.nanos) > _MAX_DURATION:
            raise CelError("duration overflow")

    def __str__(self) -> str:
        sign = "-" if self.nanos < 0 else ""
        seconds, rest = divmod(abs(self.nanos), SECOND)
        fraction = f".{rest:09d}".rstrip("0") if rest else ""
        return f"{sign}{seconds}{fraction}s"


@dataclass(frozen=True, slots=True, order=True)
class Timestamp:
    """A point in time, in nanoseconds since 1970."""

    nanos: int

    def __post_init__(self) -> None:
        if not _MIN_TIMESTAMP <= self.nanos <= _MAX_TIMESTAMP:
            raise CelError("timestamp overflow")

    def __str__(self) -> str:
        seconds, rest = divmod(self.nanos, SECOND)
        fraction = f".{rest:09d}".rstrip("0") if rest else ""
        moment = _EPOCH.replace(tzinfo=None) + timedelta(seconds=seconds)
        return f"{moment.isoformat()}{fraction}Z"

    def to_datetime(self, zone: tzinfo) -> datetime:
        """The calendar's view; without nanoseconds, which no getter asks the calendar for."""
        try:
            return (_EPOCH + timedelta(seconds=self.nanos // SECOND)).astimezone(zone)
        except OverflowError:
            raise CelError("timestamp overflow") from None


def parse_duration(text: str) -> Duration:
    """Read `1h30m`, `-1.5s`, `0`."""
    body = text[1:] if text[:1] in ("+", "-") else text
    if body == "0":
        return Duration(0)
    nanos = _sum_pieces(body) if body and len(text) <= _MAX_TEXT else None
    if nanos is None:
        raise CelError("type conversion error from 'string' to 'google.protobuf.Duration'")
    return Duration(-nanos if text[0] == "-" else nanos)


def _sum_pieces(body: str) -> int | None:
    nanos, place = 0, 0
    while place < len(body):
        piece = _PIECE.match(body, place)
        if piece is None or not (piece[1] or piece[2]):
            return None
        unit = _UNITS[piece[3]]
        digits = piece[2] or ""
        nanos += int(piece[1] or "0") * unit + int(digits or "0") * unit // 10 ** len(digits)
        place = piece.end()
    return nanos


def parse_timestamp(text: str) -> Timestamp:
    """Read RFC 3339: `2024-01-31T12:00:00.5Z`, `2024-01-31T12:00:00+01:00`."""
    match = _RFC3339.fullmatch(text) if len(text) <= _MAX_TEXT else None
    if match is None:
        raise _make_timestamp_error()
    day, clock, digits, zone = match.groups()
    try:
        moment = datetime.fromisoformat(f"{day}T{clock}{'+00:00' if zone == 'Z' else zone}")
        seconds = (moment - _EPOCH) // timedelta(seconds=1)
    except (ValueError, OverflowError):
        raise _make_timestamp_error() from None
    return Timestamp(seconds * SECOND + int((digits or "0")[:9].ljust(9, "0")))


def _make_timestamp_error() -> CelError:
    return CelError("type conversion error from 'string' to 'google.protobuf.Timestamp'")


def parse_time_zone(name: str) -> tzinfo:
    """A time zone by name (`Europe/Paris`, `UTC`) or by offset (`+01:00`)."""
    if len(name) > _MAX_TEXT:
        raise CelError(f"unknown time zone {name[:64]}")
    offset = _OFFSET.fullmatch(name)
    if offset is not None:
        away = timedelta(hours=int(offset[2]), minutes=int(offset[3]))
        if away < timedelta(days=1):
            return timezone(-away if offset[1] == "-" else away)
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise CelError(f"unknown time zone {name[:64]}") from None
