"""Shared counters: partitions of one thing draw from one budget."""

from __future__ import annotations

from typing import Any

import pytest

from dray.allocator.refusals import RefusalReason, Shortage
from tests.brute.builders import (
    budget,
    capacity,
    claim,
    device,
    devices,
    draws,
    holding,
    node,
    partitioned,
    policy,
    published,
    quantity,
    request,
    result,
)
from tests.brute.outcome import picked, refusals, world

MANY: dict[str, Any] = {"shared": True, "capacity": {"mem": capacity(9, policy(1))}}


def drawing(name, **counters):
    return device(name, consumes_counters=(draws(**counters),))


@pytest.mark.parametrize(
    ("slots", "found"), [(5, ["r=a", "r=b"]), (4, ["r=a", "r=c"]), (3, ["r=b", "r=c"]), (2, None)]
)
def test_devices_together_draw_no_more_than_there_is(slots, found):
    slices = partitioned(
        budget(slots=slots), drawing("a", slots=3), drawing("b", slots=2), drawing("c", slots=1)
    )
    assert picked(world(slices, claim(request("r", 2)))) == found


def test_every_counter_of_every_set_counts():
    slices = [
        published(budget("x", one=2, two=2), budget("y", one=1), name="counters", count=2),
        published(
            device("a", consumes_counters=(draws("x", one=1, two=2), draws("y", one=1))),
            device("b", consumes_counters=(draws("x", one=1, two=1),)),
            device("c", consumes_counters=(draws("y", one=1),)),
            device("d", consumes_counters=(draws("x", one=1),)),
            name="devices",
            count=2,
        ),
    ]
    problem = world(slices, claim(request("r", 2)))
    assert picked(problem) == ["r=a", "r=d"]


def test_a_shortage_names_the_counter_and_what_is_left():
    slices = partitioned(budget(slots=4), drawing("a", slots=3), drawing("b", slots=2))
    found = refusals(world(slices, claim(request("r", 2))))["b"]
    assert found.reason is RefusalReason.COUNTER_SHORT
    assert found.detail == Shortage("set/slots", quantity(2).nanos, quantity(1).nanos)


def test_fractions_are_exact():
    slices = partitioned(budget(slots="300m"), *[drawing(f"d{i}", slots="0.1") for i in range(4)])
    assert picked(world(slices, claim(request("r", 3)))) == ["r=d0", "r=d1", "r=d2"]
    assert picked(world(slices, claim(request("r", 4)))) is None


def test_devices_on_other_nodes_draw_from_the_same_budget():
    slices = [
        published(budget(slots=2), name="counters", count=3, all_nodes=True),
        published(drawing("here", slots=1), name="here", count=3, node_name="n1"),
        published(drawing("there", slots=2), name="there", count=3, node_name="n2"),
    ]
    asked = claim(request("r"))
    assert picked(world(slices, asked)) == ["r=here"]
    assert picked(world(slices, asked, held=[holding("there")])) is None
    assert picked(world(slices, asked, nodes=[node("n2")])) == ["r=there"]


def test_an_overdrawn_pool_offers_no_device_that_draws():
    """One counter below nothing: the books do not add up, so no other counter of the pool is trusted."""
    slices = partitioned(
        budget(slots=2, lanes=9),
        drawing("a", slots=3),
        drawing("b", lanes=1),
        drawing("c", lanes=0),
        device("d"),
    )
    asked = claim(request("r"))
    assert picked(world(slices, asked)) == ["r=b"]
    problem = world(slices, asked, held=[holding("a")])
    assert picked(problem) == ["r=d"]


def test_an_overdrawn_pool_is_no_matter_for_others():
    slices = [
        *partitioned(budget(slots=1), drawing("a", slots=2), drawing("b", slots=0), pool="p1", name="1"),
        *partitioned(budget(slots=1), drawing("c", slots=1), pool="p2", name="2"),
    ]
    assert picked(world(slices, claim(request("r")), held=[holding(result("a", pool="p1"))])) == ["r=c"]


@pytest.mark.req("K5075-006", "K5075-007", "K5075-132")
def test_shares_draw_counters_once_and_amounts_each_time():
    many: dict[str, Any] = {"shared": True, "capacity": {"mem": 3}, "consumes_counters": (draws(slots=2),)}
    slices = partitioned(budget(slots=3), device("a", **many), device("b", **many))
    asked = [request(f"r{i}", capacity={"mem": 1}) for i in range(4)]
    assert picked(world(slices, claim(*asked[:3]))) == ["r0=a", "r1=a", "r2=a"]
    assert picked(world(slices, claim(*asked))) is None


def test_a_further_share_of_a_held_device_needs_no_counters_even_in_an_overdrawn_pool():
    slices = partitioned(
        budget(slots=1), device("a", consumes_counters=(draws(slots=2),), **MANY), drawing("b", slots=0)
    )
    held = [holding(result("a", share="id", consumed={"mem": 1}))]
    assert picked(world(slices, claim(request("r", 1, "shared")), held=held)) == ["r=a"]
    assert picked(world(slices, claim(request("r", 1, "single")), held=held)) is None


def test_devices_that_draw_nothing_need_no_budget():
    slices = published(*devices("a", "b"))
    assert picked(world(slices, claim(request("r", 2)))) == ["r=a", "r=b"]


def on_two_nodes(slots):
    """A pool with a device `a` on each of two nodes, and a device `b` beside the first."""
    return [
        published(budget(slots=slots), name="counters", count=3),
        published(drawing("a", slots=4), drawing("b", slots=3), name="here", count=3),
        published(drawing("a", slots=1), name="there", count=3, node_name="n2"),
    ]


@pytest.mark.parametrize(("slots", "found"), [(8, ["r=b"]), (7, None)])
def test_devices_of_one_name_on_two_nodes_both_draw_while_the_name_is_held(slots, found):
    """A claim does not tell which of them it holds, so `b` finds what both leave."""
    problem = world(on_two_nodes(slots), claim(request("r")), held=[holding(result("a"))])
    assert picked(problem) == found


def test_a_new_claim_draws_for_the_device_it_gets_alone():
    slices = on_two_nodes(4)
    assert picked(world(slices, claim(request("r")))) == ["r=a"]
    assert picked(world(slices, claim(request("r")), nodes=[node("n2")])) == ["r=a"]


def test_a_name_that_is_held_is_taken_on_every_node():
    held = [holding(result("a"))]
    assert picked(world(on_two_nodes(99), claim(request("r")), held=held, nodes=[node("n2")])) is None


def test_a_counter_set_that_is_named_twice_is_drawn_from_twice():
    greedy = device("a", consumes_counters=(draws(slots=3), draws(slots=3)))
    slices = partitioned(budget(slots=4), greedy, device("b"))
    assert picked(world(slices, claim(request("r")))) == ["r=b"]
    slices = partitioned(budget(slots=8), greedy, drawing("b", slots=3))
    assert picked(world(slices, claim(request("r")), held=[holding(result("a"))])) is None


def test_a_negative_draw_adds_nothing_to_what_is_left():
    slices = partitioned(budget(slots=2), drawing("a", slots=-2), drawing("b", slots=3))
    assert picked(world(slices, claim(request("r")), held=[holding(result("a"))])) is None
    assert picked(world(slices, claim(request("r", 2)))) is None


def test_a_set_without_counters_is_consumed_all_the_same():
    """The API refuses it. As in Kubernetes its set must exist, and an overdrawn pool lends it to nobody."""
    nothing = device("b", consumes_counters=(draws("set"),))
    slices = partitioned(budget(slots=2), drawing("a", slots=3), nothing)
    assert picked(world(slices, claim(request("r")))) == ["r=b"]
    assert picked(world(slices, claim(request("r")), held=[holding(result("a"))])) is None
    unknown = device("b", consumes_counters=(draws("other"),))
    assert picked(world(partitioned(budget(slots=2), unknown), claim(request("r")))) is None
