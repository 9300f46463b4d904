"""The system clock, the manual clock, and timestamps of objects."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from dray.clock import ManualClock, SystemClock, format_timestamp


def test_the_system_clock_has_a_time_zone_and_never_goes_back():
    clock = SystemClock()
    before, now, after = clock.monotonic(), clock.now(), clock.monotonic()
    assert now.utcoffset() == timedelta(0)
    assert before <= after


def test_a_manual_clock_stands_still_until_it_is_advanced():
    clock = ManualClock(datetime(2026, 3, 1, tzinfo=UTC))
    assert (clock.now(), clock.monotonic()) == (datetime(2026, 3, 1, tzinfo=UTC), 0.0)
    assert clock.now() == clock.now()
    clock.advance(90)
    clock.advance(0.5)
    assert clock.now() == datetime(2026, 3, 1, 0, 1, 30, 500_000, tzinfo=UTC)
    assert clock.monotonic() == 90.5


def test_time_does_not_go_back():
    with pytest.raises(ValueError, match="cannot go back by 5 seconds"):
        ManualClock().advance(-5)


def test_a_manual_clock_needs_a_time_zone():
    with pytest.raises(ValueError, match="time zone"):
        ManualClock(datetime(2026, 3, 1))


@pytest.mark.parametrize(
    ("moment", "text"),
    [
        (datetime(2026, 1, 31, 12, 0, 5, tzinfo=UTC), "2026-01-31T12:00:05Z"),
        (datetime(2026, 1, 31, 12, 0, 5, 999_999, tzinfo=UTC), "2026-01-31T12:00:05Z"),
        (datetime(2026, 1, 31, 1, tzinfo=timezone(timedelta(hours=2))), "2026-01-30T23:00:00Z"),
        (datetime(1, 2, 3, tzinfo=UTC), "0001-02-03T00:00:00Z"),
    ],
)
def test_a_timestamp_is_utc_with_whole_seconds(moment, text):
    assert format_timestamp(moment) == text


def test_a_time_without_a_zone_is_no_timestamp():
    with pytest.raises(ValueError, match="time zone"):
        format_timestamp(datetime(2026, 1, 31))
