"""A small allocation problem as one value."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random
from typing import Any

from dray.api.core import Node
from dray.api.json_text import write_json
from dray.api.resource import DeviceClass, ResourceClaim, ResourceSlice


@dataclass(frozen=True)
class Problem:
    """Everything that decides an allocation.

    `nodes` are all nodes; the question is about the first. `limit` is how many devices one claim may hold:
    32 in truth, less in small problems, so that the limit is met there, too.
    """

    slices: tuple[ResourceSlice, ...]
    classes: tuple[DeviceClass, ...]
    claims: tuple[ResourceClaim, ...]
    held: tuple[ResourceClaim, ...]
    nodes: tuple[Node, ...]
    limit: int = 32

    @property
    def node(self) -> Node:
        return self.nodes[0]

    def seen_from(self, node: Node) -> Problem:
        """The same question about another node."""
        return replace(self, nodes=(node,))

    def shuffled(self, chance: Random) -> Problem:
        """The same problem with everything that has no order in another order."""

        def mixed(items: tuple[Any, ...]) -> tuple[Any, ...]:
            return tuple(chance.sample(items, len(items)))

        return replace(self, slices=mixed(self.slices), classes=mixed(self.classes), held=mixed(self.held))

    def text(self) -> str:
        """As JSON lines, to look at and to keep."""
        objects = (*self.nodes, *self.slices, *self.classes, *self.claims, *self.held)
        return "\n".join(write_json(item).decode() for item in objects)
