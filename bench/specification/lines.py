"""The table of lines: the id of each, its sentence, and what measures it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from bench.specification import clusters, searches
from bench.specification.timing import Figure


@dataclass(frozen=True, slots=True)
class Effort:
    """How much is measured: the repetitions of a search, of a sum over all claims, and the pods."""

    searches: int
    sums: int
    pods: int


SHORT, FULL = Effort(60, 3, 40), Effort(400, 15, 300)


@dataclass(frozen=True, slots=True)
class CostLine:
    """A line of the specification about cost."""

    id: str
    sentence: str
    measure: Callable[[Effort], Iterable[Figure]]


LINES: Final = (
    CostLine(
        "K4816-081",
        "A scheduler performance workload with firstAvailable exists and is tracked over time.",
        lambda effort: clusters.measure_workloads("FirstAvailable/"),
    ),
    CostLine(
        "K4816-122",
        "Slower scheduling with alternatives is measured, not guessed (p50/p99 per alternatives count 1..8).",
        lambda effort: searches.measure_alternatives(effort.searches),
    ),
    CostLine(
        "K5075-140",
        "Scheduler performance test extended with consumable capacity.",
        lambda effort: clusters.measure_workloads("ConsumableCapacity/half"),
    ),
    CostLine(
        "K5075-168",
        "Size estimates hold: ~10 B flag/device, 200-1100 B per policy, ~100 B per capacity, ~40 B share ID.",
        lambda effort: searches.measure_sizes(1),
    ),
    CostLine(
        "K5075-170",
        "Time to aggregate consumed capacity is measured (claims x devices sweep).",
        lambda effort: searches.measure_aggregation(effort.sums),
    ),
    CostLine(
        "K3063-182",
        "Extra watches cost next to nothing when the feature is unused (measure idle apiserver load and "
        "memory).",
        lambda effort: clusters.measure_idle(),
    ),
    CostLine(
        "K3063-183",
        "Start-up latency of pods without claims is unchanged within noise.",
        lambda effort: clusters.measure_plain_pods(effort.pods),
    ),
    CostLine(
        "K3063-184",
        "10-20 ResourceClasses per cluster; no limit imposed on claims; up to one or more claims per pod.",
        lambda effort: searches.measure_classes_and_claims(effort.searches),
    ),
    CostLine(
        "K5773-010",
        "Sorting cost in the allocator is measured against scheduling throughput.",
        lambda effort: searches.measure_sorting(effort.searches),
    ),
    CostLine(
        "K5773-030",
        "Performance impact checked with the scheduler performance tests.",
        lambda effort: clusters.measure_priorities(),
    ),
    CostLine(
        "K5491-031",
        "List lengths are bounded to limit scheduler cost; cost is measured.",
        lambda effort: searches.measure_lists(effort.searches),
    ),
    CostLine(
        "K5491-049",
        "Worst-case search complexity unchanged because constraints are monotonic.",
        lambda effort: searches.measure_worst_case(1),
    ),
)
