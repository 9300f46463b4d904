"""Versions are in one total order, the one of the specification."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dray.values.semver import Version, VersionError
from tests.property.strategies import values as v


def compared(left: str, right: str) -> int:
    """-1, 0 or 1: the rules of precedence, applied to the texts one after the other."""
    (left_core, left_words), (right_core, right_words) = dissected(left), dissected(right)
    if left_core != right_core:
        return -1 if left_core < right_core else 1
    if not left_words or not right_words:
        return bool(right_words) - bool(left_words)
    for one, other in zip(left_words, right_words, strict=False):
        if one == other:
            continue
        if one.isdigit() and other.isdigit():
            return -1 if int(one) < int(other) else 1
        if one.isdigit() != other.isdigit():
            return -1 if one.isdigit() else 1
        return -1 if one < other else 1
    return (len(left_words) > len(right_words)) - (len(left_words) < len(right_words))


def dissected(text: str) -> tuple[list[int], list[str]]:
    core, _, words = text.split("+")[0].partition("-")
    return [int(part) for part in core.split(".")], words.split(".") if words else []


@given(v.versions(), v.versions())
def test_the_order_is_the_one_of_the_specification(left: str, right: str) -> None:
    one, other, expected = Version.parse(left), Version.parse(right), compared(left, right)
    assert (one < other, one == other, one > other) == (expected < 0, expected == 0, expected > 0)
    assert (one <= other, one >= other, one != other) == (expected <= 0, expected >= 0, expected != 0)
    if one == other:
        assert hash(one) == hash(other)


@given(v.versions(), v.build_identifiers)
def test_build_metadata_changes_nothing_but_the_text(text: str, build: str) -> None:
    bare = text.partition("+")[0]
    assert Version.parse(bare) == Version.parse(f"{bare}+{build}") == Version.parse(text)
    assert str(Version.parse(text)) == text


@given(st.text(max_size=20) | st.text("0123.-+av ", max_size=20))
def test_any_text_is_read_and_kept_or_refused(text: str) -> None:
    try:
        version = Version.parse(text)
    except VersionError:
        return
    assert str(version) == text
    assert text.isascii()
    assert dissected(text)[0] == [version.major, version.minor, version.patch]
