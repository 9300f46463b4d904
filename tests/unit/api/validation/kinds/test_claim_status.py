"""Validation of a claim's status: allocation, reservations, device status from drivers."""

from __future__ import annotations

import pytest

from dray.api.validation import validate_status_update, validate_stored
from tests.unit.api.validation.building import (
    OTHER_UID,
    UID,
    allocation,
    ask,
    choice,
    claim,
    consumer,
    found,
    metadata,
    opaque,
    request,
    result,
    with_status,
)

RESULT = "status.allocation.devices.results[0]"
HERE = {"key": "zone", "operator": "In", "values": ["a"]}
DELETING = metadata(deletionTimestamp="2026-01-01T00:00:00Z")
req = pytest.mark.req


def written(**status):
    """The first status of a claim."""
    return found(validate_status_update(with_status(**status), claim()))


def of_result(**fields):
    return written(allocation=allocation(result(**fields)))


RESULTS = {
    "a sound one": ({}, []),
    "unknown request": ({"request": "nic"}, ["Invalid {}.request"]),
    "no driver": ({"driver": ""}, ["Required {}.driver"]),
    "bad driver": ({"driver": "a b"}, ["Invalid {}.driver"]),
    "no pool": ({"pool": ""}, ["Required {}.pool"]),
    "bad pool": ({"pool": "A"}, ["Invalid {}.pool"]),
    "no device": ({"device": ""}, ["Invalid {}.device"]),
    "a device with a slash": ({"device": "gpu-0/1"}, ["Invalid {}.device"]),
    "admin access": ({"adminAccess": True}, []),
    "toleration": ({"tolerations": [{"key": "a", "operator": "Exists"}]}, []),
    "bad toleration": ({"tolerations": [{"operator": "Is"}]}, ["NotSupported {}.tolerations[0].operator"]),
    "conditions": ({"bindingConditions": ["A"], "bindingFailureConditions": ["B"]}, []),
    "half of the conditions": ({"bindingConditions": ["A"]}, ["Invalid {}.bindingFailureConditions"]),
}


@pytest.mark.parametrize(("fields", "expected"), RESULTS.values(), ids=RESULTS)
def test_results(fields, expected):
    assert of_result(**fields) == [line.format(RESULT) for line in expected]


@req("K5075-118")
@pytest.mark.parametrize(
    ("share", "sound"),
    [
        (UID, True),
        (None, True),
        ("", False),
        ("a", False),
        (UID.upper(), False),
        (UID.replace("-", ""), False),
        (f"{{{UID}}}", False),
        ("gpu-0/1", False),
    ],
)
def test_a_share_id_is_a_uuid_in_lower_case(share, sound):
    """C-33."""
    fields = {} if share is None else {"shareID": share}
    assert of_result(**fields) == ([] if sound else [f"Invalid {RESULT}.shareID"])


@req("K5075-081")
def test_consumed_capacity_names_amounts():
    assert of_result(shareID=UID, consumedCapacity={"memory": "1Gi", "example.com/cores": "0"}) == []
    assert of_result(consumedCapacity={"memory": "-1"}) == [f"Invalid {RESULT}.consumedCapacity[memory]"]
    assert of_result(consumedCapacity={"a-b": "1"}) == [f"Invalid {RESULT}.consumedCapacity"]


def test_a_result_names_the_alternative_that_was_chosen():
    asked = choice("gpu", {"name": "big", **ask()}, {"name": "small", **ask()})
    for name, expected in (("gpu/big", []), ("gpu/huge", [f"Invalid {RESULT}.request"])):
        got = with_status(asked, allocation=allocation(result(request=name)))
        assert found(validate_status_update(got, claim(asked))) == expected


def test_requests_are_those_of_the_stored_claim():
    got = with_status(request("other"), allocation=allocation(result(request="other")))
    assert found(validate_status_update(got, claim(request("gpu")))) == [f"Invalid {RESULT}.request"]


CONFIGS = {
    "from the claim": ({"source": "FromClaim", "opaque": opaque()}, []),
    "for one request": ({"source": "FromClass", "requests": ["gpu"], "opaque": opaque()}, []),
    "from nowhere": ({"opaque": opaque()}, ["Required {}.source"]),
    "from elsewhere": ({"source": "FromElsewhere", "opaque": opaque()}, ["NotSupported {}.source"]),
    "unknown request": (
        {"source": "FromClaim", "requests": ["nic"], "opaque": opaque()},
        ["Invalid {}.requests[0]"],
    ),
    "nothing": ({"source": "FromClaim"}, ["Required {}.opaque"]),
}


@pytest.mark.parametrize(("config", "expected"), CONFIGS.values(), ids=CONFIGS)
def test_configuration(config, expected):
    devices = {"results": [result()], "config": [config]}
    place = "status.allocation.devices.config[0]"
    assert written(allocation={"devices": devices}) == [line.format(place) for line in expected]


def test_nodes_of_an_allocation():
    terms = {"nodeSelectorTerms": [{"matchExpressions": [HERE]}] * 2}
    assert written(allocation=allocation(nodeSelector=terms)) == []
    assert written(allocation=allocation(nodeSelector={})) == [
        "Required status.allocation.nodeSelector.nodeSelectorTerms"
    ]


# --- steps ---


def test_an_allocation_never_changes_but_may_be_taken_back():
    old = with_status(allocation=allocation())
    assert not validate_status_update(with_status(allocation=allocation()), old)
    assert not validate_status_update(claim(), old)
    other = with_status(allocation=allocation(result(device="gpu-1")))
    assert found(validate_status_update(other, old)) == ["Invalid status.allocation"]


def test_a_stored_allocation_is_not_validated_again():
    bad = with_status(allocation=allocation(result(driver="")))
    assert not validate_status_update(bad, bad)


RESERVED = "status.reservedFor"


def test_consumers():
    got = allocation()
    assert written(allocation=got, reservedFor=[consumer(), consumer(OTHER_UID)]) == []
    assert written(allocation=got, reservedFor=[consumer(), consumer()]) == [f"Duplicate {RESERVED}[1]"]
    assert written(allocation=got, reservedFor=[{}]) == [
        f"Required {RESERVED}[0].name",
        f"Required {RESERVED}[0].resource",
        f"Required {RESERVED}[0].uid",
    ]


def test_consumers_need_an_allocation():
    assert written(reservedFor=[consumer()]) == [f"Forbidden {RESERVED}"]


def test_no_consumer_is_added_to_a_claim_that_is_being_deleted():
    old = with_status(meta=DELETING, allocation=allocation(), reservedFor=[consumer()])
    more = with_status(meta=DELETING, allocation=allocation(), reservedFor=[consumer(), consumer(OTHER_UID)])
    assert found(validate_status_update(more, old)) == [f"Forbidden {RESERVED}"]
    assert not validate_status_update(old, old)
    assert not validate_status_update(with_status(meta=DELETING, allocation=allocation()), old)
    unmarked = with_status(allocation=allocation(), reservedFor=[consumer(OTHER_UID)])
    assert found(validate_status_update(unmarked, old)) == [f"Forbidden {RESERVED}"]


# --- reports of drivers ---

AT = {"driver": "gpu.example.com", "pool": "node-a", "device": "gpu-0"}
CONDITION = {
    "type": "Ready",
    "status": "True",
    "reason": "Initialised",
    "lastTransitionTime": "2026-01-01T00:00:00Z",
}


def reported(*devices, results=None):
    return written(allocation=allocation(*(results or [result()])), devices=list(devices))


@req("K5075-086", "K5075-087", "K5075-117")
def test_reports_belong_to_allocated_devices_one_to_one():
    shares = [result(shareID=UID), result(shareID=OTHER_UID)]
    both = ({**AT, "shareID": UID}, {**AT, "shareID": OTHER_UID})
    assert reported(*both, results=shares) == []
    assert reported(both[0], both[0], results=shares) == ["Duplicate status.devices[1]"]
    assert reported(AT, results=shares) == ["Invalid status.devices[0]"]
    assert reported(both[0]) == ["Invalid status.devices[0]"]
    for field in AT:
        assert reported({**AT, field: "other"}) == ["Invalid status.devices[0]"]


@req("K5075-148")
def test_reports_without_a_share_id_keep_working():
    assert reported(AT) == []
    assert reported(AT, AT) == ["Duplicate status.devices[1]"]


def test_nothing_is_reported_of_a_claim_without_allocation():
    assert written(devices=[AT]) == ["Invalid status.devices[0]"]


REPORTS = {
    "condition": ({"conditions": [CONDITION]}, []),
    "condition without anything": (
        {"conditions": [{}]},
        [
            "Required {}.conditions[0].lastTransitionTime",
            "Required {}.conditions[0].reason",
            "Required {}.conditions[0].status",
            "Required {}.conditions[0].type",
        ],
    ),
    "condition with odd values": (
        {"conditions": [{**CONDITION, "type": "a b", "status": "Yes", "reason": "in words"}]},
        [
            "Invalid {}.conditions[0].reason",
            "Invalid {}.conditions[0].type",
            "NotSupported {}.conditions[0].status",
        ],
    ),
    "condition from before the beginning": (
        {"conditions": [{**CONDITION, "observedGeneration": -1}]},
        ["Invalid {}.conditions[0].observedGeneration"],
    ),
    "the same condition twice": ({"conditions": [CONDITION] * 2}, ["Duplicate {}.conditions[1]"]),
    "data": ({"data": {"temperature": 40}}, []),
    "data that is no object": ({"data": [1]}, ["Invalid {}.data"]),
    "network": (
        {
            "networkData": {
                "interfaceName": "eth0",
                "hardwareAddress": "aa:bb",
                "ips": ["10.9.8.7/24", "2001:db8::1/64"],
            }
        },
        [],
    ),
    "address without network": ({"networkData": {"ips": ["10.9.8.7"]}}, ["Invalid {}.networkData.ips[0]"]),
    "no address": ({"networkData": {"ips": ["300.9.8.7/24"]}}, ["Invalid {}.networkData.ips[0]"]),
    "address in another form": (
        {"networkData": {"ips": ["2001:0db8::1/64"]}},
        ["Invalid {}.networkData.ips[0]"],
    ),
    "netmask": (
        {"networkData": {"ips": ["10.9.8.7/255.255.255.0"]}},
        ["Invalid {}.networkData.ips[0]"],
    ),
    "mapped address": (
        {"networkData": {"ips": ["::ffff:10.9.8.7/120"]}},
        ["Invalid {}.networkData.ips[0]"],
    ),
    "address of one link": ({"networkData": {"ips": ["fe80::1%eth0/64"]}}, ["Invalid {}.networkData.ips[0]"]),
    "the same address twice": (
        {"networkData": {"ips": ["10.9.8.7/24"] * 2}},
        ["Duplicate {}.networkData.ips[1]"],
    ),
}


@pytest.mark.parametrize(("fields", "expected"), REPORTS.values(), ids=REPORTS)
def test_reports(fields, expected):
    assert reported({**AT, **fields}) == [line.format("status.devices[0]") for line in expected]


def test_a_stored_device_status_may_stay_while_another_is_added():
    results = [result(shareID=UID), result(shareID=OTHER_UID)]
    odd = {**AT, "shareID": UID, "networkData": {"ips": ["2001:0db8::1/64"]}}
    old = with_status(allocation=allocation(*results), devices=[odd])
    fine = {**AT, "shareID": OTHER_UID}
    new = with_status(allocation=allocation(*results), devices=[fine, odd])
    assert not validate_status_update(new, old)


# --- dumps ---


def test_a_dump_is_validated_with_its_status():
    sound = with_status(meta=DELETING, allocation=allocation(), reservedFor=[consumer()], devices=[AT])
    assert not validate_stored(sound)
    spoiled = with_status(request(count=-1), allocation=allocation(result(driver="")), reservedFor=[{}])
    assert found(validate_stored(spoiled)) == [
        "Invalid spec.devices.requests[0].exactly.count",
        "Required status.allocation.devices.results[0].driver",
        "Required status.reservedFor[0].name",
        "Required status.reservedFor[0].resource",
        "Required status.reservedFor[0].uid",
    ]
