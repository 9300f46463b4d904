"""Hints: changes that were tried and helped.

Theory of operation: moves propose, the search disposes. For each kind of change the closest nodes are asked
first; a proposal becomes a hint when the search, run with it on that very node, finds devices. One hint per
kind, at most three in all, the smallest changes first. The work is bounded: so many nodes, so many proposals
per kind, so many steps and a moment per search, and no more time than the whole explanation has left. A hint
that could not be proved within that is not given.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import msgspec

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
from dray.explain.remedies.proposals import REMEDIES, ProposedChange, Remedy, RemedyCase, find_similar_names
from dray.explain.work_budget import Steps, WorkBudget

MAX_HINTS = 3
"""Hints on one page."""

MAX_NODE_GROUPS = 8
MAX_PROPOSALS = 40
MAX_SEARCH_STEPS = 2_000
MAX_SEARCH_SECONDS = 0.5
"""Work for one search with a change. Most take a hundredth of that; on a busy machine the clock goes on while
nothing is done, and a hint that helps should not be lost by that."""


@dataclass(frozen=True, slots=True)
class DiagnosisQuestion:
    """What was asked: claims, on these nodes, with this stock; and how many hints are welcome."""

    inventory: DeviceInventory
    claims: ClaimTuple
    nodes: Sequence[Node]
    max_hints: int


def find_hints(
    question: DiagnosisQuestion, evidence: Sequence[NodeEvidence], work_budget: WorkBudget
) -> Steps[tuple[Hint, ...]]:
    """What would help; without scenes, what would mend a claim that cannot even be asked."""
    hints: list[Hint] = []
    if not evidence:
        for kind, proposals in _REPAIRS.items():
            if len(hints) < question.max_hints and (
                found := (yield from _find_repair(question, kind, proposals, work_budget))
            ):
                hints.append(found)
        return tuple(hints)
    cases = [
        RemedyCase(question.inventory, question.claims, scene, stuck)
        for scene in evidence[:MAX_NODE_GROUPS]
        for stuck in scene.blocked
    ]
    for kind, move in REMEDIES.items():
        if len(hints) < question.max_hints and (
            found := (yield from _find_first_helpful(kind, move, cases, work_budget))
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
    """Whether devices are found on a node once a change is made."""
    try:
        ask = normalize_claims(change.claims, change.inventory.classes.get)
    except UnanswerableClaimError:
        return False
    shape = change.inventory.get_node_view(node).shape
    ending = yield from work_budget.run_search(
        ResumableSearch(ask, shape, iter(search(ask, shape, MAX_SEARCH_STEPS))), MAX_SEARCH_SECONDS
    )
    yield from work_budget.pause()
    return isinstance(ending, Solved)


# --- claims that cannot even be asked ---


def _find_repair(
    question: DiagnosisQuestion, kind: str, proposals: RepairProposer, work_budget: WorkBudget
) -> Steps[Hint | None]:
    """A change of one kind that turns a faulty claim into one that some node satisfies."""
    for index, request, change in proposals(question):
        if work_budget.remaining_seconds <= 0:
            return None
        nodes = yield from _find_fitting_node(question, change, work_budget)
        if nodes:
            claim = format_claim_name(question.claims[index])
            return Hint(kind=kind, text=change.text, nodes=nodes, claim=claim, request=request)
    return None


def _find_fitting_node(
    question: DiagnosisQuestion, change: ProposedChange, work_budget: WorkBudget
) -> Steps[tuple[str, ...]]:
    """The first node where a change helps; nodes that look alike are asked once."""
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


def _list_requests(question: DiagnosisQuestion) -> Iterator[tuple[int, str, str, int]]:
    """Claim, request, class and count of everything that is asked, as it was written."""
    for index, claim in enumerate(question.claims):
        for request in claim.spec.devices.requests:
            if request.exactly is not None:
                yield index, request.name, request.exactly.device_class_name, request.exactly.count
            for sub in request.first_available:
                yield index, f"{request.name}/{sub.name}", sub.device_class_name, sub.count


def _propose_known_classes(question: DiagnosisQuestion) -> Iterator[tuple[int, str, ProposedChange]]:
    classes = question.inventory.classes
    for index, name, device_class, _ in _list_requests(question):
        if device_class in classes:
            continue
        for other in find_similar_names(device_class, classes):
            text = f"asking for class `{other}` instead of `{device_class}` in request `{name}`"
            claims = edit_request(
                question.claims,
                index,
                name,
                lambda asked, other=other: msgspec.structs.replace(asked, device_class_name=other),
            )
            yield index, name, ProposedChange(text, claims, question.inventory)


def _propose_fewer_devices(question: DiagnosisQuestion) -> Iterator[tuple[int, str, ProposedChange]]:
    for index, name, _, count in sorted(_list_requests(question), key=lambda entry: -entry[3]):
        for fewer in range(min(count - 1, MAX_RESULTS), 0, -1):
            noun = "device" if fewer == 1 else "devices"
            text = f"asking for {fewer} {noun} instead of {count} in request `{name}`"
            claims = edit_request(
                question.claims,
                index,
                name,
                lambda asked, fewer=fewer: msgspec.structs.replace(asked, count=fewer),
            )
            yield index, name, ProposedChange(text, claims, question.inventory)


RepairProposer = Callable[[DiagnosisQuestion], Iterator[tuple[int, str, ProposedChange]]]
_REPAIRS: dict[str, RepairProposer] = {
    "AnotherClass": _propose_known_classes,
    "AskForFewer": _propose_fewer_devices,
}
