"""The photograph of a cluster that a decision looks at: nodes, what is asked of them, devices.

Theory of operation: a seat is a node with what its pods need and the shape of the devices it sees. Plugins
that look at neither names nor labels cannot tell seats apart whose traits, needs and shape are the same, so
such seats are one group and are judged once. A snapshot never changes; the next one shares with it whatever
stayed the same, and only seats that are named are looked at again.

Rules for this file: whoever changes the stock names the nodes that see something else now.
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


@dataclass(frozen=True, slots=True, eq=False)
class NodeTraits:
    """What plugins see of a node besides its name and labels; the same traits are the same object."""

    taints: tuple[Taint, ...]
    unschedulable: bool
    allocatable: Mapping[str, int]
    """Resource name to nanos."""


class NodeGroupKey(NamedTuple):
    """What seats of one group have in common."""

    traits: NodeTraits
    requests: ResourceRequests
    shape: NodeShape


@dataclass(frozen=True, slots=True, eq=False)
class NodeState:
    """A node as a place for pods: the node, and what the pods on it need together."""

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
"""Seats that are alike, by name."""


@dataclass(frozen=True, slots=True, eq=False)
class ClusterSnapshot:
    """Every node as a seat, the seats in groups, and the devices."""

    node_states: Mapping[str, NodeState]
    groups: Mapping[NodeGroupKey, NodeGroup]
    inventory: DeviceInventory
    nodes: Mapping[str, Node]
    """The nodes by name: the very same mapping for as long as no node changes."""

    @classmethod
    def build(
        cls,
        nodes: Iterable[Node],
        inventory: DeviceInventory,
        requests: Mapping[str, ResourceRequests] | None = None,
    ) -> ClusterSnapshot:
        """A first photograph; `requests` are the sums over the pods of each node."""
        empty = cls({}, {}, inventory, {})
        asked = requests or {}
        return empty.apply_changes(
            inventory, {n.metadata.name: (n, asked.get(n.metadata.name, NO_REQUESTS)) for n in nodes}
        )

    def apply_changes(
        self, inventory: DeviceInventory, changes: Mapping[str, tuple[Node, ResourceRequests] | None]
    ) -> ClusterSnapshot:
        """The next photograph: these nodes are like this now, or gone; all others see what they saw."""
        if inventory is self.inventory and not changes:
            return self
        seats, groups = dict(self.node_states), dict(self.groups)
        fresh: set[NodeGroupKey] = set()
        """Groups that were copied already and may be written to."""
        for name, said in changes.items():
            old = seats.pop(name, None)
            new = None if said is None else NodeState(said[0], _build_group_key(*said, inventory))
            if old is not None:
                _copy_group(groups, old.group_key, fresh).pop(name)
                if not groups[old.group_key]:
                    del groups[old.group_key]
                    fresh.discard(old.group_key)
            if new is not None:
                seats[name] = new
                _copy_group(groups, new.group_key, fresh)[name] = new
        return ClusterSnapshot(seats, groups, inventory, self._update_nodes(changes))

    def _update_nodes(
        self, changes: Mapping[str, tuple[Node, ResourceRequests] | None]
    ) -> Mapping[str, Node]:
        known = self.nodes
        if all((None if said is None else said[0]) is known.get(name) for name, said in changes.items()):
            return known
        nodes = dict(known)
        for name, said in changes.items():
            if said is None:
                nodes.pop(name, None)
            else:
                nodes[name] = said[0]
        return nodes


def _copy_group(
    groups: dict[NodeGroupKey, NodeGroup], group_key: NodeGroupKey, copied: set[NodeGroupKey]
) -> dict[str, NodeState]:
    """A group that may be written to: the next photograph must not change the last one."""
    group = groups.get(group_key)
    if group_key not in copied or group is None:
        group = groups[group_key] = dict(group or ())
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
