"""Questions as callers ask them: one node, or many at once."""

from __future__ import annotations

import pytest

import dray.allocator.allocate as allocating
from dray.allocator.allocate import FailedAllocation, SuccessfulAllocation, allocate, run_search, search_nodes
from dray.allocator.inventory.device_inventory import DeviceInventory
from dray.allocator.inventory.usage import DeviceUsage
from dray.allocator.requests import normalize_claims
from dray.allocator.search.trace import Exhausted, Faulted, GaveUp, Solved
from dray.errors import UnanswerableClaimError
from tests.brute.builders import (
    claim,
    device,
    device_class,
    devices,
    holding,
    node,
    published,
    request,
    result,
)
from tests.brute.laws import inventory_of, share_ids
from tests.brute.outcome import world
from tests.brute.toy_selectors import evaluate_toy


def ask(problem, budget=1000):
    return allocate(
        inventory_of(problem), problem.claims, problem.node, new_share_id=share_ids(), budget=budget
    )


def test_one_result_per_claim_in_their_order():
    problem = world(
        published(*devices("a", "b")), claim(request("r"), name="c0"), claim(request("r"), name="c1")
    )
    found = ask(problem)
    assert isinstance(found, SuccessfulAllocation)
    assert [one.devices.results[0].device for one in found.results] == ["a", "b"]


def test_a_failed_allocation_tells_whether_it_is_certain():
    none = ask(world(published(device("a")), claim(request("r", 2))))
    gave_up = ask(world(published(*devices("a", "b")), claim(request("r", 2))), budget=1)
    broken = ask(world(published(device("a")), claim(request("r", 1, "fails"))))
    assert all(isinstance(found, FailedAllocation) for found in (none, gave_up, broken))
    assert [type(found.ending) for found in (none, gave_up, broken)] == [Exhausted, GaveUp, Faulted]


def test_a_fault_of_the_claim_is_raised():
    with pytest.raises(UnanswerableClaimError, match="device class `any` does not exist"):
        ask(world(published(device("a")), claim(request("r")), classes=()))


@pytest.fixture
def searches(monkeypatch):
    """How many searches are made."""
    made = []
    real = run_search

    def counted(*given):
        made.append(given)
        return real(*given)

    monkeypatch.setattr(allocating, "run_search", counted)
    return made


def test_a_survey_searches_once_per_shape(searches):
    slices = [
        published(device("d", numa=i % 2), name=f"s{i}", pool=f"p{i}", node_name=f"n{i}") for i in range(10)
    ]
    inventory = DeviceInventory(
        slices, [device_class()], DeviceUsage.from_claims([holding(result("d", pool="p4"))]), evaluate_toy
    )
    asked = normalize_claims([claim(request("r"))], inventory.classes.get)
    found = {
        view.node.metadata.name: end
        for view, end in search_nodes(inventory, asked, [node(f"n{i}") for i in range(10)])
    }
    assert len(searches) == 3, "even nodes, odd nodes, and the one whose device is taken"
    assert [isinstance(found[f"n{i}"], Solved) for i in range(10)] == [i != 4 for i in range(10)]
    assert found["n0"] is found["n2"] is not found["n1"]


def test_a_survey_answers_as_each_node_would_alone():
    slices = [
        published(device("a"), name="s1", pool="p1", node_name="n1"),
        published(*devices("b", "c"), name="s2", pool="p2", node_name="n2"),
    ]
    inventory = DeviceInventory(slices, [device_class()], DeviceUsage(), evaluate_toy)
    asked = normalize_claims([claim(request("r", 2))], inventory.classes.get)
    found = [type(end) for _, end in search_nodes(inventory, asked, [node("n1"), node("n2"), node("n3")])]
    assert found == [Exhausted, Solved, Exhausted]
