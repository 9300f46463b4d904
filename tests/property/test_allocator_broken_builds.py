"""A build of the allocator that is broken on purpose is caught by the laws."""

from __future__ import annotations

from random import Random

import pytest

from tests.brute.drawing import draw
from tests.brute.laws import LAWS, Answer, broken_laws, plain_answer
from tests.brute.plain import TooLarge
from tests.brute.problem import Problem
from tests.brute.sabotage import SABOTAGE, broken

PROBLEMS = 3000
QUICK = (
    "agrees",
    "satisfies_the_referee",
    "restores_the_board",
    "accounts_for_every_option",
    "nodes_do_not_mix",
)
"""The laws that are asked here; the others cost more than they catch."""


@pytest.fixture(scope="module")
def answered() -> list[tuple[Problem, Answer]]:
    """Problems with their plain answers, made with a sound build once for all mistakes."""
    found = []
    for number in range(PROBLEMS):
        problem = draw(Random(f"house/{number}"))
        try:
            found.append((problem, plain_answer(problem)))
        except TooLarge:
            continue
    return found


@pytest.mark.parametrize("name", SABOTAGE)
def test_a_mistake_is_caught(name, answered):
    laws = {law: LAWS[law] for law in QUICK}
    with broken(name):
        assert any(broken_laws(problem, expected, laws) for problem, expected in answered)


def test_without_a_mistake_nothing_is_caught(answered):
    laws = {law: LAWS[law] for law in QUICK}
    assert not any(broken_laws(problem, expected, laws) for problem, expected in answered[:300])
