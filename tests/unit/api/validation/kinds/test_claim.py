"""Validation of a claim's spec."""

from __future__ import annotations

import msgspec
import pytest

from dray.api.codec import decode_document
from dray.api.kinds import get_kind_by_type
from dray.api.resource import DeviceSubRequest, ExactDeviceRequest, ResourceClaim
from dray.api.strategies.defaults import apply_defaults
from dray.api.strategies.gated_fields import drop_disabled_fields
from dray.api.validation import validate_create, validate_update
from dray.gates import GateSet
from tests.unit.api.validation.building import (
    ask,
    choice,
    claim,
    claim_document,
    found,
    made,
    metadata,
    opaque,
    request,
)

EXACTLY = "spec.devices.requests[0].exactly"
FIRST = "spec.devices.requests[0].firstAvailable[0]"
req = pytest.mark.req


def alternative(name="big", **fields):
    return {"name": name, **ask(**fields)}


def judged(*requests, **devices):
    return found(validate_create(claim(*requests, **devices)))


# --- requests ---


@req("K4816-017")
def test_a_request_is_either_exact_or_a_list_of_alternatives():
    both = {**request(), **choice("gpu", alternative())}
    assert judged(both) == ["Invalid spec.devices.requests[0]"]
    assert judged(request()) == judged(choice("gpu", alternative())) == []


@req("K4816-018")
def test_a_request_must_not_be_empty():
    assert judged({"name": "gpu"}) == ["Required spec.devices.requests[0]"]
    assert judged(choice("gpu")) == ["Required spec.devices.requests[0]"]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("gpu-0", []),
        ("a" * 63, []),
        ("", ["Invalid spec.devices.requests[0].name"]),
        ("Gpu", ["Invalid spec.devices.requests[0].name"]),
        ("a.b", ["Invalid spec.devices.requests[0].name"]),
        ("a" * 64, ["Invalid spec.devices.requests[0].name"]),
    ],
)
@req("K4816-019")
def test_a_request_has_a_dns_label_for_a_name(name, expected):
    assert judged(request(name)) == expected


def test_request_names_differ():
    assert judged(request("a"), request("b"), request("a")) == ["Duplicate spec.devices.requests[2]"]


@req("K4816-022")
def test_an_exact_request_names_its_class():
    assert judged(request(deviceClassName="")) == [f"Required {EXACTLY}.deviceClassName"]
    assert judged(request(deviceClassName="A")) == [f"Invalid {EXACTLY}.deviceClassName"]


AMOUNTS = {
    "one": ({"count": 1}, []),
    "none": ({"count": 0}, ["Invalid {}.count"]),
    "less than none": ({"count": -1}, ["Invalid {}.count"]),
    "all": ({"allocationMode": "All", "count": 0}, []),
    "all of some": ({"allocationMode": "All", "count": 1}, ["Invalid {}.count"]),
    "a mode nobody knows": ({"allocationMode": "Some"}, ["NotSupported {}.allocationMode"]),
    "no mode": ({"allocationMode": ""}, ["NotSupported {}.allocationMode"]),
}


@pytest.mark.parametrize(("fields", "expected"), AMOUNTS.values(), ids=AMOUNTS)
@req("K4816-030")
def test_amounts_of_an_exact_request(fields, expected):
    assert judged(request(**fields)) == [line.format(EXACTLY) for line in expected]


@pytest.mark.parametrize(("fields", "expected"), AMOUNTS.values(), ids=AMOUNTS)
def test_amounts_of_an_alternative(fields, expected):
    assert judged(choice("gpu", alternative(**fields))) == [line.format(FIRST) for line in expected]


@req("K4816-038")
def test_an_alternative_has_the_defaults_of_an_exact_request():
    bare = {"name": "big", "deviceClassName": "gpu.example.com"}
    defaulted = apply_defaults(claim(choice("gpu", bare)), now="2026-01-01T00:00:00Z")
    chosen = defaulted.spec.devices.requests[0].first_available[0]
    assert (chosen.allocation_mode, chosen.count) == ("ExactCount", 1)
    assert not validate_create(defaulted)
    spelled_out = apply_defaults(claim(choice("gpu", {**bare, "allocationMode": "All"})), now="")
    assert not validate_create(spelled_out)
    none = apply_defaults(claim(choice("gpu", {**bare, "count": -1})), now="")
    assert found(validate_create(none)) == [f"Invalid {FIRST}.count"]


@req("K4816-033", "K4816-035")
def test_an_alternative_has_a_name_and_a_class():
    assert judged(choice("gpu", alternative(""))) == [f"Invalid {FIRST}.name"]
    assert judged(choice("gpu", alternative("a/b"))) == [f"Invalid {FIRST}.name"]
    assert judged(choice("gpu", alternative(deviceClassName=""))) == [f"Required {FIRST}.deviceClassName"]


@req("K4816-051")
def test_alternatives_of_different_requests_may_share_a_name():
    assert judged(choice("a", alternative("x")), choice("b", alternative("x"))) == []
    twice = judged(choice("a", alternative("x"), alternative("x")))
    assert twice == ["Duplicate spec.devices.requests[0].firstAvailable[1]"]


@req("K4816-015", "K4816-043")
@pytest.mark.parametrize("field", [{"adminAccess": True}, {"firstAvailable": [alternative()]}])
def test_an_alternative_has_neither_admin_access_nor_alternatives(field):
    decoded = decode_document(claim_document(choice("gpu", {**alternative(), **field})))
    assert [unknown.name for unknown in decoded.unknown_fields] == list(field)
    assert not any(name in DeviceSubRequest.__struct_fields__ for name in ("admin_access", "first_available"))


@req("K4816-016")
def test_exact_requests_and_alternatives_are_types_of_their_own():
    assert not issubclass(DeviceSubRequest, ExactDeviceRequest)
    assert not issubclass(ExactDeviceRequest, DeviceSubRequest)


@req("K4816-044")
@pytest.mark.parametrize("place", ["constraints", "config"])
def test_alternatives_stand_in_requests_only(place):
    misplaced = [{"firstAvailable": [alternative()]}]
    document = (
        claim_document(constraints=misplaced) if place == "constraints" else claim_document(config=misplaced)
    )
    decoded = decode_document(document)
    assert [unknown.path for unknown in decoded.unknown_fields] == [f"spec.devices.{place}[0].firstAvailable"]


# --- selectors, tolerations, capacity ---

ASKS = {
    "selector": ({"selectors": [{"cel": {"expression": "true"}}]}, []),
    "no language": ({"selectors": [{}]}, ["Required {}.selectors[0].cel"]),
    "no expression": ({"selectors": [{"cel": {}}]}, ["Invalid {}.selectors[0].cel.expression"]),
    "tolerates everything": ({"tolerations": [{"operator": "Exists"}]}, []),
    "tolerates one value": ({"tolerations": [{"key": "a", "operator": "Equal", "value": "b"}]}, []),
    "exists with a value": (
        {"tolerations": [{"key": "a", "operator": "Exists", "value": "b"}]},
        ["Invalid {}.tolerations[0].value"],
    ),
    "no operator": ({"tolerations": [{"key": "a"}]}, ["Required {}.tolerations[0].operator"]),
    "unknown operator": (
        {"tolerations": [{"operator": "Maybe"}]},
        ["NotSupported {}.tolerations[0].operator"],
    ),
    "unknown effect": (
        {"tolerations": [{"operator": "Exists", "effect": "Sometimes"}]},
        ["NotSupported {}.tolerations[0].effect"],
    ),
    "bad key and value": (
        {"tolerations": [{"key": "a b", "operator": "Equal", "value": "a b"}]},
        ["Invalid {}.tolerations[0].key", "Invalid {}.tolerations[0].value"],
    ),
    "capacity": ({"capacity": {"requests": {"memory": "1Gi", "example.com/cores": "500m"}}}, []),
    "no capacity at all": ({"capacity": {"requests": {"memory": "0"}}}, []),
    "negative capacity": (
        {"capacity": {"requests": {"memory": "-1"}}},
        ["Invalid {}.capacity.requests[memory]"],
    ),
    "bad name of a capacity": ({"capacity": {"requests": {"a-b": "1"}}}, ["Invalid {}.capacity.requests"]),
}


@req("K5075-064", "K5075-065")
@pytest.mark.parametrize(("fields", "expected"), ASKS.values(), ids=ASKS)
def test_exact_requests_and_alternatives_have_the_same_rules(fields, expected):
    assert judged(request(**fields)) == [line.format(EXACTLY) for line in expected]
    assert judged(choice("gpu", alternative(**fields))) == [line.format(FIRST) for line in expected]


# --- references ---

REFERENCES = {
    "a request": (["gpu"], []),
    "all requests": ([], []),
    "an alternative": (["either/big"], []),
    "a choice, whatever is chosen": (["either"], []),
    "an unknown request": (["nic"], ["Invalid {}[0]"]),
    "an unknown alternative": (["either/huge"], ["Invalid {}[0]"]),
    "an alternative of an exact request": (["gpu/big"], ["Invalid {}[0]"]),
    "an unknown request with an alternative": (["nic/big"], ["Invalid {}[0]"]),
    "two slashes": (["either/big/x"], ["Invalid {}[0]"]),
    "no alternative after the slash": (["either/"], ["Invalid {}[0]", "Invalid {}[0]"]),
    "no name": ([""], ["Invalid {}[0]", "Invalid {}[0]"]),
    "the same twice": (["gpu", "gpu"], ["Duplicate {}[1]"]),
}
REQUESTS = (request("gpu"), choice("either", alternative("big"), alternative("small")))


@req("K4816-034")
@pytest.mark.parametrize(("names", "expected"), REFERENCES.values(), ids=REFERENCES)
def test_references(names, expected):
    constraint = {"requests": names, "matchAttribute": "example.com/numa"}
    place = "spec.devices.constraints[0].requests"
    assert judged(*REQUESTS, constraints=[constraint]) == [line.format(place) for line in expected]
    config = {"requests": names, "opaque": opaque()}
    place = "spec.devices.config[0].requests"
    assert judged(*REQUESTS, config=[config]) == [line.format(place) for line in expected]


# --- constraints ---

CONSTRAINTS = {
    "match": ({"matchAttribute": "example.com/numa"}, []),
    "distinct": ({"distinctAttribute": "example.com/numa"}, []),
    "no domain": ({"matchAttribute": "numa"}, ["Invalid {}.matchAttribute"]),
    "no domain, distinct": ({"distinctAttribute": "numa"}, ["Invalid {}.distinctAttribute"]),
    "no name": ({"distinctAttribute": "example.com/"}, ["Invalid {}.distinctAttribute"]),
    "neither": ({}, ["Required {}"]),
    "both": ({"matchAttribute": "a.b/c", "distinctAttribute": "a.b/c"}, ["Invalid {}"]),
}


@req("K5075-114", "K5075-115")
@pytest.mark.parametrize(("fields", "expected"), CONSTRAINTS.values(), ids=CONSTRAINTS)
def test_constraints(fields, expected):
    places = [line.format("spec.devices.constraints[0]") for line in expected]
    assert judged(constraints=[fields]) == places


@req("K5075-075", "K5075-116")
def test_without_its_gate_the_distinct_attribute_is_gone_and_the_constraint_empty():
    asked = claim(constraints=[{"distinctAttribute": "example.com/numa"}])
    off = GateSet.from_defaults().override({"DRAConsumableCapacity": False})
    kept = drop_disabled_fields(get_kind_by_type(ResourceClaim), asked, None, off).object
    assert kept.spec.devices.constraints[0].distinct_attribute is None
    assert found(validate_create(kept)) == ["Required spec.devices.constraints[0]"]
    matching = claim(constraints=[{"matchAttribute": "example.com/numa"}])
    assert not validate_create(
        drop_disabled_fields(get_kind_by_type(ResourceClaim), matching, None, off).object
    )


@req("K5075-159")
def test_a_gate_brings_the_rules_of_its_fields():
    asked = claim(request(capacity={"requests": {"memory": "-1"}}))
    kind = get_kind_by_type(ResourceClaim)
    off = GateSet.from_defaults().override({"DRAConsumableCapacity": False})
    assert not validate_create(drop_disabled_fields(kind, asked, None, off).object)
    kept = drop_disabled_fields(kind, asked, None, GateSet.from_defaults()).object
    assert found(validate_create(kept)) == [f"Invalid {EXACTLY}.capacity.requests[memory]"]


# --- older versions ---


def v1beta1(request_document):
    document = claim_document(request_document)
    return found(validate_create(made({**document, "apiVersion": "resource.k8s.io/v1beta1"})))


@req("K4816-041")
def test_in_v1beta1_a_request_with_alternatives_needs_no_class():
    assert v1beta1(choice("gpu", alternative())) == []
    flat_without_class = {"name": "gpu", "allocationMode": "ExactCount", "count": 1}
    assert v1beta1(flat_without_class) == [f"Required {EXACTLY}.deviceClassName"]


@req("K4816-012", "K4816-040")
@pytest.mark.parametrize(
    "field",
    [
        {"deviceClassName": "gpu.example.com"},
        {"selectors": [{"cel": {"expression": "true"}}]},
        {"allocationMode": "ExactCount"},
        {"count": 1},
        {"adminAccess": True},
        {"tolerations": [{"operator": "Exists"}]},
        {"capacity": {"requests": {"memory": "1"}}},
    ],
    ids=lambda field: next(iter(field)),
)
def test_in_v1beta1_a_request_with_alternatives_has_only_a_name(field):
    assert v1beta1({**choice("gpu", alternative()), **field}) == ["Invalid spec.devices.requests[0]"]


# --- updates ---


def test_the_spec_never_changes():
    old = claim(request(count=1))
    assert not validate_update(claim(request(count=1), meta=metadata(labels={"a": "b"})), old)
    assert found(validate_update(claim(request(count=2)), old)) == ["Invalid spec"]


def test_white_space_and_order_in_parameters_are_no_change():
    old = claim(config=[{"opaque": opaque(parameters={"a": 1, "b": [1, 2]})}])
    new = claim(config=[{"opaque": opaque(parameters={"b": [1, 2], "a": 1})}])
    assert not validate_update(new, old)
    spaced = new.spec.devices.config[0].opaque
    msgspec.structs.force_setattr(spaced, "parameters", msgspec.Raw(b'{ "b" : [1,\n2], "a":1 }'))
    assert not validate_update(new, old)
    changed = claim(config=[{"opaque": opaque(parameters={"a": 1, "b": [2, 1]})}])
    assert found(validate_update(changed, old)) == ["Invalid spec"]


def test_a_quantity_written_otherwise_is_no_change():
    old = claim(request(capacity={"requests": {"memory": "1Gi"}}))
    assert not validate_update(claim(request(capacity={"requests": {"memory": "1073741824"}})), old)


def test_a_stored_spec_is_not_validated_again():
    bad = claim(request(count=-1))
    assert not validate_update(bad, bad)


# --- the memory of what was asked before ---


def test_a_cached_claim_stays_valid_and_an_invalid_one_stays_invalid():
    for _ in range(2):
        assert judged(request(count=3)) == []
        assert judged(request(count=-3)) == [f"Invalid {EXACTLY}.count"]


def test_configuration_is_validated_each_time():
    sound = claim(config=[{"opaque": opaque()}])
    assert not validate_create(sound)
    assert judged(config=[{"opaque": opaque("a b")}]) == ["Invalid spec.devices.config[0].opaque.driver"]


def test_a_claim_that_json_cannot_hold_is_validated_without_the_cache():
    huge = msgspec.structs.replace(
        claim().spec.devices.requests[0],
        exactly=ExactDeviceRequest(device_class_name="\ud800", allocation_mode="ExactCount", count=2**70),
    )
    asked = claim()
    devices = msgspec.structs.replace(asked.spec.devices, requests=(huge,))
    spoiled = msgspec.structs.replace(asked, spec=msgspec.structs.replace(asked.spec, devices=devices))
    assert found(validate_create(spoiled)) == [
        f"Invalid {EXACTLY}.count",
        f"Invalid {EXACTLY}.deviceClassName",
    ]
