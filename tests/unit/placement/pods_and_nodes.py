"""Builders of pods, nodes and node states, with the field names of the API."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from dray.allocator.inventory.device_inventory import DeviceInventory
from dray.allocator.inventory.usage import DeviceUsage
from dray.api.codec import get_decoder
from dray.api.core import Node, Pod
from dray.placement.framework import PreFilterResult, SchedulingPlugin
from dray.placement.pending_pod import PendingPod
from dray.placement.rejections import PluginRejection
from dray.placement.resource_requests import NO_REQUESTS, ResourceRequests, compute_requests
from dray.placement.snapshot import ClusterSnapshot, NodeState

ALLOCATABLE = {"cpu": "4", "memory": "8Gi", "pods": "10"}
STOCK = DeviceInventory([], [], DeviceUsage(), lambda _expression, _driver, _device: True)


def pod(**spec: Any) -> Pod:
    """A pod with this spec."""
    document = {"metadata": {"name": "p", "namespace": "ns", "uid": "u"}, "spec": spec}
    found: Pod = get_decoder(Pod).decode(json.dumps(document))
    return found


def container(requests: Mapping[str, str] | None = None, **more: Any) -> dict[str, Any]:
    """A container with requests; `limits`, `restartPolicy` as they are."""
    limits = more.pop("limits", None)
    resources = {"requests": dict(requests or {}), "limits": dict(limits or {})}
    return {"name": "c", "resources": resources, **more}


def asking(**amounts: str) -> Pod:
    """A pod of one container with these requests; `gpu` is an extended resource."""
    named = {"example.com/gpu" if name == "gpu" else name: amount for name, amount in amounts.items()}
    return pod(containers=[container(named)])


def node(name: str = "n", allocatable: Mapping[str, str] = ALLOCATABLE, **more: Any) -> Node:
    """A node; `labels`, `taints` and `unschedulable` as they are."""
    document = {
        "metadata": {"name": name, "labels": more.pop("labels", {})},
        "spec": more,
        "status": {"allocatable": dict(allocatable)},
    }
    found: Node = get_decoder(Node).decode(json.dumps(document))
    return found


def snapshot_of(*nodes: Node, needs: Mapping[str, ResourceRequests] | None = None) -> ClusterSnapshot:
    """A snapshot of these nodes, without devices."""
    return ClusterSnapshot.build(nodes, STOCK, needs)


def node_state(place: Node, *held: Pod) -> NodeState:
    """A node with pods on it."""
    needs = NO_REQUESTS
    for each in held:
        needs = needs.add(compute_requests(each))
    return snapshot_of(place, needs={place.metadata.name: needs}).node_states[place.metadata.name]


def pending_pod(asked: Pod) -> PendingPod:
    """A pod to be placed."""
    return PendingPod(asked, compute_requests(asked))


def pre_filter_result(plugin: SchedulingPlugin, asked: Pod, *nodes: Node) -> PreFilterResult | None:
    """The result of a plugin for a pod; the plugins tested with this never reject the whole cluster."""
    found = plugin.pre_filter(pending_pod(asked), snapshot_of(*nodes))
    assert not isinstance(found, PluginRejection)
    return found


def find_rejection(plugin: SchedulingPlugin, asked: Pod, place: NodeState) -> PluginRejection | None:
    """The rejection of one node by a plugin, by name or by filter."""
    found = plugin.pre_filter(pending_pod(asked), snapshot_of(place.node))
    assert not isinstance(found, PluginRejection)
    if found is None:
        return None
    if found.node_names is not None and place.name not in found.node_names:
        return found.other_nodes_rejection
    return found.filter(place) if found.filter is not None else None


def scores_of(plugin: SchedulingPlugin, asked: Pod, places: Sequence[NodeState]) -> list[int]:
    """The normalised scores of nodes."""
    found = plugin.pre_filter(pending_pod(asked), snapshot_of(*[place.node for place in places]))
    assert isinstance(found, PreFilterResult)
    assert found.score is not None
    return list(found.normalize_scores([found.score(place) for place in places]))
