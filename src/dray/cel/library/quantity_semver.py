"""Quantities and semantic versions, with the functions Kubernetes gives them."""

from __future__ import annotations

import math
from typing import Final

from dray.cel import types as t
from dray.cel.declarations import free, function, member
from dray.cel.faults import CelError
from dray.cel.library.operators import as_int
from dray.cel.values import Value
from dray.values.quantity import MAX_INT64, NANOS, Quantity, QuantityError
from dray.values.semver import Version, VersionError

_NO_QUANTITY: Final = (
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
)
_NO_VERSION: Final = "No Major.Minor.Patch elements found"


def _quantity(text: str) -> Quantity:
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


def _as_integer(quantity: Quantity) -> int:
    whole = quantity.as_int()
    if whole is None or not -MAX_INT64 - 1 <= whole <= MAX_INT64:
        raise CelError("cannot convert value to integer")
    return whole


def _is_integer(quantity: Quantity) -> bool:
    whole = quantity.as_int()
    return whole is not None and -MAX_INT64 - 1 <= whole <= MAX_INT64


def _as_double(quantity: Quantity) -> float:
    try:
        return quantity.nanos / NANOS
    except OverflowError:
        return math.inf * quantity.sign


def _plus(quantity: Quantity, count: int) -> Quantity:
    return quantity + Quantity(count * NANOS)


def _minus(quantity: Quantity, count: int) -> Quantity:
    return quantity - Quantity(count * NANOS)


def _version(text: str, normalize: bool = False) -> Version:
    try:
        return Version.parse(_normalized(text) if normalize else text)
    except VersionError as bad:
        short = (text.removeprefix("v") if normalize else text).count(".") < 2
        raise CelError(_NO_VERSION if short else f"invalid semantic version: {bad.reason}") from None


def _is_version(text: str, normalize: bool = False) -> bool:
    try:
        _version(text, normalize)
    except CelError:
        return False
    return True


def _normalized(text: str) -> str:
    """Without a leading `v`, with three numbers, and those without leading zeros."""
    parts = [_without_zeros(part) for part in text.removeprefix("v").split(".", 2)]
    if len(parts) < 3 and any(sign in parts[-1] for sign in "+-"):
        raise CelError("short version cannot contain PreRelease/Build meta data")
    return ".".join(parts + ["0"] * (3 - len(parts)))


def _without_zeros(part: str) -> str:
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
    function("quantity", free("string_to_quantity", (t.STRING,), t.QUANTITY, _quantity)),
    function("isQuantity", free("is_quantity_string", (t.STRING,), t.BOOL, _is_quantity)),
    # Kubernetes documents `q.sign()` and declares `sign(q)`; what it declares is what works.
    function("sign", free("quantity_sign", _Q, t.INT, lambda one: one.sign)),
    function("isInteger", member("quantity_is_integer", _Q, t.BOOL, _is_integer)),
    function("asInteger", member("quantity_get_int", _Q, t.INT, _as_integer)),
    function("asApproximateFloat", member("quantity_get_float", _Q, t.DOUBLE, _as_double)),
    function(
        "add",
        member("quantity_add", _QQ, t.QUANTITY, lambda one, other: one + other),
        member("quantity_add_int", _QI, t.QUANTITY, _plus),
    ),
    function(
        "sub",
        member("quantity_sub", _QQ, t.QUANTITY, lambda one, other: one - other),
        member("quantity_sub_int", _QI, t.QUANTITY, _minus),
    ),
    function(
        "isLessThan",
        member("quantity_is_less_than", _QQ, t.BOOL, lambda one, other: one < other),
        member("semver_is_less_than", _SS, t.BOOL, lambda one, other: one < other),
    ),
    function(
        "isGreaterThan",
        member("quantity_is_greater_than", _QQ, t.BOOL, lambda one, other: one > other),
        member("semver_is_greater_than", _SS, t.BOOL, lambda one, other: one > other),
    ),
    function(
        "compareTo",
        member("quantity_compare_to", _QQ, t.INT, _compare),
        member("semver_compare_to", _SS, t.INT, _compare),
    ),
    function(
        "semver",
        free("string_to_semver", (t.STRING,), t.SEMVER, _version),
        free("string_bool_to_semver", (t.STRING, t.BOOL), t.SEMVER, _version),
    ),
    function(
        "isSemver",
        free("is_semver_string", (t.STRING,), t.BOOL, _is_version),
        free("is_semver_string_bool", (t.STRING, t.BOOL), t.BOOL, _is_version),
    ),
    function("major", member("semver_major", _S, t.INT, lambda one: as_int(one.major))),
    function("minor", member("semver_minor", _S, t.INT, lambda one: as_int(one.minor))),
    function("patch", member("semver_patch", _S, t.INT, lambda one: as_int(one.patch))),
)
