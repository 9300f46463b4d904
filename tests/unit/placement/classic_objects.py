"""Builders of classic claims, of pods that use them, and of nodes."""

from __future__ import annotations

from typing import Any

import msgspec

from dray.api.classic import ClassicResourceClaim
from dray.api.core import Node, Pod
from dray.placement.pending_pod import PendingPod
from dray.placement.resource_requests import NO_REQUESTS
from dray.placement.snapshot import NodeGroupKey, NodeState, read_traits
from dray.values.node_selectors import build_node_name_selector

GONE = "2026-01-01T00:00:00Z"


def classic(
    name: str = "c", *, mode: str = "Delayed", deleted: bool = False, **status: Any
) -> ClassicResourceClaim:
    """A classic claim with the status that is given, in the words of the wire."""
    metadata = {"name": name, "namespace": "ns", "uid": f"uid-{name}", "resourceVersion": "7"}
    document = {
        "metadata": metadata | ({"deletionTimestamp": GONE} if deleted else {}),
        "spec": {"resourceClassName": "acme", "allocationMode": mode},
        "status": {"phase": "Pending", "userLimit": 1, **status},
    }
    return msgspec.convert(document, ClassicResourceClaim)


def allocated(
    name: str = "c", node: str = "", *, users: tuple[str, ...] = (), **more: Any
) -> ClassicResourceClaim:
    """A claim that its driver allocated, available on one node or everywhere."""
    reach: dict[str, Any] = {"availableOnNodes": build_node_name_selector(node).to_document()} if node else {}
    entries = [{"apiVersion": "v1", "kind": "Pod", "name": uid, "uid": uid} for uid in users]
    return classic(name, phase="Allocated", reservedFor=entries, **reach, **more)


def proposed(
    *nodes: str, selected: str = "", declined: tuple[str, ...] = (), name: str = "c", **driver: Any
) -> ClassicResourceClaim:
    """A claim in the middle of the negotiation."""
    scheduling = {
        "scheduler": {"potentialNodes": list(nodes), "selectedNode": selected},
        "driver": {"unsuitableNodes": list(declined), **driver},
    }
    return classic(name, scheduling=scheduling)


def pending_pod(*claims: ClassicResourceClaim, uid: str = "p") -> PendingPod:
    """A pod that uses these claims."""
    pod = msgspec.convert({"metadata": {"name": "p", "namespace": "ns", "uid": uid}}, Pod)
    return PendingPod(pod, NO_REQUESTS, (), claims)


def node_state(name: str, **labels: str) -> NodeState:
    """A node without devices."""
    node = msgspec.convert({"metadata": {"name": name, "labels": labels}}, Node)
    return NodeState(node, NodeGroupKey(read_traits(node), NO_REQUESTS, None))  # type: ignore[arg-type]
