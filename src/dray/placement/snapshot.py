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

from dray.allocator.inventory.device_inventory import Shape, Stock
from dray.api.core import Node, Taint
from dray.placement.resource_requests import NOTHING, Needs


@dataclass(frozen=True, slots=True, eq=False)
class Traits:
    """What plugins see of a node besides its name and labels; the same traits are the same object."""

    taints: tuple[Taint, ...]
    unschedulable: bool
    allocatable: Mapping[str, int]
    """Resource name to nanos."""


class Likeness(NamedTuple):
    """What seats of one group have in common."""

    traits: Traits
    needs: Needs
    shape: Shape


@dataclass(frozen=True, slots=True, eq=False)
class Seat:
    """A node as a place for pods: the node, and what the pods on it need together."""

    node: Node
    likeness: Likeness

    @property
    def name(self) -> str:
        return self.node.metadata.name

    @property
    def traits(self) -> Traits:
        return self.likeness.traits

    @property
    def needs(self) -> Needs:
        return self.likeness.needs

    @property
    def shape(self) -> Shape:
        return self.likeness.shape


Group = Mapping[str, Seat]
"""Seats that are alike, by name."""


@dataclass(frozen=True, slots=True, eq=False)
class Snapshot:
    """Every node as a seat, the seats in groups, and the devices."""

    seats: Mapping[str, Seat]
    groups: Mapping[Likeness, Group]
    stock: Stock
    nodes: Mapping[str, Node]
    """The nodes by name: the very same mapping for as long as no node changes."""

    @classmethod
    def of(cls, nodes: Iterable[Node], stock: Stock, needs: Mapping[str, Needs] | None = None) -> Snapshot:
        """A first photograph; `needs` are the sums over the pods of each node."""
        empty = cls({}, {}, stock, {})
        asked = needs or {}
        return empty.changed(
            stock, {n.metadata.name: (n, asked.get(n.metadata.name, NOTHING)) for n in nodes}
        )

    def changed(self, stock: Stock, news: Mapping[str, tuple[Node, Needs] | None]) -> Snapshot:
        """The next photograph: these nodes are like this now, or gone; all others see what they saw."""
        if stock is self.stock and not news:
            return self
        seats, groups = dict(self.seats), dict(self.groups)
        fresh: set[Likeness] = set()
        """Groups that were copied already and may be written to."""
        for name, said in news.items():
            old = seats.pop(name, None)
            new = None if said is None else Seat(said[0], _likeness(*said, stock))
            if old is not None:
                _own(groups, old.likeness, fresh).pop(name)
                if not groups[old.likeness]:
                    del groups[old.likeness]
                    fresh.discard(old.likeness)
            if new is not None:
                seats[name] = new
                _own(groups, new.likeness, fresh)[name] = new
        return Snapshot(seats, groups, stock, self._nodes(news))

    def _nodes(self, news: Mapping[str, tuple[Node, Needs] | None]) -> Mapping[str, Node]:
        known = self.nodes
        if all((None if said is None else said[0]) is known.get(name) for name, said in news.items()):
            return known
        nodes = dict(known)
        for name, said in news.items():
            if said is None:
                nodes.pop(name, None)
            else:
                nodes[name] = said[0]
        return nodes


def _own(groups: dict[Likeness, Group], likeness: Likeness, fresh: set[Likeness]) -> dict[str, Seat]:
    """A group that may be written to: the next photograph must not change the last one."""
    group = groups.get(likeness)
    if likeness not in fresh or group is None:
        group = groups[likeness] = dict(group or ())
        fresh.add(likeness)
    assert isinstance(group, dict)
    return group


def _likeness(node: Node, needs: Needs, stock: Stock) -> Likeness:
    return Likeness(traits_of(node), needs, stock.seen_from(node).shape)


def traits_of(node: Node) -> Traits:
    """The traits of a node."""
    status = node.status
    allocatable = status.allocatable or status.capacity
    amounts = tuple(sorted((name, amount.nanos) for name, amount in allocatable.items()))
    return _traits(node.spec.taints, node.spec.unschedulable, amounts)


@lru_cache(maxsize=8192)
def _traits(taints: tuple[Taint, ...], unschedulable: bool, amounts: tuple[tuple[str, int], ...]) -> Traits:
    return Traits(taints, unschedulable, dict(amounts))
