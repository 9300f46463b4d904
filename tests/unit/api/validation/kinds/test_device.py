"""Devices: names, attributes in all spellings, capacities, counters, taints, binding conditions."""

from __future__ import annotations

import pytest

from dray.api.validation import validate_create
from tests.unit.api.validation.building import device, found, slice_of

FOO = "spec.devices[0].attributes[foo]"
req = pytest.mark.req


def judged(**fields):
    return found(validate_create(slice_of(device(**fields))))


def attribute(**value):
    return judged(attributes={"foo": value})


@req("K5491-002", "K5491-012", "K5491-017")
@pytest.mark.parametrize(
    ("scalar", "values"),
    [("int", [1, -2]), ("bool", [True, False]), ("string", ["a", ""]), ("version", ["1.2.3", "1.0.0-rc.1"])],
)
def test_every_type_as_scalar_and_as_list_in_both_spellings(scalar, values):
    for value in values:
        assert attribute(**{scalar: value}) == []
    assert attribute(**{f"{scalar}s": values}) == []
    assert attribute(list={scalar: values}) == []


@req("K5491-018")
@pytest.mark.parametrize(
    "value",
    [
        {},
        {"int": 1, "string": "a"},
        {"bool": True, "bools": [True]},
        {"int": 1, "list": {"int": [1]}},
        {"ints": [1], "list": {"int": [1]}},
        {"strings": ["a"], "versions": ["1.0.0"]},
    ],
)
def test_an_attribute_has_exactly_one_value(value):
    assert attribute(**value) == [f"Invalid {FOO}"]


@req("K5491-019")
@pytest.mark.parametrize("value", [{}, {"int": [1], "bool": [True]}])
def test_a_typed_list_has_exactly_one_type(value):
    assert attribute(list=value) == [f"Invalid {FOO}.list"]


@req("K5491-024")
@pytest.mark.parametrize("scalar", ["int", "bool", "string", "version"])
def test_a_list_is_not_empty(scalar):
    assert attribute(**{f"{scalar}s": []}) == [f"Invalid {FOO}.{scalar}s"]
    assert attribute(list={scalar: []}) == [f"Invalid {FOO}.list.{scalar}"]


@req("K5491-021")
def test_strings_have_64_bytes_at_most():
    longest, too_long = "x" * 64, "x" * 65
    assert attribute(string=longest) == attribute(strings=[longest]) == []
    assert attribute(string=too_long) == [f"TooLong {FOO}.string"]
    assert attribute(strings=["a", too_long]) == [f"TooLong {FOO}.strings[1]"]
    assert attribute(list={"string": [too_long]}) == [f"TooLong {FOO}.list.string[0]"]
    assert attribute(string="ä" * 32) == []
    assert attribute(string="ä" * 33) == [f"TooLong {FOO}.string"]


@req("K5491-022", "K5491-023")
def test_versions_are_semantic_and_have_64_bytes_at_most():
    longest, too_long = "1.0.0-" + "x" * 58, "1.0.0-" + "x" * 59
    assert attribute(version=longest) == attribute(versions=[longest]) == []
    assert attribute(version=too_long) == [f"TooLong {FOO}.version"]
    assert attribute(versions=["1.0.0", "v1.0.0", too_long]) == [
        f"Invalid {FOO}.versions[1]",
        f"TooLong {FOO}.versions[2]",
    ]
    assert attribute(list={"version": ["1.0"]}) == [f"Invalid {FOO}.list.version[0]"]


@req("K5491-020")
def test_lists_have_64_items_at_most():
    """48 values per device are reached first, so that is what 49 and 64 break; 65 break both."""
    assert attribute(ints=[1] * 48) == []
    assert attribute(ints=[1] * 49) == ["Invalid spec.devices[0]"]
    assert attribute(ints=[1] * 64) == ["Invalid spec.devices[0]"]
    assert attribute(ints=[1] * 65) == ["Invalid spec.devices[0]", f"TooMany {FOO}.ints"]
    assert attribute(list={"string": ["a"] * 65}) == ["Invalid spec.devices[0]", f"TooMany {FOO}.list.string"]


def test_values_are_counted_over_all_attributes_of_a_device():
    full = {"a": {"ints": [1] * 24}, "b": {"list": {"int": [1] * 23}}, "c": {"int": 1}}
    assert judged(attributes=full) == []
    assert judged(attributes={**full, "d": {"int": 1}}) == ["Invalid spec.devices[0]"]


NAMES = {
    "id": ("foo", []),
    "domain and id": ("example.com/foo", []),
    "domain in upper case, as for drivers": ("Example.COM/foo", []),
    "underscore": ("_Foo9", []),
    "dash": ("a-b", ["Invalid {}"]),
    "digit first": ("9a", ["Invalid {}"]),
    "no domain": ("/foo", ["Invalid {}"]),
    "no id": ("example.com/", ["Invalid {}"]),
    "two slashes": ("x.io/a/b", ["Invalid {}"]),
    "longest id": ("a" * 32, []),
    "id too long": ("a" * 33, ["TooLong {}"]),
    "longest domain": (f"{'a' * 63}/foo", []),
    "domain too long": (f"{'a' * 60}.abc/foo", ["TooLong {}"]),
}


@pytest.mark.parametrize(("name", "expected"), NAMES.values(), ids=NAMES)
def test_attributes_and_capacities_have_the_same_names(name, expected):
    place = "spec.devices[0].attributes"
    assert judged(attributes={name: {"int": 1}}) == [line.format(place) for line in expected]
    place = "spec.devices[0].capacity"
    assert judged(capacity={name: {"value": "1"}}) == [line.format(place) for line in expected]


def test_a_name_as_long_as_the_request_is_cut_in_paths():
    errors = validate_create(slice_of(device(attributes={"a" * 100_000: {}})))
    assert max(len(error.path) for error in errors) < 150


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("gpu-0", []),
        ("", ["Invalid spec.devices[0].name"]),
        ("GPU", ["Invalid spec.devices[0].name"]),
        ("a/b", ["Invalid spec.devices[0].name"]),
        ("a" * 64, ["Invalid spec.devices[0].name"]),
    ],
)
def test_names(name, expected):
    assert found(validate_create(slice_of(device(name)))) == expected


TAINT = {"key": "example.com/hot", "effect": "NoSchedule"}
CONSUMES = [{"counterSet": "memory", "counters": {"gib": {"value": "10"}}}]
EXTRAS = {
    "taints": ({"taints": [TAINT, {**TAINT, "value": "very", "effect": "NoExecute"}]}, []),
    "taint that only informs": ({"taints": [{**TAINT, "effect": "None"}]}, []),
    "taint without key and effect": (
        {"taints": [{}]},
        ["Invalid {}.taints[0].key", "Invalid {}.taints[0].key", "Required {}.taints[0].effect"],
    ),
    "taint with an unknown effect": (
        {"taints": [{**TAINT, "effect": "NoWay"}]},
        ["NotSupported {}.taints[0].effect"],
    ),
    "taint with a bad value": ({"taints": [{**TAINT, "value": "a b"}]}, ["Invalid {}.taints[0].value"]),
    "counters": ({"consumesCounters": CONSUMES}, []),
    "counters of no set": (
        {"consumesCounters": [{"counters": {"gib": {"value": "10"}}}]},
        ["Required {}.consumesCounters[0].counterSet"],
    ),
    "counters of a bad name": (
        {"consumesCounters": [{**CONSUMES[0], "counterSet": "A"}]},
        ["Invalid {}.consumesCounters[0].counterSet"],
    ),
    "no counters": (
        {"consumesCounters": [{"counterSet": "memory"}]},
        ["Required {}.consumesCounters[0].counters"],
    ),
    "the same set twice": ({"consumesCounters": CONSUMES * 2}, ["Duplicate {}.consumesCounters[1]"]),
    "conditions": ({"bindingConditions": ["Ready"], "bindingFailureConditions": ["Failed"]}, []),
    "conditions without failures": (
        {"bindingConditions": ["Ready"]},
        ["Invalid {}.bindingFailureConditions"],
    ),
    "failures without conditions": (
        {"bindingFailureConditions": ["Failed"]},
        ["Invalid {}.bindingConditions"],
    ),
    "a condition that is its own failure": (
        {"bindingConditions": ["Ready"], "bindingFailureConditions": ["Ready"]},
        ["Invalid {}.bindingFailureConditions[0]"],
    ),
    "bad and repeated conditions": (
        {"bindingConditions": ["Ready", "Ready", "a b"], "bindingFailureConditions": ["Failed"]},
        ["Duplicate {}.bindingConditions[1]", "Invalid {}.bindingConditions[2]"],
    ),
    "bound to its node": ({"bindsToNode": True}, []),
}


@pytest.mark.parametrize(("fields", "expected"), EXTRAS.values(), ids=EXTRAS)
def test_extras(fields, expected):
    assert judged(**fields) == [line.format("spec.devices[0]") for line in expected]
