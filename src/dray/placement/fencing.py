"""Fencing of nodes: the out-of-service taint, and what follows from it.

Theory of operation: the taint is that of Kubernetes. Its effect keeps new pods away and ends the pods on the
node. A node that is out of service and not ready will never report that a pod ended, so its terminating pods
need not wait for it. A node that is out of service and ready ends them itself.

This module is pure. That a node no longer uses a device is declared by people, never concluded here.
"""

from __future__ import annotations

from typing import Any, Final

from dray.api.core import Node, Pod, Taint
from dray.placement.node_health import NO_EXECUTE, find_node_eviction, find_ready_condition

OUT_OF_SERVICE: Final = "node.kubernetes.io/out-of-service"
FENCE_TAINT_VALUE: Final = "fenced"
"""The value of the taint that `dray fence node` sets."""
FENCED_AT_ANNOTATION: Final = "dray.dev/fenced-at"
"""Annotation: when a node was declared to use no devices any more."""


def is_out_of_service(node: Node) -> bool:
    """Whether a node was declared out of service, with whatever effect."""
    return any(taint.key == OUT_OF_SERVICE for taint in node.spec.taints)


def allows_forced_deletion(node: Node) -> bool:
    """Whether terminating pods need not wait for their node: it is out of service and not ready."""
    ready = find_ready_condition(node)
    return is_out_of_service(node) and (ready is None or ready.status != "True")


def must_evict(pod: Pod, node: Node) -> bool:
    """Whether a pod must leave a node because it is out of service."""
    return (
        find_node_eviction(pod, (taint for taint in node.spec.taints if taint.key == OUT_OF_SERVICE))
        is not None
    )


def add_fence_taint(taints: tuple[Taint, ...], *, now: str) -> tuple[Taint, ...]:
    """The taints of a fenced node; unchanged when it is out of service already."""
    if any((taint.key, taint.effect) == (OUT_OF_SERVICE, NO_EXECUTE) for taint in taints):
        return taints
    return (*taints, Taint(key=OUT_OF_SERVICE, value=FENCE_TAINT_VALUE, effect=NO_EXECUTE, time_added=now))


def remove_fence_taint(taints: tuple[Taint, ...]) -> tuple[Taint, ...]:
    """The taints of a node that is back in service; unchanged when it was."""
    kept = tuple(taint for taint in taints if taint.key != OUT_OF_SERVICE)
    return taints if len(kept) == len(taints) else kept


def build_failed_status(pod: Pod, why: str, *, now: str) -> dict[str, Any]:
    """The status of a pod that is ended without its node; an eviction stays recorded in it."""
    said = any(each.type == "DisruptionTarget" and each.status == "True" for each in pod.status.conditions)
    condition = {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "DeletionByPodGC",
        "message": f"PodGC: {why}",
        "lastTransitionTime": now,
    }
    return {"phase": "Failed"} if said else {"phase": "Failed", "conditions": [condition]}
