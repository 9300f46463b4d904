"""The parts of timestamps and durations: `t.getFullYear()`, `d.getHours()`."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

from dray.cel import types as t
from dray.cel.declarations import Function, function, member
from dray.cel.times import SECOND, Duration, Timestamp, zone_of

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
_SPANS: Final = {"getHours": 3600 * SECOND, "getMinutes": 60 * SECOND, "getSeconds": SECOND}


def _of_timestamp(read: Callable[[datetime], int]) -> Callable[..., int]:
    def part(stamp: Timestamp, zone: str | None = None) -> int:
        return read(stamp.at(UTC if zone is None else zone_of(zone)))

    return part


def _whole(nanos: int, unit: int) -> int:
    """How often a unit fits, rounded towards zero."""
    return nanos // unit if nanos >= 0 else -(-nanos // unit)


def _of_duration(unit: int) -> Callable[[Duration], int]:
    return lambda span: _whole(span.nanos, unit)


def _milliseconds(stamp: Timestamp, zone: str | None = None) -> int:
    if zone is not None:
        zone_of(zone)
    return stamp.nanos % SECOND // _MILLI


def _getter(name: str, read: Callable[..., int], span: Callable[[Duration], int] | None) -> Function:
    overloads = [
        member(f"timestamp_{name}", (t.TIMESTAMP,), t.INT, read),
        member(f"timestamp_{name}_with_tz", (t.TIMESTAMP, t.STRING), t.INT, read),
    ]
    if span is not None:
        overloads.append(member(f"duration_{name}", (t.DURATION,), t.INT, span))
    return function(name, *overloads)


LIBRARY: Final = (
    *(
        _getter(name, _of_timestamp(read), _of_duration(_SPANS[name]) if name in _SPANS else None)
        for name, read in _CALENDAR.items()
    ),
    _getter("getMilliseconds", _milliseconds, _of_duration(_MILLI)),
)
