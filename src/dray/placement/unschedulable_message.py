"""Why a pod has no node, in one line: what an event and the pod's condition say.

Devices are explained by `explain`, on the nodes that only devices keep from the pod; what other plugins
refuse is told with the nodes it is about. The same cluster gives the same words, so nothing is repeated that
people have read already.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from dray.allocator.feature_gates import AllocatorGateFilter
from dray.errors import UnanswerableClaimError
from dray.explain import Steps, WorkBudget, diagnose_fault, diagnose_stepwise, run_to_end, summarize
from dray.explain.diagnosis import Diagnosis
from dray.placement.scheduling_cycle import RejectedNodes, Unschedulable

MAX_MESSAGE_LENGTH: Final = 1024
"""Letters an event has room for."""
MAX_NAMED_NODES: Final = 2
"""Nodes that are named before the rest is counted."""


def explain_unschedulable(
    unschedulable: Unschedulable,
    gate_filter: AllocatorGateFilter,
    *,
    hints: int = 1,
    work_budget: WorkBudget | None = None,
) -> str:
    """The reasons in one line, devices first."""
    return run_to_end(build_explanation(unschedulable, gate_filter, hints=hints, work_budget=work_budget))


def build_explanation(
    unschedulable: Unschedulable,
    gate_filter: AllocatorGateFilter,
    *,
    hints: int = 1,
    work_budget: WorkBudget | None = None,
) -> Steps[str]:
    """The same in small steps: a search on many nodes that differ takes its time."""
    parts: list[str] = []
    told = yield from diagnose_devices(unschedulable, gate_filter, hints=hints, work_budget=work_budget)
    if told is not None:
        parts.append(summarize(told))
    for refused in unschedulable.rejected:
        verdict = refused.rejection
        if told is None or not verdict.searched or verdict.retry:
            parts.append(_format_rejected(refused))
    return _join_parts(parts)


def summarize_unschedulable(unschedulable: Unschedulable) -> str:
    """The verdicts in one line, without a story of the search: it costs nothing and keeps nothing alive."""
    return _join_parts([_format_rejected(refused) for refused in unschedulable.rejected])


def _format_rejected(rejected: RejectedNodes) -> str:
    reason = rejected.rejection.reason
    return f"{format_node_names(rejected.nodes)}: {reason}" if rejected.nodes else reason


def _join_parts(parts: Sequence[str]) -> str:
    text = "; ".join(parts) or "there are no nodes"
    return text if len(text) <= MAX_MESSAGE_LENGTH else f"{text[: MAX_MESSAGE_LENGTH - 1]}…"


def diagnose_devices(
    unschedulable: Unschedulable,
    gate_filter: AllocatorGateFilter,
    *,
    hints: int = 1,
    work_budget: WorkBudget | None = None,
) -> Steps[Diagnosis | None]:
    """The story of the search on the nodes that devices alone keep from the pod; None when there are none."""
    subject, snapshot = unschedulable.pending_pod, unschedulable.snapshot
    names = [
        name for refused in unschedulable.rejected if refused.rejection.searched for name in refused.nodes
    ]
    if not names or not subject.pending:
        return None
    nodes = [snapshot.nodes[name] for name in names]
    try:
        claims = gate_filter.admit_claims(subject.pending)
        told = yield from diagnose_stepwise(
            snapshot.inventory, claims, nodes, work_budget=work_budget, pod=subject.name, hints=hints
        )
        return told
    except UnanswerableClaimError as fault:
        return diagnose_fault(fault, subject.pending, pod=subject.name)


def format_node_names(nodes: Sequence[str]) -> str:
    """Nodes by name, the first of many."""
    more = len(nodes) - MAX_NAMED_NODES
    shown = ", ".join(nodes[:MAX_NAMED_NODES])
    return f"{shown} and {more} more" if more > 0 else shown
