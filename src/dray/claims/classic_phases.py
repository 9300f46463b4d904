"""Phases of classic claims (KEP-3063): which transitions are allowed, and who writes which fields.

The driver's controller allocates and frees, the scheduler asks for it to be freed. Every other transition is
refused, so that an error of one side shows at once and does not lose a device. Of the negotiation each side
writes its own part; a driver may end it, and may unset the node that was selected when it failed there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from dray.api.classic import ClassicResourceClaim, SchedulerSchedulingStatus
from dray.api.classic.resource_claim import ALLOCATED, IMMEDIATE, PENDING, REALLOCATE


class ClassicWriter(StrEnum):
    """Who writes the status of a classic claim."""

    DRIVER = "the driver"
    SCHEDULER = "the scheduler"


@dataclass(frozen=True, slots=True)
class PhaseTransition:
    """One allowed transition; some only for a claim that is being deleted."""

    before: str
    after: str
    by: ClassicWriter
    when: str
    deleting_only: bool = False


TRANSITIONS: Final[tuple[PhaseTransition, ...]] = (
    PhaseTransition(PENDING, ALLOCATED, ClassicWriter.DRIVER, "the resource is allocated"),
    PhaseTransition(
        ALLOCATED,
        REALLOCATE,
        ClassicWriter.SCHEDULER,
        "nobody uses it, and it keeps a pod from fitting anywhere",
    ),
    PhaseTransition(REALLOCATE, PENDING, ClassicWriter.DRIVER, "the resource is free again"),
    PhaseTransition(
        ALLOCATED,
        PENDING,
        ClassicWriter.DRIVER,
        "the claim is being deleted, nobody uses it, and the resource is free again",
        deleting_only=True,
    ),
)


def find_transition(
    before: str, after: str, by: ClassicWriter, *, deleting: bool = False
) -> PhaseTransition | None:
    """The row that allows a transition; None when none does. Staying in a phase is no transition."""
    rows = (row for row in TRANSITIONS if deleting or not row.deleting_only)
    return next((row for row in rows if (row.before, row.after, row.by) == (before, after, by)), None)


def is_transition_allowed(before: str, after: str, by: ClassicWriter, *, deleting: bool = False) -> bool:
    return before == after or find_transition(before, after, by, deleting=deleting) is not None


def explain_refused_transition(before: str, after: str, by: ClassicWriter) -> str:
    """Why a transition is not allowed, with the allowed ones."""
    allowed = [row for row in TRANSITIONS if row.before == before]
    ways = "; ".join(f"{row.by} may move it to {row.after} when {row.when}" for row in allowed) or "it stays"
    return f"{by} may not move a claim from {before} to {after}: {ways}"


def find_driver_violations(new: ClassicResourceClaim, old: ClassicResourceClaim) -> Iterator[str]:
    """The violations in a change of the status by a driver, as text."""
    before, after = old.status.phase or PENDING, new.status.phase or PENDING
    leaving = new.metadata.deletion_timestamp is not None
    if not is_transition_allowed(before, after, ClassicWriter.DRIVER, deleting=leaving):
        yield explain_refused_transition(before, after, ClassicWriter.DRIVER)
    if new.status.reserved_for != old.status.reserved_for:
        yield "status.reservedFor is written by the scheduler and the controller"
    reported, was = _get_scheduler_status(new), _get_scheduler_status(old)
    if reported.potential_nodes not in (was.potential_nodes, ()):
        yield "status.scheduling.scheduler.potentialNodes is written by the scheduler"
    theirs = reported.selected_node in (was.selected_node, "") or new.spec.allocation_mode == IMMEDIATE
    if not theirs:
        yield "status.scheduling.scheduler.selectedNode is written by the scheduler, unless to unset it"


def _get_scheduler_status(claim: ClassicResourceClaim) -> SchedulerSchedulingStatus:
    scheduling = claim.status.scheduling
    return SchedulerSchedulingStatus() if scheduling is None else scheduling.scheduler
