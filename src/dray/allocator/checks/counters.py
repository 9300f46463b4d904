"""Shared counters: devices that overlap draw from one budget.

A counter is charged once per device, not once per share. A counter that is overdrawn already blocks every
device of its pool that consumes counters, as in Kubernetes: the pool's books do not add up.
"""

from __future__ import annotations

from collections.abc import Mapping

from dray.allocator.partial_solution import PartialSolution
from dray.allocator.refusals import Refusal, RefusalReason, Shortage

CounterConsumption = tuple[tuple[str, str, int], ...]
"""Counter set, counter, nanos."""


def check(
    solution: PartialSolution, pool: int, consumes: CounterConsumption, left: Mapping[tuple[str, str], int]
) -> Refusal | None:
    """Whether a counter does not have enough left."""
    for counter_set, name, amount in consumes:
        rest = left[counter_set, name] - solution.facts.get(("counter", pool, counter_set, name), 0)
        if amount > rest:
            return Refusal(RefusalReason.COUNTER_SHORT, Shortage(f"{counter_set}/{name}", amount, rest))
    return None


def take(solution: PartialSolution, pool: int, consumes: CounterConsumption) -> None:
    """Charge the counters."""
    for counter_set, name, amount in consumes:
        fact = ("counter", pool, counter_set, name)
        solution.set_fact(fact, solution.facts.get(fact, 0) + amount)
