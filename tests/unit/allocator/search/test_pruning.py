"""Pruning: branches without a solution are left early, and nothing else.

That it never changes an answer is a law (tests/property); here it is shown to be worth having, in steps.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from dray.allocator.refusals import RefusalReason
from dray.allocator.requests import MAX_RESULTS
from dray.allocator.search.backtracking import PRUNING_THRESHOLD
from dray.allocator.search.candidates import get_candidate_set
from dray.allocator.search.pruning import Pruner
from dray.allocator.search.pruning.assignment import has_assignment
from dray.allocator.search.pruning.open_requests import OpenRequest
from dray.allocator.search.pruning.prices import MIN_REQUESTS, DevicePrices
from dray.allocator.search.trace import Exhausted, Faulted, GaveUp, SearchPoint, Solved
from dray.values.bit_masks import iter_bits
from tests.brute.builders import (
    asking,
    budget,
    claim,
    device,
    devices,
    distinct,
    draws,
    first_of,
    match,
    partitioned,
    published,
    request,
)
from tests.brute.laws import Bench
from tests.brute.outcome import ending, world


def hard_pairs(number):
    """Requests that each want one of two kinds of device, of which there is one too few in all."""
    slices = published(*[device(f"d{i}", kind=i % 2) for i in range(number - 1)])
    return world(slices, claim(*[request(f"r{i}", 1, "any") for i in range(number)]))


def hard_match(number):
    """Twelve values with too few devices each."""
    slices = published(*[device(f"d{i}", numa=i // (number - 1)) for i in range(12 * (number - 1))])
    return world(slices, claim(*[request(f"r{i}") for i in range(number)], match("gpu.example/numa")))


def hard_distinct(number):
    """One value too few for the devices that must differ, with many devices of each."""
    slices = published(*[device(f"d{i}", numa=i % (number - 1)) for i in range(4 * number)])
    return world(slices, claim(*[request(f"r{i}") for i in range(number)], distinct("gpu.example/numa")))


def hard_counters(number):
    """Partitions of different sizes, and a budget one short of the smallest of them together."""
    parts = [device(f"d{i}", consumes_counters=(draws(slots=2 + i % 3),)) for i in range(3 * number)]
    return world(
        partitioned(budget(slots=2 * number - 1), *parts), claim(*[request(f"r{i}") for i in range(number)])
    )


def hard_selectors(number):
    """Requests that all want the few devices of one kind, among many of another that come first."""
    slices = published(
        *[device(f"a{i}", kind="plenty") for i in range(10)],
        *[device(f"b{i}", kind="rare") for i in range(number - 1)],
    )
    asked = [request("easy", 8), *[request(f"r{i}", 1, "attr:kind=rare") for i in range(number)]]
    return world(slices, claim(*asked))


def hard_alternatives(number):
    """Alternatives that all fail for want of the last request's device."""
    slices = published(*devices(*[f"d{i}" for i in range(2 * number)], kind="a"))
    ways = [("two", asking(2)), ("one", asking(1)), ("other", asking(1, "attr:kind=a"))]
    asked = [first_of(f"r{i}", *ways) for i in range(number)]
    return world(slices, claim(*asked, request("never", 1, "never")))


HARD = {
    make.__name__: make
    for make in (hard_pairs, hard_match, hard_distinct, hard_counters, hard_selectors, hard_alternatives)
}


@pytest.mark.parametrize("number", [4, 8])
@pytest.mark.parametrize("name", HARD)
def test_hopeless_problems_are_seen_through(name, number):
    found = ending(HARD[name](number))
    assert isinstance(found, Exhausted)
    assert found.steps < PRUNING_THRESHOLD + 12 * number


@pytest.mark.parametrize("name", HARD)
def test_without_pruning_they_would_take_long(name):
    """The walk without it needs many times the steps."""
    bench = Bench(HARD[name](6), ())
    plain, pruned = (bench.events(prune=prune)[-1] for prune in (False, True))
    assert isinstance(plain, Exhausted | GaveUp)
    assert isinstance(pruned, Exhausted)
    assert plain.steps > 3 * pruned.steps


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("hard_pairs", RefusalReason.TOO_FEW),
        ("hard_match", RefusalReason.CONSTRAINT),
        ("hard_distinct", RefusalReason.TOO_FEW),
        ("hard_counters", RefusalReason.COUNTER_SHORT),
        ("hard_selectors", RefusalReason.TOO_FEW),
    ],
)
def test_the_blocker_names_what_is_missing_altogether(name, reason):
    whole = pruning_of(HARD[name](4)).build_whole_search()
    assert whole.run(100) is False
    assert whole.blocker.reason is reason


def test_a_way_through_is_found_behind_many_hopeless_ones():
    """Of twenty values only the last has enough devices."""
    few = [device(f"d{i}", numa=i // 3) for i in range(57)]
    slices = published(*few, *[device(f"e{i}", numa=99) for i in range(4)])
    found = ending(world(slices, claim(*[request(f"r{i}") for i in range(4)], match("gpu.example/numa"))))
    assert isinstance(found, Solved)
    assert [pick.candidate for pick in found.picks] == [57, 58, 59, 60]
    assert found.steps < PRUNING_THRESHOLD + 40


def judged_in(asked, *profile, **more):
    """A problem with its answer with and without pruning, which must be the same."""
    bench = Bench(world(published(*profile), asked, **more), ())
    with_pruning, without = bench.events()[-1], bench.events(prune=False)[-1]
    assert type(with_pruning) is type(without)
    return with_pruning, without


@pytest.mark.parametrize("admin", [None, True])
def test_a_faulty_device_is_still_reached(admin):
    """Pruning must not leave a branch in which the plain search comes to such a device."""
    asked = [request(f"r{i}", 1, "attr?:kind=1") for i in range(3)]
    last = request("last", 1, "attr:kind=0", admin_access=admin)
    profile = [device("odd"), *[device(f"d{i}", kind=i % 2) for i in range(7)]]
    found, plain = judged_in(claim(*asked, last), *profile)
    assert isinstance(found, Faulted)
    assert (found.point, found.candidate) == (plain.point, plain.candidate)


def test_an_all_request_reaches_a_faulty_device_even_when_it_is_in_use(monkeypatch):
    monkeypatch.setattr("dray.allocator.search.backtracking.PRUNING_THRESHOLD", 0)
    ways = [("one", asking(1)), ("all", asking("All", "fails"))]
    found, plain = judged_in(claim(request("r"), first_of("s", *ways)), device("only"))
    assert isinstance(found, Faulted)
    assert (found.point, found.candidate) == (plain.point, plain.candidate)


def test_requests_before_a_faulty_device_are_pruned():
    """Too few devices for the first six requests: the one that could end the search is never come to."""
    asked = [request(f"r{i}", 1, "attr?:kind=1") for i in range(6)]
    last = request("last", 1, "fails")
    found = ending(world(published(*[device(f"d{i}", kind=i % 2) for i in range(11)]), claim(*asked, last)))
    assert isinstance(found, Exhausted)
    assert found.steps < PRUNING_THRESHOLD + 20


# --- structures ---


def gpus(number, *, interleaved=False):
    """Equal GPUs, each whole or as four partitions in pairs, that draw from a counter set of its own."""
    rows = []
    for gpu in range(number):
        rows.append((0, device(f"g{gpu}", kind="whole", consumes_counters=(draws(f"g{gpu}", slots=4),))))
        for part in range(2):
            half = device(f"g{gpu}-{part}", kind="half", consumes_counters=(draws(f"g{gpu}", slots=2),))
            rows.append((1 + part, half))
    if interleaved:
        rows.sort(key=lambda row: row[0])
    return [
        published(*[budget(f"g{gpu}", slots=4) for gpu in range(number)], name="counters", count=2),
        published(*[part for _, part in rows], name="devices", count=2),
    ]


@pytest.mark.parametrize("interleaved", [False, True])
def test_equal_gpus_are_tried_once(interleaved):
    """Three halves leave six of eight GPUs whole, but seven are asked for behind them."""
    asked = claim(
        request("any", 1, "attr:kind=half"),
        request("halves", 2, "attr:kind=half"),
        request("whole", 7, "attr:kind=whole"),
    )
    found = ending(world(gpus(8, interleaved=interleaved), asked))
    assert isinstance(found, Exhausted)
    assert found.steps < 3 * PRUNING_THRESHOLD


@pytest.mark.parametrize("interleaved", [False, True])
def test_partitions_at_one_place_of_equal_gpus_are_interchangeable(interleaved):
    bench = Bench(world(gpus(3, interleaved=interleaved), claim(request("r", 2, "attr:kind=half"))), ())
    pruning = pruning_of(bench=bench)
    choice = bench.ask.choices[0]
    point = SearchPoint(choice, choice.alternatives[0], 0)
    names = [name for pool_view in bench.view.pool_views for name in pool_view.names]
    first = names.index("g0-0")
    found = pruning.find_equivalents([], point, 0, first)
    assert sorted(names[i] for i in iter_bits(found)) == ["g0-0", "g0-1", "g1-0", "g2-0"]


def test_shares_without_slack_are_packed():
    """Twelve shares fill four devices exactly; taking the first device with enough left goes wrong often."""
    amounts = (16, 33, 50, 10, 7, 11, 18, 31, 30, 29, 5, 50)
    capacities = (68, 86, 63, 73)
    slices = published(
        *[device(f"d{i}", shared=True, capacity={"bw": space}) for i, space in enumerate(capacities)]
    )
    requests = [request(f"r{i}", 1, capacity={"bw": amount}) for i, amount in enumerate(amounts)]
    found = ending(world(slices, claim(*requests)))
    assert isinstance(found, Solved)
    assert found.steps < 1_000


def pruning_of(problem=None, *, bench=None):
    bench = bench or Bench(problem, ())
    candidate_set = {}
    for choice in bench.ask.choices:
        for alternative in choice.alternatives:
            candidate_set[alternative] = get_candidate_set(bench.view.shape, alternative)
            candidate_set[alternative].evaluate_all()
    return Pruner(bench.ask, bench.view.shape, candidate_set, MAX_RESULTS)


@pytest.mark.parametrize(
    ("wanted", "possible"),
    [
        ({0b11: 2}, True),
        ({0b11: 3}, False),
        ({0b110: 1, 0b011: 1, 0b101: 1}, True),
        ({0b110: 1, 0b011: 1, 0b010: 1, 0b111: 1}, False),
        # Three groups share two bits, although every pair of them could be served.
        ({0b0011: 1, 0b0010: 1, 0b0001: 1, 0b1100: 2}, False),
        ({0b00111: 2, 0b11100: 2, 0b00100: 1}, True),
    ],
)
def test_an_assignment_gives_each_bit_once(wanted, possible):
    assert has_assignment(wanted) is possible


def test_bits_are_the_candidates_of_a_mask():
    assert list(iter_bits(0)) == []
    assert list(iter_bits(0b101001)) == [0, 3, 5]


@pytest.mark.parametrize(("shared", "excluded"), [(0, True), (0b11100, False)])
def test_what_may_be_had_by_several_requests_costs_none_of_them_anything(shared, excluded):
    """Three requests with alternatives, two exclusive devices: too few, unless there are shared ones."""
    demand: Any = SimpleNamespace(name="r", admin=False, constraint_mask=0)
    alternatives = [(demand, 1, 0b11 | shared), (demand, 1, 0b11 | shared)]
    opens = [OpenRequest(choice, alternatives) for choice in range(MIN_REQUESTS)]
    assert DevicePrices([0b01, 0b10]).proves_infeasible(opens) is excluded


def test_merged_requests_of_several_claims_count_for_their_own_claims():
    """Together they hold more than one claim may; the first pick is wrong, so that pruning has a say."""
    plenty = [device(f"d{i:02}", kind="a" if i else "b") for i in range(42)]
    wide = claim(*[request(f"r{i}", 10) for i in range(2)], name="c0")
    other = claim(*[request(f"r{i}", 10) for i in range(2)], name="c1")
    last = claim(request("last", 1, "attr:kind=b"), name="c2")
    whole = pruning_of(world(published(*plenty), wide, other, last)).build_whole_search()
    assert whole.run(200) is True
