"""Values of unquoted YAML scalars."""

from __future__ import annotations

from decimal import Decimal

import pytest

from dray.manifests.scalars import resolve_scalar, to_key_text


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("true", True),
        ("on", True),
        ("Yes", True),
        ("y", True),
        ("NO", False),
        ("off", False),
        ("n", False),
        ("tRUE", "tRUE"),
        ("", None),
        ("~", None),
        ("Null", None),
        ("12", 12),
        ("+12", 12),
        ("-12", -12),
        ("1_000", 1000),
        ("0777", 511),
        ("0o17", 15),
        ("0x1F", 31),
        ("-0b11", -3),
        ("08", 8),
        ("0x", "0x"),
        ("1e3", 1000),
        ("2.0", 2),
        ("-0.0", 0),
        ("0.1", Decimal("0.1")),
        (".5", Decimal("0.5")),
        ("1.50", Decimal("1.50")),
        ("1e21", Decimal("1e21")),
        ("1e400", "1e400"),
        ("1e99999999999999999999", "1e99999999999999999999"),
        ("9" * 401, "9" * 401),
        ("9223372036854775808", 9223372036854775808),
        ("2026-01-31", "2026-01-31"),
        ("2026-01-31T12:00:00Z", "2026-01-31T12:00:00Z"),
        ("1:30", "1:30"),
        ("10Gi", "10Gi"),
        ("1.2.3", "1.2.3"),
        ("-", "-"),
        ("+", "+"),
        ("_1", "_1"),
        ("12e", "12e"),
    ],
)
def test_meaning_of_a_word(word: str, value: object) -> None:
    found = resolve_scalar(word)
    assert found == value
    assert type(found) is type(value)


def test_a_fraction_keeps_every_digit() -> None:
    digits = "0.1234567890123456789012345678901234567890"
    assert str(resolve_scalar(digits)) == digits


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("a", "a"),
        (True, "true"),
        (False, "false"),
        (7, "7"),
        (Decimal("1.5"), "1.5"),
        (None, None),
        ([], None),
    ],
)
def test_keys_become_text(key: object, text: str | None) -> None:
    assert to_key_text(key) == text
