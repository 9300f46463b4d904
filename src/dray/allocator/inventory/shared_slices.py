"""Shared slices: an index of the slices for several nodes by the labels of nodes.

Theory of operation: a cluster may have thousands of slices for a rack or a switch each, and checking each of
them for every node costs the product of both. Most select nodes by a label with a few values, so a slice is
indexed under the values that one of its conditions admits, for every term of its selector. Only the slices
under the labels of a node, and those that cannot be indexed, are checked for the node.

The index may return slices that do not cover a node; it never omits one that does.
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
        """Published content of hidden slices, by their node if they have one."""
        for numbered in enumerate(self.slices):
            published = numbered[1].slice
            if isinstance(published, HiddenSlice):
                spec = published.published.spec
                self._hidden.setdefault(spec.node_name or "", []).append(spec)
                continue
            places = _collect_labels(numbered[1])
            for place in places or ():
                self._by_label.setdefault(place, []).append(numbered)
            if places is None:
                self._unindexed.append(numbered)

    def find_candidates(self, node: Node) -> list[PreparedSlice]:
        """The slices that may cover a node, in their order."""
        if not self._by_label:
            return [prepared for _, prepared in self._unindexed]
        found = dict(self._unindexed)
        for place in (("", node.metadata.name), *node.metadata.labels.items()):
            found.update(self._by_label.get(place, ()))
        return [found[number] for number in sorted(found)]

    def find_hidden_pools(self, node: Node) -> tuple[PoolId, ...]:
        """The pools with a hidden slice that would cover a node."""
        if not self._hidden:
            return ()
        hidden = (*self._hidden.get(node.metadata.name, ()), *self._hidden.get("", ()))
        return tuple(
            sorted({(each.driver, each.pool.name) for each in hidden if find_reachable_devices(each, node)})
        )


def _collect_labels(prepared_slice: PreparedSlice) -> set[NodeLabel] | None:
    """The labels a slice is indexed under, of which each node it covers has one; None without any."""
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
    """The admitted values of each condition that lists them."""
    for item in term.match_fields:
        if item.key == NODE_NAME_FIELD and item.operator == SelectorOperator.IN:
            yield {("", value) for value in item.values}
    for item in term.match_expressions:
        if item.key and item.operator == SelectorOperator.IN:
            yield {(item.key, value) for value in item.values}
