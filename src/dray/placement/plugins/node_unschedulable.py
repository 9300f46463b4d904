"""NodeUnschedulable: cordoned nodes take no new pods."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dray.api.core import Taint
from dray.api.tolerations import is_tolerated
from dray.placement.framework import PreFilterResult
from dray.placement.rejections import PluginRejection, Signal, Topic

if TYPE_CHECKING:
    from dray.placement.pending_pod import PendingPod
    from dray.placement.snapshot import ClusterSnapshot, NodeState

NAME = "NodeUnschedulable"

_CORDON_TAINT = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")
_CORDONED = PluginRejection(NAME, "unschedulable (cordoned)", frozenset({Signal(Topic.NODES)}))


def _reject_cordoned(node_state: NodeState) -> PluginRejection | None:
    return _CORDONED if node_state.group_key.traits.unschedulable else None


_RESULT = PreFilterResult(filter=_reject_cordoned)


@dataclass(frozen=True, slots=True)
class NodeUnschedulable:
    """`spec.unschedulable` of nodes, which a pod tolerates as if it were a taint."""

    name: str = NAME

    def pre_filter(self, pending_pod: PendingPod, snapshot: ClusterSnapshot) -> PreFilterResult | None:
        """Reject cordoned nodes, unless the pod tolerates that."""
        return None if is_tolerated(_CORDON_TAINT, pending_pod.pod.spec.tolerations) else _RESULT
