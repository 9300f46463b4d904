"""The allocator properties detect builds of the allocator that are broken on purpose."""

from __future__ import annotations

import pytest

import tests.brute.grouping_mutations
import tests.brute.pruning_mutations  # noqa: F401 # adds its mistakes to the table
from tests.brute.laws import LAWS, Answer, broken_laws, broken_on_large, plain_answer
from tests.brute.mutations import SABOTAGE, broken
from tests.brute.problem import Problem
from tests.brute.reference_search import TooLarge
from tests.brute.structured import draw_numbered, draw_packing

PROBLEMS = 3000
LARGER = 600
PACKED = 150
QUICK = (
    "agrees",
    "satisfies_the_verifier",
    "restores_the_partial_solution",
    "accounts_for_every_option",
    "nodes_do_not_mix",
)
"""The laws that are asked here; the others cost more than they catch."""


@pytest.fixture(scope="module")
def answered() -> list[tuple[Problem, Answer]]:
    """Problems with their plain answers, made with a sound build once for all mistakes."""
    found = []
    for number in range(PROBLEMS):
        problem = draw_numbered("default", number)
        try:
            found.append((problem, plain_answer(problem)))
        except TooLarge:
            continue
    return found


@pytest.fixture(scope="module")
def larger() -> list[Problem]:
    """Problems with a structure that are too large for the plain search: some mistakes show only there."""
    structured = [draw_numbered("default", number, large=True) for number in range(2, 3 * LARGER, 3)]
    return [draw_packing("default", number) for number in range(PACKED)] + structured


@pytest.mark.parametrize("name", SABOTAGE)
def test_a_mistake_is_caught(name, answered, larger):
    laws = {law: LAWS[law] for law in QUICK}
    with broken(name):
        assert any(broken_laws(problem, expected, laws) for problem, expected in answered) or any(
            broken_on_large(problem)[1] for problem in larger
        )


def test_without_a_mistake_nothing_is_caught(answered):
    laws = {law: LAWS[law] for law in QUICK}
    assert not any(broken_laws(problem, expected, laws) for problem, expected in answered[:300])
