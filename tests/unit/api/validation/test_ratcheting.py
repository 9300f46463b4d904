"""An update is not refused for errors of the stored object."""

from __future__ import annotations

import msgspec
import pytest

from dray.api.fields import FieldError, FieldErrorType
from dray.api.validation import validate_create, validate_update
from dray.api.validation.ratcheting import filter_new_errors
from tests.unit.api.validation.building import device, device_class, found, opaque, slice_of

ODD_TAINT = {"key": "a", "effect": "Sometimes"}
LONG = {"opaque": opaque(parameters={"x": "y" * 11_000})}
LONGER = {"opaque": opaque(parameters={"x": "y" * 12_000})}
FINE = {"opaque": opaque()}


def updated(new, old):
    return found(validate_update(new, old))


def test_a_stored_invalid_device_may_stay():
    old = slice_of(device("a", taints=[ODD_TAINT]), device("b"))
    assert validate_create(old)
    assert updated(old, old) == []
    assert updated(slice_of(device("a", taints=[ODD_TAINT], attributes={"x": {"int": 1}})), old) == []


def test_a_device_is_identified_by_its_name_not_by_its_position():
    old = slice_of(device("a", taints=[ODD_TAINT]))
    moved = slice_of(device("new"), device("a", taints=[ODD_TAINT]))
    assert updated(moved, old) == []
    renamed = slice_of(device("b", taints=[ODD_TAINT]))
    assert updated(renamed, old) == ["NotSupported spec.devices[0].taints[0].effect"]


def test_an_item_without_a_name_is_identified_by_its_content():
    old = slice_of(device("a", taints=[ODD_TAINT]))
    moved = slice_of(device("a", taints=[{"key": "b", "effect": "None"}, ODD_TAINT]))
    assert updated(moved, old) == []
    other = slice_of(device("a", taints=[{**ODD_TAINT, "effect": "Often"}]))
    assert updated(other, old) == ["NotSupported spec.devices[0].taints[0].effect"]


def test_a_value_that_breaks_another_rule_than_before_is_refused():
    old = slice_of(device("a", attributes={"x": {"version": "one"}}))
    assert updated(slice_of(device("a", attributes={"x": {"version": "two"}})), old) == [
        "Invalid spec.devices[0].attributes[x].version"
    ]
    assert updated(slice_of(device("a", attributes={"x": {"version": "one"}, "y": {"int": 1}})), old) == []


def test_values_that_are_not_repeated_in_errors_are_compared_too():
    old = device_class(config=[LONG])
    assert updated(device_class(config=[LONG]), old) == []
    assert updated(device_class(config=[FINE, LONG]), old) == []
    assert updated(device_class(config=[LONGER]), old) == ["TooLong spec.config[0].opaque.parameters"]
    assert updated(device_class(config=[LONG, LONGER]), old) == ["TooLong spec.config[1].opaque.parameters"]


def test_a_list_that_was_too_long_must_not_change():
    many = [device(f"d{n}") for n in range(129)]
    old = slice_of(*many)
    assert updated(old, old) == []
    assert updated(slice_of(*many, device("more")), old) == ["TooMany spec.devices"]
    assert updated(slice_of(*many[1:], device("other")), old) == ["TooMany spec.devices"]
    assert updated(slice_of(*many[1:]), old) == []


def test_a_path_that_no_object_has_counts_as_its_parent():
    """Kubernetes reports a bad default at `validRange.default`, though the default is not there."""

    def ranged(default):
        policy = {"default": default, "validRange": {"min": "5"}}
        capacity = {"memory": {"value": "10", "requestPolicy": policy}}
        return slice_of(device("a", capacity=capacity, allowMultipleAllocations=True))

    place = "spec.devices[0].capacity[memory].requestPolicy.validRange.default"
    assert updated(ranged("1"), ranged("1")) == []
    assert updated(ranged("2"), ranged("1")) == [f"Invalid {place}"]


@pytest.mark.parametrize("path", ["", "[", "a]", "spec.devices[x]", "spec.devices[99]", "spec.nothing[0].x"])
def test_odd_paths_break_nothing(path):
    error = FieldError(FieldErrorType.INVALID, path, object(), "odd")
    old = slice_of(device())
    assert filter_new_errors([error], old, [error], old) == []
    assert filter_new_errors([error], old, [], old) == [error]


def test_a_value_that_json_cannot_hold_breaks_nothing():
    error = FieldError(FieldErrorType.INVALID, "spec.driver", "\ud800", "odd")
    old = slice_of(device())
    assert filter_new_errors([error], old, [error], old) == []


def test_odd_keys_break_nothing():
    old = slice_of(device("a", attributes={"a].b[c": {}, "[0]": {}}))
    assert updated(old, old) == []
    copy = msgspec.structs.replace(old)
    assert updated(copy, old) == []
