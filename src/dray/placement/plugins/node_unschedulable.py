"""Nodes that take no new pods: cordoned by their administrator."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dray.api.core import Taint
from dray.api.tolerations import tolerated
from dray.placement.framework import Opinion
from dray.placement.rejections import Signal, Topic, Verdict

if TYPE_CHECKING:
    from dray.placement.pending_pod import Subject
    from dray.placement.snapshot import Seat, Snapshot

NAME = "NodeUnschedulable"

_CORDON = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")
_CORDONED = Verdict(NAME, "unschedulable (cordoned)", frozenset({Signal(Topic.NODES)}))


def _refuse(seat: Seat) -> Verdict | None:
    return _CORDONED if seat.likeness.traits.unschedulable else None


_OPINION = Opinion(filter=_refuse)


@dataclass(frozen=True, slots=True)
class NodeUnschedulable:
    """`spec.unschedulable` of nodes, which a pod tolerates as if it were a taint."""

    name: str = NAME

    def opinion(self, subject: Subject, snapshot: Snapshot) -> Opinion | None:
        """No to cordoned nodes, unless the pod tolerates that."""
        return None if tolerated(_CORDON, subject.pod.spec.tolerations) else _OPINION
