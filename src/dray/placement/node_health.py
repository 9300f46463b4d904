"""Node health: the taints that represent it, and when pods must leave a node.

Theory of operation: a node is healthy, reports itself not ready, or is unreachable: its lease expired. Two
taints represent each problem, one that keeps new pods away and one that ends the running pods once they no
longer tolerate it. All other taints of a node stay as they are.

A pod must leave a node for every taint of effect `NoExecute`, whoever set it: at once when nothing tolerates
it, otherwise when the shortest matching toleration is over, counted from when the taint was added.

This module is pure: the caller measures how long a node was silent.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final

from msgspec.structs import replace

from dray.api.core import Node, NodeCondition, Pod, Taint
from dray.api.tolerations import compute_toleration_end

NOT_READY: Final = "node.kubernetes.io/not-ready"
UNREACHABLE: Final = "node.kubernetes.io/unreachable"
NO_SCHEDULE, NO_EXECUTE = "NoSchedule", "NoExecute"
READY: Final = "Ready"
UNKNOWN: Final = "Unknown"
STATUS_UNKNOWN_REASON: Final = "NodeStatusUnknown"
"""The reason in the condition of an unreachable node."""
MONITOR_GRACE_PERIOD: Final = 40.0
"""Seconds without a lease renewal after which a node is unreachable."""


class NodeReadiness(StrEnum):
    """Health of a node; the value is the key of its taints."""

    WELL = ""
    NOT_READY = NOT_READY
    LOST = UNREACHABLE


def find_ready_condition(node: Node) -> NodeCondition | None:
    """The Ready condition of a node."""
    return next((each for each in node.status.conditions if each.type == READY), None)


def compute_readiness(node: Node, *, lease_expired: bool) -> NodeReadiness:
    """Evaluate the health of a node; `lease_expired` when its lease was not renewed in time."""
    if lease_expired:
        return NodeReadiness.LOST
    ready = find_ready_condition(node)
    return NodeReadiness.NOT_READY if ready is not None and ready.status == "False" else NodeReadiness.WELL


def compute_taints(node: Node, readiness: NodeReadiness, *, now: str) -> tuple[Taint, ...]:
    """The taints a node should have: those of its health, with their times, and all others unchanged."""
    key = readiness.value
    kept = [taint for taint in node.spec.taints if taint.key not in (NOT_READY, UNREACHABLE)]
    for effect in (NO_SCHEDULE, NO_EXECUTE) if key else ():
        known = next((t for t in node.spec.taints if (t.key, t.effect) == (key, effect)), None)
        kept.append(known or Taint(key=key, effect=effect, time_added=now))
    if {*kept} == {*node.spec.taints}:
        return node.spec.taints
    return tuple(kept)


def build_unknown_condition(node: Node, *, now: str) -> NodeCondition | None:
    """The condition of an unreachable node; None when it has it already."""
    ready = find_ready_condition(node) or NodeCondition(type=READY)
    if ready.status == UNKNOWN and ready.reason == STATUS_UNKNOWN_REASON:
        return None
    return replace(
        ready,
        status=UNKNOWN,
        reason=STATUS_UNKNOWN_REASON,
        message="the node gives no sign of life: its lease is not renewed",
        last_transition_time=now,
    )


def build_returned_condition(node: Node, before: str, *, now: str) -> NodeCondition | None:
    """The previous condition of a node that is back; None when the node reports its own."""
    ready = find_ready_condition(node)
    if (
        ready is None
        or ready.status != UNKNOWN
        or ready.reason != STATUS_UNKNOWN_REASON
        or before in ("", UNKNOWN)
    ):
        return None
    message = "the node gives signs of life again; this is what it said last"
    return replace(ready, status=before, reason="NodeReturned", message=message, last_transition_time=now)


def is_majority_lost(lost: int, known: int) -> bool:
    """Whether so many nodes look unreachable that the fault is likely ours; never with few nodes."""
    return known >= 3 and lost * 2 > known


@dataclass(frozen=True, slots=True)
class NodeEviction:
    """A pod that must leave its node: when at the earliest, and for which taint."""

    at: datetime
    taint: Taint

    @property
    def why(self) -> str:
        """The reason as text."""
        value = f"={self.taint.value}" if self.taint.value else ""
        return f"the node has the taint {self.taint.key}{value}:{self.taint.effect}"


def find_node_eviction(pod: Pod, taints: Iterable[Taint]) -> NodeEviction | None:
    """The first reason for which a pod must leave its node; None when it may stay."""
    found = [
        leave for taint in taints if taint.effect == NO_EXECUTE and (leave := _evaluate_taint(pod, taint))
    ]
    return min(found, key=lambda leave: leave.at, default=None)


def _evaluate_taint(pod: Pod, taint: Taint) -> NodeEviction | None:
    end = compute_toleration_end(taint, pod.spec.tolerations)
    return None if end is None else NodeEviction(end, taint)
