"""Percentiles of the processor time of one operation, each time on values that were never seen."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from typing import NamedTuple

from bench.scheduler.figures import percentile

Work = Callable[[], object]


class Figure(NamedTuple):
    """A measured value, and of what."""

    what: str
    value: float
    unit: str


def measure_micros(build_work: Callable[[], Work], times: int) -> list[float]:
    """Measure work so many times, in microseconds of the processor; other programs do not count then.

    What the work needs is built anew each time, and not counted.
    """
    found = []
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        for _ in range(times):
            work = build_work()
            begun = time.thread_time()
            work()
            found.append((time.thread_time() - begun) * 1e6)
    finally:
        gc.enable()
        gc.unfreeze()
    return found


def spread(what: str, values: list[float], unit: str = "µs") -> list[Figure]:
    """The median and the 99th percentile."""
    return [
        Figure(f"{what}, p50", percentile(values, 0.5), unit),
        Figure(f"{what}, p99", percentile(values, 0.99), unit),
    ]
