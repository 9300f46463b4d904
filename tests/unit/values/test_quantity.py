"""Quantities: values, texts, arithmetic, and what is refused."""

from __future__ import annotations

import copy
import pickle
from fractions import Fraction

import pytest

from dray.values.quantity import ZERO, Quantity, QuantityError, QuantityForm

GI = 2**30

# text, value, canonical text, form
READINGS = [
    ("0", 0, "0", QuantityForm.DECIMAL),
    ("-0", 0, "0", QuantityForm.DECIMAL),
    ("00", 0, "0", QuantityForm.DECIMAL),
    ("0.0", 0, "0", QuantityForm.DECIMAL),
    ("0Gi", 0, "0", QuantityForm.BINARY),
    ("0e99", 0, "0", QuantityForm.EXPONENT),
    ("1", 1, "1", QuantityForm.DECIMAL),
    ("+1", 1, "1", QuantityForm.DECIMAL),
    ("-1", -1, "-1", QuantityForm.DECIMAL),
    ("001", 1, "1", QuantityForm.DECIMAL),
    ("5.", 5, "5", QuantityForm.DECIMAL),
    (".5", Fraction(1, 2), "500m", QuantityForm.DECIMAL),
    ("-.5", Fraction(-1, 2), "-500m", QuantityForm.DECIMAL),
    ("5.G", 5 * 10**9, "5G", QuantityForm.DECIMAL),
    ("1.500", Fraction(3, 2), "1500m", QuantityForm.DECIMAL),
    ("0.1", Fraction(1, 10), "100m", QuantityForm.DECIMAL),
    ("1n", Fraction(1, 10**9), "1n", QuantityForm.DECIMAL),
    ("1000n", Fraction(1, 10**6), "1u", QuantityForm.DECIMAL),
    ("1.5u", Fraction(3, 2 * 10**6), "1500n", QuantityForm.DECIMAL),
    ("100m", Fraction(1, 10), "100m", QuantityForm.DECIMAL),
    ("1000m", 1, "1", QuantityForm.DECIMAL),
    ("1k", 1000, "1k", QuantityForm.DECIMAL),
    ("1000", 1000, "1k", QuantityForm.DECIMAL),
    ("1024", 1024, "1024", QuantityForm.DECIMAL),
    ("1.01E", 1010 * 10**15, "1010P", QuantityForm.DECIMAL),
    ("2M", 2 * 10**6, "2M", QuantityForm.DECIMAL),
    ("2G", 2 * 10**9, "2G", QuantityForm.DECIMAL),
    ("2T", 2 * 10**12, "2T", QuantityForm.DECIMAL),
    ("2P", 2 * 10**15, "2P", QuantityForm.DECIMAL),
    ("9E", 9 * 10**18, "9E", QuantityForm.DECIMAL),
    ("1Ki", 1024, "1Ki", QuantityForm.BINARY),
    ("1024Ki", 2**20, "1Mi", QuantityForm.BINARY),
    ("1000Ki", 1024000, "1000Ki", QuantityForm.BINARY),
    ("1.5Gi", 3 * GI // 2, "1536Mi", QuantityForm.BINARY),
    ("40960Mi", 40 * GI, "40Gi", QuantityForm.BINARY),
    ("1Ti", 2**40, "1Ti", QuantityForm.BINARY),
    ("1Pi", 2**50, "1Pi", QuantityForm.BINARY),
    ("7Ei", 7 * 2**60, "7Ei", QuantityForm.BINARY),
    ("-1Gi", -GI, "-1Gi", QuantityForm.BINARY),
    ("0.5Ki", 512, "512", QuantityForm.BINARY),
    ("-0.5Ki", -512, "-512", QuantityForm.BINARY),
    ("0.9765625Ki", 1000, "1k", QuantityForm.BINARY),
    ("0.3Mi", Fraction(3 * 2**20, 10), "314572800m", QuantityForm.BINARY),
    ("15258.7890625Ki", 15625000, "15625000", QuantityForm.BINARY),
    ("15625000", 15625000, "15625k", QuantityForm.DECIMAL),
    ("0.0001Ki", Fraction(1024, 10**4), "102400u", QuantityForm.BINARY),
    ("1e3", 1000, "1e3", QuantityForm.EXPONENT),
    ("1E3", 1000, "1e3", QuantityForm.EXPONENT),
    ("1e+3", 1000, "1e3", QuantityForm.EXPONENT),
    ("1e4", 10000, "10e3", QuantityForm.EXPONENT),
    ("1e0", 1, "1", QuantityForm.EXPONENT),
    ("100e-2", 1, "1", QuantityForm.EXPONENT),
    ("1.5e0", Fraction(3, 2), "1500e-3", QuantityForm.EXPONENT),
    ("1e-3", Fraction(1, 1000), "1e-3", QuantityForm.EXPONENT),
    ("-1.5e-3", Fraction(-3, 2000), "-1500e-6", QuantityForm.EXPONENT),
    ("1e-9", Fraction(1, 10**9), "1e-9", QuantityForm.EXPONENT),
    ("1e003", 1000, "1e3", QuantityForm.EXPONENT),
    ("1e21", 10**21, "1e21", QuantityForm.EXPONENT),
    ("1E", 10**18, "1E", QuantityForm.DECIMAL),
    ("1Ei", 2**60, "1Ei", QuantityForm.BINARY),
    ("1000000000000000000000", 10**21, "1000E", QuantityForm.DECIMAL),
    ("1000000000000000000002", 10**21 + 2, "1000000000000000000002", QuantityForm.DECIMAL),
    ("9223372036854775807", 2**63 - 1, "9223372036854775807", QuantityForm.DECIMAL),
    ("9223372036854775808", 2**63, "9223372036854775808", QuantityForm.DECIMAL),
    ("18446744073709551616", 2**64, "18446744073709551616", QuantityForm.DECIMAL),
    ("36893488147419103232", 2**65, "36893488147419103232", QuantityForm.DECIMAL),
    ("9223372036854775807m", Fraction(2**63 - 1, 1000), "9223372036854775807m", QuantityForm.DECIMAL),
    ("9007199254740991.9990234375Ki", 2**63 - 1, "9223372036854775807", QuantityForm.BINARY),
]


@pytest.mark.parametrize(("text", "value", "canonical", "form"), READINGS, ids=[row[0] for row in READINGS])
def test_a_text_has_a_value_a_form_and_one_canonical_text(text, value, canonical, form):
    quantity = Quantity.parse(text)
    assert Fraction(quantity.nanos, 10**9) == value
    assert quantity.form is form
    assert str(quantity) == canonical


# text, and what the reason must say
REFUSALS = [
    ("", "empty; expected a number and a suffix"),
    ("1K", "unknown suffix `K`; did you mean `k` (1000) or `Ki` (1024)?"),
    ("1KB", "unknown suffix `KB`; did you mean `k` (1000) or `Ki` (1024)?"),
    ("1KiB", "unknown suffix `KiB`; did you mean `Ki` (1024)?"),
    ("1gi", "unknown suffix `gi`; did you mean `Gi` (2^30)?"),
    ("1g", "unknown suffix `g`; did you mean `G` (10^9) or `Gi` (2^30)?"),
    ("1EB", "unknown suffix `EB`; did you mean `E` (10^18) or `Ei` (2^60)?"),
    ("1ei", "unknown suffix `ei`; did you mean `Ei` (2^60)?"),
    ("1x", "unknown suffix `x`; expected one of n u m k M G T P E Ki Mi Gi Ti Pi Ei, or an exponent"),
    ("0x10", "unknown suffix `x10`"),
    ("1i", "unknown suffix `i`"),
    ("1mm", "unknown suffix `mm`"),
    ("1-", "unknown suffix `-`"),
    ("1_000", "contains `_`"),
    ("1,5", "contains `,`; the decimal sign is `.`"),
    ("1 Gi", "white space"),
    (" 1", "white space"),
    ("1\n", "white space"),
    ("Infinity", "not a finite number"),
    ("-inf", "not a finite number"),
    ("NaN", "not a finite number"),
    ("１２", "outside ASCII"),
    ("1٣", "outside ASCII"),
    ("1.2.3", "more than one decimal sign"),
    ("--1", "no digits"),
    ("+-1", "no digits"),
    ("-", "no digits"),
    (".", "no digits"),
    ("Ki", "no digits"),
    ("e3", "no digits"),
    ("1e", "exponent `e` has no digits"),
    ("1e+", "exponent `e+` has no digits"),
    ("1E-", "exponent `E-` has no digits"),
    ("1e-3Ki", "exponent `e-3` and suffix `Ki` cannot be combined"),
    ("1e1.5", "unexpected `.5` after the exponent `e1`"),
    ("1e3\x00", r"unexpected `\x00` after the exponent `e3`"),
    ("0.1n", "finer than one nano"),
    ("1.0000000001", "finer than one nano"),
    ("1e-10", "finer than one nano"),
    ("1.0000000001Ki", "finer than one nano"),
    ("8Ei", "at most 2^63-1"),
    ("-8Ei", "at most 2^63-1"),
    ("9007199254740992Ki", "at most 2^63-1"),
    ("1e36", "stays below 10^36"),
    ("-1e36", "stays below 10^36"),
    ("1000000000000000000E", "stays below 10^36"),
    ("1e100", "exponent 100 is out of range; expected -99 to 99"),
    ("1e1000000000", "exponent 1000000000 is out of range"),
    ("0e1000000000", "exponent 1000000000 is out of range"),
    ("1e-100", "exponent -100 is out of range"),
    ("9" * 65, "65 characters; a quantity has at most 64"),
    ("9" * 1_000_000, "1000000 characters"),
]


@pytest.mark.parametrize(("text", "reason"), REFUSALS, ids=[repr(row[0][:20]) for row in REFUSALS])
def test_a_refusal_says_what_is_wrong_and_quotes_no_more_than_a_line(text, reason):
    with pytest.raises(QuantityError) as refusal:
        Quantity.parse(text)
    assert reason in refusal.value.reason
    assert str(refusal.value).endswith(refusal.value.reason)
    assert refusal.value.reason == "; ".join(filter(None, (refusal.value.problem, refusal.value.hint)))
    assert ";" not in refusal.value.problem
    assert len(str(refusal.value)) < 200
    assert str(refusal.value).isprintable()


def test_values_just_inside_the_bounds_are_read():
    assert Quantity.parse("9" * 36).nanos == (10**36 - 1) * 10**9
    assert Quantity.parse("0" * 63 + "7") == 7
    assert Quantity.parse("1000000000.000000001").nanos == 10**18 + 1
    assert str(Quantity.parse("9007199254740991Ki")) == "9007199254740991Ki"


@pytest.mark.parametrize(
    ("found", "canonical"),
    [
        ("4Gi", "4Gi"),
        (5, "5"),
        (-3, "-3"),
        (2**64, str(2**64)),
        (0.1, "100m"),
        (1e22, "10e21"),
        (-2.5, "-2500m"),
    ],
)
def test_values_of_json_decoders_are_converted(found, canonical):
    assert str(Quantity.from_json_value(found)) == canonical


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (True, "`bool`: expected a quantity"),
        (None, "`NoneType`: expected a quantity"),
        ([1], "`list`: expected a quantity"),
        ({}, "`dict`: expected a quantity"),
        (0.1 + 0.2, "more digits than a JSON number keeps; write it as a string"),
        (1234567890123456.0, "more digits than a JSON number keeps"),
        (float("nan"), "not a finite number"),
        (float("-inf"), "not a finite number"),
        (1e300, "exponent +300 is out of range"),
        (10**36, "a number of 120 bits: too large"),
        (-(10**100_000), "too large"),
    ],
    ids=lambda found: type(found).__name__,
)
def test_other_values_of_decoders_are_refused_with_a_reason(found, reason):
    with pytest.raises(QuantityError) as refusal:
        Quantity.from_json_value(found)
    assert reason in str(refusal.value)


def test_equality_and_hash_are_by_value_not_by_form():
    same = [Quantity.parse(text) for text in ("1024", "1Ki", "1.024e3", "1024000m")]
    assert len(set(same)) == 1
    assert {Quantity.parse("1"): "one"}[Quantity.parse("1000m")] == "one"
    assert {1: "one"}[Quantity.parse("1")] == "one"  # type: ignore[index]
    assert Quantity.parse("1") != Quantity.parse("1001m")
    assert Quantity.parse("1") != "1"


def test_quantities_compare_with_whole_numbers():
    half = Quantity.parse("500m")
    assert 0 < half < 1
    assert half <= 1
    assert half >= 0
    assert half != 0
    assert Quantity.parse("2k") == 2000
    assert not half > 1
    assert Quantity.parse("9223372036854775808") > 2**63 - 1


@pytest.mark.parametrize("other", ["1", 1.0, None])
def test_quantities_do_not_compare_or_add_with_other_things(other):
    one = Quantity.parse("1")
    assert one != other
    for operation in ("__lt__", "__le__", "__gt__", "__ge__", "__add__", "__sub__"):
        assert getattr(one, operation)(other) is NotImplemented


@pytest.mark.parametrize(
    ("left", "right", "total", "difference"),
    [
        ("1Gi", "1Gi", "2Gi", "0"),
        ("1Gi", "1G", "2073741824", "73741824"),
        ("0", "1Gi", "1Gi", "-1Gi"),
        ("0", "1e3", "1e3", "-1e3"),
        ("100m", "200m", "300m", "-100m"),
        ("1e3", "1", "1001", "999"),
        ("7Ei", "1Ei", "9223372036854775808", "6Ei"),
        ("1Ki", "1m", "1024001m", "1023999m"),
    ],
)
def test_sums_are_exact_and_keep_the_form_of_the_first_that_is_not_zero(left, right, total, difference):
    assert str(Quantity.parse(left) + Quantity.parse(right)) == total
    assert str(Quantity.parse(left) - Quantity.parse(right)) == difference


def test_negation_multiples_and_forms():
    quarter = Quantity.parse("256Mi")
    assert str(-quarter) == "-256Mi"
    assert str(quarter.multiply(4)) == "1Gi"
    assert str(quarter.multiply(0)) == "0"
    assert str(quarter.multiply(-2)) == "-512Mi"
    assert str(quarter.to_form(QuantityForm.DECIMAL)) == "268435456"
    assert str(Quantity.parse("2M").to_form(QuantityForm.EXPONENT)) == "2e6"
    assert quarter.to_form(QuantityForm.BINARY) is quarter


# amount, start, step, rounded
ROUNDINGS = [
    ("2500m", "2", "3", "5"),
    ("1", "2", "3", "2"),
    ("-7", "2", "3", "2"),
    ("2", "2", "3", "2"),
    ("4", "2", "3", "5"),
    ("5", "2", "3", "5"),
    ("5000000001n", "2", "3", "8"),
    ("230m", "100m", "100m", "300m"),
    ("300m", "100m", "100m", "300m"),
    ("1n", "0", "1", "1"),
    ("3Gi", "1Gi", "2Gi", "3Gi"),
    ("3221225473", "1Gi", "2Gi", "5368709120"),
    ("1e21", "2", "1", "1e21"),
    ("1000000000000000000001", "1", "2", "1000000000000000000001"),
    ("1000000000000000000000", "1", "2", "1000000000000000000001"),
    ("100000000000000000000.000000001", "0", "3n", "100000000000000000000000000002n"),
]


@pytest.mark.req("K5075-092")
@pytest.mark.parametrize(("amount", "start", "step", "rounded"), ROUNDINGS)
def test_rounding_up_goes_to_the_next_point_of_the_grid_exactly(amount, start, step, rounded):
    found = Quantity.parse(amount).round_up_to(Quantity.parse(step), Quantity.parse(start))
    assert str(found) == rounded
    assert found.is_on_grid(Quantity.parse(step), Quantity.parse(start))


@pytest.mark.parametrize(
    ("amount", "start", "step", "on_grid"),
    [
        ("2", "2", "3", True),
        ("8", "2", "3", True),
        ("7", "2", "3", False),
        ("-1", "2", "3", False),
        ("250m", "200m", "100m", False),
        ("400m", "200m", "100m", True),
        ("0", "0", "1n", True),
    ],
)
def test_a_grid_begins_at_its_start(amount, start, step, on_grid):
    assert Quantity.parse(amount).is_on_grid(Quantity.parse(step), Quantity.parse(start)) is on_grid


@pytest.mark.parametrize("step", ["0", "-1"])
def test_a_step_of_zero_or_less_is_refused_with_a_reason(step):
    for ask in (ZERO.round_up_to, ZERO.is_on_grid):
        with pytest.raises(QuantityError, match="greater than zero"):
            ask(Quantity.parse(step), ZERO)


@pytest.mark.parametrize(
    ("text", "sign", "whole", "milli"),
    [
        ("0", 0, 0, 0),
        ("-5", -1, -5, -5000),
        ("1500m", 1, None, 1500),
        ("20u", 1, None, None),
        ("1u", 1, None, None),
        ("9223372036854775807m", 1, None, 2**63 - 1),
        ("9223372036854775808m", 1, None, None),
        ("-9223372036854775808m", -1, None, -(2**63)),
        ("10P", 1, 10**16, None),
        ("18446744073709551616", 1, 2**64, None),
    ],
)
def test_views_are_exact_or_absent(text, sign, whole, milli):
    quantity = Quantity.parse(text)
    assert quantity.sign == sign
    assert quantity.is_zero is (sign == 0)
    assert quantity.to_int() == whole
    assert quantity.is_integer is (whole is not None)
    assert quantity.to_milli() == milli


def test_a_quantity_cannot_be_changed():
    quantity = Quantity.parse("1Gi")
    for name in ("nanos", "form", "_text", "other"):
        with pytest.raises(AttributeError, match="cannot be changed"):
            setattr(quantity, name, 1)
    with pytest.raises(AttributeError, match="cannot be changed"):
        del quantity.nanos
    assert not hasattr(quantity, "__dict__")


@pytest.mark.parametrize("text", ["1.5Gi", "1e3", "250m"])
def test_copies_keep_value_and_form(text):
    quantity = Quantity.parse(text)
    for again in (copy.copy(quantity), copy.deepcopy(quantity), pickle.loads(pickle.dumps(quantity))):
        assert again == quantity
        assert str(again) == str(quantity)


def test_the_same_text_is_read_once():
    assert Quantity.parse("123456789Ki") is Quantity.parse("123456789Ki")


def test_the_repr_can_be_read():
    assert repr(Quantity.parse("1.5Gi")) == "Quantity('1536Mi')"
