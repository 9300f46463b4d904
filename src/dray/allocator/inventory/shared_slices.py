"""Slices for several nodes, found by the labels of a node.

Theory of operation: a cluster may have thousands of slices for a rack or a switch each, and to ask every one
of them about every node takes the product of both. Most select nodes by a label with a few values, so a
slice is kept under the values that one of its conditions lets pass, for every term of its selector. Only the
slices under the labels of a node, and those that cannot be found this way, are asked about the node.

Rules for this file: what is found may not cover a node; what covers it is always found.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from dray.allocator.inventory.pool_views import PreparedSlice, find_reachable_devices
from dray.allocator.inventory.usage import PoolId
from dray.allocator.withheld_devices import HiddenSlice
from dray.api.core import Node
from dray.api.resource import ResourceSliceSpec
from dray.values.label_selectors import SelectorOperator
from dray.values.node_selectors import NODE_NAME_FIELD, NodeSelectorTerm

NodeLabel = tuple[str, str]
"""A label and its value; an empty label stands for the name of the node."""
_NumberedSlice = tuple[int, PreparedSlice]


class SharedSlices:
    """The slices of a cluster that are not for one node."""

    __slots__ = ("_by_label", "_hidden", "_unindexed", "slices")

    def __init__(self, slices: Iterable[PreparedSlice]) -> None:
        self.slices = tuple(slices)
        self._unindexed: list[_NumberedSlice] = []
        self._by_label: dict[NodeLabel, list[_NumberedSlice]] = {}
        self._hidden: dict[str, list[ResourceSliceSpec]] = {}
        """What hidden slices said, by the node they were for, if it was one."""
        for numbered in enumerate(self.slices):
            published = numbered[1].slice
            if isinstance(published, HiddenSlice):
                said = published.published.spec
                self._hidden.setdefault(said.node_name or "", []).append(said)
                continue
            places = _collect_labels(numbered[1])
            for place in places or ():
                self._by_label.setdefault(place, []).append(numbered)
            if places is None:
                self._unindexed.append(numbered)

    def find_candidates(self, node: Node) -> list[PreparedSlice]:
        """The slices that may cover a node, in their order."""
        if not self._by_label:
            return [page for _, page in self._unindexed]
        found = dict(self._unindexed)
        for place in (("", node.metadata.name), *node.metadata.labels.items()):
            found.update(self._by_label.get(place, ()))
        return [found[number] for number in sorted(found)]

    def find_hidden_pools(self, node: Node) -> tuple[PoolId, ...]:
        """The pools of which a node would see a slice that is hidden."""
        if not self._hidden:
            return ()
        hidden = (*self._hidden.get(node.metadata.name, ()), *self._hidden.get("", ()))
        return tuple(
            sorted({(each.driver, each.pool.name) for each in hidden if find_reachable_devices(each, node)})
        )


def _collect_labels(prepared_slice: PreparedSlice) -> set[NodeLabel] | None:
    """Where a slice is kept: a node that it covers has one of these labels; None when that cannot be told."""
    spec = prepared_slice.slice.spec
    selector = spec.node_selector
    if spec.per_device_node_selection or spec.all_nodes or selector is None:
        return None
    places: set[NodeLabel] = set()
    for term in selector.node_selector_terms:
        of_term = next(_iter_term_labels(term), None)
        if of_term is None:
            return None
        places |= of_term
    return places


def _iter_term_labels(term: NodeSelectorTerm) -> Iterator[set[NodeLabel]]:
    """For each condition that names the values it lets pass, these values."""
    for item in term.match_fields:
        if item.key == NODE_NAME_FIELD and item.operator == SelectorOperator.IN:
            yield {("", value) for value in item.values}
    for item in term.match_expressions:
        if item.key and item.operator == SelectorOperator.IN:
            yield {(item.key, value) for value in item.values}
