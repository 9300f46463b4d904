"""TaintToleration: taints of nodes that reject a pod, and those that lower the score of a node.

Taints with the effects `NoSchedule` and `NoExecute` reject a pod that does not tolerate them; those with
`PreferNoSchedule` only count against the node. The reason names key and effect and not the value: values may
differ from node to node, and a thousand nodes should not give a thousand reasons.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dray.api.core import Taint, Toleration
from dray.api.tolerations import is_tolerated
from dray.placement.framework import PreFilterResult, normalize_inverted
from dray.placement.rejections import PluginRejection, Signal, Topic

if TYPE_CHECKING:
    from dray.placement.pending_pod import PendingPod
    from dray.placement.snapshot import ClusterSnapshot, NodeState

NAME = "TaintToleration"

_BLOCKING_EFFECTS = frozenset({"NoSchedule", "NoExecute"})
_PREFERRED_EFFECT = "PreferNoSchedule"
_WAKES = frozenset({Signal(Topic.NODES)})


@dataclass(frozen=True, slots=True)
class TaintToleration:
    """`spec.taints` of nodes against `spec.tolerations` of pods."""

    name: str = NAME

    def pre_filter(self, pending_pod: PendingPod, snapshot: ClusterSnapshot) -> PreFilterResult:
        """Reject nodes with taints that the pod does not tolerate; prefer fewer `PreferNoSchedule` ones."""
        tolerations = pending_pod.pod.spec.tolerations
        if not tolerations:
            return _NO_TOLERATIONS
        return PreFilterResult(
            filter=_build_filter(tolerations),
            score=_build_score(tolerations),
            normalize_scores=normalize_inverted,
        )


def _build_filter(tolerations: tuple[Toleration, ...]) -> Callable[[NodeState], PluginRejection | None]:
    def refuse(node_state: NodeState) -> PluginRejection | None:
        for taint in node_state.group_key.traits.taints:
            if taint.effect in _BLOCKING_EFFECTS and not is_tolerated(taint, tolerations):
                return _build_rejection(taint)
        return None

    return refuse


def _build_score(tolerations: tuple[Toleration, ...]) -> Callable[[NodeState], int]:
    def count(node_state: NodeState) -> int:
        found = 0
        for taint in node_state.group_key.traits.taints:
            if taint.effect == _PREFERRED_EFFECT and not is_tolerated(taint, tolerations):
                found += 1
        return found

    return count


def _build_rejection(taint: Taint) -> PluginRejection:
    return PluginRejection(NAME, f"untolerated taint {taint.key}:{taint.effect}", _WAKES)


_NO_TOLERATIONS = PreFilterResult(
    filter=_build_filter(()), score=_build_score(()), normalize_scores=normalize_inverted
)
