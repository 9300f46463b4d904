"""Makes a schedule that violates something smaller, as long as it violates the same."""

from __future__ import annotations

from tests.faults.simulated.run import Outcome, run_schedule
from tests.faults.simulated.schedule import Schedule


def shrink(schedule: Schedule) -> tuple[Schedule, Outcome]:
    """Leave out parts of a schedule, large ones first; return what is left and its outcome."""
    outcome = run_schedule(schedule)
    if not outcome.violations:
        return schedule, outcome
    wanted = _classify(outcome)
    size = max(1, len(schedule.steps) // 2)
    while True:
        smaller = _leave_out(schedule, size, wanted)
        if smaller is not None:
            schedule, outcome = smaller
        elif size == 1:
            return schedule, outcome
        else:
            size //= 2


def _leave_out(schedule: Schedule, size: int, wanted: str) -> tuple[Schedule, Outcome] | None:
    """Leave out one part of a size so that the violation stays; None when there is no such part."""
    for start in range(0, len(schedule.steps), size):
        smaller = schedule.without(range(start, start + size))
        outcome = run_schedule(smaller)
        if outcome.violations and _classify(outcome) == wanted:
            return smaller, outcome
    return None


def _classify(outcome: Outcome) -> str:
    """Return the kind of a violation: its words without names and numbers."""
    words = outcome.violations[0].split()
    return " ".join(word for word in words if word.isalpha())
