"""Counter checks: overlapping devices draw from counters that their pool shares among them.

A counter is charged once per device, not once per share. The search refuses every device that consumes
counters of a pool with an overdrawn counter, as Kubernetes does: what is left in that pool is unknown.
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
    """Refuse a device for which a counter has too little left."""
    draws = solution.counter_draws
    for counter_set, name, amount in consumes:
        rest = left[counter_set, name] - draws.get((pool, counter_set, name), 0)
        if amount > rest:
            return Refusal(RefusalReason.COUNTER_SHORT, Shortage(f"{counter_set}/{name}", amount, rest))
    return None


def take(solution: PartialSolution, pool: int, consumes: CounterConsumption) -> None:
    """Charge the counters of a pool."""
    draws = solution.counter_draws
    for counter_set, name, amount in consumes:
        key = (pool, counter_set, name)
        solution.assign(draws, key, draws.get(key, 0) + amount)
