"""Exact Kubernetes quantities: `100m`, `1.5`, `40Gi`, `1e3`.

Theory of operation: a quantity is a whole number of nanos (billionths) and the form it was written in. Nano
is the finest unit of Kubernetes, so an `int` holds every value exactly and comparing two quantities is
comparing two ints. The form (decimal suffix, binary suffix, exponent) decides only how the value is printed.
The printed text is the canonical one: no fraction, the largest suffix that loses nothing; a binary value that
is no whole number, or is smaller than 1024, gets a decimal suffix. Kubernetes has a shortcut that repeats
some inputs as they were written (`+1`, `1.250`); here the text depends on value and form alone.

What is refused, where Kubernetes silently changes the value:
- a value finer than one nano (Kubernetes rounds up);
- a binary suffix with a value above 2^63-1 (Kubernetes caps it);
- an exponent outside -99..99 (Kubernetes wraps it at 2^32), a text of more than 64 characters, a magnitude
  of 10^36 or more: these bound the work that hostile input can cause, and suffice for 2^65 and 10^21,
  which occur in stored objects, and for sums of such values;
- a text without a digit, such as `Ki` or `-` (Kubernetes reads zero).

Two texts differ from those of Kubernetes because its own would lose the value: 10^21 with decimal suffixes is
`1000E` (Kubernetes prints `1`), and a sum in binary form above 2^63-1 gets a decimal suffix, so that it can
be parsed again. Arithmetic is not bounded; a result of 10^36 or more prints, but cannot be parsed again.

Rules for this file: no float in arithmetic, no implicit rounding, nothing about capacity policies.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import NoReturn

from dray.values.quantity_text import (
    MAX_INT64,
    MAX_MAGNITUDE,
    NANOS_PER_UNIT,
    TOO_LARGE,
    QuantityError,
    QuantityForm,
    format_quantity,
    parse_quantity,
)

__all__ = ["MAX_INT64", "NANOS_PER_UNIT", "ZERO", "Quantity", "QuantityError", "QuantityForm"]

_EXPECTED = 'expected a quantity, such as `2`, `"500m"` or `"4Gi"`'
_MIN_INT64 = -(2**63)

# The way around the guard against changes, looked up once: sums are made in the innermost loops.
_set = object.__setattr__


class Quantity:
    """An exact amount. Equal, ordered and hashed by value: `1` and `1000m` are the same."""

    __slots__ = ("_text", "form", "nanos")

    nanos: int
    form: QuantityForm
    _text: str

    def __init__(self, nanos: int, form: QuantityForm = QuantityForm.DECIMAL) -> None:
        _set(self, "nanos", nanos)
        _set(self, "form", form)

    @staticmethod
    @lru_cache(maxsize=16384)
    def parse(text: str | int, /) -> Quantity:
        """Read a text or a whole number; raises `QuantityError` with the reason.

        Objects repeat the same few texts thousands of times, so answers are remembered. Refusals are not,
        and an accepted text is short, so that hostile input cannot fill the memory.
        """
        return Quantity(*parse_quantity(text)) if isinstance(text, str) else _from_int(text)

    @staticmethod
    def from_json_value(value: object) -> Quantity:
        """Read what a JSON or YAML decoder found: a text, a whole number or a number with a fraction.

        Such decoders turn `0.1` into a float. Its shortest decimal text is what was written as long as that
        had at most 15 significant digits; when it shows more, the written value is lost and it is refused.
        """
        if isinstance(value, str):
            return Quantity.parse(value)
        return _from_float(value) if isinstance(value, float) else _from_int(value)

    # --- order and equality, by value ---

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Quantity):
            return self.nanos == other.nanos
        if isinstance(other, int):
            return self.nanos == other * NANOS_PER_UNIT
        return NotImplemented

    def __lt__(self, other: Quantity | int) -> bool:
        if isinstance(other, Quantity):
            return self.nanos < other.nanos
        if isinstance(other, int):
            return self.nanos < other * NANOS_PER_UNIT
        return NotImplemented

    def __le__(self, other: Quantity | int) -> bool:
        if isinstance(other, Quantity):
            return self.nanos <= other.nanos
        if isinstance(other, int):
            return self.nanos <= other * NANOS_PER_UNIT
        return NotImplemented

    def __gt__(self, other: Quantity | int) -> bool:
        if isinstance(other, Quantity):
            return self.nanos > other.nanos
        if isinstance(other, int):
            return self.nanos > other * NANOS_PER_UNIT
        return NotImplemented

    def __ge__(self, other: Quantity | int) -> bool:
        if isinstance(other, Quantity):
            return self.nanos >= other.nanos
        if isinstance(other, int):
            return self.nanos >= other * NANOS_PER_UNIT
        return NotImplemented

    def __hash__(self) -> int:
        # A whole quantity equals the int of its value, so it must hash like it.
        whole, rest = divmod(self.nanos, NANOS_PER_UNIT)
        return hash((whole, rest)) if rest else hash(whole)

    # --- arithmetic ---

    def __add__(self, other: Quantity) -> Quantity:
        if not isinstance(other, Quantity):
            return NotImplemented
        # Zero has no form worth keeping: starting a sum at `0` must not turn `1Gi` into `1073741824`.
        return Quantity(self.nanos + other.nanos, self.form if self.nanos else other.form)

    def __sub__(self, other: Quantity) -> Quantity:
        if not isinstance(other, Quantity):
            return NotImplemented
        return Quantity(self.nanos - other.nanos, self.form if self.nanos else other.form)

    def __neg__(self) -> Quantity:
        return Quantity(-self.nanos, self.form)

    def multiply(self, count: int) -> Quantity:
        """This amount, `count` times."""
        return Quantity(self.nanos * count, self.form)

    def to_form(self, form: QuantityForm) -> Quantity:
        """The same value, printed in another form."""
        return self if form is self.form else Quantity(self.nanos, form)

    # --- grids ---

    def round_up_to(self, step: Quantity, start: Quantity) -> Quantity:
        """The smallest `start + n*step` with `n >= 0` that is not below this amount, exactly."""
        pace = _require_step_nanos(step)
        over = self.nanos - start.nanos
        if over <= 0:
            return start
        rest = over % pace
        return Quantity(self.nanos + pace - rest, self.form) if rest else self

    def is_on_grid(self, step: Quantity, start: Quantity) -> bool:
        """Whether this amount is `start + n*step` for some `n >= 0`."""
        over = self.nanos - start.nanos
        return over % _require_step_nanos(step) == 0 and over >= 0

    # --- views ---

    @property
    def is_zero(self) -> bool:
        """Whether this is nothing at all, in any form."""
        return self.nanos == 0

    @property
    def sign(self) -> int:
        """-1, 0 or 1."""
        return (self.nanos > 0) - (self.nanos < 0)

    @property
    def is_integer(self) -> bool:
        """Whether the value is a whole number."""
        return self.nanos % NANOS_PER_UNIT == 0

    def to_int(self) -> int | None:
        """The value as an int; nothing when it has a fraction."""
        whole, rest = divmod(self.nanos, NANOS_PER_UNIT)
        return None if rest else whole

    def to_milli(self) -> int | None:
        """The value in thousandths; nothing when that is not exact or leaves the range of an int64."""
        count, rest = divmod(self.nanos, NANOS_PER_UNIT // 1000)
        return None if rest or not _MIN_INT64 <= count <= MAX_INT64 else count

    def __str__(self) -> str:
        try:
            return self._text
        except AttributeError:
            _set(self, "_text", format_quantity(self.nanos, self.form))
            return self._text

    def __repr__(self) -> str:
        return f"Quantity({str(self)!r})"

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"a quantity cannot be changed: {name}")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"a quantity cannot be changed: {name}")

    def __reduce__(self) -> tuple[Callable[[int, QuantityForm], Quantity], tuple[int, QuantityForm]]:
        return Quantity, (self.nanos, self.form)


ZERO = Quantity(0)


def _require_step_nanos(step: Quantity) -> int:
    if step.nanos <= 0:
        raise QuantityError(f"step `{step}`", "a grid needs a step greater than zero")
    return step.nanos


def _from_int(value: object) -> Quantity:
    if not isinstance(value, int) or isinstance(value, bool):
        raise QuantityError(f"`{type(value).__name__}`", _EXPECTED)
    if abs(value) >= MAX_MAGNITUDE:
        raise QuantityError(f"a number of {value.bit_length()} bits", *TOO_LARGE)
    return Quantity(value * NANOS_PER_UNIT)


def _from_float(value: float) -> Quantity:
    text = repr(value)
    digits = text.partition("e")[0].replace(".", "").strip("-0")
    if len(digits) > 15:
        raise QuantityError(f"`{text}`", "more digits than a JSON number keeps", "write it as a string")
    return Quantity.parse(text)
