"""Taints of nodes: those that keep a pod away, and those that make a node less welcome.

Taints with the effects `NoSchedule` and `NoExecute` refuse a pod that does not tolerate them; those with
`PreferNoSchedule` only count against the node. The reason names key and effect and not the value: values may
differ from node to node, and a thousand nodes should not give a thousand reasons.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dray.api.core import Taint, Toleration
from dray.api.tolerations import tolerated
from dray.placement.framework import Opinion, by_least
from dray.placement.rejections import Signal, Topic, Verdict

if TYPE_CHECKING:
    from dray.placement.pending_pod import Subject
    from dray.placement.snapshot import Seat, Snapshot

NAME = "TaintToleration"

_FORBIDS = frozenset({"NoSchedule", "NoExecute"})
_DISCOURAGES = "PreferNoSchedule"
_WAKES = frozenset({Signal(Topic.NODES)})


@dataclass(frozen=True, slots=True)
class TaintToleration:
    """`spec.taints` of nodes against `spec.tolerations` of pods."""

    name: str = NAME

    def opinion(self, subject: Subject, snapshot: Snapshot) -> Opinion:
        """No to taints that the pod does not tolerate; fewer of the milder ones are better."""
        tolerations = subject.pod.spec.tolerations
        if not tolerations:
            return _INTOLERANT
        return Opinion(filter=_refusing(tolerations), score=_counting(tolerations), spread=by_least)


def _refusing(tolerations: tuple[Toleration, ...]) -> Callable[[Seat], Verdict | None]:
    def refuse(seat: Seat) -> Verdict | None:
        for taint in seat.likeness.traits.taints:
            if taint.effect in _FORBIDS and not tolerated(taint, tolerations):
                return _untolerated(taint)
        return None

    return refuse


def _counting(tolerations: tuple[Toleration, ...]) -> Callable[[Seat], int]:
    def count(seat: Seat) -> int:
        found = 0
        for taint in seat.likeness.traits.taints:
            if taint.effect == _DISCOURAGES and not tolerated(taint, tolerations):
                found += 1
        return found

    return count


def _untolerated(taint: Taint) -> Verdict:
    return Verdict(NAME, f"untolerated taint {taint.key}:{taint.effect}", _WAKES)


_INTOLERANT = Opinion(filter=_refusing(()), score=_counting(()), spread=by_least)
