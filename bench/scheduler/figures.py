"""Computes figures from the times at which pods were bound."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from bench.scheduler.calls import Calls
from bench.scheduler.counts import Counts

FEW = 3
"""With fewer samples than this the average over everything is told instead."""


@dataclass(frozen=True, slots=True)
class Figures:
    """What a run came to. Rates are pods per second, waits seconds from the create to the node."""

    pods: int
    seconds: float
    samples: tuple[float, ...]
    waits: tuple[float, ...]
    megabytes: float | None = None
    processor_seconds: float | None = None
    """Of the cluster's processes; None where they are not measured."""
    counts: Counts | None = None
    calls: Calls | None = None
    agents_processor_seconds: float | None = None
    """Of the process of the agents, where there is one."""
    trouble: str = ""

    @property
    def average(self) -> float:
        if len(self.samples) < FEW:
            return self.overall
        return sum(self.samples) / len(self.samples)

    @property
    def overall(self) -> float:
        return self.pods / self.seconds if self.seconds else 0.0

    def sample(self, share: float) -> float:
        return percentile(self.samples, share) if len(self.samples) >= FEW else self.overall

    def wait(self, share: float) -> float:
        return percentile(self.waits, share)

    @property
    def milliseconds_each(self) -> float | None:
        """What a pod costs the cluster's processor."""
        if self.processor_seconds is None:
            return None
        return self.processor_seconds / self.pods * 1000 if self.pods else 0.0


def percentile(values: Sequence[float], share: float) -> float:
    """As scheduler_perf has it: the value at the place in the ascending order, rounded up."""
    if not values:
        return math.nan
    ordered = sorted(values)
    return ordered[min(len(ordered), max(1, math.ceil(len(ordered) * share))) - 1]


def samples(moments: Sequence[float], begin: float, end: float, step: float = 1.0) -> tuple[float, ...]:
    """Newly scheduled pods per second, interval after interval.

    The first interval in which a pod was scheduled is left out. Empty intervals belong to the next that is
    not empty: they share its rate.
    """
    counts = [0] * max(0, int((end - begin) / step))
    for moment in moments:
        place = int((moment - begin) / step)
        if 0 <= place < len(counts):
            counts[place] += 1
    first = next((place for place, count in enumerate(counts) if count), len(counts))
    found: list[float] = []
    empty = 0
    for count in counts[first + 1 :]:
        empty += 1
        if count:
            found += [count / (empty * step)] * empty
            empty = 0
    return tuple(found)
