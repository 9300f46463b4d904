"""Clocks: the system clock for services, a manual clock for tests, and timestamps in RFC 3339.

Pure packages never read the time; their callers do, once, through a `Clock`.
"""

from __future__ import annotations

import math
import time
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Protocol

_EPOCH = datetime(1970, 1, 1)


class Clock(Protocol):
    """Wall time for timestamps, monotonic seconds for time-outs and backoff."""

    def now(self) -> datetime:
        """Return the wall time, in UTC."""
        ...

    def monotonic(self) -> float:
        """Return seconds that never go back."""
        ...


class SystemClock:
    """The clock of the machine."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()


class ManualClock:
    """A clock that moves only through `advance`."""

    def __init__(self, start: datetime = datetime(2026, 1, 1, tzinfo=UTC)) -> None:
        if start.tzinfo is None:
            raise ValueError(
                "a clock starts at a time with a time zone, for example `datetime(..., tzinfo=UTC)`"
            )
        self._start = start
        self._elapsed = 0.0

    def now(self) -> datetime:
        return self._start + timedelta(seconds=self._elapsed)

    def monotonic(self) -> float:
        return self._elapsed

    def advance(self, seconds: float) -> None:
        """Move the clock forward."""
        if seconds < 0:
            raise ValueError(f"a clock cannot go back by {-seconds} seconds")
        self._elapsed += seconds


def format_timestamp(moment: datetime) -> str:
    """Format a time as RFC 3339 in UTC with whole seconds, the form of timestamps in API objects."""
    if moment.tzinfo is None:
        raise ValueError("a time without a time zone could be any time; give for example `tzinfo=UTC`")
    return _format_second(math.floor(moment.timestamp())) + "Z"


def format_micro_timestamp(moment: datetime) -> str:
    """Format a time as RFC 3339 in UTC with microseconds, for records that must keep their order."""
    return f"{_format_second(math.floor(moment.timestamp()))}.{moment.microsecond:06d}Z"


# A busy server formats the same second thousands of times.
@lru_cache(maxsize=64)
def _format_second(seconds: int) -> str:
    return (_EPOCH + timedelta(seconds=seconds)).isoformat()
