"""Which candidates suit a want, found out only as far as anybody asked."""

from __future__ import annotations

import pytest

from dray.allocator.allocate import SuccessfulAllocation, allocate
from dray.allocator.inventory.device_inventory import DeviceInventory
from dray.allocator.inventory.usage import DeviceUsage
from dray.allocator.refusals import RefusalReason
from dray.allocator.requests import normalize_claims
from dray.allocator.search import candidates
from dray.allocator.search.candidates import NOT_EVALUATED, get_candidate_set
from dray.allocator.search.trace import Solved
from dray.api.resource import DeviceTaint
from tests.brute.builders import claim, device, device_class, holding, node, published, request
from tests.brute.laws import share_ids
from tests.brute.toy_selectors import ToyEvaluator

SLICES = published(*[device(f"d{i}", numa=i) for i in range(5)])


def asked_about(claims, held=(), slices=SLICES):
    """The devices a judge was asked about while an allocation was found."""
    evaluator = ToyEvaluator()
    inventory = DeviceInventory(
        [slices], [device_class("any", "any")], DeviceUsage.from_claims(held), evaluator
    )
    found = allocate(inventory, claims, node(), new_share_id=share_ids())
    assert isinstance(found, SuccessfulAllocation)
    assert isinstance(found.ending, Solved)
    return evaluator.asked


def test_devices_after_the_first_match_are_not_evaluated():
    assert asked_about([claim(request("r"))]) == [("any", "d0")]
    assert asked_about([claim(request("r", 2))]) == [("any", "d0"), ("any", "d1")]


def test_selectors_after_a_false_one_are_not_evaluated():
    found = asked_about([claim(request("r", 1, "attr:numa=1", "single"))])
    assert found == [
        ("any", "d0"),
        ("attr:numa=1", "d0"),
        ("any", "d1"),
        ("attr:numa=1", "d1"),
        ("single", "d1"),
    ]


def test_a_device_is_evaluated_once_for_equal_alternatives():
    found = asked_about([claim(request("r0"), request("r1"), name="c0"), claim(request("r2"), name="c1")])
    assert found == [("any", "d0"), ("any", "d1"), ("any", "d2")]


def test_all_must_know_everything():
    found = asked_about([claim(request("r", "All", "attr:numa=1"))])
    assert {name for _, name in found} == {"d0", "d1", "d2", "d3", "d4"}


def test_an_error_on_a_device_that_is_never_reached_does_not_count():
    slices = published(device("a", numa=1), device("b"))
    assert asked_about([claim(request("r", 1, "attr:numa=1"))], slices=slices)[-1] == ("attr:numa=1", "a")
    first_taken = published(device("b"), device("a", numa=1))
    asked_about([claim(request("r", 1, "attr:numa=1"))], held=[holding("b")], slices=first_taken)


@pytest.fixture
def shape():
    tainted = device("t", numa=1, taints=(DeviceTaint(key="hot", effect="NoSchedule"),))
    slices = published(device("a", numa=1), device("b", numa=0), tainted, device("c"))
    return DeviceInventory([slices], [], DeviceUsage(), ToyEvaluator()).get_node_view(node()).shape


def alternative(expression):
    asked = normalize_claims([claim(request("r", 1, expression))], {"any": device_class("any")}.get)
    return asked.choices[0].alternatives[0]


def test_options_are_masks_with_reasons(shape):
    candidate_set = get_candidate_set(shape, alternative("attr:numa=1"))
    assert candidate_set.frontier == 0
    assert candidate_set.evaluate_all() == 0b0001
    assert candidate_set.matching == 0b0101
    assert candidate_set.faulty == 0b1000
    assert {i: refusal.reason for i, refusal in candidate_set.refusals.items()} == {
        1: RefusalReason.UNSUITED,
        2: RefusalReason.TAINTED,
        3: RefusalReason.BROKEN_SELECTOR,
    }


@pytest.mark.parametrize("judged_before", [0, 4])
def test_the_first_candidate_does_not_depend_on_earlier_evaluations(shape, judged_before):
    candidate_set = get_candidate_set(shape, alternative("attr:numa=1"))
    for _ in range(judged_before):
        candidate_set.evaluate_all()
    assert candidate_set.find_first(0, 0, 99) == 0
    assert candidate_set.find_first(1, 0, 99) == 3
    assert candidate_set.find_first(0, 0b0001, 99) == 3
    assert candidate_set.find_first(0, 0b1001, 99) == -1


def test_a_search_for_the_first_candidate_can_be_interrupted(shape):
    candidate_set = get_candidate_set(shape, alternative("attr:numa=1"))
    assert candidate_set.find_first(1, 0, 2) == NOT_EVALUATED
    assert candidate_set.find_first(1, 0, 2) == 3


def test_equal_alternatives_share_their_candidate_set(shape):
    assert get_candidate_set(shape, alternative("any")) is get_candidate_set(shape, alternative("any"))
    assert get_candidate_set(shape, alternative("any")) is not get_candidate_set(shape, alternative("single"))


def test_a_shape_keeps_a_bounded_number_of_candidate_sets(shape, monkeypatch):
    monkeypatch.setattr(candidates.CANDIDATE_SETS, "max_entries", 2)
    kept = get_candidate_set(shape, alternative("single"))
    for expression in ("any", "attr?:numa=0", "attr?:numa=1", "shared"):
        get_candidate_set(shape, alternative(expression))
        assert len(shape.candidate_sets) <= 2
    assert get_candidate_set(shape, alternative("single")).evaluate_all() == kept.evaluate_all() == 0b1011
