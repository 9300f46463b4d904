"""Counting ahead: hopeless branches are left early, and nothing else.

That it never changes an answer is a law (tests/property); here it is shown to be worth having, in steps.
"""

from __future__ import annotations

import pytest

from dray.allocator.beats import Exhausted, GaveUp, Solved
from dray.allocator.foresight import Foresight, bits
from dray.allocator.reasons import Reason
from tests.brute.laws import Bench
from tests.brute.making import (
    asking,
    budget,
    claim,
    device,
    devices,
    distinct,
    draws,
    first_of,
    holding,
    match,
    partitioned,
    published,
    request,
)
from tests.brute.outcome import ending, shortages, world


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
    assert found.steps < 12 * number


@pytest.mark.parametrize("name", HARD)
def test_without_foresight_they_would_take_long(name):
    """The walk without it needs many times the steps: the bounds are what makes the difference."""
    bench = Bench(HARD[name](4), ())
    plain, ahead = (bench.beats(foresight=foresight)[-1] for foresight in (False, True))
    assert isinstance(plain, Exhausted | GaveUp)
    assert isinstance(ahead, Exhausted)
    assert plain.steps > 3 * ahead.steps


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("hard_pairs", Reason.TOO_FEW),
        ("hard_match", Reason.CONSTRAINT),
        ("hard_distinct", Reason.TOO_FEW),
        ("hard_counters", Reason.COUNTER_SHORT),
        ("hard_selectors", Reason.TOO_FEW),
    ],
)
def test_a_branch_left_early_says_what_is_lacking(name, reason):
    assert reason in {short.reason for short in shortages(HARD[name](4))}


def test_a_way_through_is_found_behind_many_hopeless_ones():
    """Of twenty values only the last has enough devices."""
    few = [device(f"d{i}", numa=i // 3) for i in range(57)]
    slices = published(*few, *[device(f"e{i}", numa=99) for i in range(4)])
    found = ending(world(slices, claim(*[request(f"r{i}") for i in range(4)], match("gpu.example/numa"))))
    assert isinstance(found, Solved)
    assert [pick.candidate for pick in found.picks] == [57, 58, 59, 60]
    assert found.steps < 20


@pytest.mark.parametrize("admin", [None, True])
def test_a_device_nobody_can_judge_does_not_blind_us_when_somebody_has_it(admin):
    """Whoever may come to the device must not be kept from it: that would hide the fault."""
    slices = published(device("taken"), *[device(f"d{i}", kind=i % 2) for i in range(7)])
    asked = [request(f"r{i}", 1, "attr:kind=1") for i in range(6)]
    last = request("last", 1, "attr:kind=0", admin_access=admin)
    found = ending(world(slices, claim(*asked, last), held=[holding("taken")]))
    assert isinstance(found, Exhausted)
    assert (found.steps < 20) is (admin is None)


# --- who is like whom ---


def twins(*content, asked=None, held=()):
    bench = Bench(world(published(*content), asked or claim(request("r")), held=held), ())
    return [sorted(bits(group)) for group in Foresight(bench.ask, bench.view.shape)._twins]


def test_devices_are_alike_as_far_as_the_question_goes():
    different = [device("a", numa=0), device("b", numa=1), device("c", numa=0)]
    assert twins(*different) == [[0, 1, 2]] * 3
    assert twins(*different, asked=claim(request("r"), match("gpu.example/numa"))) == [[0, 2], [1], [0, 2]]
    assert twins(*different, asked=claim(request("r", 1, "attr:numa=0"))) == [[0, 2], [1], [0, 2]]


def test_shared_devices_are_only_like_themselves():
    assert twins(*devices("a", "b", shared=True)) == [[0], [1]]


def test_bits_are_the_candidates_of_a_mask():
    assert list(bits(0)) == []
    assert list(bits(0b101001)) == [0, 3, 5]
