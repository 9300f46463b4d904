"""Nodes that somebody declared out of service: the taint that says so, and what follows from it.

Theory of operation: the taint is the one that Kubernetes knows for this. Its effect keeps new pods away and
ends those that are there. A node that is out of service and not ready will never say that a pod ended, so
its pods that are on their way out need not wait for it. A node that is out of service and ready ends them
itself, in its own time.

Rules for this file: pure. That a node uses no device any more is said by people, never concluded here.
"""

from __future__ import annotations

from typing import Any, Final

from dray.api.core import Node, Pod, Taint
from dray.placement.node_health import NO_EXECUTE, find_node_eviction, find_ready_condition

OUT_OF_SERVICE: Final = "node.kubernetes.io/out-of-service"
FENCE_TAINT_VALUE: Final = "fenced"
"""The value of the taint that `dray fence node` puts on."""
FENCED_AT_ANNOTATION: Final = "dray.dev/fenced-at"
"""An annotation: when a node was declared to use nothing any more."""


def is_out_of_service(node: Node) -> bool:
    """Whether somebody declared a node out of service, whatever effect they chose."""
    return any(taint.key == OUT_OF_SERVICE for taint in node.spec.taints)


def allows_forced_deletion(node: Node) -> bool:
    """Whether pods that leave a node need not wait for it: it is out of service, and not ready."""
    ready = find_ready_condition(node)
    return is_out_of_service(node) and (ready is None or ready.status != "True")


def must_evict(pod: Pod, node: Node) -> bool:
    """Whether a pod must leave a node because it is out of service."""
    return (
        find_node_eviction(pod, (taint for taint in node.spec.taints if taint.key == OUT_OF_SERVICE))
        is not None
    )


def add_fence_taint(taints: tuple[Taint, ...], *, now: str) -> tuple[Taint, ...]:
    """The taints of a node that is fenced; the same ones when it is out of service already."""
    if any((taint.key, taint.effect) == (OUT_OF_SERVICE, NO_EXECUTE) for taint in taints):
        return taints
    return (*taints, Taint(key=OUT_OF_SERVICE, value=FENCE_TAINT_VALUE, effect=NO_EXECUTE, time_added=now))


def remove_fence_taint(taints: tuple[Taint, ...]) -> tuple[Taint, ...]:
    """The taints of a node that is back in service; the same ones when it was."""
    kept = tuple(taint for taint in taints if taint.key != OUT_OF_SERVICE)
    return taints if len(kept) == len(taints) else kept


def build_failed_status(pod: Pod, why: str, *, now: str) -> dict[str, Any]:
    """What the status of a pod says that is ended without its node; that somebody evicted it stays said."""
    said = any(each.type == "DisruptionTarget" and each.status == "True" for each in pod.status.conditions)
    condition = {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "DeletionByPodGC",
        "message": f"PodGC: {why}",
        "lastTransitionTime": now,
    }
    return {"phase": "Failed"} if said else {"phase": "Failed", "conditions": [condition]}
