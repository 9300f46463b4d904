"""NodeAffinity: nodes that a pod selects by their labels or names.

Theory of operation: `nodeSelector` and the required terms must both match; which nodes they match depends on
the nodes only, and a snapshot has the same mapping of nodes as long as none of them changes. So the names are
computed once for all pods that select the same, and cached until a node changes. The same holds for the
weights of the preferred terms. A pod that names its node in every term, as those of a daemon set do, is
looked up by that name and not cached: there are as many such terms as nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeVar

from dray.api.core import Node, Pod, PreferredNode
from dray.placement.framework import PreFilterResult, normalize_to_max
from dray.placement.rejections import PluginRejection, Signal, Topic
from dray.values.label_selectors import SelectorOperator
from dray.values.node_selectors import NODE_NAME_FIELD, NodeSelector, NodeSelectorTerm

if TYPE_CHECKING:
    from dray.placement.pending_pod import PendingPod
    from dray.placement.snapshot import ClusterSnapshot, NodeState

NAME = "NodeAffinity"

MAX_CACHED: Final = 1024
"""Selections that are cached for one set of nodes."""

_NO_MATCH = PluginRejection(
    NAME, "no match for the node selector or affinity", frozenset({Signal(Topic.NODES)})
)

_Nodes = Mapping[str, Node]
_Labels = tuple[tuple[str, str], ...]
_T = TypeVar("_T")


@dataclass(slots=True, eq=False)
class _NodeCache:
    """Cached selections for one set of nodes; dropped with the first selection from another one."""

    entries: tuple[_Nodes, dict[Hashable, Any]] = field(default_factory=lambda: ({}, {}))

    def get_or_compute(self, nodes: _Nodes, key: Hashable, find: Callable[[], _T]) -> _T:
        known, answers = self.entries
        if nodes is not known or len(answers) >= MAX_CACHED:
            answers = {}
            self.entries = (nodes, answers)
        found: _T
        if key in answers:
            found = answers[key]
        else:
            found = answers[key] = find()
        return found


@dataclass(frozen=True, slots=True)
class NodeAffinityPlugin:
    """`spec.nodeSelector` and `spec.affinity.nodeAffinity` against names and labels of nodes."""

    name: str = NAME
    _cache: _NodeCache = field(default_factory=_NodeCache, init=False, repr=False, compare=False)

    def pre_filter(self, pending_pod: PendingPod, snapshot: ClusterSnapshot) -> PreFilterResult | None:
        """Require the required terms, and score the preferred ones."""
        spec = pending_pod.pod.spec
        if not spec.node_selector and spec.affinity is None:
            return None
        required, preferred = _read_terms(pending_pod.pod)
        names = weights = None
        if spec.node_selector or required is not None:
            names = self._match_nodes(tuple(sorted(spec.node_selector.items())), required, snapshot.nodes)
        if preferred:
            nodes = snapshot.nodes
            weights = self._cache.get_or_compute(nodes, preferred, lambda: _sum_weights(preferred, nodes))
        if names is None and not weights:
            return None
        elsewhere = None if names is None else _NO_MATCH
        if not weights:
            return PreFilterResult(names, elsewhere)
        return PreFilterResult(
            names, elsewhere, score=_build_score(weights), normalize_scores=normalize_to_max, by_node=True
        )

    def _match_nodes(self, labels: _Labels, required: NodeSelector | None, nodes: _Nodes) -> frozenset[str]:
        named = None if required is None else _read_node_names(required)
        if named is not None:
            return _find_matches(labels, required, [nodes[name] for name in named if name in nodes])
        return self._cache.get_or_compute(
            nodes, (labels, required), lambda: _find_matches(labels, required, nodes.values())
        )


def _read_terms(pod: Pod) -> tuple[NodeSelector | None, tuple[PreferredNode, ...]]:
    affinity = pod.spec.affinity
    wishes = None if affinity is None else affinity.node_affinity
    if wishes is None:
        return None, ()
    return (
        wishes.required_during_scheduling_ignored_during_execution,
        wishes.preferred_during_scheduling_ignored_during_execution,
    )


def _read_node_names(selector: NodeSelector) -> frozenset[str] | None:
    """The only nodes a selector can match, when every term of it has a list of names."""
    lists = [_read_term_names(term) for term in selector.node_selector_terms]
    found = [names for names in lists if names is not None]
    return frozenset().union(*found) if len(found) == len(lists) else None


def _read_term_names(term: NodeSelectorTerm) -> frozenset[str] | None:
    for item in term.match_fields:
        if item.key == NODE_NAME_FIELD and item.operator == SelectorOperator.IN:
            return frozenset(item.values)
    return None


def _find_matches(labels: _Labels, required: NodeSelector | None, nodes: Iterable[Node]) -> frozenset[str]:
    matching = [node.metadata for node in nodes if has_labels(labels, node.metadata.labels)]
    if required is not None:
        matching = [node for node in matching if required.matches(node.name, node.labels)]
    return frozenset([node.name for node in matching])


def has_labels(wanted: _Labels, labels: Mapping[str, str]) -> bool:
    """Whether a node has every label, with that very value."""
    return all(labels.get(key) == value for key, value in wanted)


def _sum_weights(preferred: tuple[PreferredNode, ...], nodes: _Nodes) -> dict[str, int]:
    """The sum of the positive weights of the preferred terms for each matching node."""
    weights: dict[str, int] = {}
    for wish in preferred:
        if wish.weight <= 0:
            continue
        for name, node in nodes.items():
            if wish.preference.matches(name, node.metadata.labels):
                weights[name] = weights.get(name, 0) + wish.weight
    return weights


def _build_score(weights: Mapping[str, int]) -> Callable[[NodeState], int]:
    return lambda node_state: weights.get(node_state.node.metadata.name, 0)
