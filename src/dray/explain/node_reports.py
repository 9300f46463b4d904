"""Node reports: one per kind of node, with what was found, where the search ended, and what prevented the
rest.

A report combines the trace of a search (numbers and points) with the describer of a node (names). This module
also decides which of several nodes is *closest*: the one that satisfied most requests, then found most
devices for the next; then one whose devices can all be evaluated; then the one with a device that failed a
later rule, or came closer to a selector; then the one with fewer refusals; then the first by name.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from dray.allocator.refusals import POOL_REASONS, ConstraintConflict, Refusal, RefusalReason
from dray.allocator.requests import AllocationRequest, format_claim_name
from dray.allocator.search.trace import Exhausted, Faulted, GaveUp, Pick, SearchPoint, Solved
from dray.explain.diagnosis import (
    DeviceOutcome,
    FailedAttempt,
    FoundDevice,
    NodeOutcome,
    NodeReport,
    RefusalDetails,
)
from dray.explain.failed_conditions import format_values
from dray.explain.refusal_details import RefusalDescriber, describe_shortage, format_label
from dray.explain.search_trace import DeadEndRecord, SearchTrace
from dray.explain.work_budget import Steps, WorkBudget
from dray.values.quantity import Quantity, QuantityForm

_RANK = {reason: rank for rank, reason in enumerate(RefusalReason)}
_OUTCOMES = {
    Solved: NodeOutcome.FITS,
    Exhausted: NodeOutcome.REFUSED,
    GaveUp: NodeOutcome.GAVE_UP,
    Faulted: NodeOutcome.FAULTED,
}


class BlockedAlternative(msgspec.Struct, frozen=True, eq=False):
    """An alternative that could not be allocated, with refusals by candidate; remedies start from it."""

    dead_end: DeadEndRecord
    refusals: dict[int, Refusal | None]


class NodeEvidence(msgspec.Struct, frozen=True, eq=False):
    """A report, and the describer and refusals it was built from."""

    report: NodeReport
    describer: RefusalDescriber
    blocked: tuple[BlockedAlternative, ...]


def build_node_evidence(
    allocation_request: AllocationRequest,
    describer: RefusalDescriber,
    trace: SearchTrace,
    nodes: tuple[str, ...],
    work_budget: WorkBudget,
) -> Steps[NodeEvidence]:
    """Build the report of nodes that look alike, with the names of the first."""
    builder = _NodeReportBuilder(allocation_request, describer, trace, work_budget)
    ending = trace.ending
    fields: dict[str, Any] = {
        "nodes": nodes,
        "outcome": _OUTCOMES[type(ending)],
        "steps": ending.steps,
        "pools": describer.list_flaws(),
    }
    if isinstance(ending, Solved):
        found = yield from builder.describe_picks(ending.picks)
        fields |= {"found": found, "attempts": (yield from builder.describe_skipped(ending.picks))}
        return NodeEvidence(NodeReport(**fields), describer, ())
    if isinstance(ending, Faulted):
        fields |= builder.describe_fault(ending)
    elif isinstance(ending, GaveUp):
        fields |= _describe_give_up(ending)
    blocked = builder.list_blocked()
    if blocked:
        point = blocked[0].dead_end.point
        before = [p for p in blocked[0].dead_end.picks if p.point.choice.index < point.choice.index]
        attempts = []
        for entry in blocked:
            attempts.append((yield from builder.describe_attempt(entry)))
        fields |= {
            "found": (yield from builder.describe_picks(before, reasons=False)),
            "attempts": tuple(attempts),
            "untried": tuple(c.request_name for c in allocation_request.choices[point.choice.index + 1 :]),
        }
    return NodeEvidence(NodeReport(**fields), describer, blocked)


def _describe_give_up(ending: GaveUp) -> dict[str, Any]:
    return {
        "seconds": ending.seconds,
        "most_found": ending.found,
        "wanted": ending.wanted,
        "stuck_at": ending.stuck_at.alternative.name if ending.stuck_at is not None else "",
    }


class _NodeReportBuilder:
    """Builds the parts of one report."""

    def __init__(
        self,
        allocation_request: AllocationRequest,
        describer: RefusalDescriber,
        trace: SearchTrace,
        work_budget: WorkBudget,
    ) -> None:
        self._work_budget = work_budget
        self._allocation_request = allocation_request
        self._describer = describer
        self._trace = trace

    # --- found devices ---

    def describe_picks(
        self, picks: Sequence[Pick], *, reasons: bool = True
    ) -> Steps[tuple[FoundDevice, ...]]:
        """The devices that were found, with `reasons` each with the devices that were passed over."""
        found = []
        for i, pick in enumerate(picks):
            alternative = pick.point.alternative
            passed_over = (yield from self._describe_passed_over(picks[:i], pick)) if reasons else ()
            found.append(
                FoundDevice(
                    claim=self._get_claim_name(pick.point),
                    request=alternative.name,
                    label=format_label(pick.point),
                    device=self._describer.get_device_name(pick.candidate),
                    alternative=pick.point.choice.alternatives.index(alternative),
                    consumed=self._format_consumed(pick),
                    admin=alternative.admin,
                    every=alternative.takes_all,
                    passed_over=passed_over,
                )
            )
        return tuple(found)

    def _format_consumed(self, pick: Pick) -> dict[str, str]:
        capacity = self._describer.get_profile(pick.candidate).device.capacity
        forms = {
            name: one.value.form if one.value else QuantityForm.DECIMAL for name, one in capacity.items()
        }
        return {name: str(Quantity(nanos, forms[name])) for name, nanos in (pick.consumed or {}).items()}

    def _describe_passed_over(
        self, preceding_picks: Sequence[Pick], pick: Pick
    ) -> Steps[tuple[DeviceOutcome, ...]]:
        """The devices before a pick, and why each was passed over."""
        point = pick.point
        if point.alternative.takes_all:
            return ()
        own = [p.candidate for p in preceding_picks if p.point.choice is point.choice]
        position = (point.choice.index, point.device_index)
        causes = self._trace.undo_causes.get(position, {})
        reported = self._trace.refused.get(position, {})
        refusals: dict[int, Refusal | None] = {}
        for candidate, refusal in self._describer.list_refusals(point, preceding_picks, reported).items():
            if (own[-1] if own else -1) < candidate < pick.candidate:
                cause = causes.get((point.alternative, candidate))
                abandoned = refusal is not None and refusal.reason is RefusalReason.LEADS_NOWHERE
                refusals[candidate] = Refusal(RefusalReason.LEADS_NOWHERE, cause) if abandoned else refusal
        outcomes = yield from self._describer.describe_outcomes(
            point, preceding_picks, refusals, self._work_budget
        )
        return outcomes

    # --- failed alternatives ---

    def list_blocked(self) -> tuple[BlockedAlternative, ...]:
        """The alternatives at the furthest dead ends of the search."""
        return tuple(self._build_blocked(dead_end) for dead_end in self._trace.furthest)

    def _build_blocked(self, dead_end: DeadEndRecord) -> BlockedAlternative:
        refusals = self._describer.list_refusals(dead_end.point, dead_end.picks, dead_end.refused)
        examined = {
            candidate: refusal
            for candidate, refusal in refusals.items()
            if dead_end.examined_count is None or candidate < dead_end.examined_count
        }
        return BlockedAlternative(dead_end, examined)

    def describe_skipped(self, picks: Sequence[Pick]) -> Steps[tuple[FailedAttempt, ...]]:
        """The alternatives before those that were chosen."""
        chosen = {pick.point.choice.index: pick.point for pick in picks}
        attempts: list[FailedAttempt] = []
        for index, dead_ends in sorted(self._trace.skipped.items()):
            for dead_end in dead_ends if index in chosen else ():
                if _get_alternative_index(dead_end.point) < _get_alternative_index(chosen[index]):
                    attempts.append((yield from self.describe_attempt(self._build_blocked(dead_end))))
        return tuple(attempts)

    def describe_attempt(self, blocked: BlockedAlternative) -> Steps[FailedAttempt]:
        """A failed alternative with all details."""
        dead_end, describer = blocked.dead_end, self._describer
        point, alternative = dead_end.point, dead_end.point.alternative
        devices = yield from describer.describe_outcomes(
            point, dead_end.picks, blocked.refusals, self._work_budget
        )
        return FailedAttempt(
            claim=self._get_claim_name(point),
            request=alternative.name,
            label=format_label(point),
            device_class=alternative.class_name,
            count=0 if alternative.takes_all else alternative.count,
            found=point.device_index,
            every=alternative.takes_all,
            obstacle=self._describe_obstacle(dead_end) if dead_end.obstacle is not None else None,
            devices=devices,
            nearest=describer.find_nearest(alternative, blocked.refusals),
            alternative_of=alternative.request if alternative.subrequest else "",
            subrequest=alternative.subrequest,
        )

    def _describe_obstacle(self, dead_end: DeadEndRecord) -> RefusalDetails:
        """What rules out an alternative as a whole."""
        obstacle, alternative = dead_end.obstacle, dead_end.point.alternative
        assert obstacle is not None
        reason, detail = obstacle.reason, obstacle.detail
        if isinstance(detail, ConstraintConflict):
            pinned = format_values([value for _, value in detail.wanted])
            return RefusalDetails(
                reason=reason, name=detail.attribute, distinct=detail.distinct, expected=pinned
            )
        if reason is RefusalReason.COUNTER_SHORT:
            consumer = self._describer.find_counter_consumer(detail.name)
            return describe_shortage(reason, detail, consumer, alternative)
        if reason in POOL_REASONS:
            # Nodes that look alike may have different flaws: the pools of the report have the numbers.
            return RefusalDetails(reason=reason)
        return describe_shortage(reason, detail, None, alternative)

    def describe_fault(self, ending: Faulted) -> dict[str, Any]:
        """The device that could not be evaluated, and the request it was evaluated for."""
        why = self._describer.describe_refusal(ending.point, (), ending.candidate, ending.refusal)
        outcome = DeviceOutcome(device=self._describer.get_device_name(ending.candidate), why=why)
        return {"fault": outcome, "fault_request": format_label(ending.point)}

    def _get_claim_name(self, point: SearchPoint) -> str:
        return format_claim_name(self._allocation_request.claims[point.choice.claim_index])


def _get_alternative_index(point: SearchPoint) -> int:
    return point.choice.alternatives.index(point.alternative)


def compute_closeness(evidence: NodeEvidence) -> tuple[Any, ...]:
    """The sort key of reports: those that fit first, in the order nodes are chosen; then the closest."""
    report = evidence.report
    if report.outcome is NodeOutcome.FITS:
        return (False, report.rank, report.nodes[0])
    refused = [outcome.why for attempt in report.attempts for outcome in attempt.devices if outcome.why]
    furthest_rule = max((_RANK[why.reason] for why in refused), default=-1)
    found = max((attempt.found for attempt in report.attempts), default=0)
    return (
        True,
        -len({(entry.claim, entry.request) for entry in report.found}),
        -found,
        report.outcome is NodeOutcome.FAULTED,
        -furthest_rule,
        min((evidence.describer.compute_distance(one.refusals) for one in evidence.blocked), default=()),
        len(refused),
        report.nodes[0],
    )
