"""The table of limits is complete and readable."""

from __future__ import annotations

from dataclasses import fields

import pytest

from dray.errors import InputError
from dray.server.http.limits import LIMITS, ServerLimits, list_rows, parse_limits


def test_every_limit_has_a_row():
    assert [row.name for row in LIMITS] == [field.name for field in fields(ServerLimits)]


@pytest.mark.parametrize(
    ("word", "shown"),
    [
        ("max-body-bytes", "3 MiB"),
        ("max-object-bytes", "1.5 MiB"),
        ("max-header-bytes", "64 KiB"),
        ("max-watches", "10,000 watches"),
        ("queue-seconds", "10 seconds"),
        ("requests-per-second", "0 requests"),
    ],
)
def test_defaults_are_formatted_with_units(word, shown):
    assert {row[0]: row[2] for row in list_rows()}[word] == shown


def test_limits_are_read_from_the_command_line():
    assert parse_limits(["max-watches=7", "queue-seconds=0.5"]) == ServerLimits(
        max_watches=7, queue_seconds=0.5
    )
    assert parse_limits([]) == ServerLimits()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("max-watch=7", "no such limit `max-watch`; did you mean `max-watches`?"),
        ("=7", "no such limit ``; there are max-body-bytes"),
        ("max-watches", "limit `max-watches`: expected a whole number of watches, not ``"),
        ("max-watches=1.5", "expected a whole number of watches, not `1.5`"),
        ("max-watches=-1", "expected a whole number"),
        ("queue-seconds=inf", "limit `queue-seconds`: expected a number of seconds, not `inf`"),
        ("queue-seconds=nan", "expected a number"),
    ],
)
def test_an_invalid_limit_is_reported_in_one_line(text, words):
    with pytest.raises(InputError) as wrong:
        parse_limits([text])
    assert words in str(wrong.value)
