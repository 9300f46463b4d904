"""Claims become choices of wants; what no node could answer is a fault that says where."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from dray.allocator.requests import (
    ALL_DEVICES,
    SelectorOwner,
    SelectorOwnerKind,
    format_claim_name,
    normalize_claims,
)
from dray.api.meta import ObjectMeta
from dray.api.resource import (
    DeviceConstraint,
    DeviceRequest,
    DeviceSelector,
    DeviceSubRequest,
    ExactDeviceRequest,
)
from dray.errors import UnanswerableClaimError
from tests.brute.builders import (
    asking,
    claim,
    device,
    device_class,
    distinct,
    first_of,
    match,
    published,
    quantity,
    request,
)
from tests.brute.outcome import picked, world

CLASSES = {
    "any": device_class("any", "class one", "class two"),
    "blank": device_class("blank"),
    "broken": msgspec.structs.replace(
        device_class("broken"),
        spec=msgspec.structs.replace(device_class("broken").spec, selectors=(DeviceSelector(),)),
    ),
}


def ask(*claims):
    return normalize_claims(claims, CLASSES.get)


def exactly(**fields: Any) -> DeviceRequest:
    return DeviceRequest(name="r", exactly=ExactDeviceRequest(**{**asking(), **fields}))


FAULTS = {
    "neither exactly nor alternatives": (
        claim(DeviceRequest(name="r")),
        "request `r`: has neither `exactly` nor `firstAvailable`; expected one of them",
    ),
    "both": (
        claim(
            DeviceRequest(
                name="r",
                exactly=ExactDeviceRequest(**asking()),
                first_available=(DeviceSubRequest(name="s", **asking()),),
            )
        ),
        "request `r`: has both `exactly` and `firstAvailable`; expected one of them",
    ),
    "an unknown mode": (
        claim(exactly(allocation_mode="Some")),
        "request `r`: allocation mode `Some` is unknown; expected `ExactCount` or `All`",
    ),
    "no mode": (
        claim(exactly(allocation_mode="")),
        "request `r`: allocation mode `` is unknown; expected `ExactCount` or `All`",
    ),
    "a count below nothing": (
        claim(exactly(count=-1)),
        "request `r`: count is -1; expected 0 or more",
    ),
    "an unknown class": (
        claim(exactly(device_class_name="gpu")),
        "request `r`: device class `gpu` does not exist",
    ),
    "an unknown class in the last alternative": (
        claim(first_of("r", ("s0", asking()), ("s1", asking(device_class="gpu")))),
        "request `r/s1`: device class `gpu` does not exist",
    ),
    "no class": (
        claim(exactly(device_class_name="")),
        "request `r`: names no device class; this is a kind of request we do not know",
    ),
    "a selector of the request without CEL": (
        claim(exactly(selectors=(DeviceSelector(),))),
        "request `r`: a selector of request r has no CEL expression",
    ),
    "a selector of the class without CEL": (
        claim(request("r", device_class="broken")),
        "request `r`: a selector of class broken has no CEL expression",
    ),
    "an amount below nothing": (
        claim(request("r", capacity={"mem": -1})),
        "request `r`: asks for a negative amount of `mem`",
    ),
    "too many devices in one request": (
        claim(request("r", 33)),
        "spec.devices.requests: asks for 33 devices, but one claim can hold at most 32",
    ),
    "too many devices in all requests": (
        claim(request("r0", 20), first_of("r1", ("s0", asking(20)), ("s1", asking(13)))),
        "spec.devices.requests: asks for 33 devices, but one claim can hold at most 32",
    ),
    "a constraint of no kind": (
        claim(request("r"), match("a/b"), DeviceConstraint()),
        "spec.devices.constraints[1]: is of a kind we do not know; "
        "expected one of `matchAttribute` and `distinctAttribute`",
    ),
    "a constraint of both kinds": (
        claim(request("r"), DeviceConstraint(match_attribute="a/b", distinct_attribute="a/b")),
        "spec.devices.constraints[0]: is of a kind we do not know; "
        "expected one of `matchAttribute` and `distinctAttribute`",
    ),
}


@pytest.mark.req("K4816-023", "K4816-029", "K4816-058", "K4816-059")
@pytest.mark.parametrize("case", FAULTS)
def test_a_fault_of_a_claim_names_the_claim_the_place_and_the_reason(case):
    broken, text = FAULTS[case]
    with pytest.raises(UnanswerableClaimError) as fault:
        ask(claim(request("fine"), name="other"), broken)
    assert str(fault.value) == f"claim ml/claim: {text}"


def test_the_limit_is_about_the_smallest_alternatives_of_one_claim():
    small = claim(request("r0", 32), first_of("r1", ("s0", asking(20)), ("s1", asking(0))))
    unknown = claim(request("r0", 32), first_of("r1", ("s0", asking(20)), ("s1", asking("All"))))
    assert len(ask(small, unknown, claim(request("r", 32))).choices) == 5


def test_a_claim_without_a_namespace_is_called_by_its_name():
    assert format_claim_name(claim(request("r"))) == "ml/claim"
    alone = msgspec.structs.replace(claim(), metadata=ObjectMeta(name="claim"))
    assert format_claim_name(alone) == "claim"


# --- one shape of everything ---


def test_exact_requests_and_alternatives_have_one_shape():
    asked = ask(claim(request("r0", 2), first_of("r1", ("s0", asking("All")), ("s1", asking(1)))))
    assert [[alternative.name for alternative in choice.alternatives] for choice in asked.choices] == [
        ["r0"],
        ["r1/s0", "r1/s1"],
    ]
    assert [[alternative.count for alternative in choice.alternatives] for choice in asked.choices] == [
        [2],
        [ALL_DEVICES, 1],
    ]
    assert [[alternative.takes_all for alternative in choice.alternatives] for choice in asked.choices] == [
        [False],
        [True, False],
    ]
    assert [(choice.index, choice.claim_index) for choice in asked.choices] == [(0, 0), (1, 0)]


def test_selectors_of_the_class_come_first():
    (choice,) = ask(claim(request("r", 1, "mine"))).choices
    selectors = choice.alternatives[0].selectors
    assert [(str(owner), owner.kind, text) for owner, text in selectors] == [
        ("class any", SelectorOwnerKind.CLASS, "class one"),
        ("class any", SelectorOwnerKind.CLASS, "class two"),
        ("request r", SelectorOwnerKind.REQUEST, "mine"),
    ]
    assert choice.alternatives[0].find_owner("mine") == SelectorOwner(SelectorOwnerKind.REQUEST, "r")


def test_a_request_called_class_does_not_own_the_selectors_of_a_class():
    (choice,) = ask(claim(request("class x", 1, "mine"))).choices
    owner = choice.alternatives[0].find_owner("mine")
    assert owner is not None
    assert owner.kind is SelectorOwnerKind.REQUEST


def test_amounts_are_whole_nanos():
    (choice,) = ask(claim(request("r", capacity={"mem": "1500m"}))).choices
    assert choice.alternatives[0].amounts == (("mem", quantity("1500m").nanos),)


@pytest.mark.parametrize(("said", "admin"), [(None, False), (False, False), (True, True)])
def test_admin_access_is_yes_or_no(said, admin):
    asked = ask(claim(request("r", admin_access=said)))
    assert asked.choices[0].alternatives[0].admin is admin
    assert asked.has_admin_access is admin


COVER = [
    # requests named by the constraint, wants it covers
    ((), ["gpu/big", "gpu/small", "nic"]),
    (("gpu",), ["gpu/big", "gpu/small"]),
    (("gpu/small",), ["gpu/small"]),
    (("nic", "gpu/big"), ["gpu/big", "nic"]),
    (("unknown",), []),
]


@pytest.mark.req("K4816-020", "K4816-021", "K4816-049", "K4816-050")
@pytest.mark.parametrize(("said", "covered"), COVER)
@pytest.mark.parametrize("kind", [match, distinct])
def test_a_constraint_covers_requests_or_alternatives(kind, said, covered):
    asked = ask(
        claim(first_of("gpu", ("big", asking()), ("small", asking())), request("nic"), kind("a/b", *said))
    )
    (rule,) = asked.constraints
    wants = [alternative for choice in asked.choices for alternative in choice.alternatives]
    assert [alternative.name for alternative in wants if alternative.constraints] == covered
    assert all(alternative.constraints in ((), (rule,)) for alternative in wants)


@pytest.mark.req("K4816-050")
def test_a_constraint_on_an_alternative_binds_only_when_that_is_taken():
    slices = published(device("a", numa=0), device("b", numa=1, kind="big"))
    big, small = asking(1, "attr?:kind=big"), asking(1, "any")
    asked = claim(
        request("nic"),
        first_of("gpu", ("big", big), ("small", small)),
        match("gpu.example/numa", "nic", "gpu/big"),
    )
    assert picked(world(slices, asked)) == ["nic=a", "gpu/small=b"]


@pytest.mark.req("K4816-049")
def test_a_constraint_on_a_request_binds_whichever_alternative_is_taken():
    slices = published(device("a", numa=0), device("b", numa=1), device("c", numa=0))
    alternatives = (("big", asking(1, "never")), ("small", asking()))
    asked = claim(request("nic"), first_of("gpu", *alternatives), match("gpu.example/numa", "nic", "gpu"))
    assert picked(world(slices, asked)) == ["nic=a", "gpu/small=c"]


@pytest.mark.req("K4816-051")
def test_alternatives_of_two_requests_may_have_one_name():
    slices = published(device("a", numa=0), device("b", numa=1), device("c", numa=0))
    asked = claim(
        first_of("gpu", ("small", asking())),
        first_of("nic", ("small", asking())),
        match("gpu.example/numa", "gpu/small", "nic/small"),
    )
    assert picked(world(slices, asked)) == ["gpu/small=a", "nic/small=c"]


def test_constraints_of_two_claims_are_two():
    asked = ask(claim(request("r"), match("a/b"), name="c0"), claim(request("r"), match("a/b"), name="c1"))
    assert len(asked.constraints) == 2
    first, second = (choice.alternatives[0].constraints for choice in asked.choices)
    assert first != second


def test_alternatives_that_ask_the_same_of_a_device_have_one_key():
    asked = ask(
        claim(request("r0", 2), request("r1", "All"), request("r2", 1, "more")),
        claim(request("r0", device_class="any"), name="other"),
    )
    keys = [choice.alternatives[0].key for choice in asked.choices]
    assert keys[0] == keys[1] == keys[3] != keys[2]
