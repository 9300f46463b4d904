# ruff: noqa: N802 - a test bears the id of its row
"""Faults of accounting and backtracking in allocators: rows A01 to A09, A12, A15, A16, A19 to A21."""

from __future__ import annotations

from typing import Any

import pytest

from dray.allocator.refusals import RefusalReason
from dray.api.resource import DeviceAttribute, DeviceTaint
from tests.brute.builders import (
    asking,
    budget,
    capacity,
    claim,
    device,
    devices,
    distinct,
    draws,
    first_of,
    holding,
    match,
    partitioned,
    policy,
    published,
    request,
    result,
)
from tests.brute.outcome import picked, refusals, world

SHARED: dict[str, Any] = {"shared": True, "capacity": {"mem": capacity(8, policy(1))}}
TAINT = (DeviceTaint(key="hot", effect="NoSchedule"),)


def drawing(name, slots, **fields):
    """A device that draws from the pool's counter."""
    return device(name, consumes_counters=(draws(slots=slots),), **fields)


@pytest.mark.req("K5075-006", "K5075-132")
def test_A01_a_second_share_neither_checks_nor_charges_counters():
    slices = partitioned(budget(slots=4), drawing("d1", 3, **SHARED), drawing("d2", 4, **SHARED))
    asked = claim(request("r0", capacity={"mem": 1}), request("r1", capacity={"mem": 1}))
    assert picked(world(slices, asked)) == ["r0=d1", "r1=d1"]


def test_A02_counters_of_a_share_from_an_earlier_cycle_are_still_gone():
    slices = partitioned(budget(slots=4), drawing("shared", 3, **SHARED), drawing("part", 2))
    held = [holding(result("shared", share="id", consumed={"mem": 1}))]
    asked = claim(request("r", 1, "single"))
    assert picked(world(slices, asked)) == ["r=part"]
    assert picked(world(slices, asked, held=held)) is None


def test_A03_a_share_without_amounts_holds_its_counters_once():
    slices = partitioned(budget(slots=3), drawing("shared", 3, shared=True), drawing("part", 1))
    held = [holding(result("shared", share="id"))]
    assert picked(world(slices, claim(request("r", 1, "shared")), held=held)) == ["r=shared"]
    assert picked(world(slices, claim(request("r", 1, "single")), held=held)) is None


def test_A04a_counters_of_a_tainted_candidate_are_free_again():
    slices = partitioned(budget(slots=2), drawing("hot", 2, taints=TAINT), drawing("cold", 2))
    assert picked(world(slices, claim(request("r")))) == ["r=cold"]


def test_A04b_counters_and_values_of_a_candidate_that_does_not_match_are_free_again():
    """`b` is refused for its value after `a`; neither its counters nor its value may stick."""
    slices = partitioned(
        budget(slots=4), drawing("a", 2, numa=0), drawing("b", 2, numa=1), drawing("c", 2, numa=0)
    )
    assert picked(world(slices, claim(request("r", 2), match("gpu.example/numa")))) == ["r=a", "r=c"]


def test_A04c_a_step_back_over_the_first_share_frees_amounts_and_counters():
    """r0 takes a share of `a` first; only without it are there counters for `b`, which r1 must have."""
    many = {"shared": True, "capacity": {"mem": 4}}
    slices = partitioned(
        budget(slots=3),
        drawing("a", 2, kind="share", **many),
        drawing("b", 2, kind="whole"),
        drawing("c", 1, kind="share", **many),
    )
    asked = claim(
        request("r0", 1, "shared", capacity={"mem": 4}),
        request("r1", 1, "attr:kind=whole"),
    )
    assert picked(world(slices, asked)) == ["r0=c", "r1=b"]
    back = claim(
        request("r0", 1, "shared", capacity={"mem": 4}),
        request("r1", 1, "attr:kind=first", capacity={"mem": 4}),
    )
    pair = [drawing("a", 1, kind="first", **many), drawing("c", 1, kind="second", **many)]
    assert picked(world(partitioned(budget(slots=2), *pair), back)) == ["r0=c", "r1=a"]


def test_A04d_a_step_back_over_one_of_two_shares_leaves_the_counters_with_the_other():
    """r1 moves from `a` to `c`, r0 keeps its share of `a`: its counters stay charged, so `b` is refused."""
    slices = partitioned(
        budget(slots=3),
        drawing("a", 3, shared=True, numa=0),
        drawing("b", 1, numa=1),
        device("c", shared=True, numa=1),
        device("d", numa=1),
    )
    asked = claim(
        request("r0", 1, "attr:numa=0"),
        request("r1", 1, "shared"),
        request("r2", 1, "single"),
        match("gpu.example/numa", "r1", "r2"),
    )
    assert picked(world(slices, asked)) == ["r0=a", "r1=c", "r2=d"]


def test_A05_pools_of_one_name_and_two_drivers_count_apart():
    slices = [
        *partitioned(budget(slots=1), drawing("a", 1), name="one", driver="one.example"),
        *partitioned(budget(slots=1), drawing("a", 1), name="two", driver="two.example"),
    ]
    assert picked(world(slices, claim(request("r", 2)))) == ["r=a", "r=a"]
    held = [holding(result("a", driver="one.example"))]
    assert picked(world(slices, claim(request("r")), held=held)) == ["r=a"]
    assert picked(world(slices, claim(request("r", 2)), held=held)) is None


@pytest.mark.req("K5491-014", "K5491-032")
def test_A06_what_lists_have_in_common_comes_back_after_a_step_back():
    slices = published(
        device("d1", numa=[1, 2]), device("d2", numa=[1]), device("d3", numa=[2]), device("d4", numa=[2])
    )
    asked = claim(request("r", 3), match("gpu.example/numa"))
    assert picked(world(slices, asked)) == ["r=d1", "r=d3", "r=d4"]
    apart = claim(request("r0"), request("r1"), request("r2"), match("gpu.example/numa"))
    assert picked(world(slices, apart)) == ["r0=d1", "r1=d3", "r2=d4"]


@pytest.mark.req("K5075-076")
def test_A07a_distinct_values_are_compared_as_values():
    text = "".join(["e", "th", "0"])
    slices = published(
        device("a", attributes={"port": DeviceAttribute(string_value="eth0")}),
        device("b", attributes={"port": DeviceAttribute(string_value=text)}),
    )
    asked = claim(request("r0"), request("r1"), distinct("gpu.example/port"))
    assert picked(world(slices, asked)) is None


@pytest.mark.req("K5075-076", "K5075-137", "K5075-138")
def test_A07b_devices_of_one_request_differ_from_one_another():
    asked = claim(request("r", 3), distinct("gpu.example/port"))
    two = [device("a", port=1), device("b", port=1), device("c", port=2)]
    assert picked(world(published(*two), asked)) is None
    assert picked(world(published(*two, device("d", port=3)), asked)) == ["r=a", "r=c", "r=d"]


def test_A08_alternatives_keep_what_they_ask_for_apart():
    """The first alternative wants all of kind x and fails late; the second wants two of kind y."""
    slices = published(
        device("x0", kind="x"), device("x1", kind="x"), device("y0", kind="y"), device("y1", kind="y")
    )
    alternatives = (("all", asking("All", "attr:kind=x")), ("two", asking(2, "attr:kind=y")))
    asked = claim(first_of("r", *alternatives))
    assert picked(world(slices, asked)) == ["r/all=x0", "r/all=x1"]
    assert picked(world(slices, asked, held=[holding("x1")])) == ["r/two=y0", "r/two=y1"]


def test_A09_devices_of_all_that_failed_part_way_are_free_for_the_next_alternative():
    slices = published(device("a", numa=0), device("b", numa=1), device("c", numa=1))
    asked = claim(first_of("r", ("all", asking("All")), ("two", asking(2))), match("gpu.example/numa"))
    assert picked(world(slices, asked)) == ["r/two=b", "r/two=c"]
    in_use = claim(first_of("r", ("all", asking("All")), ("two", asking(2))))
    assert picked(world(slices, in_use, held=[holding("c")])) == ["r/two=a", "r/two=b"]


def test_A12_all_may_take_devices_that_draw_counters():
    slices = partitioned(budget(slots=3), drawing("a", 1), drawing("b", 2))
    assert picked(world(slices, claim(request("r", "All")))) == ["r=a", "r=b"]
    short = partitioned(budget(slots=2), drawing("a", 1), drawing("b", 2))
    problem = world(short, claim(request("r", "All")))
    assert picked(problem) is None
    assert refusals(problem)["b"].reason is RefusalReason.COUNTER_SHORT


@pytest.mark.req("K5075-067")
def test_A15_all_fails_when_one_shared_device_is_used_up():
    slices = published(*[device(name, shared=True, capacity={"mem": 1}) for name in "ab"])
    asked = claim(request("r", "All", capacity={"mem": 1}))
    held = [holding(result("a", share="id", consumed={"mem": 1}))]
    assert picked(world(slices, asked)) == ["r=a", "r=b"]
    assert picked(world(slices, asked, held=held)) is None


@pytest.mark.req("K5075-031")
def test_A16_when_the_first_device_is_used_up_the_second_is_chosen():
    slices = published(*[device(name, shared=True, capacity={"mem": 4}) for name in "ab"])
    held = [holding(result("a", share="id", consumed={"mem": 3}))]
    assert picked(world(slices, claim(request("r", capacity={"mem": 2})), held=held)) == ["r=b"]


def test_A19_admin_access_takes_different_devices_within_a_claim():
    slices = published(*devices("a", "b"))
    held = [holding("a"), holding("b", name="other")]
    assert picked(world(slices, claim(request("r", 2, admin_access=True)), held=held)) == ["r=a", "r=b"]
    two = claim(request("r0", admin_access=True), request("r1", admin_access=True))
    assert picked(world(slices, two, held=held)) == ["r0=a", "r1=b"]
    assert picked(world(published(device("a")), two, held=held)) is None


@pytest.mark.req("K4816-031")
def test_A20_admin_access_needs_no_counters():
    slices = partitioned(budget(slots=2), drawing("whole", 2), drawing("half", 1))
    held = [holding("whole")]
    assert picked(world(slices, claim(request("r")), held=held)) is None
    assert picked(world(slices, claim(request("r", 2, admin_access=True)), held=held)) == [
        "r=whole",
        "r=half",
    ]


@pytest.mark.req("K5075-023", "K5075-096")
def test_A21a_a_device_that_became_shared_is_still_held_as_a_whole():
    slices = published(device("a", **SHARED))
    asked = claim(request("r", capacity={"mem": 1}))
    assert picked(world(slices, asked, held=[holding("a")])) is None
    assert picked(world(slices, asked)) == ["r=a"]


@pytest.mark.req("K5075-097")
def test_A21b_a_device_that_became_whole_is_still_held_in_shares():
    slices = published(device("a", capacity={"mem": 8}))
    for held in (result("a", share="id"), result("a", consumed={"mem": 1})):
        assert picked(world(slices, claim(request("r")), held=[holding(held)])) is None
    assert picked(world(slices, claim(request("r")))) == ["r=a"]
