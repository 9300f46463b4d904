"""Climbing: from a recipe to a neighbour whose problem takes the search longer, until none is found.

Work is counted in steps of the search (states of questions included), so that a run repeats itself on any
machine; the time of the processor stands beside it. A search is cut off after `CUT` seconds: what is longer
is as bad as it gets.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from random import Random
from typing import NamedTuple

from dray.allocator.inventory.device_inventory import DeviceInventory
from dray.allocator.inventory.usage import DeviceUsage
from dray.allocator.requests import normalize_claims
from dray.allocator.search.backtracking import search
from dray.allocator.search.trace import GaveUp, SearchProgress, TraceEvent
from dray.errors import UnanswerableClaimError
from tests.brute.problem import Problem
from tests.brute.toy_selectors import evaluate_toy
from tests.fuzz_slow.recipes import Recipe, build, draw_recipe, mutate

CUT = 2.0
"""Seconds of processor time after which a search is left alone."""
TRIES = 40
"""Neighbours that are tried before a climb counts as finished."""


class Measured(NamedTuple):
    """What a search took."""

    recipe: Recipe
    ending: str
    steps: int
    milliseconds: float

    @property
    def badness(self) -> float:
        """Steps, or more than any steps when the search had to be cut off."""
        return float("inf") if self.ending == GaveUp.__name__ else self.steps


def measure(recipe: Recipe, cut: float = CUT) -> Measured:
    """Run the search of a recipe's problem, by the time of the processor."""
    began = time.process_time()
    ending, steps = GaveUp.__name__, 0
    for event in walk(build(recipe)):
        steps = getattr(event, "steps", steps)
        ending = type(event).__name__
        if time.process_time() - began > cut:
            ending = GaveUp.__name__
            break
    return Measured(recipe, ending, steps, round((time.process_time() - began) * 1000, 1))


def walk(problem: Problem) -> Iterator[TraceEvent]:
    """The events of a problem's search."""
    yield SearchProgress(0)
    inventory = DeviceInventory(problem.slices, problem.classes, DeviceUsage(), evaluate_toy)
    try:
        ask = normalize_claims(problem.claims, inventory.classes.get)
    except UnanswerableClaimError:  # asks for more than a claim can hold
        return
    yield from search(ask, inventory.get_node_view(problem.node).shape, 10**9)


def climb(source: Random, until: float, cut: float = CUT) -> Measured:
    """The worst problem that can be reached from a random one, as far as time allows."""
    best = measure(draw_recipe(source), cut)
    failed = 0
    while failed < TRIES and time.monotonic() < until and best.badness < float("inf"):
        found = measure(mutate(best.recipe, source), cut)
        if found.badness > best.badness:
            best, failed = found, 0
        else:
            failed += 1
    return best
