"""The table of limits is complete and readable."""

from __future__ import annotations

from dataclasses import fields

import pytest

from dray.server.limits import LIMITS, Limits, rows


def test_every_limit_has_a_row_with_a_flag():
    assert [row.name for row in LIMITS] == [field.name for field in fields(Limits)]
    assert all(row.flag == "--" + row.name.replace("_", "-") for row in LIMITS)


@pytest.mark.parametrize(
    ("flag", "shown"),
    [
        ("--max-body-bytes", "3 MiB"),
        ("--max-object-bytes", "1.5 MiB"),
        ("--max-header-bytes", "64 KiB"),
        ("--max-watches", "10,000 watches"),
        ("--queue-seconds", "10 seconds"),
        ("--requests-per-second", "0 requests"),
    ],
)
def test_defaults_are_shown_as_people_read_them(flag, shown):
    assert {row[0]: row[2] for row in rows()}[flag] == shown
