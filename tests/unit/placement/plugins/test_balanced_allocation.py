"""How evenly pods fill nodes."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dray.placement.plugins.balanced_allocation import NodeResourcesBalancedAllocation, compute_balance
from tests.unit.placement.pods_and_nodes import asking, node, node_state, pre_filter_result, scores_of

PLUGIN = NodeResourcesBalancedAllocation()


def test_pods_that_ask_for_neither_have_no_say() -> None:
    assert pre_filter_result(PLUGIN, asking(), node()) is None
    assert pre_filter_result(PLUGIN, asking(cpu="0", gpu="1"), node()) is None


ROWS: list[tuple[dict[str, str], dict[str, str], dict[str, str], int]] = [
    # what the node has, what is taken, what is asked for, score
    ({"cpu": "4", "memory": "4"}, {}, {"cpu": "2", "memory": "2"}, 75),
    ({"cpu": "4", "memory": "4"}, {"cpu": "1", "memory": "3"}, {"cpu": "1", "memory": "1"}, 75),
    ({"cpu": "4", "memory": "4"}, {}, {"cpu": "4"}, 50),
    ({"cpu": "4", "memory": "4"}, {"cpu": "4"}, {"memory": "4"}, 100),
    ({"cpu": "4", "memory": "4"}, {"memory": "2"}, {"cpu": "2"}, 87),
    ({"cpu": "4", "memory": "4"}, {"memory": "2"}, {"memory": "1"}, 68),
    ({"cpu": "4", "memory": "4"}, {"cpu": "9", "memory": "4"}, {"cpu": "9"}, 75),
    ({"cpu": "4"}, {}, {"cpu": "4"}, 75),
    ({"memory": "4", "cpu": "0"}, {}, {"cpu": "4"}, 75),
]


@pytest.mark.parametrize(("given_", "used", "asked", "expected"), ROWS)
def test_the_score_is_what_the_pod_does_to_the_balance(
    given_: dict[str, str], used: dict[str, str], asked: dict[str, str], expected: int
) -> None:
    place = node_state(node(allocatable=given_), asking(**used))
    assert scores_of(PLUGIN, asking(**asked), [place]) == [expected]


TAKEN = st.integers(0, 12)
GIVEN = st.integers(1, 10)


@given(TAKEN, GIVEN, TAKEN, GIVEN)
def test_balance_is_one_less_the_deviation_of_both_parts(
    taken: int, given_: int, other: int, other_given: int
) -> None:
    parts = [min(Fraction(taken, given_), Fraction(1)), min(Fraction(other, other_given), Fraction(1))]
    mean = (parts[0] + parts[1]) / 2
    deviation = max(abs(part - mean) for part in parts)
    assert compute_balance(taken, given_, other, other_given) == math.floor((1 - deviation) * 100)


AMOUNTS = st.fixed_dictionaries({}, optional={"cpu": TAKEN.map(str), "memory": TAKEN.map(str)})


@given(AMOUNTS, AMOUNTS, st.integers(1, 12).map(str))
def test_scores_are_between_50_and_100(given_: dict[str, str], used: dict[str, str], cpu: str) -> None:
    place = node_state(node(allocatable=given_), asking(**used))
    [score] = scores_of(PLUGIN, asking(cpu=cpu), [place])
    assert 50 <= score <= 100
