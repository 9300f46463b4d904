"""Slices become pools: order, generations, completeness, flaws."""

from __future__ import annotations

from typing import Any

import pytest

from dray.allocator.inventory.pool_views import IncompletePool
from dray.allocator.refusals import Refusal, RefusalReason
from dray.allocator.search.trace import CandidateTaken, DeadEnd, Exhausted
from tests.brute.builders import (
    budget,
    claim,
    device,
    devices,
    distinct,
    draws,
    labelled,
    node,
    partitioned,
    published,
    request,
)
from tests.brute.laws import inventory_of
from tests.brute.outcome import ending, picked, told, world
from tests.brute.problem import Problem

ONE = claim(request("r"))


def seen(slices, where=None):
    """The devices a node sees, in the order the search walks them."""
    view = inventory_of(world(slices)).get_node_view(where or node())
    return [name for pool_view in view.pool_views for name in pool_view.names]


def flaws(slices, where=None):
    """What is wrong with pools, by pool."""
    view = inventory_of(world(slices)).get_node_view(where or node())
    return {pool_view.pool[1]: pool_view.flaw for pool_view in view.pool_views if pool_view.flaw is not None}


# --- order ---


@pytest.mark.req("K5773-013", "K5773-018", "K5773-042")
def test_without_priorities_everything_goes_by_name():
    slices = [
        published(device("z"), name="z", driver="b.example", pool="p1"),
        published(device("b2"), name="b", driver="a.example", pool="p2", count=2),
        published(device("b1"), name="a", driver="a.example", pool="p2", count=2),
        published(device("a"), name="c", driver="a.example", pool="p10"),
    ]
    assert seen(slices) == ["a", "b1", "b2", "z"]
    assert seen(slices[::-1]) == ["a", "b1", "b2", "z"]


@pytest.mark.req("K5773-022")
def test_devices_of_a_slice_keep_their_order():
    assert seen(published(*devices("z", "a", "m"))) == ["z", "a", "m"]


PRIORITIES: dict[str, tuple[dict[str, int | None], str]] = {
    "higher first": ({"a": 1, "b": 2, "c": 3}, "cba"),
    "none counts as nothing": ({"a": None, "b": 1, "c": None}, "bac"),
    "nothing is nothing": ({"a": None, "b": 0, "c": None}, "abc"),
    "below nothing comes after none": ({"a": -1, "b": None, "c": 0}, "bca"),
    "equal ones by name": ({"a": 5, "b": 5, "c": 5}, "abc"),
    "the largest numbers": ({"a": -(2**63), "b": 2**63 - 1, "c": None}, "bca"),
}


@pytest.mark.req("K5773-001", "K5773-007", "K5773-012", "K5773-014", "K5773-015", "K5773-023")
@pytest.mark.parametrize("case", PRIORITIES)
def test_slices_of_a_pool_by_priority(case):
    said, order = PRIORITIES[case]
    slices = [published(device(name), name=name, count=3, priority=value) for name, value in said.items()]
    assert seen(slices) == list(order)


@pytest.mark.req("K5773-016", "K5773-017", "K5773-020", "K5773-021", "K5773-023")
@pytest.mark.parametrize("case", PRIORITIES)
def test_pools_of_a_driver_by_priority(case):
    said, order = PRIORITIES[case]
    slices = [
        published(device(name), name=name, pool=name, pool_priority=value) for name, value in said.items()
    ]
    assert seen(slices) == list(order)


@pytest.mark.req("K5773-008", "K5773-019")
def test_a_priority_does_not_affect_another_driver():
    slices = [
        published(device("a1"), name="1", driver="a.example", pool="p1", pool_priority=-5),
        published(device("a2"), name="2", driver="a.example", pool="p2"),
        published(device("b1"), name="3", driver="b.example", pool="p1", pool_priority=100, priority=100),
    ]
    assert seen(slices) == ["a2", "a1", "b1"]


def test_slice_priority_works_only_inside_its_pool():
    slices = [
        published(device("a"), name="1", pool="p1", priority=-1),
        published(device("b"), name="2", pool="p2", priority=9),
    ]
    assert seen(slices) == ["a", "b"]


BINDING: dict[str, Any] = {"binding_conditions": ("Attached",)}


def test_pools_that_wait_for_conditions_come_after_the_others_of_all_drivers():
    slices = [
        published(device("a", **BINDING), name="1", driver="a.example", pool="p1"),
        published(device("b"), name="2", driver="a.example", pool="p2"),
        published(device("c"), name="3", driver="b.example", pool="p1"),
    ]
    assert seen(slices) == ["b", "c", "a"]


def test_a_driver_may_put_a_waiting_pool_before_its_others():
    slices = [
        published(device("a", **BINDING), name="1", pool="p1", pool_priority=1),
        published(device("b"), name="2", pool="p2"),
        published(device("c", **BINDING), name="3", pool="p3"),
        published(device("d"), name="4", pool="p1", driver="z.example"),
    ]
    assert seen(slices) == ["a", "b", "d", "c"]


@pytest.mark.req("K5773-003")
def test_the_first_that_fits_is_taken_not_the_best():
    slices = published(device("large", capacity={"mem": 80}), device("small", capacity={"mem": 1}))
    assert picked(world(slices, claim(request("r", capacity={"mem": 1})))) == ["r=large"]


@pytest.mark.req("K5773-002")
def test_the_order_decides_what_is_taken_and_how_long_it_takes():
    asked = claim(request("r0"), request("r1"), distinct("gpu.example/kind"))
    alike, other = [device(f"d{i}", kind=1) for i in range(6)], device("other", kind=2)
    late, early = world(published(*alike, other), asked), world(published(other, *alike), asked)
    assert picked(late) == ["r0=d0", "r1=other"]
    assert picked(early) == ["r0=other", "r1=d0"]
    assert count_examined(late) > count_examined(early)


def count_examined(problem: Problem) -> int:
    """Events of a search and the candidates refused before one was taken."""
    refused = [len(event.refused) if isinstance(event, CandidateTaken) else 0 for event in told(problem)]
    return len(refused) + sum(refused)


# --- who sees what ---

WHERE: dict[str, tuple[dict[str, Any], bool]] = {
    "its name": ({"node_name": "n1"}, True),
    "another name": ({"node_name": "n2"}, False),
    "everybody": ({"all_nodes": True}, True),
    "its label": ({"node_selector": labelled({"zone": "z1"})}, True),
    "another label": ({"node_selector": labelled({"zone": "z2"})}, False),
    "one of two terms": ({"node_selector": labelled({"zone": "z2"}, {"zone": "z1"})}, True),
    "a selector without terms": ({"node_selector": labelled()}, False),
}


@pytest.mark.parametrize("case", WHERE)
def test_a_slice_is_for_some_nodes(case):
    where, visible = WHERE[case]
    assert seen(published(device("a"), **where), node("n1", zone="z1")) == (["a"] if visible else [])


@pytest.mark.parametrize("case", WHERE)
def test_a_device_may_be_for_some_nodes(case):
    where, visible = WHERE[case]
    page = published(device("a", **where), device("b", node_name="n1"), per_device_node_selection=True)
    assert seen(page, node("n1", zone="z1")) == (["a", "b"] if visible else ["b"])


@pytest.mark.parametrize(("whole", "found"), [("n1", ["b"]), ("n2", [])])
def test_a_slice_with_both_kinds_of_node_selection_needs_both(whole, found):
    """The API refuses it; a device of another node must not be had by it."""
    own = [device("a", node_name="n2"), device("b", all_nodes=True), device("c")]
    slices = published(*own, node_name=whole, per_device_node_selection=True)
    assert seen(slices) == found
    assert picked(world(slices, claim(request("r", 2)))) is None
    # A slice for the node counts among its names even when the node reaches none of its devices.
    other = published(device("a"), name="other", count=2)
    unreached = published(*own[:1], node_name=whole, per_device_node_selection=True, count=2)
    twice = {"pool": Refusal(RefusalReason.POOL_INVALID, "device `a` is published twice")}
    assert flaws([unreached, other]) == (twice if whole == "n1" else {})


def test_a_slice_without_node_selection_is_for_no_node():
    page = published(device("a"), node_name="", all_nodes=False, node_selector=labelled())
    assert seen(page) == []


# --- generations and completeness ---


def test_only_the_newest_generation_counts():
    slices = [
        published(device("old"), name="1", generation=1, count=2),
        published(device("new"), name="2", generation=2),
    ]
    assert seen(slices) == ["new"]


@pytest.mark.req("K5773-027")
def test_an_older_generation_may_differ_in_anything():
    slices = [
        published(device("old"), name="1", generation=1, count=7, pool_priority=9),
        published(device("new"), name="2", generation=2, pool_priority=1),
    ]
    assert seen(slices) == ["new"]
    assert flaws(slices) == {}


def test_slices_on_other_nodes_complete_a_pool():
    slices = [
        published(device("a"), name="1", count=2),
        published(device("b"), name="2", count=2, node_name="n2"),
    ]
    assert seen(slices) == ["a"]


def test_a_newer_generation_elsewhere_makes_an_incomplete_view_obsolete():
    slices = [
        published(device("a"), name="1", count=2, generation=1),
        published(device("b"), name="2", count=2, generation=2, node_name="n2"),
    ]
    assert seen(slices) == []
    assert flaws(slices) == {}


def test_a_view_that_is_complete_by_itself_is_used_whatever_is_elsewhere():
    slices = [
        published(device("a"), name="1", count=1, generation=1),
        published(device("b"), name="2", count=2, generation=2, node_name="n2"),
    ]
    assert seen(slices) == ["a"]


FLAWS = {
    "a slice is missing": (
        [published(device("a"), count=2)],
        Refusal(RefusalReason.POOL_INCOMPLETE, IncompletePool(1, 2, 1)),
    ),
    "a slice too many": (
        [published(device("a"), name="1"), published(device("b"), name="2")],
        Refusal(RefusalReason.POOL_INCOMPLETE, IncompletePool(2, 1, 1)),
    ),
    "a device twice": (
        [published(*devices("a", "a"))],
        Refusal(RefusalReason.POOL_INVALID, "device `a` is published twice"),
    ),
    "a device twice in two slices": (
        [published(device("a"), name="1", count=2), published(device("a"), name="2", count=2)],
        Refusal(RefusalReason.POOL_INVALID, "device `a` is published twice"),
    ),
    "a device twice, once for another node": (
        [
            published(
                device("a", node_name="n2"),
                device("b", all_nodes=True),
                device("a", node_name="n1"),
                per_device_node_selection=True,
            )
        ],
        Refusal(RefusalReason.POOL_INVALID, "device `a` is published twice"),
    ),
    "a device twice, for another node in a slice that is for both": (
        [
            published(
                device("a", node_name="n2"),
                device("b", node_name="n1"),
                name="1",
                count=2,
                per_device_node_selection=True,
            ),
            published(device("a"), name="2", count=2),
        ],
        Refusal(RefusalReason.POOL_INVALID, "device `a` is published twice"),
    ),
    "a counter set twice": (
        [
            published(budget("set", slots=1), name="1", count=2),
            published(budget("set", slots=1), name="2", count=2),
        ],
        Refusal(RefusalReason.POOL_INVALID, "counter set `set` is published twice"),
    ),
    "an unknown counter set": (
        partitioned(budget("set", slots=1), device("a", consumes_counters=(draws("other", slots=1),))),
        Refusal(RefusalReason.POOL_INVALID, "device `a` consumes counter set `other`, which does not exist"),
    ),
    "an unknown counter": (
        partitioned(budget("set", slots=1), device("a", consumes_counters=(draws("set", lanes=1),))),
        Refusal(RefusalReason.POOL_INVALID, "device `a` consumes counter `set/lanes`, which does not exist"),
    ),
    "an unknown counter on another node": (
        [
            published(budget("set", slots=1), name="1", count=3),
            published(device("a"), name="2", count=3),
            published(
                device("b", consumes_counters=(draws("set", lanes=1),)), name="3", count=3, node_name="n2"
            ),
        ],
        Refusal(RefusalReason.POOL_INVALID, "device `b` consumes counter `set/lanes`, which does not exist"),
    ),
    "disagreement on the number of slices": (
        [published(device("a"), name="1", count=2), published(device("b"), name="2", count=3)],
        Refusal(RefusalReason.POOL_INVALID, "its slices disagree on pool.resourceSliceCount: 2 and 3"),
    ),
    "disagreement on the priority": (
        [
            published(device("a"), name="1", count=2, pool_priority=1),
            published(device("b"), name="2", count=2),
        ],
        Refusal(RefusalReason.POOL_INVALID, "its slices disagree on pool.priority: 0 and 1"),
    ),
}


@pytest.mark.req("K5773-025", "K5773-026")
@pytest.mark.parametrize("case", FLAWS)
def test_an_invalid_pool_offers_no_devices_and_has_a_reason(case):
    slices, flaw = FLAWS[case]
    assert flaws(slices) == {"pool": flaw}
    assert flaws(slices[::-1]) == {"pool": flaw}
    assert picked(world(slices, ONE)) is None


@pytest.mark.parametrize("case", FLAWS)
def test_a_flawed_pool_is_no_matter_for_others(case):
    slices, _flaw = FLAWS[case]
    other = published(device("fine"), name="other", pool="zz")
    assert picked(world([*slices, other], ONE)) == ["r=fine"]


@pytest.mark.parametrize("case", FLAWS)
def test_a_flawed_pool_keeps_all_devices_from_being_known(case):
    slices, flaw = FLAWS[case]
    problem = world([*slices, published(device("fine"), name="other", pool="zz")], claim(request("r", "All")))
    assert picked(problem) is None
    assert [event.blocker for event in told(problem) if isinstance(event, DeadEnd)] == [flaw]
    assert isinstance(ending(problem), Exhausted)


def test_a_device_of_one_name_on_two_nodes_does_not_break_the_pool():
    slices = [
        published(device("a"), name="1", count=2, node_name="n1"),
        published(device("a"), name="2", count=2, node_name="n2"),
    ]
    assert seen(slices) == ["a"]


def test_disagreement_is_forgotten_with_its_generation():
    slices = [
        published(device("a"), name="1", count=2),
        published(device("b"), name="2", count=3),
        published(device("c"), name="3", count=1, generation=2, node_name="n2"),
    ]
    assert flaws(slices) == {}
    assert seen(slices) == []


def test_counter_slices_offer_no_devices():
    slices = [published(budget(slots=1), device("a"))]
    assert seen(slices) == []


def test_views_of_nodes_with_flaws_tell_their_own():
    """Two nodes with incomplete pools look alike, but what is missing is not the same."""
    slices = [
        published(device("a"), name="1", pool="p1", count=2),
        published(device("a"), name="2", pool="p2", count=5, node_name="n2"),
    ]
    inventory = inventory_of(world(slices))
    found = [inventory.get_node_view(node(name)).shape.flaws for name in ("n1", "n2")]
    assert found == [
        ((0, Refusal(RefusalReason.POOL_INCOMPLETE, IncompletePool(1, 2, 1))),),
        ((0, Refusal(RefusalReason.POOL_INCOMPLETE, IncompletePool(1, 5, 1))),),
    ]
