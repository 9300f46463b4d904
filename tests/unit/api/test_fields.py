"""Field paths and field errors, rendered as in Kubernetes."""

from __future__ import annotations

import pytest

from dray.api.fields import (
    ROOT,
    AboveMaximum,
    FieldError,
    FieldErrorType,
    FieldPath,
    UnknownName,
    duplicate,
    forbidden,
    invalid,
    not_found,
    not_supported,
    required,
    too_long,
    too_many,
)
from dray.values.quantity import Quantity

NAME = ROOT.child("spec", "devices").index(3).child("name")


@pytest.mark.parametrize(
    ("path", "text"),
    [
        (ROOT, ""),
        (ROOT.child("spec"), "spec"),
        (NAME, "spec.devices[3].name"),
        (ROOT.child("attributes").key("example.com/model").child("int"), "attributes[example.com/model].int"),
        (ROOT.index(0).child("a"), "[0].a"),
    ],
)
def test_a_path_prints_as_in_kubernetes(path, text):
    assert str(path) == text
    assert repr(path) == f"Path({text!r})"


def test_a_path_is_not_changed_by_going_further():
    spec = ROOT.child("spec")
    spec.child("devices")
    spec.index(1)
    assert str(spec) == "spec"
    assert str(FieldPath("x").child("y")) == "x.y"


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (required(NAME), "spec.devices[3].name: Required value"),
        (required(NAME, "give one"), "spec.devices[3].name: Required value: give one"),
        (
            invalid(NAME, "X", "must be lower case"),
            'spec.devices[3].name: Invalid value: "X": must be lower case',
        ),
        (invalid(NAME, -1, "too small"), "spec.devices[3].name: Invalid value: -1: too small"),
        (invalid(NAME, True, "no"), "spec.devices[3].name: Invalid value: true: no"),
        (invalid(NAME, Quantity.parse("1Gi"), "no"), 'spec.devices[3].name: Invalid value: "1Gi": no'),
        (
            not_supported(NAME, "C", ("B", "A")),
            'spec.devices[3].name: Unsupported value: "C": supported values: "A", "B"',
        ),
        (forbidden(NAME, "not here"), "spec.devices[3].name: Forbidden: not here"),
        (too_long(NAME, 63), "spec.devices[3].name: Too long: may not be more than 63 bytes"),
        (too_many(NAME, 33, 32), "spec.devices[3].name: Too many: 33: must have at most 32 items"),
        (duplicate(NAME, "a"), 'spec.devices[3].name: Duplicate value: "a"'),
    ],
)
def test_an_error_reads_as_in_kubernetes(error, text):
    assert str(error) == text
    assert f"{error.path}: {error.body}" == text


@pytest.mark.parametrize(
    "error",
    [not_supported(NAME, "C", ("B", "A")), not_found(NAME, "C", ("B", "A"), "must be one of `A`, `B`")],
)
def test_an_error_about_an_unknown_name_carries_the_allowed_ones(error):
    assert error.violation == UnknownName(("B", "A"))


def test_errors_that_read_alike_are_equal():
    assert invalid(NAME, 11, "more than 10", AboveMaximum("10")) == invalid(NAME, 11, "more than 10")


def test_every_error_type_has_a_text():
    assert all(FieldError(fault, "x", "y").body for fault in FieldErrorType)


ODD = [object(), 10**5000, "\ud800", float("nan"), {1: {2}}, b"\xff"]


@pytest.mark.parametrize("value", ODD, ids=["object", "huge", "surrogate", "nan", "set", "bytes"])
def test_no_value_is_too_odd_to_be_reported(value):
    text = str(FieldError(FieldErrorType.INVALID, "x", value, "odd"))
    assert text.startswith("x: Invalid value: ")
    assert text.endswith(": odd")
    text.encode()


def test_a_value_that_nests_without_end_is_reported_all_the_same():
    deep: list[object] = []
    for _ in range(100_000):
        deep = [deep]
    assert str(FieldError(FieldErrorType.INVALID, "x", deep, "deep")).startswith("x: Invalid value: <list>")
    while deep:  # taken apart by hand: the interpreter would recurse
        deep = deep.pop()  # type: ignore[assignment]


def test_a_long_value_is_cut():
    text = str(FieldError(FieldErrorType.INVALID, "x", "y" * 10_000, "long"))
    assert len(text) < 600
    assert "…" in text
