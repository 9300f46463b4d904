"""Rules across picks: values that must be shared, and values that must not."""

from __future__ import annotations

from itertools import product

import pytest

from dray.allocator.refusals import ConstraintConflict, Refusal, RefusalReason
from dray.api.resource import DeviceAttribute, ListAttribute
from tests.brute.builders import (
    asking,
    attribute,
    claim,
    device,
    distinct,
    first_of,
    holding,
    match,
    published,
    request,
)
from tests.brute.outcome import picked, refusals, world


def together(kind, *values):
    """Whether devices with these values may be had together under a constraint."""
    slices = published(*[device(f"d{i}", numa=value) for i, value in enumerate(values)])
    asked = claim(request("r", len(values)), kind("gpu.example/numa"))
    return picked(world(slices, asked)) is not None


# type: two values that differ, and one of another type that looks the same
TYPES = {
    "int": (1, 2, "1"),
    "string": ("a", "b", "v1.0.0"),
    "bool": (True, False, 1),
    "version": ("v1.0.0", "v2.0.0", "1.0.0"),
}
FORMS = list(product(["scalar", "list"], repeat=2))


def formed(form, value):
    return [value] if form == "list" else value


@pytest.mark.req("K5491-003", "K5491-005", "K5491-008", "K5491-012", "K5491-013", "K5491-029", "K5491-033")
@pytest.mark.parametrize("forms", FORMS, ids="-".join)
@pytest.mark.parametrize("kind", TYPES)
def test_match_over_every_type_and_form(kind, forms):
    one, other, stranger = TYPES[kind]
    first, second = forms
    assert together(match, formed(first, one), formed(second, one))
    assert not together(match, formed(first, one), formed(second, other))
    assert not together(match, formed(first, one), formed(second, stranger))


@pytest.mark.req("K5491-004", "K5491-005", "K5491-008", "K5491-012", "K5491-015", "K5491-016", "K5491-033")
@pytest.mark.req("K5075-076", "K5075-077")
@pytest.mark.parametrize("forms", FORMS, ids="-".join)
@pytest.mark.parametrize("kind", TYPES)
def test_distinct_over_every_type_and_form(kind, forms):
    one, other, stranger = TYPES[kind]
    first, second = forms
    assert not together(distinct, formed(first, one), formed(second, one))
    assert together(distinct, formed(first, one), formed(second, other))
    assert together(distinct, formed(first, one), formed(second, stranger))


MATCH_TABLE = [
    # values, what they have in common is not empty
    (("a", "b"), False),
    ((["a", "b"], ["b", "a"]), True),
    ((["a", "b"], ["a", "c"]), True),
    ((["a", "b"], ["c", "d"]), False),
]


@pytest.mark.req("K5491-052", "K5491-014")
@pytest.mark.parametrize(("values", "holds"), MATCH_TABLE)
def test_the_table_of_match(values, holds):
    assert together(match, *values) is holds


DISTINCT_TABLE = [
    # values, no two of them overlap; row 1 of the specification says false, which is a slip (C-14)
    (("a", "b"), True),
    ((["a", "b"], ["b", "a"]), False),
    ((["a", "b"], ["a", "c"], ["a", "d"]), False),
    ((["a", "b"], ["b", "c"], ["c", "a"]), False),
    ((["a", "b"], ["c", "d"], ["e", "f"]), True),
]


@pytest.mark.req("K5491-053", "K5491-004", "K5491-016")
@pytest.mark.parametrize(("values", "holds"), DISTINCT_TABLE)
def test_the_table_of_distinct(values, holds):
    assert together(distinct, *values) is holds


@pytest.mark.req("K5491-014")
def test_overlap_of_every_two_is_not_enough():
    assert not together(match, ["a", "b"], ["b", "c"], ["c", "a"])
    assert together(match, ["a", "b"], ["b", "c"], ["b", "a"])


@pytest.mark.req("K5491-014")
def test_order_and_repetition_do_not_matter():
    assert together(match, ["a", "b", "b"], ["b", "a", "a"], ["b"])
    assert together(distinct, ["a", "a"], ["b", "b"])


def test_both_spellings_of_a_list_mean_the_same():
    spelled = DeviceAttribute(list_value=ListAttribute(int_values=(1, 2)))
    slices = published(device("a", attributes={"numa": spelled}), device("b", numa=[2, 3]))
    assert picked(world(slices, claim(request("r", 2), match("gpu.example/numa")))) == ["r=a", "r=b"]


@pytest.mark.req("K5491-033")
@pytest.mark.parametrize("kind", [match, distinct])
@pytest.mark.parametrize(
    "missing", [{}, {"numa": attribute([])}, {"other": attribute(1)}, {"numa": DeviceAttribute()}]
)
def test_a_device_without_a_value_is_not_eligible_not_even_alone(kind, missing):
    slices = published(device("a", attributes=missing), device("b", numa=1))
    problem = world(slices, claim(request("r"), kind("gpu.example/numa")))
    assert picked(problem) == ["r=b"]
    alone = world(published(device("a", attributes=missing)), claim(request("r"), kind("gpu.example/numa")))
    assert picked(alone) is None
    assert refusals(alone)["a"] == Refusal(RefusalReason.ATTRIBUTE_MISSING, "gpu.example/numa")


# --- names ---

LOOKUP = [
    # attribute of the constraint, name the device publishes, found
    ("gpu.example/numa", "numa", True),
    ("gpu.example/numa", "gpu.example/numa", True),
    ("nic.example/numa", "numa", False),
    ("nic.example/numa", "nic.example/numa", True),
    ("numa", "numa", True),
]


@pytest.mark.parametrize(("asked", "name", "found"), LOOKUP)
def test_a_name_without_a_domain_belongs_to_the_driver(asked, name, found):
    slices = published(device("a", attributes={name: attribute(1)}))
    assert (picked(world(slices, claim(request("r"), match(asked)))) is not None) is found


def test_the_full_name_comes_before_the_short_one():
    both = {"numa": attribute(1), "gpu.example/numa": attribute(2)}
    slices = published(device("a", attributes=both), device("b", numa=2))
    assert picked(world(slices, claim(request("r", 2), match("gpu.example/numa")))) == ["r=a", "r=b"]


def test_devices_of_two_drivers_match_by_a_common_name():
    slices = [
        published(device("gpu", attributes={"dra.example/numa": attribute(1)}), name="1"),
        published(
            device("near", attributes={"dra.example/numa": attribute([0, 1])}), name="2", driver="nic.example"
        ),
    ]
    asked = claim(
        request("g", 1, "driver:gpu.example"),
        request("n", 1, "driver:nic.example"),
        match("dra.example/numa"),
    )
    assert picked(world(slices, asked)) == ["g=gpu", "n=near"]


# --- who is covered ---


@pytest.mark.parametrize(
    ("requests", "found"),
    [
        ((), ["r0=a", "r1=c", "r2=d"]),
        (("r0", "r1"), ["r0=a", "r1=c", "r2=b"]),
        (("r1", "r2"), ["r0=a", "r1=c", "r2=d"]),
        (("nobody",), ["r0=a", "r1=b", "r2=c"]),
    ],
)
def test_a_constraint_covers_the_requests_it_names(requests, found):
    slices = published(*[device(name, numa=value) for name, value in zip("abcd", (0, 1, 0, 0), strict=True)])
    asked = claim(request("r0"), request("r1"), request("r2"), match("gpu.example/numa", *requests))
    assert picked(world(slices, asked)) == found


def test_two_constraints_hold_at_once():
    slices = published(
        device("a", numa=0, port=1),
        device("b", numa=0, port=1),
        device("c", numa=1, port=2),
        device("d", numa=0, port=2),
    )
    asked = claim(request("r", 2), match("gpu.example/numa"), distinct("gpu.example/port"))
    assert picked(world(slices, asked)) == ["r=a", "r=d"]


def test_claims_do_not_constrain_each_other():
    slices = published(device("a", numa=0), device("b", numa=1))
    asked = [claim(request("r"), match("gpu.example/numa"), name=name) for name in ("c0", "c1")]
    assert picked(world(slices, *asked)) == ["r=a", "r=b"]


def test_an_alternative_not_taken_does_not_constrain():
    slices = published(device("a", numa=0), device("b", numa=1))
    ways = [("both", asking(2)), ("one", asking(1))]
    asked = claim(first_of("r", *ways), match("gpu.example/numa", "r/both"))
    assert picked(world(slices, asked)) == ["r/one=a"]
    assert picked(world(slices, asked, held=[holding("a")])) == ["r/one=b"]


def test_a_conflict_names_both_values():
    slices = published(device("a", numa=[0, 1]), device("b", numa=2))
    problem = world(slices, claim(request("r", 2), match("gpu.example/numa")))
    assert picked(problem) is None
    conflict = refusals(problem)["b"]
    assert conflict == Refusal(
        RefusalReason.CONSTRAINT,
        ConstraintConflict(
            "gpu.example/numa", False, frozenset({("int", 2)}), frozenset({("int", 0), ("int", 1)})
        ),
    )
