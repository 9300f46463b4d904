"""Time as an argument: the clock services read, and the one tests turn by hand.

Pure packages never ask for the time; whoever calls them does, once, through a `Clock`.
"""

from __future__ import annotations

import math
import time
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Protocol

_EPOCH = datetime(1970, 1, 1)


class Clock(Protocol):
    """Wall time for what people read, monotonic seconds for what must not jump."""

    def now(self) -> datetime:
        """The wall time, in UTC."""
        ...

    def monotonic(self) -> float:
        """Seconds that only go forward; for time-outs and backoff."""
        ...


class SystemClock:
    """The clock of the machine."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()


class ManualClock:
    """A clock that moves only when told to."""

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
        """Let `seconds` pass; time never goes back."""
        if seconds < 0:
            raise ValueError(f"a clock cannot go back by {-seconds} seconds")
        self._elapsed += seconds


def format_timestamp(moment: datetime) -> str:
    """RFC 3339 in UTC with whole seconds, the form of timestamps in API objects."""
    if moment.tzinfo is None:
        raise ValueError("a time without a time zone could be any time; give for example `tzinfo=UTC`")
    return _format_second(math.floor(moment.timestamp())) + "Z"


def format_micro_timestamp(moment: datetime) -> str:
    """RFC 3339 in UTC to the microsecond; for records that must keep their order."""
    return f"{_format_second(math.floor(moment.timestamp()))}.{moment.microsecond:06d}Z"


# A busy server writes the same second thousands of times.
@lru_cache(maxsize=64)
def _format_second(seconds: int) -> str:
    return (_EPOCH + timedelta(seconds=seconds)).isoformat()
