"""Problems that the fuzzer for slowness found: they come to an end, in about the steps they took then."""

from __future__ import annotations

import json
from random import Random

import pytest

from dray.allocator.search.trace import Exhausted, Solved
from tests.fuzz_slow.__main__ import CASES
from tests.fuzz_slow.climb import measure, walk
from tests.fuzz_slow.recipes import FAMILIES, build, draw_recipe, mutate, read_recipe

KEPT = json.loads(CASES.read_text())
SLACK = 3
"""How many times the steps on record a search may take before it counts as slower than it was."""


@pytest.mark.parametrize("case", KEPT, ids=[f"{case['family']}-{n}" for n, case in enumerate(KEPT)])
def test_a_slow_problem_stays_as_quick_as_it_is(case):
    most = SLACK * case["steps"] + 1_000
    steps, event = 0, None
    for event in walk(build(read_recipe(case))):
        steps = getattr(event, "steps", steps)
        assert steps <= most
    assert isinstance(event, Solved | Exhausted)
    assert type(event).__name__ == case["ending"]


def test_every_family_is_kept():
    assert {case["family"] for case in KEPT} == set(FAMILIES)


def test_a_recipe_makes_the_same_problem_again():
    recipe = draw_recipe(Random("recipe"))
    assert build(recipe).text() == build(recipe).text()
    assert measure(recipe, cut=0.2).steps == measure(recipe, cut=0.2).steps


def test_a_mutation_changes_a_little_and_keeps_the_ranges():
    source = Random("mutation")
    recipe = draw_recipe(source)
    changed = 0
    for _ in range(50):
        other = mutate(recipe, source)
        changed += other != recipe
        recipe = other
        for name, gene in FAMILIES[recipe.family].genes.items():
            assert gene.least <= len(recipe.genes[name]) <= gene.most
            assert all(gene.low <= value <= gene.high for value in recipe.genes[name])
    assert changed > 25
