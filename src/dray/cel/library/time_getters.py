"""The parts of timestamps and durations: `t.getFullYear()`, `d.getHours()`."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

from dray.cel import types as t
from dray.cel.declarations import Function, declare_function, declare_member_overload
from dray.cel.times import SECOND, Duration, Timestamp, parse_time_zone

_MILLI: Final = SECOND // 1000

_CALENDAR: Final[dict[str, Callable[[datetime], int]]] = {
    "getFullYear": lambda moment: moment.year,
    "getMonth": lambda moment: moment.month - 1,
    "getDate": lambda moment: moment.day,
    "getDayOfMonth": lambda moment: moment.day - 1,
    "getDayOfWeek": lambda moment: moment.isoweekday() % 7,
    "getDayOfYear": lambda moment: moment.timetuple().tm_yday - 1,
    "getHours": lambda moment: moment.hour,
    "getMinutes": lambda moment: moment.minute,
    "getSeconds": lambda moment: moment.second,
}
_DURATION_UNITS: Final = {"getHours": 3600 * SECOND, "getMinutes": 60 * SECOND, "getSeconds": SECOND}


def _make_timestamp_getter(read: Callable[[datetime], int]) -> Callable[..., int]:
    def part(stamp: Timestamp, zone: str | None = None) -> int:
        return read(stamp.to_datetime(UTC if zone is None else parse_time_zone(zone)))

    return part


def _divide_towards_zero(nanos: int, unit: int) -> int:
    """How often a unit fits, rounded towards zero."""
    return nanos // unit if nanos >= 0 else -(-nanos // unit)


def _make_duration_getter(unit: int) -> Callable[[Duration], int]:
    return lambda span: _divide_towards_zero(span.nanos, unit)


def _get_milliseconds(stamp: Timestamp, zone: str | None = None) -> int:
    if zone is not None:
        parse_time_zone(zone)
    return stamp.nanos % SECOND // _MILLI


def _declare_getter(name: str, read: Callable[..., int], span: Callable[[Duration], int] | None) -> Function:
    overloads = [
        declare_member_overload(f"timestamp_{name}", (t.TIMESTAMP,), t.INT, read),
        declare_member_overload(f"timestamp_{name}_with_tz", (t.TIMESTAMP, t.STRING), t.INT, read),
    ]
    if span is not None:
        overloads.append(declare_member_overload(f"duration_{name}", (t.DURATION,), t.INT, span))
    return declare_function(name, *overloads)


LIBRARY: Final = (
    *(
        _declare_getter(
            name,
            _make_timestamp_getter(read),
            _make_duration_getter(_DURATION_UNITS[name]) if name in _DURATION_UNITS else None,
        )
        for name, read in _CALENDAR.items()
    ),
    _declare_getter("getMilliseconds", _get_milliseconds, _make_duration_getter(_MILLI)),
)
