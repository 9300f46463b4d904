"""One story per kind of node: what was found, where it ended, what stood in the way.

Here a tale (numbers and points) and a witness (names) come together. Which of several nodes is *closest* is
decided here, too: the one that satisfied most requests, then found most devices for the next; then one whose
devices can all be judged; then the one with a device that failed a later rule, or came nearer to a selector;
then the one with fewer refusals; then the first by name.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from dray.allocator.refusals import ConstraintConflict, Refusal, RefusalReason
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
    """An alternative that could not be had, as the allocator knows it: what hints start from."""

    dead_end: DeadEndRecord
    refusals: dict[int, Refusal | None]


class NodeEvidence(msgspec.Struct, frozen=True, eq=False):
    """A story and what it was made from."""

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
    """The story of some nodes that look alike, told with the names of the first."""
    teller = _NodeReportBuilder(allocation_request, describer, trace, work_budget)
    ending = trace.ending
    said: dict[str, Any] = {
        "nodes": nodes,
        "outcome": _OUTCOMES[type(ending)],
        "steps": ending.steps,
        "pools": describer.list_flaws(),
    }
    if isinstance(ending, Solved):
        found = yield from teller.describe_picks(ending.picks)
        said |= {"found": found, "attempts": (yield from teller.describe_skipped(ending.picks))}
        return NodeEvidence(NodeReport(**said), describer, ())
    if isinstance(ending, Faulted):
        said |= teller.describe_fault(ending)
    elif isinstance(ending, GaveUp):
        said |= {
            "seconds": ending.seconds,
            "most_found": ending.found,
            "wanted": ending.wanted,
            "stuck_at": ending.stuck_at.alternative.name if ending.stuck_at is not None else "",
        }
    stuck = teller.list_blocked()
    if stuck:
        point = stuck[0].dead_end.point
        before = [p for p in stuck[0].dead_end.picks if p.point.choice.index < point.choice.index]
        attempts = []
        for entry in stuck:
            attempts.append((yield from teller.describe_attempt(entry)))
        said |= {
            "found": (yield from teller.describe_picks(before, reasons=False)),
            "attempts": tuple(attempts),
            "untried": tuple(c.request_name for c in allocation_request.choices[point.choice.index + 1 :]),
        }
    return NodeEvidence(NodeReport(**said), describer, stuck)


class _NodeReportBuilder:
    """Makes the parts of one story."""

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

    # --- what was found ---

    def describe_picks(
        self, picks: Sequence[Pick], *, reasons: bool = True
    ) -> Steps[tuple[FoundDevice, ...]]:
        """The devices that were found, each with those it was preferred to where reasons are wanted."""
        found = []
        for i, pick in enumerate(picks):
            want = pick.point.alternative
            passed_over = (yield from self._describe_passed_over(picks[:i], pick)) if reasons else ()
            found.append(
                FoundDevice(
                    claim=self._get_claim_name(pick.point),
                    request=want.name,
                    label=format_label(pick.point),
                    device=self._describer.get_device_name(pick.candidate),
                    alternative=pick.point.choice.alternatives.index(want),
                    consumed=self._format_consumed(pick),
                    admin=want.admin,
                    every=want.takes_all,
                    passed_over=passed_over,
                )
            )
        return tuple(found)

    def _format_consumed(self, pick: Pick) -> dict[str, str]:
        capacity = self._describer.get_profile(pick.candidate).device.capacity
        forms = {
            name: held.value.form if held.value else QuantityForm.DECIMAL for name, held in capacity.items()
        }
        return {name: str(Quantity(nanos, forms[name])) for name, nanos in (pick.consumed or {}).items()}

    def _describe_passed_over(
        self, preceding_picks: Sequence[Pick], pick: Pick
    ) -> Steps[tuple[DeviceOutcome, ...]]:
        """The devices in front of a pick that it could have been, and why it is none of them."""
        point = pick.point
        if point.alternative.takes_all:
            return ()
        own = [p.candidate for p in preceding_picks if p.point.choice is point.choice]
        fates = self._trace.undo_causes.get((point.choice.index, point.device_index), {})
        told: dict[int, Refusal | None] = {}
        for candidate, refusal in self._describer.list_refusals(point, preceding_picks).items():
            if (own[-1] if own else -1) < candidate < pick.candidate:
                fate = fates.get((point.alternative, candidate))
                abandoned = refusal is not None and refusal.reason is RefusalReason.LEADS_NOWHERE
                told[candidate] = Refusal(RefusalReason.LEADS_NOWHERE, fate) if abandoned else refusal
        accounts = yield from self._describer.describe_outcomes(
            point, preceding_picks, told, self._work_budget
        )
        return accounts

    # --- what was not ---

    def list_blocked(self) -> tuple[BlockedAlternative, ...]:
        """The alternatives at which the search came to its furthest end."""
        return tuple(self._build_blocked(halt) for halt in self._trace.furthest)

    def _build_blocked(self, dead_end: DeadEndRecord) -> BlockedAlternative:
        told = self._describer.list_refusals(dead_end.point, dead_end.picks)
        seen = {
            c: refusal
            for c, refusal in told.items()
            if dead_end.examined_count is None or c < dead_end.examined_count
        }
        return BlockedAlternative(dead_end, seen)

    def describe_skipped(self, picks: Sequence[Pick]) -> Steps[tuple[FailedAttempt, ...]]:
        """The alternatives that come before those that were taken."""
        chosen = {pick.point.choice.index: pick.point for pick in picks}
        attempts: list[FailedAttempt] = []
        for index, halts in sorted(self._trace.skipped.items()):
            for halt in halts:
                if index in chosen and _get_alternative_index(halt.point) < _get_alternative_index(
                    chosen[index]
                ):
                    attempts.append((yield from self.describe_attempt(self._build_blocked(halt))))
        return tuple(attempts)

    def describe_attempt(self, blocked: BlockedAlternative) -> Steps[FailedAttempt]:
        """An alternative that could not be had, in full."""
        halt, witness = blocked.dead_end, self._describer
        point, want = halt.point, halt.point.alternative
        devices = yield from witness.describe_outcomes(point, halt.picks, blocked.refusals, self._work_budget)
        return FailedAttempt(
            claim=self._get_claim_name(point),
            request=want.name,
            label=format_label(point),
            device_class=want.class_name,
            count=0 if want.takes_all else want.count,
            found=point.device_index,
            every=want.takes_all,
            obstacle=self._describe_obstacle(halt) if halt.obstacle is not None else None,
            devices=devices,
            nearest=witness.find_nearest(want, blocked.refusals),
        )

    def _describe_obstacle(self, dead_end: DeadEndRecord) -> RefusalDetails:
        """What kept an alternative from being tried, or from being tried further."""
        obstacle, want = dead_end.obstacle, dead_end.point.alternative
        assert obstacle is not None
        reason, detail = obstacle.reason, obstacle.detail
        if isinstance(detail, ConstraintConflict):
            pinned = format_values([value for _, value in detail.wanted])
            return RefusalDetails(
                reason=reason, name=detail.attribute, distinct=detail.distinct, expected=pinned
            )
        if reason is RefusalReason.COUNTER_SHORT:
            return describe_shortage(reason, detail, self._describer.find_counter_consumer(detail.name), want)
        if reason in (RefusalReason.POOL_INCOMPLETE, RefusalReason.POOL_INVALID):
            # Nodes that look alike may have different flaws: the pools of the story have the numbers.
            return RefusalDetails(reason=reason)
        return describe_shortage(reason, detail, None, want)

    def describe_fault(self, ending: Faulted) -> dict[str, Any]:
        """The device that could not be judged, and for whom."""
        why = self._describer.describe_refusal(ending.point, (), ending.candidate, ending.refusal)
        account = DeviceOutcome(device=self._describer.get_device_name(ending.candidate), why=why)
        return {"fault": account, "fault_request": format_label(ending.point)}

    def _get_claim_name(self, point: SearchPoint) -> str:
        return format_claim_name(self._allocation_request.claims[point.choice.claim_index])


def _get_alternative_index(point: SearchPoint) -> int:
    return point.choice.alternatives.index(point.alternative)


def compute_closeness(evidence: NodeEvidence) -> tuple[Any, ...]:
    """Sorts stories: those that fit first, in the order nodes are chosen; then the closest ones."""
    story = evidence.report
    if story.outcome is NodeOutcome.FITS:
        return (False, story.rank, story.nodes[0])
    refused = [account.why for attempt in story.attempts for account in attempt.devices if account.why]
    furthest_rule = max((_RANK[why.reason] for why in refused), default=-1)
    found = max((attempt.found for attempt in story.attempts), default=0)
    return (
        True,
        -len({(entry.claim, entry.request) for entry in story.found}),
        -found,
        story.outcome is NodeOutcome.FAULTED,
        -furthest_rule,
        min((evidence.describer.compute_distance(stuck.refusals) for stuck in evidence.blocked), default=()),
        len(refused),
        story.nodes[0],
    )
