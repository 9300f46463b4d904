"""Quantities are exact numbers: they agree with fractions, whatever form they are written in."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from dray.values.quantity import ZERO, Quantity, QuantityError, QuantityForm
from tests.property.strategies import values as v

NANO = Fraction(1, 10**9)


def worth(quantity: Quantity) -> Fraction:
    return Fraction(quantity.nanos, 10**9)


def attempt(text: str) -> Quantity | QuantityError:
    try:
        return Quantity.parse(text)
    except QuantityError as refusal:
        return refusal


@given(v.quantity_texts())
@example(("9007199254740992Ki", Fraction(2**63)))
@example(("0.0000000001", Fraction(1, 10**10)))
def test_a_text_is_read_exactly_or_refused_for_a_bound(written: tuple[str, Fraction]) -> None:
    text, value = written
    magnitude = max(value, -value)
    bounds = {
        "finer than one nano": value % NANO != 0,
        "10^36": magnitude >= 10**36,
        "2^63-1": text.endswith("i") and magnitude > 2**63 - 1,
    }
    found = attempt(text)
    if isinstance(found, QuantityError):
        assert any(broken and bound in found.reason for bound, broken in bounds.items())
    else:
        assert not any(bounds.values())
        assert worth(found) == value


@given(v.quantities)
@example(Quantity(15_625_000 * 10**9, QuantityForm.BINARY))
def test_the_canonical_text_keeps_the_value_and_is_its_own_canonical_text(quantity: Quantity) -> None:
    assume(-(10**36) < quantity < 10**36)
    text = str(quantity)
    again = Quantity.parse(text)
    assert again == quantity
    assert str(Quantity.parse(str(again))) == str(again)
    # A binary quantity printed without a suffix is read as a decimal one, here as in Kubernetes.
    if quantity.form is not QuantityForm.BINARY or text.endswith("i"):
        assert str(again) == text


@given(v.quantities)
def test_the_canonical_text_has_no_fraction_and_the_largest_suffix(quantity: Quantity) -> None:
    text = str(quantity)
    number = text.lstrip("-").rstrip("numkMGTPEKi") if "e" not in text else text.lstrip("-").partition("e")[0]
    assert number.isdecimal()
    assert number == "0" or not number.startswith("0")
    suffix = text.lstrip("-")[len(number) :]
    if suffix.endswith("i"):
        assert quantity.form is QuantityForm.BINARY
        assert suffix == "Ei" or int(number) % 1024
    elif suffix.startswith("e"):
        assert quantity.form is QuantityForm.EXPONENT
        assert int(suffix[1:]) % 3 == 0
        assert int(number) % 1000
    elif quantity.form is QuantityForm.DECIMAL:
        assert suffix == "E" or number == "0" or int(number) % 1000


@given(v.quantities, v.quantities)
def test_the_order_is_the_order_of_the_numbers(left: Quantity, right: Quantity) -> None:
    a, b = worth(left), worth(right)
    assert (left < right, left <= right, left == right) == (a < b, a <= b, a == b)
    assert (left > right, left >= right, left != right) == (a > b, a >= b, a != b)


@given(v.quantities, st.integers(-(10**20), 10**20))
def test_the_order_among_whole_numbers_is_the_same(quantity: Quantity, number: int) -> None:
    a = worth(quantity)
    assert (quantity < number, quantity <= number, quantity == number) == (
        a < number,
        a <= number,
        a == number,
    )
    assert (quantity > number, quantity >= number) == (a > number, a >= number)
    whole = Quantity.parse(number)
    assert whole == number
    assert hash(whole) == hash(number)


@given(v.nanos, st.sampled_from(QuantityForm), st.sampled_from(QuantityForm))
def test_equal_quantities_hash_alike(nanos: int, one: QuantityForm, other: QuantityForm) -> None:
    assert Quantity(nanos, one) == Quantity(nanos, other)
    assert hash(Quantity(nanos, one)) == hash(Quantity(nanos, other))


@given(v.quantities, v.quantities, v.quantities)
def test_addition_is_exact_commutative_and_associative(a: Quantity, b: Quantity, c: Quantity) -> None:
    assert worth(a + b) == worth(a) + worth(b)
    assert worth(a - b) == worth(a) - worth(b)
    assert a + b == b + a
    assert (a + b) + c == a + (b + c)
    assert a + ZERO == a == ZERO + a
    assert str(ZERO + a) == str(a)
    assert (a + -a).is_zero


@given(v.quantities, st.integers(-(2**40), 2**40))
def test_multiples_are_exact(quantity: Quantity, count: int) -> None:
    assert worth(quantity.multiply(count)) == worth(quantity) * count


@pytest.mark.req("K5075-092")
@given(v.quantities, v.steps, v.quantities)
def test_rounding_up_gives_the_nearest_point_of_the_grid(
    amount: Quantity, step: Quantity, start: Quantity
) -> None:
    rounded = amount.round_up_to(step, start)
    least = max(Fraction(0), (worth(amount) - worth(start)) / worth(step))
    assert worth(rounded) == worth(start) + -(-least // 1) * worth(step)
    assert rounded >= amount
    assert rounded >= start
    assert rounded.is_on_grid(step, start)
    assert rounded.round_up_to(step, start) == rounded
    assert rounded - step < amount or rounded == start


@given(v.quantities, v.steps, v.quantities)
def test_being_on_the_grid_is_being_a_whole_number_of_steps_away(
    amount: Quantity, step: Quantity, start: Quantity
) -> None:
    away = (worth(amount) - worth(start)) / worth(step)
    assert amount.is_on_grid(step, start) == (away >= 0 and away.denominator == 1)


@given(v.quantities)
def test_whole_and_milli_views_are_exact_or_absent(quantity: Quantity) -> None:
    value = worth(quantity)
    assert quantity.to_int() == (value if value.denominator == 1 else None)
    milli = value * 1000
    fits = milli.denominator == 1 and -(2**63) <= milli < 2**63
    assert quantity.to_milli() == (milli if fits else None)


@given(st.decimals(-(10**6), 10**6, places=6))
def test_a_number_a_decoder_turned_into_a_float_is_still_what_was_written(number: Decimal) -> None:
    assert worth(Quantity.from_json_value(float(number))) == Fraction(number)


@given(st.text(max_size=80) | st.text("0123456789.eE+-KMGTPEimnu _", max_size=80))
def test_any_text_is_read_or_refused_with_a_printable_reason(text: str) -> None:
    found = attempt(text)
    if isinstance(found, QuantityError):
        assert found.reason
        assert str(found).isprintable()
    else:
        assert Quantity.parse(str(found)) == found


@given(st.integers(10, 10**12), st.sampled_from("eE"), st.sampled_from(["", "+", "-"]), st.integers(3, 5))
def test_huge_exponents_and_long_texts_are_refused(exponent: int, e: str, sign: str, power: int) -> None:
    """The refusal comes before any number of that size is made, or this test would not come back."""
    if exponent > 99:
        with pytest.raises(QuantityError, match="out of range"):
            Quantity.parse(f"1{e}{sign}{exponent}")
    with pytest.raises(QuantityError, match="characters"):
        Quantity.parse("1" * 10**power)
