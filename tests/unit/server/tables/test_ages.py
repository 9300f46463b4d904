"""Durations in the format of kubectl."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dray.server.tables.ages import format_age, format_duration

MINUTE, HOUR, DAY = 60, 3600, 86400


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-5, "<invalid>"),
        (-1, "0s"),
        (0, "0s"),
        (6, "6s"),
        (119, "119s"),
        (120, "2m"),
        (125, "2m5s"),
        (5 * MINUTE, "5m"),
        (10 * MINUTE, "10m"),
        (179 * MINUTE + 59, "179m"),
        (3 * HOUR, "3h"),
        (3 * HOUR + 5 * MINUTE, "3h5m"),
        (8 * HOUR + 59 * MINUTE, "8h"),
        (47 * HOUR, "47h"),
        (48 * HOUR, "2d"),
        (3 * DAY + 2 * HOUR, "3d2h"),
        (8 * DAY + 2 * HOUR, "8d"),
        (729 * DAY, "729d"),
        (730 * DAY, "2y"),
        (740 * DAY, "2y10d"),
        (8 * 365 * DAY + 9 * DAY, "8y"),
    ],
)
def test_the_longer_the_less_exact(seconds, text):
    assert format_duration(timedelta(seconds=seconds)) == text


@given(st.integers(0, 10**9))
def test_a_duration_is_short_and_never_zero_of_something(seconds):
    text = format_duration(timedelta(seconds=seconds))
    assert len(text) <= 6
    assert text == "0s" or text[0] != "0"


@pytest.mark.parametrize("text", [None, "", "yesterday", 5, "2027-01-15T08:00:00", {}])
def test_a_time_that_is_none_is_unknown(text):
    assert format_age(text, datetime(2027, 1, 1, tzinfo=UTC)) == "<unknown>"


def test_times_of_both_forms_are_read():
    now = datetime(2027, 1, 15, 8, 0, 30, tzinfo=UTC)
    assert format_age("2027-01-15T08:00:00Z", now) == "30s"
    assert format_age("2027-01-15T08:00:00.500000Z", now) == "29s"
