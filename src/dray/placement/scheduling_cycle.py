"""Scheduling cycle: a pending pod and a cluster snapshot in, a node with devices or the rejections out.

Theory of operation: every plugin runs PreFilter for the pod; together the results narrow the nodes by name.
Then each filter runs once per group of like nodes, until one rejects the group. The remaining groups are
scored; each plugin's scores are normalised to 0..100 and weighed, and the best node wins. Among equals
`rotation` decides, so that pods of one kind spread over nodes of one kind. In a cluster of very many
different nodes filtering ends when enough feasible nodes are found, as in Kubernetes, and starts elsewhere
next time.

A plugin that needs more time than one decision has returns an `unfinished` rejection. A node that all plugins
accept is still taken, unless that plugin scores nodes, too: then the decision waits.

This module must not refer to a plugin by name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

from dray.api.core import Node
from dray.placement.framework import ClaimAllocation, Phase, PreFilterResult, SchedulingPlugin
from dray.placement.pending_pod import PendingPod
from dray.placement.profile import SchedulerProfile
from dray.placement.rejections import PluginRejection, Signal, Topic
from dray.placement.snapshot import ClusterSnapshot, NodeGroup, NodeState

MIN_GROUPS: Final = 100
"""Groups that are always filtered, however many nodes have been found."""
MIN_FEASIBLE_NODES: Final = 100
"""Lower bound for the number of feasible nodes after which filtering may stop."""


@dataclass(frozen=True, slots=True)
class RejectedNodes:
    """A rejection and the nodes it concerns; no names mean the whole cluster."""

    rejection: PluginRejection
    nodes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Placement:
    """A node for a pod, and the devices its claims get there."""

    pending_pod: PendingPod
    node_state: NodeState
    allocations: tuple[ClaimAllocation, ...] = ()
    other_nodes: tuple[str, ...] = ()
    """Further feasible nodes, best first."""

    @property
    def node(self) -> Node:
        return self.node_state.node


@dataclass(frozen=True, slots=True, eq=False)
class Unschedulable:
    """No node for a pod: the rejections and their nodes."""

    pending_pod: PendingPod
    rejected: tuple[RejectedNodes, ...]
    snapshot: ClusterSnapshot

    @property
    def wake_signals(self) -> frozenset[Signal]:
        """What could change one of the rejections; without any, a first node."""
        if not self.rejected:
            return frozenset({Signal(Topic.NODES)})
        return frozenset().union(*(each.rejection.wake_signals for each in self.rejected))

    @property
    def retry(self) -> bool:
        """Whether another attempt is worthwhile although nothing changes."""
        return any(each.rejection.retry for each in self.rejected)

    @property
    def unfinished(self) -> bool:
        """Whether a plugin has not evaluated every node yet, so that the decision waits."""
        return any(each.rejection.unfinished for each in self.rejected)


@dataclass(frozen=True, slots=True)
class PluginTimer:
    """Measures how long each plugin takes for each phase."""

    now: Callable[[], float]
    record: Callable[[str, Phase, float], None]


def place_pod(
    snapshot: ClusterSnapshot,
    pending_pod: PendingPod,
    profile: SchedulerProfile,
    *,
    rotation: int = 0,
    timer: PluginTimer | None = None,
) -> Placement | Unschedulable:
    """Find the best node for a pod, or the rejections."""
    results = _run_pre_filters(snapshot, pending_pod, profile, timer)
    if isinstance(results, PluginRejection):
        return Unschedulable(pending_pod, (RejectedNodes(results),), snapshot)
    node_filter = _NodeFilter(snapshot, results, timer)
    # Drivers of classic claims get the same nodes until they answer, not others each time.
    groups = node_filter.filter_groups(rotation, everything=bool(pending_pod.classic_claims))
    if not groups or _must_wait(node_filter.unfinished, results):
        return Unschedulable(pending_pod, tuple(node_filter.list_rejections()), snapshot)
    ranked = _rank_groups(groups, results, timer)
    best = [group for group in ranked if group.score == ranked[0].score]
    chosen = _choose_node(best, rotation)
    given = [each for held in results if held.result.reserve for each in held.result.reserve(chosen)]
    others = _list_other_names(ranked, chosen.name) if pending_pod.classic_claims else ()
    return Placement(pending_pod, chosen, tuple(given), others)


def _must_wait(unfinished: set[str], results: Sequence[_WeightedResult]) -> bool:
    """Whether a plugin that has not evaluated every node scores them: the best may be among those."""
    return bool(unfinished) and any(
        held.result.score is not None and held.plugin.name in unfinished for held in results
    )


def find_rejections(
    snapshot: ClusterSnapshot, pending_pod: PendingPod, profile: SchedulerProfile
) -> tuple[RejectedNodes, ...]:
    """All rejections with their nodes, whether or not a node is feasible; for explanations."""
    results = _run_pre_filters(snapshot, pending_pod, profile, None)
    if isinstance(results, PluginRejection):
        return (RejectedNodes(results),)
    node_filter = _NodeFilter(snapshot, results, None)
    node_filter.filter_groups(0, everything=True)
    return tuple(node_filter.list_rejections())


@dataclass(frozen=True, slots=True)
class _WeightedResult:
    """The result of a plugin, with the plugin and its weight."""

    plugin: SchedulingPlugin
    weight: int
    result: PreFilterResult


def _run_pre_filters(
    snapshot: ClusterSnapshot, pending_pod: PendingPod, profile: SchedulerProfile, timer: PluginTimer | None
) -> list[_WeightedResult] | PluginRejection:
    found: list[_WeightedResult] = []
    for plugin, weight in profile.plugins:
        began = timer.now() if timer is not None else 0.0
        result = plugin.pre_filter(pending_pod, snapshot)
        if timer is not None:
            timer.record(plugin.name, Phase.PRE_FILTER, timer.now() - began)
        if isinstance(result, PluginRejection):
            return result
        if result is not None:
            found.append(_WeightedResult(plugin, weight, result))
    return found


@dataclass(slots=True)
class _ScoredGroup:
    """Nodes that are alike to all plugins, and their score."""

    node_states: NodeGroup
    score: int = 0

    @property
    def sample(self) -> NodeState:
        return next(iter(self.node_states.values()))


class _NodeFilter:
    """Filters the nodes group by group and collects the rejections."""

    def __init__(
        self, snapshot: ClusterSnapshot, results: Sequence[_WeightedResult], timer: PluginTimer | None
    ) -> None:
        self._snapshot = snapshot
        self._results = results
        filters = [(held.result.by_node, asked) for held in results if (asked := _build_filter(held, timer))]
        self._group_filters = [asked for by_node, asked in filters if not by_node]
        self._node_filters = [asked for by_node, asked in filters if by_node]
        self._rejected: list[tuple[PluginRejection, Iterable[str]]] = []
        self.unfinished: set[str] = set()
        """The plugins that have not evaluated every node yet."""

    def filter_groups(self, rotation: int, *, everything: bool = False) -> list[_ScoredGroup]:
        """The groups, or parts of them, that no filter rejects; enough of them, or `everything`."""
        groups: list[_ScoredGroup] = []
        found, total = 0, len(self._snapshot.node_states)
        for count, group in enumerate(_rotate_groups(self._list_groups(), rotation)):
            if not everything and count >= MIN_GROUPS and found >= compute_feasible_target(total):
                break
            rejection = _find_rejection(self._group_filters, next(iter(group.values())))
            if rejection is not None:
                self._reject(rejection, group)
                continue
            node_states = self._filter_each(group) if self._node_filters else group
            if node_states:
                groups.append(_ScoredGroup(node_states))
                found += len(node_states)
        return groups

    def list_rejections(self) -> Iterator[RejectedNodes]:
        """The rejections with their nodes; a node counts for the first filter that rejected it."""
        names: dict[PluginRejection, list[str]] = {}
        kept: Iterable[str] = self._snapshot.node_states
        for held in self._results:
            if held.result.node_names is not None:
                kept, outside = _partition_names(kept, held.result.node_names)
                if outside and held.result.other_nodes_rejection is not None:
                    names.setdefault(held.result.other_nodes_rejection, []).extend(outside)
        for rejection, nodes in self._rejected:
            names.setdefault(rejection, []).extend(nodes)
        for rejection, nodes_ in names.items():
            yield RejectedNodes(rejection, tuple(sorted(nodes_)))

    def _list_groups(self) -> Sequence[NodeGroup]:
        """The groups, without the nodes that a result excludes by name."""
        narrowed = [held.result.node_names for held in self._results if held.result.node_names is not None]
        if not narrowed:
            return list(self._snapshot.groups.values())
        names = frozenset.intersection(*narrowed)
        groups: dict[object, dict[str, NodeState]] = {}
        for name in sorted(names):
            node_state = self._snapshot.node_states.get(name)
            if node_state is not None:
                groups.setdefault(node_state.group_key, {})[name] = node_state
        return list(groups.values())

    def _filter_each(self, group: NodeGroup) -> NodeGroup:
        """The nodes of a group that no filter by name or labels rejects."""
        kept: dict[str, NodeState] = {}
        for name, node_state in group.items():
            rejection = _find_rejection(self._node_filters, node_state)
            if rejection is None:
                kept[name] = node_state
            else:
                self._reject(rejection, (name,))
        return kept

    def _reject(self, rejection: PluginRejection, nodes: Iterable[str]) -> None:
        self._rejected.append((rejection, nodes))
        if rejection.unfinished:
            self.unfinished.add(rejection.plugin)


_Filter = Callable[[NodeState], PluginRejection | None]


def _find_rejection(filters: Sequence[_Filter], node_state: NodeState) -> PluginRejection | None:
    for asked in filters:
        rejection = asked(node_state)
        if rejection is not None:
            return rejection
    return None


def _build_filter(weighted: _WeightedResult, timer: PluginTimer | None) -> _Filter | None:
    """The filter of a result, timed if there is a timer."""
    allocation_request = weighted.result.filter
    if timer is None or allocation_request is None:
        return allocation_request

    def run_timed(node_state: NodeState) -> PluginRejection | None:
        began = timer.now()
        rejection = allocation_request(node_state)
        timer.record(weighted.plugin.name, Phase.FILTER, timer.now() - began)
        return rejection

    return run_timed


def compute_feasible_target(nodes: int) -> int:
    """How many feasible nodes are enough to choose from; the formula of Kubernetes."""
    percent = max(50 - nodes // 125, 5)
    return max(nodes * percent // 100, MIN_FEASIBLE_NODES)


def _partition_names(names: Iterable[str], kept: frozenset[str]) -> tuple[list[str], list[str]]:
    inside: list[str] = []
    outside: list[str] = []
    for name in names:
        (inside if name in kept else outside).append(name)
    return inside, outside


def _rotate_groups(groups: Sequence[NodeGroup], rotation: int) -> Iterator[NodeGroup]:
    """All groups, starting elsewhere each time when there are more than are always filtered."""
    start = rotation % len(groups) if len(groups) > MIN_GROUPS else 0
    yield from groups[start:]
    yield from groups[:start]


def _rank_groups(
    groups: list[_ScoredGroup], results: Sequence[_WeightedResult], timer: PluginTimer | None
) -> list[_ScoredGroup]:
    """The groups with their scores, best first."""
    scoring = [held for held in results if held.result.score is not None]
    groups = _split_by_score(groups, [held.result for held in scoring if held.result.by_node])
    if len(groups) == 1:
        return groups
    samples = [group.sample for group in groups]
    for held in scoring:
        assert held.result.score is not None
        began = timer.now() if timer is not None else 0.0
        scores = held.result.normalize_scores([held.result.score(sample) for sample in samples])
        if timer is not None:
            timer.record(held.plugin.name, Phase.SCORE, timer.now() - began)
        for group, score in zip(groups, scores, strict=True):
            group.score += held.weight * score
    return sorted(groups, key=lambda group: -group.score)


def _split_by_score(groups: list[_ScoredGroup], results: Sequence[PreFilterResult]) -> list[_ScoredGroup]:
    """The groups, split where scores by name or labels differ."""
    scores = [result.score for result in results if result.score is not None]
    if not scores:
        return groups
    parts: list[_ScoredGroup] = []
    for group in groups:
        alike: dict[tuple[int, ...], dict[str, NodeState]] = {}
        for name, node_state in group.node_states.items():
            alike.setdefault(tuple([score(node_state) for score in scores]), {})[name] = node_state
        parts += map(_ScoredGroup, alike.values())
    return parts


def _choose_node(groups: Sequence[_ScoredGroup], rotation: int) -> NodeState:
    """One node of these groups, another one each time."""
    left = rotation % sum(len(group.node_states) for group in groups)
    for group in groups:
        if left < len(group.node_states):
            return next(islice(group.node_states.values(), left, None))
        left -= len(group.node_states)
    raise IndexError(rotation)


def _list_other_names(groups: Iterable[_ScoredGroup], chosen: str) -> tuple[str, ...]:
    return tuple(name for group in groups for name in group.node_states if name != chosen)
