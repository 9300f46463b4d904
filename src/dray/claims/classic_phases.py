"""The phases of a classic claim (KEP-3063): who may move it from where to where, and who writes what.

The driver's controller allocates and frees, the scheduler asks for it to be freed. Everything else is
refused, so that a mistake of one side shows at once and does not lose a device. Of the negotiation each side
writes its own part; a driver may end it, and may unset the node that was selected when it failed there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from dray.api.classic import ClassicClaim, SchedulerSchedulingStatus
from dray.api.classic.resource_claim import ALLOCATED, IMMEDIATE, PENDING, REALLOCATE


class Side(StrEnum):
    """Who writes the status of a classic claim."""

    DRIVER = "the driver"
    SCHEDULER = "the scheduler"


@dataclass(frozen=True, slots=True)
class Step:
    """One move that is allowed; some only for a claim that is being deleted."""

    before: str
    after: str
    by: Side
    when: str
    leaving: bool = False


STEPS: Final[tuple[Step, ...]] = (
    Step(PENDING, ALLOCATED, Side.DRIVER, "the resource is allocated"),
    Step(ALLOCATED, REALLOCATE, Side.SCHEDULER, "nobody uses it, and it keeps a pod from fitting anywhere"),
    Step(REALLOCATE, PENDING, Side.DRIVER, "the resource is free again"),
    Step(
        ALLOCATED,
        PENDING,
        Side.DRIVER,
        "the claim is being deleted, nobody uses it, and the resource is free again",
        leaving=True,
    ),
)


def step(before: str, after: str, by: Side, *, leaving: bool = False) -> Step | None:
    """The row that allows a move; None when nothing does. To stay is always allowed and no move."""
    rows = (row for row in STEPS if leaving or not row.leaving)
    return next((row for row in rows if (row.before, row.after, row.by) == (before, after, by)), None)


def may_move(before: str, after: str, by: Side, *, leaving: bool = False) -> bool:
    return before == after or step(before, after, by, leaving=leaving) is not None


def refusal(before: str, after: str, by: Side) -> str:
    """Why a move is not allowed, with the ones that are."""
    allowed = [row for row in STEPS if row.before == before]
    ways = "; ".join(f"{row.by} may move it to {row.after} when {row.when}" for row in allowed) or "it stays"
    return f"{by} may not move a claim from {before} to {after}: {ways}"


def beyond_driver(new: ClassicClaim, old: ClassicClaim) -> Iterator[str]:
    """What a change of the status does that is not for a driver to do, in words."""
    before, after = old.status.phase or PENDING, new.status.phase or PENDING
    leaving = new.metadata.deletion_timestamp is not None
    if not may_move(before, after, Side.DRIVER, leaving=leaving):
        yield refusal(before, after, Side.DRIVER)
    if new.status.reserved_for != old.status.reserved_for:
        yield "status.reservedFor is written by the scheduler and the controller"
    told, was = _offer(new), _offer(old)
    if told.potential_nodes not in (was.potential_nodes, ()):
        yield "status.scheduling.scheduler.potentialNodes is written by the scheduler"
    theirs = told.selected_node in (was.selected_node, "") or new.spec.allocation_mode == IMMEDIATE
    if not theirs:
        yield "status.scheduling.scheduler.selectedNode is written by the scheduler, unless to unset it"


def _offer(claim: ClassicClaim) -> SchedulerSchedulingStatus:
    scheduling = claim.status.scheduling
    return SchedulerSchedulingStatus() if scheduling is None else scheduling.scheduler
