"""Faults that are planted into the program, to see that the checks find them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from tests.faults.simulated.campaign import run_campaign

PLANTED_FAULTS: Final[Mapping[str, Callable[[], None]]] = {}


@dataclass(frozen=True)
class Discovery:
    """After how many schedules a planted fault was found, and by which check."""

    schedules: int
    violation: str = ""

    def __str__(self) -> str:
        if not self.schedules:
            return "not found"
        return f"found by schedule {self.schedules}: {self.violation}"


def count_until_found(name: str, most: int, jobs: int = 1) -> Discovery:
    """Run schedules with a planted fault until one violates something."""
    count = 0
    for outcome in run_campaign(range(most), jobs, PLANTED_FAULTS[name], stop_early=True):
        count += 1
        if outcome.violations:
            return Discovery(count, outcome.violations[0])
    return Discovery(0)
