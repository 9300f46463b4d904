"""What is measured at a check, and when a number of measurements means growth.

Theory of operation: a check is made when the work has stopped, everything it created is gone and garbage is
collected. Then counts (tasks, timers, threads, open files, stored objects) must be what they were at the
first checks. Memory is judged by its trend: the slope of allocated blocks over operations, in the second half
of the checks, when caches are full and events expire as fast as they are written. It is the median of the
slopes of all pairs of checks (Theil and Sen), which one odd measurement does not move.
"""

from __future__ import annotations

import functools
import gc
import os
import sys
import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, fields
from itertools import combinations
from pathlib import Path
from statistics import median
from typing import Final

from tests.simulated.cluster import SimulatedCluster
from tests.simulated.store import complete
from tests.support.living_objects import iterate_living_objects

MAX_BLOCKS_PER_THOUSAND: Final = 75.0
"""How many blocks of memory a thousand operations may leave behind; a block has some 100 bytes."""
MAX_RESIDENT_PER_THOUSAND: Final = 65_536.0
"""How many bytes of resident memory they may leave behind; that includes what fragmentation costs."""
SLACK: Final = {"tasks": 3, "timers": 60, "files": 2, "threads": 0, "rows": 0}
"""By how much a count at a check may be above that of the first checks: periodic work may be under way."""
_FIRST_CHECKS: Final = 3
_EVENTS: Final = b"/events/"


@dataclass(frozen=True)
class SoakSample:
    """What was measured at one check."""

    hours: float
    operations: int
    blocks: int
    resident: int
    tasks: int
    timers: int
    files: int
    threads: int
    rows: int
    """Stored objects other than events."""
    events: int
    history: int
    """Changes that the store has not compacted yet."""
    cached: int
    """Entries that all caches of functions had; they are cleared before memory is measured."""

    def __str__(self) -> str:
        return " ".join(
            f"{each.name}={getattr(self, each.name):.1f}"
            if each.name == "hours"
            else f"{each.name}={getattr(self, each.name)}"
            for each in fields(self)
        )


def take_sample(cluster: SimulatedCluster, hours: float, operations: int) -> SoakSample:
    """Measure a cluster that is at rest."""
    cached = clear_cached_functions()
    gc.collect()
    gc.collect()
    keys = [entry.key for entry in complete(cluster.store.contents.range(b"")).entries]
    events = sum(_EVENTS in key for key in keys)
    tasks = [
        task
        for process in cluster.loop._processes
        if process.alive
        for task in process.tasks
        if not task.done()
    ]
    timers = [handle for _, _, handle in cluster.loop._timers if not handle.done]
    return SoakSample(
        hours,
        operations,
        sys.getallocatedblocks(),
        _read_resident_bytes(),
        len(tasks),
        len(timers),
        len(os.listdir("/proc/self/fd")),
        threading.active_count(),
        len(keys) - events,
        events,
        len(cluster.store.contents._log),
        cached,
    )


def _read_resident_bytes() -> int:
    pages = Path("/proc/self/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def clear_cached_functions() -> int:
    """Clear every cache of a function of dray, and return how many entries there were.

    Each has a bound of its own, and what they hold would hide what leaks.
    """
    count = 0
    for each in gc.get_objects():
        if isinstance(each, functools._lru_cache_wrapper) and str(each.__module__).startswith("dray."):
            count += each.cache_info().currsize
            each.cache_clear()
    return count


@dataclass(frozen=True)
class GrowthLimits:
    """How much may be left behind by a thousand operations."""

    blocks: float = MAX_BLOCKS_PER_THOUSAND
    resident: float = MAX_RESIDENT_PER_THOUSAND


def find_growth(samples: Sequence[SoakSample], limits: GrowthLimits = GrowthLimits()) -> list[str]:  # noqa: B008
    """Return what has grown, in a sentence each; nothing when nothing has."""
    found = []
    for name, slack in SLACK.items():
        allowed = max(getattr(each, name) for each in samples[:_FIRST_CHECKS]) + slack
        later = [each for each in samples[_FIRST_CHECKS:] if getattr(each, name) > allowed]
        if len(later) > len(samples) // 10:
            highest = max(getattr(each, name) for each in later)
            found.append(f"{name}: {highest}, expected at most {allowed}, at {len(later)} checks")
    half = samples[len(samples) // 2 :]
    for name, allowed_slope in (("blocks", limits.blocks), ("resident", limits.resident)):
        slope = compute_slope(half, name)
        if slope > allowed_slope:
            found.append(f"{name}: {slope:+,.1f} per 1,000 operations, expected at most {allowed_slope:,.0f}")
    return found


def compute_slope(samples: Sequence[SoakSample], name: str) -> float:
    """The median slope of a measurement per thousand operations."""
    return median(
        (getattr(after, name) - getattr(before, name)) * 1000 / (after.operations - before.operations)
        for before, after in combinations(samples, 2)
        if after.operations > before.operations
    )


def count_types() -> Counter[str]:
    """Count the living objects by type: what has grown, when something has."""
    return Counter(f"{type(each).__module__}.{type(each).__qualname__}" for each in iterate_living_objects())
