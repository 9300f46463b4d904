# ruff: noqa: N802 - a test bears the id of its row
"""Faults of the allocator as a whole: rows A27 to A30 and the performance rows P01 to P05.

Work is counted, never timed: steps of the search, questions to the judge, views and pages looked at.
"""

from __future__ import annotations

from itertools import permutations
from typing import Any

import pytest

import dray.allocator.inventory.device_inventory as stocking
from dray.allocator.allocate import search_nodes
from dray.allocator.feature_gates import AllocatorGateFilter
from dray.allocator.inventory.device_inventory import DeviceInventory
from dray.allocator.inventory.pool_views import PreparedSlice
from dray.allocator.inventory.remainder import compute_remainder
from dray.allocator.inventory.usage import DeviceUsage
from dray.allocator.partial_solution import PartialSolution
from dray.allocator.requests import normalize_claims
from dray.allocator.search.backtracking import search
from dray.allocator.search.trace import Exhausted, Solved
from dray.api.kinds import get_kind_by_type
from dray.api.strategies.gated_fields import drop_disabled_fields
from dray.gates import GATES, GateSet
from tests.brute.builders import (
    asking,
    budget,
    claim,
    device,
    distinct,
    draws,
    first_of,
    holding,
    match,
    node,
    partitioned,
    published,
    request,
    result,
)
from tests.brute.laws import Bench, answer_of, inventory_of, results_of
from tests.brute.outcome import ending, picked, world
from tests.brute.toy_selectors import ToyEvaluator, evaluate_toy
from tests.property.strategies.api import without


@pytest.mark.parametrize("gate", GATES)
def test_A27_one_choice_of_gates_holds_for_the_objects_and_for_the_search(gate):
    """What the API keeps under some gates the allocator sees under the same ones, and nothing more."""
    gates = without(gate)
    page = published(
        device("a", numa=[0, 1], shared=True), device("b", numa=[1]), priority=3, pool_priority=1
    )
    kind = get_kind_by_type(type(page))
    kept = drop_disabled_fields(kind, page, None, gates).object
    admission = AllocatorGateFilter(gates)
    (admitted,) = admission.admit_slices([kept])
    assert drop_disabled_fields(kind, admitted, None, gates).dropped == ()
    assert AllocatorGateFilter(GateSet.from_defaults()).admit_slices([page]) == [page]


def test_A27_lists_that_the_api_keeps_are_matched_as_lists():
    page = published(device("a", numa=[0, 1]), device("b", numa=[1, 2]))
    asked = claim(request("r", 2), match("gpu.example/numa"))
    admission = AllocatorGateFilter(GateSet.from_defaults())
    assert picked(world(admission.admit_slices([page]), *admission.admit_claims([asked]))) == ["r=a", "r=b"]


def test_A28_searches_on_one_stock_do_not_disturb_each_other():
    """Two questions, walked in turns on one stock, end as they do alone."""
    slices = published(*[device(f"d{i}", numa=i % 2) for i in range(6)])
    questions = [
        claim(request("r0", 2), request("r1", 1, "attr:numa=0"), match("gpu.example/numa")),
        claim(request("r0", 3), request("r1", 3, "attr:numa=1")),
        claim(request("r0", 7)),
    ]
    alone = [Bench(world(slices, asked)).answer() for asked in questions]
    stock = inventory_of(world(slices))
    view = stock.get_node_view(node())
    walks = [search(normalize_claims([asked], stock.classes.get), view.shape) for asked in questions]
    endings: list[Any] = [None] * len(walks)
    running = set(range(len(walks)))
    while running:
        for i in sorted(running):
            event = next(walks[i], None)
            if event is None:
                running.discard(i)
            else:
                endings[i] = event
    assert [answer_of(view, end) for end in endings] == alone


@pytest.mark.req("K5773-013", "K5773-018")
def test_A29_any_order_of_slices_gives_the_same_answer():
    slices = [
        *partitioned(budget(slots=2), device("a", consumes_counters=(draws(slots=2),)), pool="p1", name="1"),
        published(device("b"), name="2", pool="p2", priority=1),
        published(device("c"), name="3", pool="p2", generation=2),
        published(device("d"), name="4", driver="a.example", pool="p9"),
    ]
    asked = claim(request("r0", 2), request("r1"))
    answers = {str(results_of(world(order, asked))) for order in permutations(slices)}
    assert len(answers) == 1
    assert picked(world(slices, asked)) == ["r0=d", "r0=a", "r1=c"]


@pytest.mark.req("K4816-060")
def test_A30_two_pods_share_one_device_in_halves_when_neither_can_have_it_whole():
    """The claims of both pods are solved together, so the first is content with a half."""
    slices = partitioned(
        budget(slots=2),
        device("whole", kind="whole", consumes_counters=(draws(slots=2),)),
        *[device(f"half-{i}", kind="half", consumes_counters=(draws(slots=1),)) for i in range(2)],
    )
    ways = [("whole", asking(1, "attr:kind=whole")), ("half", asking(1, "attr:kind=half"))]
    gang = [claim(first_of("gpu", *ways), name=name) for name in ("pod-0", "pod-1")]
    assert picked(world(slices, gang[0])) == ["gpu/whole=whole"]
    assert picked(world(slices, *gang)) == ["gpu/half=half-0", "gpu/half=half-1"]


# --- work ---


@pytest.mark.parametrize("requests", [2, 3, 4])
def test_P01_identical_devices_and_a_match_that_cannot_be_are_given_up_early(requests):
    """Requests of 8 devices each must agree on one of two values; one device of each is missing for that."""
    missing = 8 * requests - 1
    slices = published(
        *[device(f"a{i}", numa=0) for i in range(missing)], *[device(f"b{i}", numa=1) for i in range(missing)]
    )
    asked = claim(*[request(f"r{i}", 8) for i in range(requests)], match("gpu.example/numa"))
    found = ending(world(slices, asked))
    assert isinstance(found, Exhausted)
    assert found.steps < 100


def test_P01_a_match_over_two_attributes_that_cannot_be_is_given_up_early():
    """Every pair of values is met by one device only, and four requests need one each."""
    slices = published(*[device(f"d{i}", x=i % 5, y=i // 5) for i in range(25)])
    asked = claim(*[request(f"r{i}") for i in range(4)], match("gpu.example/x"), match("gpu.example/y"))
    found = ending(world(slices, asked))
    assert isinstance(found, Exhausted)
    assert found.steps < 200


@pytest.mark.parametrize("rules", [(), (distinct("gpu.example/kind"),)], ids=["alike", "all different"])
def test_P02_alternatives_that_exceed_what_a_claim_may_hold_are_left_at_once(rules):
    """Ten requests prefer eight devices and are content with one: with four times eight a claim is full."""
    slices = published(*[device(f"d{i:02}", kind=i) for i in range(90)])
    asked = claim(*[first_of(f"r{i}", ("many", asking(8)), ("one", asking(1))) for i in range(10)], *rules)
    found = ending(world(slices, asked))
    assert isinstance(found, Solved)
    names = [pick.point.alternative.name for pick in found.picks]
    assert [names.count(f"r{i}/many") for i in range(10)] == [8, 8, 8, 0, 0, 0, 0, 0, 0, 0]
    assert found.steps < 300


def local_pools(nodes):
    """A pool with counters on each of many nodes."""
    slices = []
    for i in range(nodes):
        here = {"pool": f"pool-{i}", "name": f"slice-{i}", "node_name": f"n{i}"}
        parts = [device(f"d{k}", consumes_counters=(draws(slots=1),)) for k in range(3)]
        slices += partitioned(budget(slots=2), *parts, **here)
    return slices


@pytest.fixture
def looks(monkeypatch):
    """Which pages were looked at."""
    names = []
    real = PreparedSlice.find_reachable

    def seen_by(page, where):
        names.append(page.slice.metadata.name)
        return real(page, where)

    monkeypatch.setattr(PreparedSlice, "find_reachable", seen_by)
    return names


@pytest.mark.parametrize("nodes", [3, 60])
def test_P03_pools_of_other_nodes_cost_nothing(nodes, looks):
    judge = ToyEvaluator()
    stock = DeviceInventory(local_pools(nodes), [*world([]).classes], DeviceUsage(), judge)
    ask = normalize_claims([claim(request("r", 2, "any"))], stock.classes.get)
    ((_view, found),) = search_nodes(stock, ask, [node("n1")])
    assert isinstance(found, Solved)
    assert looks == ["slice-1-counters", "slice-1-devices"]
    assert len(judge.asked) == 1
    assert found.steps == 2


def test_P04_a_node_is_looked_up_not_searched_for(looks):
    nodes = 500
    slices = [
        published(device("d"), name=f"slice-{i}", pool=f"pool-{i}", node_name=f"n{i}") for i in range(nodes)
    ]
    judge = ToyEvaluator()
    stock = DeviceInventory(slices, [*world([]).classes], DeviceUsage(), judge)
    names = [node(f"n{i}") for i in range(nodes)]
    for _pod in range(3):
        ask = normalize_claims([claim(request("r", 1, "any"))], stock.classes.get)
        found = list(search_nodes(stock, ask, names))
        assert len(found) == nodes
        assert len({id(end) for _view, end in found}) == 1, "one search for all that look alike"
    assert len(looks) == nodes, "each page once, for the node it is on"
    assert len(judge.asked) == 1, "one question for devices that are the same"


def test_P05a_usage_of_one_pool_recounts_that_pool_only(monkeypatch):
    stock = DeviceInventory(local_pools(20), [], DeviceUsage(), evaluate_toy)
    for i in range(20):
        stock.get_node_view(node(f"n{i}"))
    recounted = []
    real = compute_remainder

    def left(shelf, use):
        recounted.append(shelf.pool[1])
        return real(shelf, use)

    monkeypatch.setattr(stocking, "compute_remainder", left)
    used = stock.replace_usage(stock.usage.add_claims([holding(result("d0", pool="pool-7"))]))
    for i in range(20):
        used.get_node_view(node(f"n{i}"))
    assert recounted == ["pool-7"]


@pytest.mark.parametrize("partitions", [4, 64])
def test_P05b_taking_a_partition_touches_its_own_counters_only(monkeypatch, partitions):
    written = []
    real = PartialSolution.assign

    def assign(solution, table, key, value):
        written.append(key)
        real(solution, table, key, value)

    monkeypatch.setattr(PartialSolution, "assign", assign)
    parts = [device(f"d{i}", consumes_counters=(draws(slots=1),)) for i in range(partitions)]
    found = ending(world(partitioned(budget(slots=2, lanes=9), *parts), claim(request("r", 2))))
    assert isinstance(found, Solved)
    assert len(written) == 4, "a counter and the taken device, twice"
