"""Cluster snapshot: the nodes, the resources requested of them, and their devices, at one moment.

Theory of operation: a `NodeState` is a node with the requests of its pods and the shape of its devices.
Plugins that read neither names nor labels cannot distinguish nodes with the same traits, requests and shape,
so such nodes form one group and are filtered once. A snapshot never changes; the next one shares everything
unchanged with it, and recomputes only the nodes that the caller names.

The caller that changes the inventory must name the nodes whose view changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from dray.allocator.inventory.device_inventory import DeviceInventory
from dray.allocator.inventory.node_shapes import NodeShape
from dray.api.core import Node, Taint
from dray.placement.resource_requests import NO_REQUESTS, ResourceRequests
from dray.values.mapping_copies import copy_mapping


@dataclass(frozen=True, slots=True, eq=False)
class NodeTraits:
    """What plugins read of a node besides its name and labels; equal traits are the same object."""

    taints: tuple[Taint, ...]
    unschedulable: bool
    allocatable: Mapping[str, int]
    """Resource name to nanos."""


class NodeGroupKey(NamedTuple):
    """What the nodes of one group have in common."""

    traits: NodeTraits
    requests: ResourceRequests
    shape: NodeShape


@dataclass(frozen=True, slots=True, eq=False)
class NodeState:
    """A node with the sum of the requests of its pods."""

    node: Node
    group_key: NodeGroupKey

    @property
    def name(self) -> str:
        return self.node.metadata.name

    @property
    def traits(self) -> NodeTraits:
        return self.group_key.traits

    @property
    def requests(self) -> ResourceRequests:
        return self.group_key.requests

    @property
    def shape(self) -> NodeShape:
        return self.group_key.shape


NodeGroup = Mapping[str, NodeState]
"""Like nodes, by name."""


@dataclass(frozen=True, slots=True, eq=False)
class ClusterSnapshot:
    """All nodes by name and in groups, and the inventory."""

    node_states: Mapping[str, NodeState]
    groups: Mapping[NodeGroupKey, NodeGroup]
    inventory: DeviceInventory
    nodes: Mapping[str, Node]
    """The nodes by name: the same mapping object as long as no node changes."""

    @classmethod
    def build(
        cls,
        nodes: Iterable[Node],
        inventory: DeviceInventory,
        requests: Mapping[str, ResourceRequests] | None = None,
    ) -> ClusterSnapshot:
        """Build a first snapshot; `requests` are the sums over the pods of each node."""
        empty = cls({}, {}, inventory, {})
        asked = requests or {}
        return empty.apply_changes(
            inventory, {n.metadata.name: (n, asked.get(n.metadata.name, NO_REQUESTS)) for n in nodes}
        )

    def apply_changes(
        self, inventory: DeviceInventory, changes: Mapping[str, tuple[Node, ResourceRequests] | None]
    ) -> ClusterSnapshot:
        """The next snapshot: the given nodes changed or were deleted, all others are unchanged."""
        if inventory is self.inventory and not changes:
            return self
        node_states, groups = copy_mapping(self.node_states), copy_mapping(self.groups)
        fresh: set[NodeGroupKey] = set()
        """Groups that were copied already and may be changed."""
        for name, said in changes.items():
            old = node_states.get(name)
            new = None if said is None else NodeState(said[0], _build_group_key(*said, inventory))
            if old is not None:
                _copy_group(groups, old.group_key, fresh).pop(name)
                if not groups[old.group_key]:
                    del groups[old.group_key]
                    fresh.discard(old.group_key)
            if new is None:
                node_states.pop(name, None)
            else:
                node_states[name] = new
                _copy_group(groups, new.group_key, fresh)[name] = new
        return ClusterSnapshot(node_states, groups, inventory, self._update_nodes(changes))

    def _update_nodes(
        self, changes: Mapping[str, tuple[Node, ResourceRequests] | None]
    ) -> Mapping[str, Node]:
        known = self.nodes
        if all((None if said is None else said[0]) is known.get(name) for name, said in changes.items()):
            return known
        nodes = copy_mapping(known)
        for name, said in changes.items():
            if said is None:
                nodes.pop(name, None)
            else:
                nodes[name] = said[0]
        return nodes


def _copy_group(
    groups: dict[NodeGroupKey, NodeGroup], group_key: NodeGroupKey, copied: set[NodeGroupKey]
) -> dict[str, NodeState]:
    """A group that may be changed: the next snapshot must not change the last one."""
    group = groups.get(group_key)
    if group_key not in copied or group is None:
        group = groups[group_key] = {} if group is None else copy_mapping(group)
        copied.add(group_key)
    assert isinstance(group, dict)
    return group


def _build_group_key(node: Node, requests: ResourceRequests, inventory: DeviceInventory) -> NodeGroupKey:
    return NodeGroupKey(read_traits(node), requests, inventory.get_node_view(node).shape)


def read_traits(node: Node) -> NodeTraits:
    """The traits of a node."""
    status = node.status
    allocatable = status.allocatable or status.capacity
    amounts = tuple(sorted((name, amount.nanos) for name, amount in allocatable.items()))
    return _intern_traits(node.spec.taints, node.spec.unschedulable, amounts)


@lru_cache(maxsize=8192)
def _intern_traits(
    taints: tuple[Taint, ...], unschedulable: bool, amounts: tuple[tuple[str, int], ...]
) -> NodeTraits:
    return NodeTraits(taints, unschedulable, dict(amounts))
