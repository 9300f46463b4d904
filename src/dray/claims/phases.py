"""The phases of a classic claim (KEP-3063): who may move it from where to where, as a table.

The driver's controller allocates and frees, the scheduler asks for it to be freed. Everything else is
refused, so that a mistake of one side shows at once and does not lose a device.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from dray.api.classic.resourceclaim import ALLOCATED, PENDING, REALLOCATE


class Side(StrEnum):
    """Who writes the status of a classic claim."""

    DRIVER = "the driver"
    SCHEDULER = "the scheduler"


@dataclass(frozen=True, slots=True)
class Step:
    """One move that is allowed."""

    before: str
    after: str
    by: Side
    when: str


STEPS: Final[tuple[Step, ...]] = (
    Step(PENDING, ALLOCATED, Side.DRIVER, "the resource is allocated"),
    Step(ALLOCATED, REALLOCATE, Side.SCHEDULER, "nobody uses it, and it keeps a pod from fitting anywhere"),
    Step(
        ALLOCATED, PENDING, Side.DRIVER, "the claim is deleted, or the resource was lost, and nobody uses it"
    ),
    Step(REALLOCATE, PENDING, Side.DRIVER, "the resource is free again"),
)


def step(before: str, after: str, by: Side) -> Step | None:
    """The row that allows a move; None when nothing does. To stay is always allowed and no move."""
    return next((row for row in STEPS if (row.before, row.after, row.by) == (before, after, by)), None)


def may_move(before: str, after: str, by: Side) -> bool:
    return before == after or step(before, after, by) is not None


def refusal(before: str, after: str, by: Side) -> str:
    """Why a move is not allowed, with the ones that are."""
    allowed = [row for row in STEPS if row.before == before]
    ways = "; ".join(f"{row.by} may move it to {row.after} when {row.when}" for row in allowed) or "it stays"
    return f"{by} may not move a claim from {before} to {after}: {ways}"
