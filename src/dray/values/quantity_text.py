"""Parser and formatter of quantity texts such as `1.5Gi`, with reasons for texts that are refused.

Theory of operation: a text is a sign, digits with or without a fraction, and a suffix. The suffix stands for
a whole number of nanos, or, for an exponent, for a fraction of them; digits times suffix must be a whole
number of nanos. `parse_quantity` parses and `format_quantity` prints; between the two a quantity is nanos and
a form. Every refused text is explained by one of the `_explain_...` functions, which look at the text only
then.

Rules for this file: ints only, and the length of the text is checked before anything else.
"""

from __future__ import annotations

import re
from enum import StrEnum

from dray.values.quoting import quote_text

NANOS_PER_UNIT = 10**9
"""How many nanos make one."""

MAX_TEXT = 64
MAX_EXPONENT = 99
MAX_MAGNITUDE = 10**36
MAX_INT64 = 2**63 - 1
TOO_LARGE = ("too large", "a quantity stays below 10^36")

_MAX_NANOS = MAX_MAGNITUDE * NANOS_PER_UNIT
_MAX_BINARY_NANOS = MAX_INT64 * NANOS_PER_UNIT


class QuantityError(ValueError):
    """A text that is no quantity, or a step that makes no grid.

    `problem` is what is wrong, `hint` what to write instead (may be empty), `reason` both in one text.
    """

    def __init__(self, subject: str, problem: str, hint: str = "") -> None:
        self.problem = problem
        self.hint = hint
        self.reason = f"{problem}; {hint}" if hint else problem
        super().__init__(f"{subject}: {self.reason}")


class QuantityForm(StrEnum):
    """How a quantity is printed; the names are those of Kubernetes."""

    DECIMAL = "DecimalSI"
    BINARY = "BinarySI"
    EXPONENT = "DecimalExponent"


_DECIMAL_NAMES = {-9: "n", -6: "u", -3: "m", 0: "", 3: "k", 6: "M", 9: "G", 12: "T", 15: "P", 18: "E"}
_BINARY_NAMES = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_LARGEST_DECIMAL = max(_DECIMAL_NAMES)

# suffix -> (nanos in one unit, form)
_UNITS: dict[str, tuple[int, QuantityForm]] = {
    **{name: (10 ** (9 + power), QuantityForm.DECIMAL) for power, name in _DECIMAL_NAMES.items()},
    **{
        name: (1024**power * NANOS_PER_UNIT, QuantityForm.BINARY)
        for power, name in enumerate(_BINARY_NAMES)
        if name
    },
}

_PATTERN = re.compile(r"([+-]?)([0-9]*)(?:\.([0-9]*))?(.*)", re.DOTALL)
_EXPONENT = re.compile(r"[eE]([+-]?[0-9]+)")


def parse_quantity(text: str) -> tuple[int, QuantityForm]:
    """The nanos and the form of a text; raises `QuantityError` with the reason."""
    if len(text) > MAX_TEXT:
        raise QuantityError(quote_text(text), f"{len(text)} characters", f"a quantity has at most {MAX_TEXT}")
    match = _PATTERN.fullmatch(text)
    assert match is not None, "every text has this shape"
    sign, whole, fraction, suffix = match.groups(default="")
    if not whole and not fraction:
        raise QuantityError(quote_text(text), *_explain_number(text))
    above, below, form = _parse_unit(text, suffix)
    nanos, rest = divmod(int(whole + fraction) * above, below * 10 ** len(fraction))
    if rest:
        raise QuantityError(quote_text(text), "finer than one nano (10^-9), the smallest unit of a quantity")
    if nanos >= _MAX_NANOS:
        raise QuantityError(quote_text(text), *TOO_LARGE)
    if form is QuantityForm.BINARY and nanos > _MAX_BINARY_NANOS:
        raise QuantityError(
            quote_text(text), "too large", "with a binary suffix a quantity is at most 2^63-1"
        )
    return -nanos if sign == "-" else nanos, form


def _parse_unit(text: str, suffix: str) -> tuple[int, int, QuantityForm]:
    """What one unit of the suffix is worth in nanos, as a fraction, and the form it stands for."""
    unit = _UNITS.get(suffix)
    if unit is not None:
        return unit[0], 1, unit[1]
    match = _EXPONENT.fullmatch(suffix)
    if match is None:
        raise QuantityError(quote_text(text), *_explain_suffix(suffix))
    exponent = int(match[1])
    if abs(exponent) > MAX_EXPONENT:
        expected = f"expected -{MAX_EXPONENT} to {MAX_EXPONENT}"
        raise QuantityError(quote_text(text), f"exponent {match[1]} is out of range", expected)
    power = 9 + exponent
    return (10**power, 1, QuantityForm.EXPONENT) if power >= 0 else (1, 10**-power, QuantityForm.EXPONENT)


def format_quantity(nanos: int, form: QuantityForm) -> str:
    """The one text of a value in a form: no fraction, the largest suffix that loses nothing."""
    if nanos == 0:
        return "0"
    if (
        form is QuantityForm.BINARY
        and nanos % NANOS_PER_UNIT == 0
        and 1024 * NANOS_PER_UNIT <= abs(nanos) <= _MAX_BINARY_NANOS
    ):
        return _format_binary(nanos // NANOS_PER_UNIT)
    mantissa, power = nanos, -9
    while mantissa % 1000 == 0 and (power < _LARGEST_DECIMAL or form is QuantityForm.EXPONENT):
        mantissa, power = mantissa // 1000, power + 3
    if form is QuantityForm.EXPONENT:
        return f"{mantissa}e{power}" if power else str(mantissa)
    return f"{mantissa}{_DECIMAL_NAMES[power]}"


def _format_binary(value: int) -> str:
    power = 0
    while value % 1024 == 0 and power < len(_BINARY_NAMES) - 1:
        value, power = value // 1024, power + 1
    return f"{value}{_BINARY_NAMES[power]}"


# --- reasons ---

_EXPECTED = "expected a number and a suffix, such as `500m`, `2` or `4Gi`"
_SUFFIXES = " ".join(name for name in _UNITS if name)
_ODD_CHARACTERS = (
    (re.compile(r"(?i)inf|nan"), ("not a finite number", "")),
    (re.compile(r"\s"), ("contains white space", "write number and suffix without it")),
    (re.compile(r"_"), ("contains `_`", "digits cannot be grouped")),
    (re.compile(r","), ("contains `,`", "the decimal sign is `.` and digits cannot be grouped")),
    (re.compile(r"[^\x00-\x7f]"), ("contains a character outside ASCII", "write digits as 0 to 9")),
)


def _explain_number(text: str) -> tuple[str, str]:
    if not text:
        return "empty", _EXPECTED
    return _find_odd_character(text) or ("no digits where the number should be", _EXPECTED)


def _explain_suffix(suffix: str) -> tuple[str, str]:
    odd = _find_odd_character(suffix)
    if odd is not None:
        return odd
    if suffix.startswith("."):
        return "more than one decimal sign", ""
    if suffix == "e" or (suffix[0] in "eE" and suffix[1] in "+-.0123456789"):
        return _explain_exponent(suffix)
    likely = _suggest_suffixes(suffix)
    expected = f"expected one of {_SUFFIXES}, or an exponent such as `e3`"
    return (
        f"unknown suffix {quote_text(suffix)}",
        f"did you mean {' or '.join(likely)}?" if likely else expected,
    )


def _explain_exponent(suffix: str) -> tuple[str, str]:
    match = _EXPONENT.match(suffix)
    if match is None:
        return f"exponent {quote_text(suffix)} has no digits", "expected a whole number, such as `e3`"
    rest = suffix[match.end() :]
    if rest in _UNITS:
        return f"exponent `{match[0]}` and suffix `{rest}` cannot be combined", "use one of them"
    return f"unexpected {quote_text(rest)} after the exponent `{match[0]}`", "an exponent is a whole number"


def _find_odd_character(text: str) -> tuple[str, str] | None:
    return next((reason for pattern, reason in _ODD_CHARACTERS if pattern.search(text)), None)


def _suggest_suffixes(suffix: str) -> list[str]:
    """Suffixes that differ by case, by a unit such as in `GB`, or by the `i` of the binary ones."""
    root = suffix.lower().removesuffix("b")
    wanted = {root} if root.endswith("i") else {root, f"{root}i"}
    return [f"`{name}` ({_describe_suffix(name)})" for name in _UNITS if name and name.lower() in wanted]


def _describe_suffix(name: str) -> str:
    if name in _BINARY_NAMES:
        power = 10 * _BINARY_NAMES.index(name)
        return "1024" if power == 10 else f"2^{power}"
    power = next(power for power, other in _DECIMAL_NAMES.items() if other == name)
    return "1000" if power == 3 else f"10^{power}"
