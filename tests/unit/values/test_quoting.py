"""Quoting of input in messages."""

from __future__ import annotations

import pytest

from dray.values.quoting import quote_text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("", "``"),
        ("1Gi", "`1Gi`"),
        ("größe", "`größe`"),
        ("a\nb\x00", r"`a\nb\x00`"),
        ("\u202egnp", r"`\u202egnp`"),
        ("x" * 64, f"`{'x' * 64}`"),
        ("x" * 65, f"`{'x' * 20}…`"),
    ],
)
def test_a_quotation_is_short_and_prints_on_one_line(text, shown):
    assert quote_text(text) == shown
