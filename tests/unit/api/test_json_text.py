"""JSON text: every digit is kept, every problem is a `DecodeError`, no value is silently changed."""

from __future__ import annotations

from datetime import date
from decimal import Decimal

import pytest

from dray.api.json_text import (
    MAX_DEPTH,
    MAX_REPORTED_ERRORS,
    MAX_VALUES,
    find_duplicate_fields,
    find_non_json_values,
    is_json,
    read_json,
    write_json,
)
from dray.errors import DecodeError


def nested(depth: int) -> bytes:
    return b"[" * depth + b"]" * depth


@pytest.mark.req("K3063-027")
@pytest.mark.parametrize(
    "text",
    [
        b"123456789012345678901234567890",
        b"-123456789012345678901234567890",
        b"0.123456789012345678901234567890",
        b"1.10",
        b"1E+400",
        b"1E-400",
        b"-0.0",
        b'"\xc3\xa9 \xe2\x82\xac \xf0\x9f\x9a\x80 \\u0000"',
        b'{"b":1,"a":[true,false,null,{}],"":""}',
    ],
)
def test_what_is_read_is_written_again_digit_by_digit(text):
    assert write_json(read_json(text)) == text


BROKEN = {
    "nothing": b"",
    "space": b" ",
    "open": b"{",
    "comma": b"[1,]",
    "zero": b"01",
    "nan": b"NaN",
    "word": b"nul",
    "escape": rb'"\x41"',
    "surrogate": rb'"\ud800"',
    "backwards": rb'"\udc00\ud800"',
    "control": b'"\n"',
    "utf-8": b'"\xff"',
    "mark": b"\xef\xbb\xbf{}",
    "two": b"{} {}",
    "digits": b"1" * 5000,
    "exponent": b"1e99999999999999999999",
    "deep": nested(100_000),
}


@pytest.mark.parametrize("text", BROKEN.values(), ids=BROKEN)
def test_broken_text_is_a_decode_error(text):
    with pytest.raises(DecodeError, match=r"^not JSON"):
        read_json(text)


STRANGE = {
    "nan": (float("nan"), "finite"),
    "infinity": (float("-inf"), "finite"),
    "decimal nan": (Decimal("sNaN"), "finite"),
    "decimal infinity": (Decimal("Infinity"), "finite"),
    "digits": (10**5000, "digits"),
    "date": (date(2026, 1, 1), "got `date`"),
    "set": ({1}, "got `set`"),
    "bytes": (b"x", "got `bytes`"),
    "surrogate": ("a\ud800", "Unicode"),
}


@pytest.mark.parametrize(("value", "why"), STRANGE.values(), ids=STRANGE)
def test_what_json_cannot_hold_is_reported_with_its_path(value, why):
    (found,) = find_non_json_values({"a": 1, "b": [None, {"c": value}]})
    assert found.path == "b[1].c"
    assert why in str(found)


@pytest.mark.parametrize("key", [1, 1.5, True, None, ("a",), "\udc00"], ids=repr)
def test_keys_are_text(key):
    (found,) = find_non_json_values({"a": {key: 1}})
    assert found.path == f"a[{key!a}]"


def test_every_value_that_is_not_json_is_reported():
    strangers = find_non_json_values(
        {"a": float("nan"), "b": [1, {2: 3}, b""], "c": {"ok": Decimal("1.5"), "€": "€"}}
    )
    assert [found.path for found in strangers] == ["a", "b[1][2]", "b[2]"]


def test_nesting_is_limited():
    assert find_non_json_values(read_json(nested(MAX_DEPTH))) == []
    (found,) = find_non_json_values({"a": read_json(nested(MAX_DEPTH))})
    assert f"nested more than {MAX_DEPTH} levels deep" in str(found)


def wrap(depth: int, inner: bytes) -> bytes:
    return b'{"a":[' * (depth // 2) + inner + b"]}" * (depth // 2)


TEXTS = (
    *(nested(depth) for depth in (1, MAX_DEPTH - 1, MAX_DEPTH, MAX_DEPTH + 1, MAX_DEPTH + 50)),
    *(wrap(depth, b"{}") for depth in (2, MAX_DEPTH - 2, MAX_DEPTH, MAX_DEPTH + 2)),
    *(wrap(depth, b'["]]]}}", 1.5, null, true, {"k": "\\u00e9"}]') for depth in (MAX_DEPTH - 4, MAX_DEPTH)),
    b"[" + b",".join([b'{"a":{"b":[]}}'] * 200) + b"]",
    b"[" + b",".join([b"{}"] * 200) + b"," + b"1" * 3899 + b"]",
    b"[" + b",".join([b"{}"] * 200) + b"," + b"1" * 3950 + b"]",
    b"[" + b",".join([b"{}"] * 200) + b"," + nested(MAX_DEPTH) + b"]",
    b"7",
    b'"text"',
    b"[" + b"1," * MAX_VALUES + b"1]",
)


@pytest.mark.parametrize("text", TEXTS, ids=range(len(TEXTS)))
def test_the_quick_test_of_a_text_agrees_with_the_walk(text):
    value = read_json(text)
    assert is_json(text, value) == (not find_non_json_values(value))


@pytest.mark.parametrize("text", ["a\ud800", "\udfff", "\ud83d\ude00", "\ud7ff\ue000\U0001f600é"])
def test_a_text_with_half_of_a_surrogate_pair_is_refused_wherever_it_stands(text):
    is_half = any("\ud800" <= character <= "\udfff" for character in text)
    for value in (text, [text], {"a": text}, {text: 1}, {"a": [None, {"b": text}]}):
        assert bool(find_non_json_values(value)) == is_half


def test_a_value_that_contains_itself_is_refused():
    endless: list[object] = []
    endless += [endless, endless, endless]
    found = find_non_json_values({"a": endless})
    assert 0 < len(found) <= MAX_REPORTED_ERRORS + 1
    assert "levels deep" in str(found[0])


def test_a_value_that_occurs_too_often_is_refused():
    bomb: object = "x"
    for _ in range(10):
        bomb = [bomb] * 10
    (found,) = find_non_json_values({"a": bomb})
    assert f"more than {MAX_VALUES} values" in str(found)


@pytest.mark.parametrize("value", [{1, 2}.__iter__(), object(), "\ud800", 10**5000], ids=type)
def test_what_cannot_be_written_is_a_decode_error(value):
    with pytest.raises(DecodeError, match="cannot be written as JSON"):
        write_json(value)


def test_what_nests_without_end_cannot_be_written():
    deep: list[object] = []
    deep.append(deep)
    with pytest.raises(DecodeError, match="nested too deeply"):
        write_json(deep)


@pytest.mark.parametrize(
    ("text", "twice"),
    [
        (b'{"a": 1, "b": {"a": 2}}', ()),
        (b'{"a": 1, "a": 2}', ("a",)),
        (b'{"a": [{"b": 1, "c": 2, "b": 3}, {"b": 1}], "a": 1, "a": 2}', ("a[0].b", "a", "a")),
        (b"[1, 1]", ()),
    ],
)
def test_a_duplicate_field_is_found(text, twice):
    assert find_duplicate_fields(text) == twice


@pytest.mark.parametrize("text", [b"{", b'{"a": 1', b'{"a": {"b": 1, "b": 2}, x', nested(100_000), b'"\xff"'])
def test_looking_for_duplicates_in_broken_text_is_a_decode_error(text):
    with pytest.raises(DecodeError, match="not JSON"):
        find_duplicate_fields(text)


def test_duplicates_are_found_down_to_where_reading_ends():
    for depth in (10, 500, 900, 980, 990, 1000, 3000):
        text = b'{"a":' * depth + b'{"b":1,"b":2}' + b"}" * depth
        try:
            found = find_duplicate_fields(text)
        except DecodeError:
            continue
        assert found == (".".join(["a"] * depth + ["b"]),)
