"""Slices for several nodes, found by the labels of a node.

Theory of operation: a cluster may have thousands of slices for a rack or a switch each, and to ask every one
of them about every node takes the product of both. Most select nodes by a label with a few values, so a
slice is kept under the values that one of its conditions lets pass, for every term of its selector. Only the
slices under the labels of a node, and those that cannot be found this way, are asked about the node.

Rules for this file: what is found may not cover a node; what covers it is always found.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from dray.allocator.inventory.pool_views import Page, reached_by
from dray.allocator.inventory.usage import PoolId
from dray.allocator.withheld_devices import HiddenSlice
from dray.api.core import Node
from dray.api.resource import ResourceSliceSpec
from dray.values.label_selectors import Operator
from dray.values.node_selectors import NODE_NAME, NodeSelectorTerm

Place = tuple[str, str]
"""A label and its value; an empty label stands for the name of the node."""
_Numbered = tuple[int, Page]


class SharedPages:
    """The slices of a cluster that are not for one node."""

    __slots__ = ("_anywhere", "_by_place", "_hidden", "pages")

    def __init__(self, pages: Iterable[Page]) -> None:
        self.pages = tuple(pages)
        self._anywhere: list[_Numbered] = []
        self._by_place: dict[Place, list[_Numbered]] = {}
        self._hidden: dict[str, list[ResourceSliceSpec]] = {}
        """What hidden slices said, by the node they were for, if it was one."""
        for numbered in enumerate(self.pages):
            published = numbered[1].slice
            if isinstance(published, HiddenSlice):
                said = published.published.spec
                self._hidden.setdefault(said.node_name or "", []).append(said)
                continue
            places = _places(numbered[1])
            for place in places or ():
                self._by_place.setdefault(place, []).append(numbered)
            if places is None:
                self._anywhere.append(numbered)

    def near(self, node: Node) -> list[Page]:
        """The slices that may cover a node, in their order."""
        if not self._by_place:
            return [page for _, page in self._anywhere]
        found = dict(self._anywhere)
        for place in (("", node.metadata.name), *node.metadata.labels.items()):
            found.update(self._by_place.get(place, ()))
        return [found[number] for number in sorted(found)]

    def hidden_from(self, node: Node) -> tuple[PoolId, ...]:
        """The pools of which a node would see a slice that is hidden."""
        if not self._hidden:
            return ()
        hidden = (*self._hidden.get(node.metadata.name, ()), *self._hidden.get("", ()))
        return tuple(sorted({(each.driver, each.pool.name) for each in hidden if reached_by(each, node)}))


def _places(page: Page) -> set[Place] | None:
    """Where a slice is kept: a node that it covers has one of these labels; None when that cannot be told."""
    spec = page.slice.spec
    selector = spec.node_selector
    if spec.per_device_node_selection or spec.all_nodes or selector is None:
        return None
    places: set[Place] = set()
    for term in selector.node_selector_terms:
        of_term = next(_wanted(term), None)
        if of_term is None:
            return None
        places |= of_term
    return places


def _wanted(term: NodeSelectorTerm) -> Iterator[set[Place]]:
    """For each condition that names the values it lets pass, these values."""
    for item in term.match_fields:
        if item.key == NODE_NAME and item.operator == Operator.IN:
            yield {("", value) for value in item.values}
    for item in term.match_expressions:
        if item.key and item.operator == Operator.IN:
            yield {(item.key, value) for value in item.values}
