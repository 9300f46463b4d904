"""One cycle: a pod and a photograph of the cluster go in, a node with devices or reasons why not come out.

Theory of operation: every plugin forms its opinion of the pod; together they narrow the nodes by name, then
every group of seats that are alike is judged once by each filter, until one says no. What is left is scored,
again by group; each plugin's scores are brought to 0..100 and weighed, and the best seat wins. Among equals
`rotation` decides, so that pods of one kind spread over nodes of one kind. In a cluster of very many
different nodes the walk ends when enough nodes are found, as in Kubernetes, and starts elsewhere next time.

A plugin that needs more time than one decision has says `unfinished`. A node that everybody accepts is taken
all the same, unless that plugin scores nodes, too: then nothing is decided yet.

Rules for this file: no plugin is known by name here.
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
"""Groups that are always judged, however many nodes have been found."""
MIN_FEASIBLE_NODES: Final = 100
"""Nodes that are always enough to choose from, and never too many to look for."""


@dataclass(frozen=True, slots=True)
class RejectedNodes:
    """A verdict and the nodes it is about; no names mean the whole cluster."""

    rejection: PluginRejection
    nodes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Placement:
    """A node for a pod, and the devices its claims get there."""

    pending_pod: PendingPod
    node_state: NodeState
    allocations: tuple[ClaimAllocation, ...] = ()
    other_nodes: tuple[str, ...] = ()
    """Further nodes that would do, best first."""

    @property
    def node(self) -> Node:
        return self.node_state.node


@dataclass(frozen=True, slots=True, eq=False)
class Unschedulable:
    """No node for a pod: who said no, where."""

    pending_pod: PendingPod
    rejected: tuple[RejectedNodes, ...]
    snapshot: ClusterSnapshot

    @property
    def wake_signals(self) -> frozenset[Signal]:
        """What could change one of the verdicts; where nobody was asked, a first node."""
        if not self.rejected:
            return frozenset({Signal(Topic.NODES)})
        return frozenset().union(*(each.rejection.wake_signals for each in self.rejected))

    @property
    def retry(self) -> bool:
        """Whether it is worth trying again although nothing changes."""
        return any(each.rejection.retry for each in self.rejected)

    @property
    def unfinished(self) -> bool:
        """Whether a plugin has not judged every node yet, so that nothing is decided."""
        return any(each.rejection.unfinished for each in self.rejected)


@dataclass(frozen=True, slots=True)
class PluginTimer:
    """Tells how long each plugin took for each phase."""

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
    """The best node for a pod, or why there is none."""
    opinions = _run_pre_filters(snapshot, pending_pod, profile, timer)
    if isinstance(opinions, PluginRejection):
        return Unschedulable(pending_pod, (RejectedNodes(opinions),), snapshot)
    walk = _NodeFilter(snapshot, opinions, timer)
    # Drivers of classic claims are asked about the same nodes until they answer, not about others each time.
    rows = walk.filter_groups(rotation, everything=bool(pending_pod.classic_claims))
    if not rows or _must_wait(walk.unfinished, opinions):
        return Unschedulable(pending_pod, tuple(walk.list_rejections()), snapshot)
    ranked = _rank_groups(rows, opinions, timer)
    best = [row for row in ranked if row.score == ranked[0].score]
    chosen = _choose_node(best, rotation)
    given = [each for held in opinions if held.result.reserve for each in held.result.reserve(chosen)]
    others = _list_other_names(ranked, chosen.name) if pending_pod.classic_claims else ()
    return Placement(pending_pod, chosen, tuple(given), others)


def _must_wait(unfinished: set[str], results: Sequence[_WeightedResult]) -> bool:
    """Whether a plugin that has not judged every node scores them: the best may be among those."""
    return bool(unfinished) and any(
        held.result.score is not None and held.plugin.name in unfinished for held in results
    )


def find_rejections(
    snapshot: ClusterSnapshot, pending_pod: PendingPod, profile: SchedulerProfile
) -> tuple[RejectedNodes, ...]:
    """Who says no where, whether or not some node would do; for explanations."""
    opinions = _run_pre_filters(snapshot, pending_pod, profile, None)
    if isinstance(opinions, PluginRejection):
        return (RejectedNodes(opinions),)
    walk = _NodeFilter(snapshot, opinions, None)
    walk.filter_groups(0, everything=True)
    return tuple(walk.list_rejections())


@dataclass(frozen=True, slots=True)
class _WeightedResult:
    """An opinion with whose it is and what it weighs."""

    plugin: SchedulingPlugin
    weight: int
    result: PreFilterResult


def _run_pre_filters(
    snapshot: ClusterSnapshot, pending_pod: PendingPod, profile: SchedulerProfile, timer: PluginTimer | None
) -> list[_WeightedResult] | PluginRejection:
    found: list[_WeightedResult] = []
    for plugin, weight in profile.plugins:
        began = timer.now() if timer is not None else 0.0
        opinion = plugin.pre_filter(pending_pod, snapshot)
        if timer is not None:
            timer.record(plugin.name, Phase.PRE_FILTER, timer.now() - began)
        if isinstance(opinion, PluginRejection):
            return opinion
        if opinion is not None:
            found.append(_WeightedResult(plugin, weight, opinion))
    return found


@dataclass(slots=True)
class _ScoredGroup:
    """Seats that are alike to everybody, and their score."""

    node_states: NodeGroup
    score: int = 0

    @property
    def sample(self) -> NodeState:
        return next(iter(self.node_states.values()))


class _NodeFilter:
    """The nodes in question, judged group by group."""

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
        """The plugins that have not judged every node yet."""

    def filter_groups(self, rotation: int, *, everything: bool = False) -> list[_ScoredGroup]:
        """The groups, or parts of them, that nobody refuses; enough of them, or `everything`."""
        rows: list[_ScoredGroup] = []
        found, total = 0, len(self._snapshot.node_states)
        for count, group in enumerate(_rotate_groups(self._list_groups(), rotation)):
            if not everything and count >= MIN_GROUPS and found >= compute_feasible_target(total):
                break
            verdict = _find_rejection(self._group_filters, next(iter(group.values())))
            if verdict is not None:
                self._reject(verdict, group)
                continue
            seats = self._filter_each(group) if self._node_filters else group
            if seats:
                rows.append(_ScoredGroup(seats))
                found += len(seats)
        return rows

    def list_rejections(self) -> Iterator[RejectedNodes]:
        """Who said no where; nodes that several refused are told with the first who did."""
        names: dict[PluginRejection, list[str]] = {}
        kept: Iterable[str] = self._snapshot.node_states
        for held in self._results:
            if held.result.node_names is not None:
                kept, outside = _partition_names(kept, held.result.node_names)
                if outside and held.result.other_nodes_rejection is not None:
                    names.setdefault(held.result.other_nodes_rejection, []).extend(outside)
        for verdict, nodes in self._rejected:
            names.setdefault(verdict, []).extend(nodes)
        for verdict, nodes_ in names.items():
            yield RejectedNodes(verdict, tuple(sorted(nodes_)))

    def _list_groups(self) -> Sequence[NodeGroup]:
        """The groups, without the nodes that an opinion leaves out by name."""
        narrowed = [held.result.node_names for held in self._results if held.result.node_names is not None]
        if not narrowed:
            return list(self._snapshot.groups.values())
        names = frozenset.intersection(*narrowed)
        groups: dict[object, dict[str, NodeState]] = {}
        for name in sorted(names):
            seat = self._snapshot.node_states.get(name)
            if seat is not None:
                groups.setdefault(seat.group_key, {})[name] = seat
        return list(groups.values())

    def _filter_each(self, group: NodeGroup) -> NodeGroup:
        """The seats of a group that filters which look at names or labels do not refuse."""
        kept: dict[str, NodeState] = {}
        for name, seat in group.items():
            verdict = _find_rejection(self._node_filters, seat)
            if verdict is None:
                kept[name] = seat
            else:
                self._reject(verdict, (name,))
        return kept

    def _reject(self, rejection: PluginRejection, nodes: Iterable[str]) -> None:
        self._rejected.append((rejection, nodes))
        if rejection.unfinished:
            self.unfinished.add(rejection.plugin)


_Filter = Callable[[NodeState], PluginRejection | None]


def _find_rejection(filters: Sequence[_Filter], node_state: NodeState) -> PluginRejection | None:
    for asked in filters:
        verdict = asked(node_state)
        if verdict is not None:
            return verdict
    return None


def _build_filter(weighted: _WeightedResult, timer: PluginTimer | None) -> _Filter | None:
    """The filter of an opinion; timed when there is a stopwatch."""
    ask = weighted.result.filter
    if timer is None or ask is None:
        return ask

    def timed(seat: NodeState) -> PluginRejection | None:
        began = timer.now()
        verdict = ask(seat)
        timer.record(weighted.plugin.name, Phase.FILTER, timer.now() - began)
        return verdict

    return timed


def compute_feasible_target(nodes: int) -> int:
    """How many nodes that would do are enough to choose from, as Kubernetes reckons it."""
    percent = max(50 - nodes // 125, 5)
    return max(nodes * percent // 100, MIN_FEASIBLE_NODES)


def _partition_names(names: Iterable[str], kept: frozenset[str]) -> tuple[list[str], list[str]]:
    inside: list[str] = []
    outside: list[str] = []
    for name in names:
        (inside if name in kept else outside).append(name)
    return inside, outside


def _rotate_groups(groups: Sequence[NodeGroup], rotation: int) -> Iterator[NodeGroup]:
    """All groups, beginning elsewhere each time when there are more than are always judged."""
    start = rotation % len(groups) if len(groups) > MIN_GROUPS else 0
    yield from groups[start:]
    yield from groups[:start]


def _rank_groups(
    rows: list[_ScoredGroup], results: Sequence[_WeightedResult], timer: PluginTimer | None
) -> list[_ScoredGroup]:
    """The rows with their scores, best first."""
    scoring = [held for held in results if held.result.score is not None]
    rows = _split_by_score(rows, [held.result for held in scoring if held.result.by_node])
    if len(rows) == 1:
        return rows
    samples = [row.sample for row in rows]
    for held in scoring:
        assert held.result.score is not None
        began = timer.now() if timer is not None else 0.0
        scores = held.result.normalize_scores([held.result.score(sample) for sample in samples])
        if timer is not None:
            timer.record(held.plugin.name, Phase.SCORE, timer.now() - began)
        for row, score in zip(rows, scores, strict=True):
            row.score += held.weight * score
    return sorted(rows, key=lambda row: -row.score)


def _split_by_score(rows: list[_ScoredGroup], results: Sequence[PreFilterResult]) -> list[_ScoredGroup]:
    """The rows, parted where opinions that look at names or labels tell seats apart."""
    scores = [opinion.score for opinion in results if opinion.score is not None]
    if not scores:
        return rows
    parts: list[_ScoredGroup] = []
    for row in rows:
        alike: dict[tuple[int, ...], dict[str, NodeState]] = {}
        for name, seat in row.node_states.items():
            alike.setdefault(tuple([score(seat) for score in scores]), {})[name] = seat
        parts += map(_ScoredGroup, alike.values())
    return parts


def _choose_node(rows: Sequence[_ScoredGroup], rotation: int) -> NodeState:
    """One seat of those rows, another one each time."""
    left = rotation % sum(len(row.node_states) for row in rows)
    for row in rows:
        if left < len(row.node_states):
            return next(islice(row.node_states.values(), left, None))
        left -= len(row.node_states)
    raise IndexError(rotation)


def _list_other_names(rows: Iterable[_ScoredGroup], chosen: str) -> tuple[str, ...]:
    return tuple(name for row in rows for name in row.node_states if name != chosen)
