"""The search agrees with the exhaustive search, and satisfies every other property, on random small problems.

The long run with 100,000 problems is `python -m tests.brute`.
"""

from __future__ import annotations

import pytest
from hypothesis import assume, given

from tests.brute.laws import LAWS, Bench, broken_laws, broken_on_large, limited, plain_answer
from tests.brute.reference_search import TooLarge
from tests.brute.structured import draw_numbered
from tests.effort import effort
from tests.property.strategies.problems import problems

SEED = "default"
CHUNK = 100
CHUNKS = 14


@pytest.mark.req("K4816-060", "K5075-003", "K5075-006", "K5075-007", "K5075-132", "K5491-032")
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_no_problem_breaks_a_law(chunk):
    answered = 0
    for number in range(chunk * CHUNK, (chunk + 1) * CHUNK):
        problem = draw_numbered(SEED, number)
        try:
            complaints = broken_laws(problem)
        except TooLarge:
            continue
        answered += 1
        assert not complaints, f"--seed {SEED} --only {number}:\n" + "\n".join(complaints)
    assert answered > CHUNK * 0.9


def test_pruning_changes_nothing_on_larger_problems_either():
    for number in range(400):
        outcome, complaints = broken_on_large(draw_numbered(SEED, number, large=True))
        assert not complaints, f"--large --seed {SEED} --only {number}: {outcome}\n" + "\n".join(complaints)


@pytest.mark.parametrize("law", LAWS)
@effort(1 / 3)
@given(problem=problems)
def test_the_law(law, problem):
    """Each law by itself, so that a broken one is named and its problem made small."""
    with limited(problem.limit):
        try:
            complaints = list(LAWS[law](Bench(problem)))
        except TooLarge:
            assume(False)
        assert not complaints, f"{problem.text()}\n" + "\n".join(complaints)


def test_the_problems_are_worth_solving():
    """Many have solutions, many have none, some cannot be judged: the laws do not hold for want of cases."""
    outcomes: dict[str, int] = {}
    steps_back = 0
    for number in range(600):
        problem = draw_numbered(SEED, number)
        kind = plain_answer(problem)[0]
        outcomes[kind] = outcomes.get(kind, 0) + 1
        with limited(problem.limit):
            events = Bench(problem, (kind,)).events()
        steps_back += kind == "solved" and any(type(event).__name__ == "DeadEnd" for event in events)
    assert outcomes["solved"] > 100
    assert outcomes["none"] > 100
    assert outcomes["fault"] > 2
    assert outcomes["claim fault"] > 0
    assert steps_back > 15
