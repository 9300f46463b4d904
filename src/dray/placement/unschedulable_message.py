"""Unschedulable message: why a pod has no node, in one line, for its event and its condition.

`explain` describes devices, on the nodes that only devices keep from the pod; the rejections of other plugins
follow with their nodes. The same cluster gives the same text, so that an event is not repeated with another.
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
"""The maximum length of the message of an event."""
MAX_NAMED_NODES: Final = 2
"""Nodes that are named; further ones are counted."""


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
    """The same in small steps, because a search on many different nodes takes long."""
    parts: list[str] = []
    reported = yield from diagnose_devices(unschedulable, gate_filter, hints=hints, work_budget=work_budget)
    if reported is not None:
        parts.append(summarize(reported))
    for refused in unschedulable.rejected:
        rejection = refused.rejection
        if reported is None or not rejection.searched or rejection.retry:
            parts.append(_format_rejected(refused))
    return _join_parts(parts)


def summarize_unschedulable(unschedulable: Unschedulable) -> str:
    """The rejections in one line, without a diagnosis of the search: cheap, and it keeps no objects alive."""
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
    """The diagnosis of the search on the nodes that only devices keep from the pod; None without any."""
    pending_pod, snapshot = unschedulable.pending_pod, unschedulable.snapshot
    names = [
        name for refused in unschedulable.rejected if refused.rejection.searched for name in refused.nodes
    ]
    if not names or not pending_pod.pending:
        return None
    nodes = [snapshot.nodes[name] for name in names]
    try:
        claims = gate_filter.admit_claims(pending_pod.pending)
        reported = yield from diagnose_stepwise(
            snapshot.inventory, claims, nodes, work_budget=work_budget, pod=pending_pod.name, hints=hints
        )
        return reported
    except UnanswerableClaimError as fault:
        return diagnose_fault(fault, pending_pod.pending, pod=pending_pod.name)


def format_node_names(nodes: Sequence[str]) -> str:
    """Nodes by name, the first of many."""
    more = len(nodes) - MAX_NAMED_NODES
    shown = ", ".join(nodes[:MAX_NAMED_NODES])
    return f"{shown} and {more} more" if more > 0 else shown
