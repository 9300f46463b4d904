"""Why a pod has no node, in one line: what an event and the pod's condition say.

Devices are explained by `explain`, on the nodes that only devices keep from the pod; what other plugins
refuse is told with the nodes it is about. The same cluster gives the same words, so nothing is repeated that
people have read already.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from dray.allocator.feature_gates import Admission
from dray.errors import AllocationFault
from dray.explain import Effort, Steps, at_once, diagnosing, of_fault, summary
from dray.explain.diagnosis import Diagnosis
from dray.placement.scheduling_cycle import Refused, Unplaceable

LONGEST: Final = 1024
"""Letters an event has room for."""
SHOWN: Final = 2
"""Nodes that are named before the rest is counted."""


def why(unplaceable: Unplaceable, door: Admission, *, hints: int = 1, effort: Effort | None = None) -> str:
    """The reasons in one line, devices first."""
    return at_once(finding_words(unplaceable, door, hints=hints, effort=effort))


def finding_words(
    unplaceable: Unplaceable, door: Admission, *, hints: int = 1, effort: Effort | None = None
) -> Steps[str]:
    """The same in small steps: a search on many nodes that differ takes its time."""
    parts: list[str] = []
    told = yield from diagnosis_of(unplaceable, door, hints=hints, effort=effort)
    if told is not None:
        parts.append(summary(told))
    for refused in unplaceable.refused:
        verdict = refused.verdict
        if told is None or not verdict.searched or verdict.again:
            parts.append(_said(refused))
    return _line(parts)


def briefly(unplaceable: Unplaceable) -> str:
    """The verdicts in one line, without a story of the search: it costs nothing and keeps nothing alive."""
    return _line([_said(refused) for refused in unplaceable.refused])


def _said(refused: Refused) -> str:
    reason = refused.verdict.reason
    return f"{named(refused.nodes)}: {reason}" if refused.nodes else reason


def _line(parts: Sequence[str]) -> str:
    text = "; ".join(parts) or "there are no nodes"
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def diagnosis_of(
    unplaceable: Unplaceable, door: Admission, *, hints: int = 1, effort: Effort | None = None
) -> Steps[Diagnosis | None]:
    """The story of the search on the nodes that devices alone keep from the pod; None when there are none."""
    subject, snapshot = unplaceable.subject, unplaceable.snapshot
    names = [name for refused in unplaceable.refused if refused.verdict.searched for name in refused.nodes]
    if not names or not subject.pending:
        return None
    nodes = [snapshot.nodes[name] for name in names]
    try:
        claims = door.claims(subject.pending)
        told = yield from diagnosing(
            snapshot.stock, claims, nodes, effort=effort, pod=subject.name, hints=hints
        )
        return told
    except AllocationFault as fault:
        return of_fault(fault, subject.pending, pod=subject.name)


def named(nodes: Sequence[str]) -> str:
    """Nodes by name, the first of many."""
    more = len(nodes) - SHOWN
    shown = ", ".join(nodes[:SHOWN])
    return f"{shown} and {more} more" if more > 0 else shown
