"""The walk: order, steps back, alternatives, all, admin access, limits, budget, memory."""

from __future__ import annotations

from typing import Any

import pytest

from dray.allocator.refusals import RefusalReason
from dray.allocator.search.backtracking import search
from dray.allocator.search.trace import CandidateTaken, DeadEnd, Exhausted, Faulted, GaveUp, Solved
from dray.api.resource import DeviceTaint
from tests.brute.builders import (
    asking,
    budget,
    capacity,
    claim,
    device,
    devices,
    draws,
    first_of,
    holding,
    labelled,
    match,
    node,
    partitioned,
    policy,
    published,
    request,
)
from tests.brute.laws import Bench
from tests.brute.outcome import ending, picked, refusals, shortages, told, world

ABC = published(*devices("a", "b", "c"))
TAINT = (DeviceTaint(key="hot", effect="NoSchedule"),)


@pytest.mark.req("K4816-062", "K5773-003")
def test_the_first_device_that_fits_is_taken():
    assert picked(world(ABC, claim(request("r")))) == ["r=a"]
    assert picked(world(ABC, claim(request("r", 2)))) == ["r=a", "r=b"]


@pytest.mark.req("K4816-025")
def test_all_selectors_must_be_true():
    slices = published(device("a", x=1, y=0), device("b", x=0, y=1), device("c", x=1, y=1))
    assert picked(world(slices, claim(request("r", 1, "attr:x=1", "attr:y=1")))) == ["r=c"]


@pytest.mark.req("K4816-039")
def test_all_selectors_of_an_alternative_must_be_true():
    slices = published(device("a", x=1, y=0), device("b", x=1, y=1))
    assert picked(world(slices, claim(first_of("r", ("s", asking(1, "attr:x=1", "attr:y=1")))))) == ["r/s=b"]


def test_later_requests_move_earlier_ones():
    slices = published(device("a", kind="both"), device("b", kind="one"))
    asked = claim(request("r0"), request("r1", 1, "attr:kind=both"))
    assert picked(world(slices, asked)) == ["r0=b", "r1=a"]


@pytest.mark.req("K4816-060")
def test_later_claims_move_earlier_ones():
    slices = published(device("a", kind="both"), device("b", kind="one"))
    asked = claim(request("r"), name="c0"), claim(request("r", 1, "attr:kind=both"), name="c1")
    assert picked(world(slices, *asked)) == ["r=b", "r=a"]


def test_combinations_are_tried_not_permutations():
    """Three of four devices that never suit the rest: each set of them is looked at once."""
    slices = published(*[device(f"d{i}", numa=i) for i in range(4)])
    bench = Bench(world(slices, claim(request("r0", 3), request("r1", 2))))
    events = bench.events(prune=False)
    last = [
        event.pick
        for event in events
        if isinstance(event, CandidateTaken) and event.pick.point.device_index == 2
    ]
    assert len(last) == 4
    assert isinstance(events[-1], Exhausted)


# --- alternatives ---


@pytest.mark.req("K4816-011", "K4816-057")
def test_the_next_alternative_is_tried_only_when_one_cannot_be_had():
    asked = claim(first_of("r", ("s0", asking(4)), ("s1", asking(2)), ("s2", asking(1))))
    problem = world(ABC, asked)
    assert picked(problem) == ["r/s1=a", "r/s1=b"]
    tried = [
        event.pick.point.alternative.name for event in told(problem) if isinstance(event, CandidateTaken)
    ]
    assert list(dict.fromkeys(tried)) == ["r/s0", "r/s1"]


@pytest.mark.req("K4816-010")
def test_alternatives_are_never_mixed():
    """Two of kind x, or two of kind y: one of each must not pass for either."""
    slices = published(device("a", kind="x"), device("b", kind="y"))
    asked = claim(first_of("r", ("s0", asking(2, "attr:kind=x")), ("s1", asking(2, "attr:kind=y"))))
    assert picked(world(slices, asked)) is None


@pytest.mark.req("K4816-057")
def test_when_no_alternative_fits_there_is_no_solution():
    asked = claim(first_of("r", ("s0", asking(4)), ("s1", asking(1, "never"))))
    problem = world(ABC, asked)
    assert picked(problem) is None
    dead = [event.point.alternative.name for event in told(problem) if isinstance(event, DeadEnd)]
    assert list(dict.fromkeys(dead)) == ["r/s0", "r/s1"]


@pytest.mark.req("K4816-060")
def test_a_later_request_pushes_an_earlier_one_to_a_worse_alternative():
    asked = claim(first_of("r0", ("s0", asking(3)), ("s1", asking(2))), request("r1"))
    assert picked(world(ABC, asked)) == ["r0/s1=a", "r0/s1=b", "r1=c"]


def test_devices_of_an_alternative_given_up_are_free_again():
    slices = published(device("a", numa=0), device("b", numa=1), device("c", numa=1))
    asked = claim(first_of("r", ("s0", asking(3)), ("s1", asking(2))), match("gpu.example/numa"))
    assert picked(world(slices, asked)) == ["r/s1=b", "r/s1=c"]


def test_a_choice_of_nothing_takes_nothing():
    asked = claim(first_of("r0", ("s0", asking(4)), ("s1", asking(0))), request("r1", 3))
    assert picked(world(ABC, asked)) == ["r1=a", "r1=b", "r1=c"]


def test_a_request_for_no_devices_takes_none_even_beside_a_faulty_device():
    """Both requests ask the same of a device; the first one saw `b`, the second must take none."""
    slices = published(device("a", numa=1), device("b"), device("c", numa=1))
    asked = claim(request("r0", 2, "attr:numa=1"), request("r1", 0, "attr:numa=1"))
    problem = world(slices, asked, held=[holding("b")])
    assert picked(problem) == ["r0=a", "r0=c"]


# --- all ---


@pytest.mark.req("K4816-028")
def test_all_takes_every_matching_device():
    slices = published(device("a", x=1), device("b", x=0), device("c", x=1))
    assert picked(world(slices, claim(request("r", "All", "attr:x=1")))) == ["r=a", "r=c"]


@pytest.mark.req("K4816-028")
@pytest.mark.parametrize(("admin", "found"), [(None, None), (True, ["r=a", "r=b", "r=c"])])
def test_all_fails_when_one_is_in_use_unless_by_an_admin(admin, found):
    problem = world(ABC, claim(request("r", "All", admin_access=admin)), held=[holding("b")])
    assert picked(problem) == found
    if not found:
        assert refusals(problem)["b"].reason is RefusalReason.IN_USE


UNUSABLE = {
    "tainted": (published(device("a"), device("b", taints=TAINT)), RefusalReason.TAINTED),
    "bound in two ways": (
        published(
            device("a", all_nodes=True),
            device("b", node_selector=labelled({"zone": "z1"}, {"zone": "z2"})),
            per_device_node_selection=True,
        ),
        RefusalReason.NODE_SELECTOR,
    ),
}


@pytest.mark.parametrize("case", UNUSABLE)
def test_all_cannot_do_without_a_device_that_must_not_be_taken(case):
    slices, reason = UNUSABLE[case]
    here = [node("n1", zone="z1")]
    problem = world(slices, claim(request("r", "All")), nodes=here)
    assert picked(problem) is None
    assert refusals(problem)["b"].reason is reason
    assert picked(world(slices, claim(request("r")), nodes=here)) == ["r=a"]


def test_all_of_nothing_is_not_enough():
    problem = world(ABC, claim(request("r", "All", "never")))
    assert picked(problem) is None
    assert [short.reason for short in shortages(problem)] == [RefusalReason.NOTHING_MATCHES]


def test_an_all_alternative_that_is_never_reached_is_not_evaluated():
    """Kubernetes evaluates every alternative beforehand and aborts; see decision 0022."""
    asked = claim(first_of("r", ("one", asking()), ("all", asking("All", "fails"))))
    assert picked(world(ABC, asked)) == ["r/one=a"]
    assert isinstance(ending(world(ABC, asked, held=[holding("a", "b", "c")])), Faulted)


def test_a_constraint_that_all_devices_cannot_meet_fails_that_alternative_only():
    slices = published(device("a", numa=0), device("b", numa=1))
    asked = claim(first_of("r", ("all", asking("All")), ("one", asking())), match("gpu.example/numa"))
    assert picked(world(slices, asked)) == ["r/one=a"]


def test_all_after_a_step_back_still_means_all():
    slices = published(device("a", numa=1), device("b", numa=0), device("c", numa=1))
    asked = claim(request("r0"), request("r1", "All", "attr:numa=1"))
    assert picked(world(slices, asked)) == ["r0=b", "r1=a", "r1=c"]


# --- admin access ---


@pytest.mark.req("K4816-031")
def test_admin_access_ignores_who_has_a_device():
    asked = claim(request("r", admin_access=True))
    assert picked(world(published(device("a")), asked, held=[holding("a")])) == ["r=a"]


@pytest.mark.req("K4816-031")
def test_admin_access_needs_no_counters_and_uses_none_up():
    slices = partitioned(budget(slots=1), *devices("a", "b", consumes_counters=(draws(slots=1),)))
    look, use = request("look", admin_access=True), request("use")
    assert picked(world(slices, claim(look), held=[holding("b")])) == ["look=a"]
    assert picked(world(slices, claim(look, use))) == ["look=a", "use=b"]


def test_an_admin_share_does_not_pay_the_counters_of_a_device():
    """The share an administrator has draws no counters, so the first ordinary share must."""
    many: dict[str, Any] = {
        "shared": True,
        "capacity": {"mem": capacity(9, policy(1))},
        "consumes_counters": (draws(slots=2),),
    }
    slices = partitioned(
        budget(slots=2), device("a", **many), device("b", consumes_counters=(draws(slots=1),))
    )
    asked = claim(
        request("look", 1, "shared", admin_access=True),
        request("use", 1, "shared"),
        request("other", 1, "single"),
    )
    assert picked(world(slices, asked)) is None


def test_admin_access_does_not_take_a_device_of_its_own_claim():
    two = claim(request("r0", admin_access=True), request("r1", admin_access=True))
    assert picked(world(published(device("a")), two)) is None
    apart = [claim(request("r", admin_access=True), name=name) for name in ("c0", "c1")]
    assert picked(world(published(device("a")), *apart)) == ["r=a", "r=a"]


def test_admin_access_needs_tolerations():
    slices = published(device("a", taints=TAINT), device("b"))
    assert picked(world(slices, claim(request("r", admin_access=True)))) == ["r=b"]


def test_what_an_admin_took_in_this_attempt_is_taken():
    look = claim(request("r", admin_access=True), name="look")
    use = claim(request("r"), name="use")
    assert picked(world(published(device("a")), look, use)) is None
    assert picked(world(published(device("a")), use, look)) == ["r=a", "r=a"]


# --- limits, budget, faults ---


def test_a_claim_holds_32_devices_and_no_more():
    many = published(*devices(*[f"d{i:02}" for i in range(33)]))
    assert len(picked(world(many, claim(request("r", 32)))) or ()) == 32
    problem = world(many, claim(request("r", "All")))
    assert picked(problem) is None
    assert [short.reason for short in shortages(problem)] == [RefusalReason.TOO_MANY_DEVICES]


def test_the_limit_is_each_claims_own():
    many = published(*devices(*[f"d{i:02}" for i in range(40)]))
    asked = [claim(request("r", 20), name=name) for name in ("c0", "c1")]
    assert len(picked(world(many, *asked)) or ()) == 40


@pytest.mark.req("K4816-123")
def test_running_out_of_budget_is_not_an_answer():
    bench = Bench(world(ABC, claim(request("r", 3))))
    assert isinstance(list(search(bench.ask, bench.view.shape, 2))[-1], GaveUp)
    assert isinstance(list(search(bench.ask, bench.view.shape, 3))[-1], Solved)


def test_a_faulty_device_ends_the_search_when_it_is_reached():
    slices = published(device("a", numa=1), device("b"), device("c", numa=1))
    found = ending(world(slices, claim(request("r", 2, "attr:numa=1"))))
    assert isinstance(found, Faulted)
    assert (found.candidate, found.refusal.reason) == (1, RefusalReason.BROKEN_SELECTOR)
    assert found.refusal.detail == ("attr:numa=1", "no such key: numa")
    assert picked(world(slices, claim(request("r", 1, "attr:numa=1")))) == ["r=a"]
    assert picked(world(slices, claim(request("r", 2, "attr:numa=1")), held=[holding("b")])) == ["r=a", "r=c"]


# --- memory ---


def crossed(requests, alternatives):
    """Devices of two kinds that draw from two counters crosswise: any mix is short of one of them by one."""
    first = devices(*[f"a{i}" for i in range(requests)], consumes_counters=(draws(x=3, y=1),))
    second = devices(*[f"b{i}" for i in range(requests)], consumes_counters=(draws(x=1, y=3),))
    left = 2 * requests - 1
    ways = [(f"s{i}", asking()) for i in range(alternatives)]
    asked = claim(*[first_of(f"r{i}", *ways) for i in range(requests)])
    return world(partitioned(budget(x=left, y=left), *first, *second), asked)


@pytest.mark.parametrize("alternatives", [1, 2, 3, 8])
def test_a_place_seen_to_fail_is_not_entered_by_another_alternative(alternatives):
    found = ending(crossed(9, alternatives))
    assert isinstance(found, Exhausted)
    assert found.steps < 150 * alternatives
