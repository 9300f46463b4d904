"""Inputs that Kubernetes accepts and that cause harm later: refused, or accepted with a warning."""

from __future__ import annotations

import pytest

from dray.api.validation import collect_warnings, validate_create, validate_status_update, validate_update
from tests.unit.api.validation.building import (
    allocation,
    choice,
    claim,
    device,
    found,
    request,
    result,
    slice_of,
    with_status,
)

CAPACITY = "spec.devices[0].capacity[memory]"
POLICY = f"{CAPACITY}.requestPolicy"
ASK = "spec.devices.requests[0].exactly"


def shared(value="10", **policy):
    capacity = {"value": value, "requestPolicy": policy}
    return slice_of(device(capacity={"memory": capacity}, allowMultipleAllocations=True))


REFUSED = {
    "1: a constraint with both attributes": (
        claim(constraints=[{"matchAttribute": "a.b/c", "distinctAttribute": "a.b/d"}]),
        ["Invalid spec.devices.constraints[0]"],
    ),
    "2: a negative capacity request": (
        claim(request(capacity={"requests": {"memory": "-5"}})),
        [f"Invalid {ASK}.capacity.requests[memory]"],
    ),
    "3: a capacity request with a bad name": (
        claim(request(capacity={"requests": {"!!bad name!!": "1"}})),
        [f"Invalid {ASK}.capacity.requests"],
    ),
    "4: an attribute name with two slashes": (
        slice_of(device(attributes={"x.io/a/b": {"int": 1}})),
        ["Invalid spec.devices[0].attributes"],
    ),
    "5: a count beyond 32 bits": (claim(request(count=2**31)), [f"Invalid {ASK}.count"]),
    "7: a default above the capacity": (shared(default="11"), [f"Invalid {POLICY}.default"]),
    "8: a negative default": (shared(default="-1"), [f"Invalid {POLICY}.default"]),
    "9: a negative minimum without step": (
        shared(default="1", validRange={"min": "-4"}),
        [f"Invalid {POLICY}.validRange.min"],
    ),
    "10: a default above the capacity in a range without maximum": (
        shared(default="40", validRange={"min": "1"}),
        [f"Invalid {POLICY}.default"],
    ),
    "11: a negative valid value": (
        shared(default="1", validValues=["-1", "1"]),
        [f"Invalid {POLICY}.validValues[0]"],
    ),
    "12: a negative capacity": (
        slice_of(device(capacity={"memory": {"value": "-10"}})),
        [f"Invalid {CAPACITY}.value"],
    ),
}


@pytest.mark.parametrize(("obj", "expected"), REFUSED.values(), ids=REFUSED)
def test_refused(obj, expected):
    assert found(validate_create(obj)) == expected


@pytest.mark.parametrize("count", [32, 33, 2**31 - 1])
def test_5_a_count_that_can_never_fit_is_accepted_with_a_warning(count):
    asked = claim(request(count=count))
    assert not validate_create(asked)
    assert [caution.path for caution in collect_warnings(asked)] == ([] if count == 32 else [f"{ASK}.count"])


def test_5_as_an_alternative_it_is_skipped_with_a_warning():
    alternative = {"name": "huge", "deviceClassName": "a", "allocationMode": "ExactCount", "count": 33}
    asked = claim(choice("gpu", alternative, {**alternative, "name": "small", "count": 1}))
    assert not validate_create(asked)
    (caution,) = collect_warnings(asked)
    assert caution.path == "spec.devices.requests[0].firstAvailable[0].count"
    assert "never chosen" in caution.text


def test_6_an_empty_policy_has_no_effect():
    assert not validate_create(shared())


def test_13_a_shared_device_that_becomes_dedicated_and_keeps_its_policy():
    capacity = {"value": "10", "requestPolicy": {"default": "1"}}
    for dedicated_device in (
        device(capacity={"memory": capacity}),
        device(capacity={"memory": capacity}, allowMultipleAllocations=False),
    ):
        dedicated = slice_of(dedicated_device)
        assert found(validate_update(dedicated, shared(default="1"))) == [f"Forbidden {POLICY}"]


def test_14_a_negative_consumption_would_create_capacity():
    got = with_status(allocation=allocation(result(consumedCapacity={"memory": "-999"})))
    place = "status.allocation.devices.results[0].consumedCapacity[memory]"
    assert found(validate_status_update(got, claim())) == [f"Invalid {place}"]
    assert not validate_status_update(
        with_status(allocation=allocation(result(consumedCapacity={"memory": "999"}))), claim()
    )
