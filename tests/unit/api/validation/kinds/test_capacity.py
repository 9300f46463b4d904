"""Validation of capacities and their request policies."""

from __future__ import annotations

import pytest

from dray.api.fields import AboveMaximum, BelowMinimum, OffGrid
from dray.api.validation import validate_create, validate_update
from tests.unit.api.validation.building import claim, device, found, made, request, slice_of

PLACE = "spec.devices[0].capacity[memory]"
POLICY = f"{PLACE}.requestPolicy"
req = pytest.mark.req


def shared(value="10", **policy):
    """A shared device with one capacity."""
    capacity = {"value": value, "requestPolicy": policy}
    return slice_of(device(capacity={"memory": capacity}, allowMultipleAllocations=True))


def judged(value="10", **policy):
    return found(validate_create(shared(value, **policy)))


def ranged(default="2", value="10", **bounds):
    return judged(value, default=default, validRange=bounds)


@req("K5075-025", "K5075-038", "K5075-039")
@pytest.mark.parametrize("flag", [None, False, True])
def test_a_capacity_is_a_value_and_perhaps_a_policy(flag):
    fields = {} if flag is None else {"allowMultipleAllocations": flag}

    def of(capacity):
        return found(validate_create(slice_of(device(capacity={"memory": capacity}, **fields))))

    assert of({"value": "10"}) == of({"value": "0"}) == []
    assert of({}) == [f"Required {PLACE}.value"]
    assert of({"value": "-10"}) == [f"Invalid {PLACE}.value"]


@req("K5075-040", "K5075-113")
@pytest.mark.parametrize("flag", [{}, {"allowMultipleAllocations": False}])
def test_only_shared_devices_have_a_policy(flag):
    capacity = {"value": "10", "requestPolicy": {"default": "1"}}
    assert found(validate_create(slice_of(device(capacity={"memory": capacity}, **flag)))) == [
        f"Forbidden {POLICY}"
    ]
    assert judged(default="1") == []


@req("K5075-040")
def test_a_device_that_is_no_longer_shared_must_give_up_its_policy():
    """C-27: the policy is as it was stored, and still refused."""
    old = shared(default="1")
    document = {"memory": {"value": "10", "requestPolicy": {"default": "1"}}}
    dedicated = slice_of(device(capacity=document, allowMultipleAllocations=False))
    assert found(validate_update(dedicated, old)) == [f"Forbidden {POLICY}"]
    assert not validate_update(slice_of(device(capacity={"memory": {"value": "10"}})), old)


def test_mixed_devices_are_validated_by_their_own_flag():
    policy = {"value": "10", "requestPolicy": {"default": "1"}}
    mixed = slice_of(
        device("a", capacity={"memory": policy}, allowMultipleAllocations=True),
        device("b", capacity={"memory": {"value": "10"}}),
        device("c", capacity={"memory": policy}),
    )
    assert found(validate_create(mixed)) == ["Forbidden spec.devices[2].capacity[memory].requestPolicy"]


# --- which policy ---


@req("K5075-028", "K5075-043", "K5075-106")
def test_a_policy_is_a_range_or_a_set_of_values():
    both = judged(default="1", validValues=["1"], validRange={"min": "1"})
    assert both == [f"Forbidden {POLICY}"]
    assert judged(default="1", validValues=["1"]) == ranged(default="1", min="1") == []


@req("K5075-029", "K5075-104")
def test_a_policy_has_a_default():
    assert judged(validValues=["1"]) == [f"Required {POLICY}.default"]
    assert judged(validRange={"min": "1"}) == [f"Required {POLICY}.default"]


def test_a_policy_may_be_empty():
    assert judged() == []


# --- values ---


@req("K5075-047", "K5075-105")
def test_the_default_is_one_of_the_values():
    assert judged(default="2", validValues=["1", "2"]) == []
    assert judged(default="2000m", validValues=["1", "2"]) == []
    assert judged(default="3", validValues=["1", "2"]) == [f"Invalid {POLICY}.validValues"]


@req("K5075-046", "K5075-108")
def test_values_ascend():
    assert judged(default="1", validValues=["1", "2", "10"]) == []
    assert judged(default="1", validValues=["2", "1", "10"]) == [f"Invalid {POLICY}.validValues[1]"]


@req("K5075-107")
def test_values_differ_also_when_written_differently():
    assert judged(default="1", validValues=["1", "1000m"]) == [f"Duplicate {POLICY}.validValues[1]"]
    assert judged("10", default="10", validValues=["9900m", "10"]) == []


@req("K5075-045", "K5075-109")
def test_ten_values_at_most():
    values = [str(value) for value in range(1, 12)]
    assert judged("20", default="1", validValues=values[:10]) == []
    assert judged("20", default="1", validValues=values) == [f"TooMany {POLICY}.validValues"]


def test_no_value_is_above_the_capacity():
    assert judged("10", default="10", validValues=["10"]) == []
    assert judged("10", default="1", validValues=["1", "11"]) == [f"Invalid {POLICY}.validValues[1]"]


# --- ranges ---


@req("K5075-057")
def test_a_range_has_a_minimum_from_zero_to_the_capacity():
    assert ranged() == [f"Required {POLICY}.validRange.min"]
    assert ranged(min="0") == ranged("10", min="10") == []
    assert ranged(min="-1") == [f"Invalid {POLICY}.validRange.min"]
    above = ranged("11", "10", min="11")
    assert f"Invalid {POLICY}.validRange.min" in above


@req("K5075-050", "K5075-058", "K5075-105")
def test_the_default_is_not_below_the_minimum():
    assert ranged("2", min="2") == []
    assert ranged("1999m", min="2") == [f"Invalid {POLICY}.validRange.default"]


@req("K5075-059")
def test_the_maximum_is_not_above_the_capacity():
    assert ranged("2", "10", min="1", max="10") == []
    assert ranged("2", "10", min="1", max="11") == [f"Invalid {POLICY}.validRange.max"]


@req("K5075-050", "K5075-060", "K5075-110")
def test_the_maximum_is_not_below_minimum_and_default():
    assert ranged("2", min="2", max="2") == []
    assert ranged("2", min="1", max="1") == [f"Invalid {POLICY}.validRange.default"]
    crossed = ranged("3", min="3", max="2")
    assert crossed == [f"Invalid {POLICY}.validRange.default", f"Invalid {POLICY}.validRange.max"]


@req("K5075-061", "K5075-111")
def test_the_grid_starts_at_the_minimum():
    """C-23: 3, 8, 13 are on the grid of 5 from 3; 5 and 10 are not."""
    assert ranged("8", "20", min="3", max="13", step="5") == []
    off = f"Invalid {POLICY}.validRange.step"
    assert ranged("10", "20", min="3", max="13", step="5") == [off]
    assert ranged("8", "20", min="3", max="15", step="5") == [off]
    assert ranged("10", "20", min="3", max="15", step="5") == [off, off]
    assert ranged("3", "20", min="3", step="5") == []


@req("K5075-062", "K5075-112")
def test_minimum_maximum_and_one_step_fit_into_the_capacity():
    """C-30: equal is accepted."""
    assert ranged("4", "10", min="4", max="10", step="6") == []
    assert ranged("4", "10", min="4", step="7") == [f"Invalid {POLICY}.validRange.step"]
    assert ranged("4", "10", min="4", max="11") == [f"Invalid {POLICY}.validRange.max"]
    assert ranged("11", "10", min="11") == [f"Invalid {POLICY}.default", f"Invalid {POLICY}.validRange.min"]


@pytest.mark.parametrize("step", ["0", "-1"])
def test_a_step_is_greater_than_zero(step):
    assert ranged("2", min="1", step=step) == [f"Invalid {POLICY}.validRange.step"]


def test_fractions_are_exact():
    assert ranged("200m", "1", min="200m", max="1", step="100m") == []
    assert ranged("250m", "1", min="200m", max="1", step="100m") == [f"Invalid {POLICY}.validRange.step"]
    assert ranged("100m", "10", min="0", step="1") == [f"Invalid {POLICY}.validRange.step"]


def test_bounds_can_be_read_with_64_bits():
    largest = str(2**63 - 1)
    assert ranged("0", largest, min="0", step=largest) == []
    assert ranged("0", str(2**63), min="0", step=str(2**63)) == [f"Invalid {POLICY}.validRange.step"]
    assert ranged("20u", "1", min="10u") == [
        f"Invalid {POLICY}.validRange.default",
        f"Invalid {POLICY}.validRange.min",
    ]


def ranged_errors(default="2", value="10", **bounds):
    return validate_create(shared(value, default=default, validRange=bounds))


@pytest.mark.parametrize(
    ("errors", "violations"),
    [
        (ranged_errors(min="1", max="20"), {AboveMaximum("10")}),
        (ranged_errors(min="1", max="1500m"), {AboveMaximum("1500m")}),
        (ranged_errors(min="4", max="3", default="3"), {AboveMaximum("3"), BelowMinimum("4")}),
        (ranged_errors(min="3"), {BelowMinimum("3")}),
        (ranged_errors(min="1", step="3"), {OffGrid("1", "3")}),
        (ranged_errors(min="1", step="1Gi", default="1"), {AboveMaximum("10")}),
        (ranged_errors(min="11", default="11"), {AboveMaximum("10")}),
        (validate_create(shared(default="2", validValues=["2", "11"])), {AboveMaximum("10")}),
        (ranged_errors(min="1", step="0"), {None}),
    ],
)
def test_errors_about_amounts_carry_the_limit(errors, violations):
    assert {error.violation for error in errors} == violations


def test_requests_of_a_claim_are_valid_whatever_the_policy():
    """C-22: below the minimum it is rounded up, above the maximum no device fits; the claim is sound."""
    for amount in ("0", "1n", "1", "999E"):
        assert not validate_create(claim(request(capacity={"requests": {"memory": amount}})))


@req("K5075-100")
def test_the_example_of_the_specification():
    """With `basic` taken away, as C-28 says: 10Gi of bandwidth, 1Mi by default, steps of 8 from 1Mi."""
    policy = {"default": "1Mi", "validRange": {"min": "1Mi", "step": "8"}}
    nic = {
        "name": "eth1",
        "attributes": {"name": {"string": "eth1"}},
        "capacity": {"bandwidth": {"value": "10Gi", "requestPolicy": policy}},
        "allowMultipleAllocations": True,
    }
    slice_document = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": "worker-1"},
        "spec": {
            "driver": "cni.dra.networking.x-k8s.io",
            "nodeName": "worker-1",
            "pool": {"name": "worker-1", "generation": 1, "resourceSliceCount": 1},
            "devices": [nic],
        },
    }
    assert not validate_create(made(slice_document))
