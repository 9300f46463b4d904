"""Searches that are run in slices, and given up when their time is over."""

from __future__ import annotations

from itertools import count

import pytest

from dray.allocator.allocate import FailedAllocation, allocate, run_search, search_nodes
from dray.allocator.requests import normalize_claims
from dray.allocator.search.backtracking import search
from dray.allocator.search.resumable import ResumableSearch, TimeLimit, start_search
from dray.allocator.search.trace import Exhausted, GaveUp, Solved
from tests.brute.builders import asking, claim, device, devices, distinct, first_of, node, published, request
from tests.brute.laws import inventory_of, share_ids
from tests.brute.outcome import world


class Ticking:
    """A clock that goes on by a second whenever it is read."""

    def __init__(self):
        self.reads = 0

    def __call__(self):
        self.reads += 1
        return float(self.reads)


def hard(wanted=4, there=40):
    """Devices with too few values between them, which only the plain search has to find out."""
    found = [device(f"d{i}", numa=i % (wanted - 1)) for i in range(there)]
    return world(published(*found), claim(request("r", wanted), distinct("numa")))


def parts(problem):
    inventory = inventory_of(problem)
    return normalize_claims(problem.claims, inventory.classes.get), inventory.get_node_view(
        problem.node
    ).shape


def plain(problem):
    """A search without pruning: it takes long where the usual one does not."""
    ask, shape = parts(problem)
    return ResumableSearch(ask, shape, iter(search(ask, shape, 10**9, prune=False)))


def test_slices_find_what_one_run_finds():
    problem = hard(3, 6)
    whole = plain(problem)
    ending = whole.advance(lambda: 0.0, 1.0)
    assert isinstance(ending, Exhausted)
    sliced, clock = plain(problem), Ticking()
    slices = 1
    while (found := sliced.advance(clock, 1.0)) is None:
        slices += 1
    assert (found, sliced.steps) == (ending, whole.steps)
    assert slices == sliced.steps + 1
    assert sliced.spent == slices  # a second for every reading of the clock, and one event in each slice


def test_a_slice_ends_when_its_time_is_over_and_only_its_own_work_counts():
    running, clock = plain(hard()), Ticking()
    assert running.advance(clock, 10.0) is None
    assert running.spent == 10
    for _ in range(100):
        clock()
    assert running.advance(clock, 5.0) is None
    assert running.spent == 15
    assert running.steps == 15


def test_without_any_time_a_slice_still_goes_on_by_one_event():
    running = plain(hard())
    assert running.advance(lambda: 0.0, 0.0) is None
    assert running.steps == 1


def test_a_finished_search_returns_the_same_ending_again():
    running = plain(hard(2, 2))
    ending = running.advance(lambda: 0.0, 1.0)
    assert ending is not None
    assert running.advance(lambda: 0.0, 1.0) is ending


def test_a_given_up_search_reports_how_far_it_got():
    running = plain(hard())
    assert running.advance(Ticking(), 100.0) is None
    given_up = running.give_up()
    assert (given_up.steps, given_up.seconds) == (100, 100.0)
    assert (given_up.found, given_up.wanted) == (3, 4)
    assert given_up.stuck_at is not None
    assert (given_up.stuck_at.alternative.name, given_up.stuck_at.device_index) == ("r", 3)


def test_the_requested_number_counts_tried_alternatives_and_the_smallest_of_the_others():
    slices = published(*devices(*"abcdefgh"))
    asked = claim(
        first_of("r", ("five", asking(5)), ("one", asking(1))),
        first_of("s", ("three", asking(3)), ("two", asking(2))),
    )
    running = plain(world(slices, asked))
    assert running.advance(Ticking(), 2.0) is None
    given_up = running.give_up()
    assert (given_up.found, given_up.wanted, given_up.stuck_at) == (2, 5 + 2, None)


def test_a_limit_in_time_ends_a_search():
    ask, shape = parts(hard(20, 40))
    ending = run_search(ask, shape, limit=TimeLimit(Ticking(), 3.0))
    assert isinstance(ending, GaveUp)
    assert ending.seconds >= 3
    assert isinstance(run_search(ask, shape, limit=TimeLimit(lambda: 0.0, 3.0)), Exhausted)


def test_a_search_limited_in_steps_reports_how_far_it_got():
    problem = world(published(*devices(*"abcd")), claim(request("r", 4)))
    found = allocate(inventory_of(problem), problem.claims, problem.node, new_share_id=share_ids(), budget=3)
    assert isinstance(found, FailedAllocation)
    assert found.ending == GaveUp(3, 0.0, 3, 4, None)


def test_a_search_that_ends_soon_needs_no_second_look_at_the_clock():
    ask, shape = parts(world(published(*devices("a", "b")), claim(request("r", 2))))
    clock = Ticking()
    assert isinstance(start_search(ask, shape, clock), Solved)
    assert clock.reads == 1


@pytest.mark.parametrize("nodes", [3, 15])
def test_a_survey_shares_its_time_among_the_shapes(nodes):
    """Ten times the limit of one search; who comes later is given up unseen."""
    slices = [
        published(*devices(*[f"d{i}" for i in range(30 + n)]), name=f"s{n}", pool=f"p{n}", node_name=f"n{n}")
        for n in range(nodes)
    ]
    problem = world(slices, claim(request("r", 30)))
    inventory = inventory_of(problem)
    ask = normalize_claims(problem.claims, inventory.classes.get)
    numbers = count()
    limit = TimeLimit(lambda: float(next(numbers)), 3.0)
    endings = [
        ending
        for _, ending in search_nodes(inventory, ask, [node(f"n{n}") for n in range(nodes)], limit=limit)
    ]
    assert all(isinstance(ending, GaveUp) for ending in endings)
    tried = [ending.steps > 0 for ending in endings]
    assert tried == sorted(tried, reverse=True)
    assert all(tried) == (nodes == 3)


def test_the_most_devices_found_at_once_are_not_forgotten_on_the_way_back():
    running = plain(hard())
    found = []
    for _ in range(200):
        assert running.advance(lambda: 0.0, 0.0) is None
        found.append(running.give_up().found)
    assert found == sorted(found)
    assert found[-1] == 3
