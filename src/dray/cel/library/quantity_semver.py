"""Quantities and semantic versions, with the functions Kubernetes gives them."""

from __future__ import annotations

import math
from typing import Final

from dray.cel import types as t
from dray.cel.declarations import declare_function, declare_member_overload, declare_overload
from dray.cel.faults import CelError
from dray.cel.library.operators import to_int64
from dray.cel.values import Value
from dray.values.quantity import MAX_INT64, NANOS_PER_UNIT, Quantity, QuantityError
from dray.values.semver import Version, VersionError

_NO_QUANTITY: Final = (
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
)
_NO_VERSION: Final = "No Major.Minor.Patch elements found"


def _parse_quantity(text: str) -> Quantity:
    try:
        return Quantity.parse(text)
    except QuantityError:
        raise CelError(_NO_QUANTITY) from None


def _is_quantity(text: str) -> bool:
    try:
        Quantity.parse(text)
    except QuantityError:
        return False
    return True


def _to_integer(quantity: Quantity) -> int:
    whole = quantity.to_int()
    if whole is None or not -MAX_INT64 - 1 <= whole <= MAX_INT64:
        raise CelError("cannot convert value to integer")
    return whole


def _is_integer(quantity: Quantity) -> bool:
    whole = quantity.to_int()
    return whole is not None and -MAX_INT64 - 1 <= whole <= MAX_INT64


def _to_double(quantity: Quantity) -> float:
    try:
        return quantity.nanos / NANOS_PER_UNIT
    except OverflowError:
        return math.inf * quantity.sign


def _add_integer(quantity: Quantity, count: int) -> Quantity:
    return quantity + Quantity(count * NANOS_PER_UNIT)


def _subtract_integer(quantity: Quantity, count: int) -> Quantity:
    return quantity - Quantity(count * NANOS_PER_UNIT)


def _parse_version(text: str, normalize: bool = False) -> Version:
    try:
        return Version.parse(_normalize_version(text) if normalize else text)
    except VersionError as bad:
        short = (text.removeprefix("v") if normalize else text).count(".") < 2
        raise CelError(_NO_VERSION if short else f"invalid semantic version: {bad.reason}") from None


def _is_version(text: str, normalize: bool = False) -> bool:
    try:
        _parse_version(text, normalize)
    except CelError:
        return False
    return True


def _normalize_version(text: str) -> str:
    """Without a leading `v`, with three numbers, and those without leading zeros."""
    parts = [_strip_leading_zeros(part) for part in text.removeprefix("v").split(".", 2)]
    if len(parts) < 3 and any(sign in parts[-1] for sign in "+-"):
        raise CelError("short version cannot contain PreRelease/Build meta data")
    return ".".join(parts + ["0"] * (3 - len(parts)))


def _strip_leading_zeros(part: str) -> str:
    if len(part) < 2:
        return part
    rest = part.lstrip("0")
    return rest if rest[:1].isascii() and rest[:1].isdigit() else f"0{rest}"


def _compare(left: Value, right: Value) -> int:
    return int(left > right) - int(left < right)


_Q: Final = (t.QUANTITY,)
_QQ: Final = (t.QUANTITY, t.QUANTITY)
_QI: Final = (t.QUANTITY, t.INT)
_S: Final = (t.SEMVER,)
_SS: Final = (t.SEMVER, t.SEMVER)

LIBRARY: Final = (
    declare_function(
        "quantity", declare_overload("string_to_quantity", (t.STRING,), t.QUANTITY, _parse_quantity)
    ),
    declare_function("isQuantity", declare_overload("is_quantity_string", (t.STRING,), t.BOOL, _is_quantity)),
    # Kubernetes documents `q.sign()` and declares `sign(q)`; what it declares is what works.
    declare_function("sign", declare_overload("quantity_sign", _Q, t.INT, lambda one: one.sign)),
    declare_function("isInteger", declare_member_overload("quantity_is_integer", _Q, t.BOOL, _is_integer)),
    declare_function("asInteger", declare_member_overload("quantity_get_int", _Q, t.INT, _to_integer)),
    declare_function(
        "asApproximateFloat", declare_member_overload("quantity_get_float", _Q, t.DOUBLE, _to_double)
    ),
    declare_function(
        "add",
        declare_member_overload("quantity_add", _QQ, t.QUANTITY, lambda one, other: one + other),
        declare_member_overload("quantity_add_int", _QI, t.QUANTITY, _add_integer),
    ),
    declare_function(
        "sub",
        declare_member_overload("quantity_sub", _QQ, t.QUANTITY, lambda one, other: one - other),
        declare_member_overload("quantity_sub_int", _QI, t.QUANTITY, _subtract_integer),
    ),
    declare_function(
        "isLessThan",
        declare_member_overload("quantity_is_less_than", _QQ, t.BOOL, lambda one, other: one < other),
        declare_member_overload("semver_is_less_than", _SS, t.BOOL, lambda one, other: one < other),
    ),
    declare_function(
        "isGreaterThan",
        declare_member_overload("quantity_is_greater_than", _QQ, t.BOOL, lambda one, other: one > other),
        declare_member_overload("semver_is_greater_than", _SS, t.BOOL, lambda one, other: one > other),
    ),
    declare_function(
        "compareTo",
        declare_member_overload("quantity_compare_to", _QQ, t.INT, _compare),
        declare_member_overload("semver_compare_to", _SS, t.INT, _compare),
    ),
    declare_function(
        "semver",
        declare_overload("string_to_semver", (t.STRING,), t.SEMVER, _parse_version),
        declare_overload("string_bool_to_semver", (t.STRING, t.BOOL), t.SEMVER, _parse_version),
    ),
    declare_function(
        "isSemver",
        declare_overload("is_semver_string", (t.STRING,), t.BOOL, _is_version),
        declare_overload("is_semver_string_bool", (t.STRING, t.BOOL), t.BOOL, _is_version),
    ),
    declare_function(
        "major", declare_member_overload("semver_major", _S, t.INT, lambda one: to_int64(one.major))
    ),
    declare_function(
        "minor", declare_member_overload("semver_minor", _S, t.INT, lambda one: to_int64(one.minor))
    ),
    declare_function(
        "patch", declare_member_overload("semver_patch", _S, t.INT, lambda one: to_int64(one.patch))
    ),
)
