"""Hints: proposed changes that a search confirmed.

Theory of operation: remedies propose changes. For each kind of change the closest nodes come first; a
proposal becomes a hint when the search, run with it on that node, finds devices. There is one hint per kind,
at most three in all, the smallest changes first. The work is bounded: the number of nodes, proposals per
kind, steps and time per search, and the time that the whole explanation has left. A change that is not
confirmed within that is no hint.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from dray.allocator.inventory.device_inventory import DeviceInventory
from dray.allocator.requests import MAX_RESULTS, format_claim_name, normalize_claims
from dray.allocator.search.backtracking import search
from dray.allocator.search.resumable import ResumableSearch
from dray.allocator.search.trace import Solved
from dray.api.core import Node
from dray.errors import UnanswerableClaimError
from dray.explain.diagnosis import Hint
from dray.explain.node_reports import NodeEvidence
from dray.explain.remedies.claim_edits import ClaimTuple, edit_request
from dray.explain.remedies.proposals import (
    REMEDIES,
    ProposedChange,
    Remedy,
    RemedyCase,
    describe_fewer_devices,
    describe_other_class,
    find_similar_names,
)
from dray.explain.work_budget import Steps, WorkBudget
from dray.values.request_names import RequestName

MAX_HINTS = 3
"""Hints on one page."""

MAX_NODE_GROUPS = 8
MAX_PROPOSALS = 40
MAX_SEARCH_STEPS = 2_000
MAX_SEARCH_SECONDS = 0.5
"""Limits of one search with a change. Most take a hundredth of that time; on a busy machine the clock
advances while the process waits, and that must not cost a hint.
"""


@dataclass(frozen=True, slots=True)
class DiagnosisQuestion:
    """The claims, nodes and inventory of a diagnosis, and the maximal number of hints."""

    inventory: DeviceInventory
    claims: ClaimTuple
    nodes: Sequence[Node]
    max_hints: int


def find_hints(
    question: DiagnosisQuestion, evidence: Sequence[NodeEvidence], work_budget: WorkBudget
) -> Steps[tuple[Hint, ...]]:
    """Find changes that help; without evidence, changes that repair an invalid claim."""
    hints: list[Hint] = []
    if not evidence:
        for kind, proposals in _REPAIRS.items():
            if len(hints) < question.max_hints and (
                found := (yield from _find_repair(question, kind, proposals, work_budget))
            ):
                hints.append(found)
        return tuple(hints)
    cases = [
        RemedyCase(question.inventory, question.claims, one, blocked)
        for one in evidence[:MAX_NODE_GROUPS]
        for blocked in one.blocked
    ]
    for kind, remedy in REMEDIES.items():
        if len(hints) < question.max_hints and (
            found := (yield from _find_first_helpful(kind, remedy, cases, work_budget))
        ):
            hints.append(found)
    return tuple(hints)


def _find_first_helpful(
    kind: str, remedy: Remedy, cases: Sequence[RemedyCase], work_budget: WorkBudget
) -> Steps[Hint | None]:
    left = MAX_PROPOSALS
    for case in cases:
        for change in remedy(case):
            if left == 0 or work_budget.remaining_seconds <= 0:
                return None
            left -= 1
            nodes = case.evidence.report.nodes
            if (yield from try_change(change, case.evidence.describer.view.node, work_budget)):
                return Hint(
                    kind=kind,
                    text=change.text,
                    nodes=nodes[:1] if change.single_node else nodes,
                    claim=format_claim_name(case.claims[case.claim_index]),
                    request=case.alternative.name,
                )
    return None


def try_change(change: ProposedChange, node: Node, work_budget: WorkBudget) -> Steps[bool]:
    """Whether the search finds devices on a node with a change."""
    try:
        allocation_request = normalize_claims(change.claims, change.inventory.classes.get)
    except UnanswerableClaimError:
        return False
    shape = change.inventory.get_node_view(node).shape
    ending = yield from work_budget.run_search(
        ResumableSearch(allocation_request, shape, iter(search(allocation_request, shape, MAX_SEARCH_STEPS))),
        MAX_SEARCH_SECONDS,
    )
    yield from work_budget.pause()
    return isinstance(ending, Solved)


# --- repairs of invalid claims ---


def _find_repair(
    question: DiagnosisQuestion, kind: str, proposals: RepairProposer, work_budget: WorkBudget
) -> Steps[Hint | None]:
    """Find a change of one kind that makes an invalid claim fit some node."""
    for index, request, change in proposals(question):
        if work_budget.remaining_seconds <= 0:
            return None
        nodes = yield from _find_fitting_node(question, change, work_budget)
        if nodes:
            claim = format_claim_name(question.claims[index])
            return Hint(kind=kind, text=change.text, nodes=nodes, claim=claim, request=str(request))
    return None


def _find_fitting_node(
    question: DiagnosisQuestion, change: ProposedChange, work_budget: WorkBudget
) -> Steps[tuple[str, ...]]:
    """The first node where a change helps; nodes of one shape are searched once."""
    seen = set()
    for node in question.nodes:
        shape = change.inventory.get_node_view(node).shape
        if shape in seen:
            continue
        seen.add(shape)
        if (yield from try_change(change, node, work_budget)):
            return (node.metadata.name,)
        if len(seen) == MAX_NODE_GROUPS:
            break
    return ()


def _list_requests(question: DiagnosisQuestion) -> Iterator[tuple[int, RequestName, str, int]]:
    """Claim, name, class and count of every request and alternative."""
    for index, claim in enumerate(question.claims):
        for request in claim.spec.devices.requests:
            if request.exactly is not None:
                exactly = request.exactly
                yield index, RequestName(request.name), exactly.device_class_name, exactly.count
            for sub in request.first_available:
                yield index, RequestName(request.name, sub.name), sub.device_class_name, sub.count


def _propose_known_classes(question: DiagnosisQuestion) -> Iterator[tuple[int, RequestName, ProposedChange]]:
    classes = question.inventory.classes
    for index, name, device_class, _ in _list_requests(question):
        if device_class not in classes:
            for other in find_similar_names(device_class, classes):
                text, edit = describe_other_class(name, device_class, other)
                claims = edit_request(question.claims, index, name, edit)
                yield index, name, ProposedChange(text, claims, question.inventory)


def _propose_fewer_devices(question: DiagnosisQuestion) -> Iterator[tuple[int, RequestName, ProposedChange]]:
    for index, name, _, count in sorted(_list_requests(question), key=lambda entry: -entry[3]):
        for fewer in range(min(count - 1, MAX_RESULTS), 0, -1):
            text, edit = describe_fewer_devices(name, str(count), fewer)
            claims = edit_request(question.claims, index, name, edit)
            yield index, name, ProposedChange(text, claims, question.inventory)


RepairProposer = Callable[[DiagnosisQuestion], Iterator[tuple[int, RequestName, ProposedChange]]]
_REPAIRS: dict[str, RepairProposer] = {
    "AnotherClass": _propose_known_classes,
    "AskForFewer": _propose_fewer_devices,
}
