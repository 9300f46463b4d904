"""The verifier accepts what the search finds, and detects every forgery of it."""

from __future__ import annotations

from random import Random

import pytest

from dray.allocator.verify import AllocationRule, verify
from tests.brute.forgery import FORGERIES, Case
from tests.brute.generators import draw
from tests.brute.laws import given, limited, results_of
from tests.brute.spoiling import SPOILINGS

PROBLEMS = 1200
EVERY = {**FORGERIES, **SPOILINGS}


@pytest.fixture(scope="module")
def sound() -> list[Case]:
    """Problems that have a solution, with it."""
    found = []
    for number in range(PROBLEMS):
        problem = draw(Random(f"referee/{number}"))
        with limited(problem.limit):
            results = results_of(problem)
        if results:
            found.append(Case(problem, results))
    assert len(found) > PROBLEMS / 5
    return found


def findings(case: Case):
    return verify(given(case.problem), case.problem.claims, case.results)


def test_every_solution_is_accepted(sound):
    for case in sound:
        assert findings(case) == (), case.problem.text()


@pytest.mark.parametrize("name", EVERY)
def test_a_forgery_is_detected(name, sound):
    forgery, rules = EVERY[name]
    noticed = 0
    for case in sound:
        forged = forgery(case)
        if forged is None:
            continue
        found = {finding.rule for finding in findings(forged)}
        assert found & rules, f"found {found} in\n{forged.problem.text()}\n{forged.results}"
        noticed += 1
    assert noticed > 2, "this forgery never applies"


def test_more_devices_than_a_claim_may_have_are_detected(sound):
    case = next(case for case in sound if len(case.results[0].devices.results) > 1)
    with limited(1):
        assert AllocationRule.LIMIT in {finding.rule for finding in findings(case)}


def test_every_rule_has_a_forgery():
    assert frozenset().union(*(rules for _, rules in EVERY.values())) | {AllocationRule.LIMIT} == frozenset(
        AllocationRule
    )


def test_a_finding_is_a_sentence_about_a_claim(sound):
    case = next(case for case in sound if case.results[0].devices.results)
    forged = FORGERIES["a_device_is_made_up"][0](case)
    assert forged is not None
    first = next(finding for finding in findings(forged) if finding.rule is AllocationRule.DEVICE)
    assert str(first).startswith("claim ml/c0: device ")
    assert str(first).endswith("cannot be used: the node does not see it")
