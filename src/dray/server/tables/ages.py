"""Ages and durations in the form of `kubectl`: `6s`, `5m`, `3d2h`."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, Final

UNKNOWN: Final = "<unknown>"

MINUTE: Final = 60
HOUR: Final = 60 * MINUTE
DAY: Final = 24 * HOUR
YEAR: Final = 365 * DAY

_STEPS: Final = (
    # Shorter than, the unit, the finer unit shown beside it (0: none).
    (2 * MINUTE, 1, 0),
    (10 * MINUTE, MINUTE, 1),
    (3 * HOUR, MINUTE, 0),
    (8 * HOUR, HOUR, MINUTE),
    (2 * DAY, HOUR, 0),
    (8 * DAY, DAY, HOUR),
    (2 * YEAR, DAY, 0),
    (8 * YEAR, YEAR, DAY),
)
_LETTERS: Final = {1: "s", MINUTE: "m", HOUR: "h", DAY: "d", YEAR: "y"}


def format_duration(duration: timedelta) -> str:
    """Format a duration for people: the longer it is, the less exact."""
    seconds = int(duration.total_seconds())
    if seconds < 0:
        return "<invalid>" if seconds < -1 else "0s"
    for limit, unit, finer in _STEPS:
        if seconds < limit:
            rest = seconds % unit // finer if finer else 0
            return f"{seconds // unit}{_LETTERS[unit]}" + (f"{rest}{_LETTERS[finer]}" if rest else "")
    return f"{seconds // YEAR}y"


def parse_time(text: Any) -> datetime | None:
    """Parse a time of an object; None when there is none or it is malformed."""
    try:
        found = datetime.fromisoformat(text)
    except (TypeError, ValueError):
        return None
    return found if found.tzinfo is not None else None


def format_age(text: Any, now: datetime) -> str:
    """Format the age of a time of an object."""
    then = parse_time(text)
    return UNKNOWN if then is None else format_duration(now - then)
