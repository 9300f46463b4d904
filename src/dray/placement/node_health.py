"""How a node is, which taints say so, and when pods must leave it.

Theory of operation: a node is well, says itself that it is not ready, or is lost: it gave no sign of life for
too long. Two taints stand for each trouble, one that keeps new pods away and one that ends those that are
there once they tolerate it no more. All other taints of a node are somebody else's and stay as they are.

A pod must leave a node for every taint of effect `NoExecute`, whoever put it on: at once when nothing
tolerates it, otherwise when the shortest toleration that matches is over, counted from when the taint came.

Rules for this file: pure; how long a node was silent is found out by whoever asks.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Final

from msgspec.structs import replace

from dray.api.core import Node, NodeCondition, Pod, Taint
from dray.api.tolerations import tolerates_taint

NOT_READY: Final = "node.kubernetes.io/not-ready"
UNREACHABLE: Final = "node.kubernetes.io/unreachable"
NO_SCHEDULE, NO_EXECUTE = "NoSchedule", "NoExecute"
READY: Final = "Ready"
UNKNOWN: Final = "Unknown"
STATUS_UNKNOWN_REASON: Final = "NodeStatusUnknown"
"""The reason of the condition of a node that gives no sign of life."""
MONITOR_GRACE_PERIOD: Final = 40.0
"""Seconds without a sign of life after which a node is lost."""

_LONG_AGO: Final = datetime(1, 1, 1, tzinfo=UTC)
_NEVER: Final = datetime(9999, 1, 1, tzinfo=UTC)


class NodeReadiness(StrEnum):
    """How a node is; the value is the key of the taints that say so."""

    WELL = ""
    NOT_READY = NOT_READY
    LOST = UNREACHABLE


def find_ready_condition(node: Node) -> NodeCondition | None:
    """What a node says of whether it runs pods, or what was said in its place."""
    return next((each for each in node.status.conditions if each.type == READY), None)


def compute_readiness(node: Node, *, lease_expired: bool) -> NodeReadiness:
    """How a node is; `lease_expired` when it gave no sign of life for too long."""
    if lease_expired:
        return NodeReadiness.LOST
    ready = find_ready_condition(node)
    return NodeReadiness.NOT_READY if ready is not None and ready.status == "False" else NodeReadiness.WELL


def compute_taints(node: Node, readiness: NodeReadiness, *, now: str) -> tuple[Taint, ...]:
    """The taints a node should have: those of its health, since when it has them, and all of others."""
    key = readiness.value
    kept = [taint for taint in node.spec.taints if taint.key not in (NOT_READY, UNREACHABLE)]
    for effect in (NO_SCHEDULE, NO_EXECUTE) if key else ():
        known = next((t for t in node.spec.taints if (t.key, t.effect) == (key, effect)), None)
        kept.append(known or Taint(key=key, effect=effect, time_added=now))
    if {*kept} == {*node.spec.taints}:
        return node.spec.taints
    return tuple(kept)


def build_unknown_condition(node: Node, *, now: str) -> NodeCondition | None:
    """The condition of a node that is lost; None when it says so already."""
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
    """The condition of a node that is back, as it was before; None when it speaks for itself."""
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
    """Whether so many nodes look lost that we rather cannot see them; of few nodes nobody can tell."""
    return known >= 3 and lost * 2 > known


@dataclass(frozen=True, slots=True)
class NodeEviction:
    """A pod that must leave its node, at the earliest at a moment, and for which taint."""

    at: datetime
    taint: Taint

    @property
    def why(self) -> str:
        """In words."""
        value = f"={self.taint.value}" if self.taint.value else ""
        return f"the node has the taint {self.taint.key}{value}:{self.taint.effect}"


def find_node_eviction(pod: Pod, taints: Iterable[Taint]) -> NodeEviction | None:
    """The first reason for which a pod must leave its node; None when it may stay."""
    found = [
        leave for taint in taints if taint.effect == NO_EXECUTE and (leave := _evaluate_taint(pod, taint))
    ]
    return min(found, key=lambda leave: leave.at, default=None)


def _evaluate_taint(pod: Pod, taint: Taint) -> NodeEviction | None:
    matching = [each for each in pod.spec.tolerations if tolerates_taint(each, taint)]
    since = _parse_time(taint.time_added)
    if not matching:
        return NodeEviction(since, taint)
    lengths = [each.toleration_seconds for each in matching if each.toleration_seconds is not None]
    if not lengths:
        return None
    longest = int((_NEVER - since).total_seconds())
    return NodeEviction(since + timedelta(seconds=min(max(min(lengths), 0), longest)), taint)


def _parse_time(text: str | None) -> datetime:
    """A time as objects write it; a taint without one was there always."""
    return _LONG_AGO if text is None else datetime.fromisoformat(text.replace("Z", "+00:00")).astimezone(UTC)
