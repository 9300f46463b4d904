"""NodeName: a pod that names its node runs there or nowhere."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dray.placement.framework import PreFilterResult
from dray.placement.rejections import PluginRejection, Signal, Topic

if TYPE_CHECKING:
    from dray.placement.pending_pod import PendingPod
    from dray.placement.snapshot import ClusterSnapshot

NAME = "NodeName"

_OTHER_NODE = PluginRejection(NAME, "not the node that the pod names", frozenset({Signal(Topic.NODES)}))


@dataclass(frozen=True, slots=True)
class NodeName:
    """`spec.nodeName`."""

    name: str = NAME

    def pre_filter(self, pending_pod: PendingPod, snapshot: ClusterSnapshot) -> PreFilterResult | None:
        """Restrict the pod to the node it names."""
        wanted = pending_pod.pod.spec.node_name
        return (
            PreFilterResult(node_names=frozenset({wanted}), other_nodes_rejection=_OTHER_NODE)
            if wanted
            else None
        )
