"""The decode report: everything that does not fit is found, what fits is kept, nulls are as in Go."""

from __future__ import annotations

from decimal import Decimal

import msgspec
import pytest

from dray.api.decode_report import MAX_SUGGESTIONS, UnknownField, check_document, list_field_names
from dray.api.fields import MalformedQuantity, TypeMismatch
from dray.api.meta import ApiStruct, Int64, ObjectMeta, Projection, Timestamp
from dray.values.quantity import Quantity


class Part(ApiStruct, frozen=True):
    count: Int64 = 0
    amount: Quantity | None = None


class Thing(ApiStruct, frozen=True):
    name: str = ""
    ready: bool | None = None
    parts: tuple[Part, ...] = ()
    named: dict[str, Part] = {}
    amounts: dict[str, Quantity] = {}
    words: tuple[str, ...] = ()
    numbers: tuple[Int64, ...] | None = None
    flags: tuple[bool, ...] = ()
    lists: dict[str, tuple[str, ...]] = {}
    since: Timestamp | None = None
    raw: msgspec.Raw = msgspec.Raw()
    node_name: str = ""


class Glance(Projection, frozen=True):
    name: str = ""


def test_what_fits_is_returned_as_it_is():
    thing = {
        "name": "a",
        "ready": False,
        "parts": [{"count": 1, "amount": "1Gi"}],
        "named": {"x": {}},
        "numbers": [],
        "since": "2026-01-01T00:00:00Z",
        "raw": {"a": [None, Decimal("1.10")]},
    }
    fitted, findings = check_document(thing, Thing)
    assert fitted == thing
    assert (findings.unknown_fields, findings.type_errors) == ([], [])


def test_nulls_in_fields_are_nothing_and_nulls_in_lists_and_maps_are_zero():
    fitted, findings = check_document(
        {
            "name": None,
            "parts": [None, {"count": None}],
            "named": {"x": None},
            "amounts": {"y": None},
            "words": [None],
            "numbers": [None],
            "flags": [None],
            "lists": {"z": None},
            "raw": None,
        },
        Thing,
    )
    assert findings.type_errors == []
    assert fitted == {
        "parts": [{}, {}],
        "named": {"x": {}},
        "amounts": {"y": "0"},
        "words": [""],
        "numbers": [0],
        "flags": [False],
        "lists": {"z": []},
    }


@pytest.mark.parametrize(
    ("value", "path", "expected"),
    [
        ({"name": []}, "name", "a string, got a list"),
        ({"name": "a\ud800"}, "name", "valid Unicode"),
        ({"ready": 1}, "ready", "`true` or `false`, got a number"),
        ({"parts": {}}, "parts", "a list, got an object"),
        ({"parts": [{"count": "1"}]}, "parts[0].count", "an integer, got a string"),
        ({"parts": [{"count": True}]}, "parts[0].count", "an integer, got a boolean"),
        ({"parts": [{"count": Decimal("1.0")}]}, "parts[0].count", "an integer, got a number"),
        ({"parts": [{"count": 2**63}]}, "parts[0].count", "an integer of 64 bits"),
        ({"parts": [{}, 3]}, "parts[1]", "an object, got a number"),
        ({"named": []}, "named", "a map, got a list"),
        ({"named": {"x": []}}, "named[x]", "an object, got a list"),
        ({"named": {1: {}}}, "named[1]", "a string as key"),
        ({"amounts": {"y": []}}, "amounts[y]", "a quantity, for example `10Gi`"),
        ({"amounts": {"y": True}}, "amounts[y]", "a quantity, for example `10Gi`"),
        ({"since": "yesterday"}, "since", "RFC 3339"),
        ({"raw": float("nan")}, "raw", "finite"),
        ({"raw": {"a": [b""]}}, "raw.a[0]", "JSON value"),
        ([], "", "an object, got a list"),
    ],
)
def test_a_wrong_type_is_reported_with_its_path(value, path, expected):
    _, findings = check_document(value, Thing)
    (wrong,) = findings.type_errors
    assert wrong.path == path
    assert expected in wrong.detail


@pytest.mark.parametrize(
    ("value", "mismatch"),
    [
        ({"nodeName": 1}, TypeMismatch("a string", "a number")),
        ({"words": {}}, TypeMismatch("a list", "an object")),
        (
            {"amounts": {"y": []}},
            TypeMismatch("a quantity, for example `10Gi` or `500m`", "a list"),
        ),
        ({"raw": {"a": [b""]}}, TypeMismatch("a JSON value", "`bytes`")),
        ({"raw": float("nan")}, None),
    ],
)
def test_a_wrong_type_carries_the_expected_and_the_found_type(value, mismatch):
    _, findings = check_document(value, Thing)
    (wrong,) = findings.type_errors
    assert wrong.violation == mismatch
    if mismatch is not None:
        assert wrong.detail == f"expected {mismatch.expected}, got {mismatch.found}"


def test_a_malformed_quantity_carries_the_problem_and_a_hint():
    _, findings = check_document({"amounts": {"y": "10GB"}}, Thing)
    (error,) = findings.type_errors
    hint = "did you mean `G` (10^9) or `Gi` (2^30)?"
    assert error.violation == MalformedQuantity("unknown suffix `GB`", hint)
    assert error.detail == f"`10GB`: unknown suffix `GB`; {hint}"


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("nodename", "nodeName"),
        ("node_name", "nodeName"),
        ("node-name", "nodeName"),
        ("amuonts", "amounts"),
        ("zebra", None),
    ],
)
def test_an_unknown_field_offers_the_nearest_name(name, near):
    fitted, findings = check_document({"name": "a", name: 1}, Thing)
    assert fitted == {"name": "a"}
    assert findings.unknown_fields == [UnknownField(name, name, near, list_field_names(Thing))]
    hint = f"; did you mean `{near}`?" if near else ""
    assert str(findings.unknown_fields[0]) == f'unknown field "{name}"{hint}'


def test_only_the_first_unknown_fields_get_a_hint():
    _, findings = check_document({f"names{i}": 1 for i in range(MAX_SUGGESTIONS + 5)}, Thing)
    assert [field.suggestion is None for field in findings.unknown_fields] == [False] * MAX_SUGGESTIONS + [
        True
    ] * 5


def test_a_view_has_no_unknown_fields():
    fitted, findings = check_document({"name": "a", "other": 1}, Glance)
    assert (fitted, findings.unknown_fields) == ({"name": "a"}, [])


def test_the_input_is_left_alone():
    document = {"name": None, "parts": [None, {"count": 1, "x": 2}], "amounts": {"y": "1000m"}}
    before = repr(document)
    check_document(document, Thing)
    assert repr(document) == before


def test_fields_go_by_their_names_on_the_wire():
    assert "creationTimestamp" in list_field_names(ObjectMeta)
    assert "creation_timestamp" not in list_field_names(ObjectMeta)
