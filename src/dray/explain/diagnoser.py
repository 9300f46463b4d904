"""The diagnoser: searches once per kind of node, builds the reports, and looks for hints.

Theory of operation: nodes with equal devices in equal use have one shape, and one search answers for all of
them. Only the flaws of their pools may still differ, so nodes are grouped by both. Each group gets one
report. When no node fits, `remedies.hints` looks for changes that help, starting from the closest reports.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from dray.allocator.inventory.device_inventory import DeviceInventory
from dray.allocator.inventory.node_shapes import NodeShape, NodeView
from dray.allocator.inventory.usage import PoolId
from dray.allocator.requests import AllocationRequest, format_claim_name, normalize_claims
from dray.api.core import Node
from dray.api.resource import ResourceClaim
from dray.errors import UnanswerableClaimError
from dray.explain.diagnosis import ClaimFault, Diagnosis, DiagnosisVerdict, Hint, NodeOutcome
from dray.explain.node_reports import NodeEvidence, build_node_evidence, compute_closeness
from dray.explain.refusal_details import RefusalDescriber, list_pool_flaws
from dray.explain.remedies.hints import MAX_HINTS, DiagnosisQuestion, find_hints
from dray.explain.search_trace import DETAILED_STEPS, SearchTrace, trace_search_stepwise
from dray.explain.work_budget import PAUSE_INTERVAL, Steps, WorkBudget, run_to_end

MAX_DETAILED_TRACES = 50
"""How many different shapes get a detailed trace; the others get the trace of a pruned search."""


def diagnose(
    inventory: DeviceInventory,
    claims: Sequence[ResourceClaim],
    nodes: Iterable[Node],
    *,
    work_budget: WorkBudget | None = None,
    pod: str = "",
    hints: int = MAX_HINTS,
) -> Diagnosis:
    """Explain which nodes satisfy some claims with which devices, or why none does, and what would help.

    The claims are those of one pod that still need devices. `pod` is its name, as `namespace/name`, and empty
    for a claim on its own. `hints` limits the number of hints. `work_budget` limits the work.
    """
    return run_to_end(
        diagnose_stepwise(inventory, claims, nodes, work_budget=work_budget, pod=pod, hints=hints)
    )


def diagnose_stepwise(
    inventory: DeviceInventory,
    claims: Sequence[ResourceClaim],
    nodes: Iterable[Node],
    *,
    work_budget: WorkBudget | None = None,
    pod: str = "",
    hints: int = MAX_HINTS,
) -> Steps[Diagnosis]:
    """Like `diagnose`, in small steps."""
    work_budget = work_budget or WorkBudget()
    ordered = sorted(nodes, key=lambda node: node.metadata.name)
    question = DiagnosisQuestion(inventory, tuple(claims), ordered, hints)
    try:
        allocation_request = normalize_claims(claims, inventory.classes.get)
    except UnanswerableClaimError as fault:
        found = (yield from find_hints(question, (), work_budget)) if hints else ()
        return diagnose_fault(fault, claims, pod=pod, hints=found)
    evidence = yield from _collect_evidence(inventory, allocation_request, ordered, work_budget)
    verdict = _decide_verdict(evidence)
    needs_hints = hints > 0 and verdict is not DiagnosisVerdict.FITS
    tried = (yield from find_hints(question, evidence, work_budget)) if needs_hints else ()
    return Diagnosis(
        verdict=verdict,
        pod=pod,
        claims=tuple(format_claim_name(claim) for claim in claims),
        node_reports=tuple(one.report for one in evidence),
        hints=tried,
    )


def diagnose_fault(
    fault: UnanswerableClaimError,
    claims: Sequence[ResourceClaim] = (),
    *,
    pod: str = "",
    hints: Sequence[Hint] = (),
) -> Diagnosis:
    """The diagnosis of a claim that no node can ever satisfy."""
    return Diagnosis(
        verdict=DiagnosisVerdict.FAULTY,
        pod=pod,
        claims=tuple(format_claim_name(claim) for claim in claims),
        fault=ClaimFault(claim=fault.claim, field=fault.field, text=fault.why),
        hints=tuple(hints),
    )


def _collect_evidence(
    inventory: DeviceInventory,
    allocation_request: AllocationRequest,
    nodes: Sequence[Node],
    work_budget: WorkBudget,
) -> Steps[list[NodeEvidence]]:
    """The evidence of each kind of node, the best or closest first."""
    alike: dict[tuple[NodeShape, tuple[object, ...]], list[NodeView]] = {}
    for number, node in enumerate(nodes, 1):
        if number % PAUSE_INTERVAL == 0:
            yield from work_budget.pause()
        view = inventory.get_node_view(node)
        alike.setdefault((view.shape, _normalize_flaws(view, inventory.find_hidden_pools(node))), []).append(
            view
        )
    traces: dict[NodeShape, SearchTrace] = {}
    evidence = []
    for (shape, _), views in alike.items():
        if shape not in traces:
            detailed_steps = DETAILED_STEPS if len(traces) < MAX_DETAILED_TRACES else 0
            traces[shape] = yield from trace_search_stepwise(
                allocation_request, shape, work_budget, detailed_steps
            )
        describer = RefusalDescriber(
            allocation_request, views[0], inventory.usage, inventory.find_hidden_pools(views[0].node)
        )
        names = tuple([view.node.metadata.name for view in views])
        evidence.append(
            (yield from build_node_evidence(allocation_request, describer, traces[shape], names, work_budget))
        )
        yield from work_budget.pause()
    return sorted(evidence, key=compute_closeness)


def _normalize_flaws(view: NodeView, hidden: Sequence[PoolId]) -> tuple[object, ...]:
    """The flaws of the pools of a node, equal for nodes that differ only in their name."""
    if not view.shape.flaws and not hidden:
        return ()
    flaws = list_pool_flaws(view, hidden)
    return tuple(msgspec.structs.replace(flaw, pool="") for flaw in flaws)


def _decide_verdict(evidence: Sequence[NodeEvidence]) -> DiagnosisVerdict:
    outcomes = {one.report.outcome for one in evidence}
    if NodeOutcome.FITS in outcomes:
        return DiagnosisVerdict.FITS
    return DiagnosisVerdict.UNKNOWN if NodeOutcome.GAVE_UP in outcomes else DiagnosisVerdict.REFUSED
