"""DynamicResources: feasible are nodes where the claims of a pod can get devices; better ones give first
choices.

Theory of operation: a claim with devices restricts the pod to the nodes that reach them. The pending claims
are normalised once for all pods that ask the same, and every node shape is searched once for them; both are
cached, as pods of one template come by the hundreds and shapes come back. The score is the rank of KEP-4816:
for every request with alternatives, the earlier the better.

A search may take long (see `device_searches`). A shape whose search is still running gets an `unfinished`
rejection, which is not final. When the time of one attempt is used up, running searches and those that were
not started are given up, and the pod is tried again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from dray.allocator.allocation_results import build_allocations
from dray.allocator.feature_gates import AllocatorGateFilter
from dray.allocator.inventory.node_shapes import NodeShape
from dray.allocator.requests import format_claim_name, normalize_claims
from dray.allocator.search.trace import Exhausted, GaveUp, Pick, SearchEnding, Solved
from dray.api.core import Node
from dray.api.json_text import write_json
from dray.api.resource import ResourceClaim
from dray.api.unknown_fields import list_unknown_fields
from dray.errors import UnanswerableClaimError
from dray.explain import WorkBudget
from dray.explain.wording import describe_progress
from dray.placement.device_searches import DeviceQuery, DeviceSearches
from dray.placement.framework import ClaimAllocation, PreFilterResult, ScoreNormalizer, normalize_min_max
from dray.placement.pending_pod import PLUGIN_NAME, PendingPod
from dray.placement.rejections import PluginRejection, Signal, Topic
from dray.placement.snapshot import ClusterSnapshot, NodeState
from dray.values.cache_bounds import CacheBound
from dray.values.node_selectors import NODE_NAME_FIELD, NodeSelector

FIRST_ALTERNATIVE_SCORE: Final = 8
"""Score of a request that gets its first alternative; every further one scores one less."""
DEVICE_QUERIES: Final = CacheBound("queries of claims", 512, "the scheduler")
SELECTED_NODES: Final = CacheBound("nodes of selectors", 64, "the scheduler")

_DEVICES = Signal(Topic.DEVICES)
_NODES = Signal(Topic.NODES)


def rank_solution(picks: Sequence[Pick]) -> int:
    """The rank of a solution: better alternatives score more (KEP-4816)."""
    earned = {
        pick.point.choice.index: FIRST_ALTERNATIVE_SCORE
        - pick.point.choice.alternatives.index(pick.point.alternative)
        for pick in picks
        if pick.point.alternative.subrequest
    }
    return sum(earned.values())


def find_unreachable_claim(claims: Sequence[ResourceClaim], node: Node) -> ResourceClaim | None:
    """The first claim whose devices a node does not reach; None when it reaches all that claims have."""
    for claim in claims:
        allocation = claim.status.allocation
        where = allocation.node_selector if allocation is not None else None
        if where is not None and not where.matches(node.metadata.name, node.metadata.labels):
            return claim
    return None


@dataclass(slots=True, eq=False)
class DynamicResources:
    """The plugin."""

    gate_filter: AllocatorGateFilter
    new_share_id: Callable[[], str]
    searches: DeviceSearches
    normalize_scores: ScoreNormalizer = normalize_min_max
    name: str = PLUGIN_NAME
    _queries: dict[tuple[tuple[bytes, tuple[str, ...]], ...], DeviceQuery] = field(default_factory=dict)
    _selected: dict[NodeSelector, frozenset[str]] = field(default_factory=dict)
    _selected_from: object = None
    """The nodes that `_selected` was computed for."""

    @property
    def cached_queries(self) -> int:
        """The number of cached queries."""
        return len(self._queries)

    def pre_filter(
        self, pending_pod: PendingPod, snapshot: ClusterSnapshot
    ) -> PreFilterResult | PluginRejection | None:
        """Restrict the nodes to those that reach existing devices, and search for the pending claims."""
        if not pending_pod.claims:
            return None
        names, elsewhere = self._find_reachable_nodes(pending_pod, snapshot)
        if not pending_pod.pending:
            return PreFilterResult(names, elsewhere) if names is not None else None
        try:
            query = self.get_query(pending_pod, snapshot)
        except UnanswerableClaimError as fault:
            return PluginRejection(self.name, str(fault), _build_wake_signals(pending_pod))
        evaluation = _PodEvaluation(self, query, pending_pod, snapshot)
        score = evaluation.score if needs_ranking(query) else None
        return PreFilterResult(
            names, elsewhere, evaluation.filter, score, self.normalize_scores, reserve=evaluation.reserve
        )

    def _find_reachable_nodes(
        self, pending_pod: PendingPod, snapshot: ClusterSnapshot
    ) -> tuple[frozenset[str] | None, PluginRejection | None]:
        """The nodes that reach the devices claims already have; None when all do."""
        names: frozenset[str] | None = None
        elsewhere: PluginRejection | None = None
        for claim in pending_pod.claims:
            allocation = claim.status.allocation
            if allocation is None or allocation.node_selector is None:
                continue
            here = self._match_nodes(allocation.node_selector, snapshot)
            names = here if names is None else names & here
            if elsewhere is None:
                wakes = frozenset({_build_claim_signal(claim), _NODES})
                elsewhere = PluginRejection(
                    self.name, f"claim {format_claim_name(claim)} has its devices elsewhere", wakes
                )
        return names, elsewhere

    def _match_nodes(self, selector: NodeSelector, snapshot: ClusterSnapshot) -> frozenset[str]:
        only = _read_node_names(selector)
        if only is not None:
            return frozenset(name for name in only if name in snapshot.nodes)
        if self._selected_from is not snapshot.nodes:
            self._selected, self._selected_from = {}, snapshot.nodes
        known = self._selected.get(selector)
        if known is None:
            found = [n for n, node in snapshot.nodes.items() if selector.matches(n, node.metadata.labels)]
            known = SELECTED_NODES.put(self._selected, selector, frozenset(found))
        return known

    def get_query(self, pending_pod: PendingPod, snapshot: ClusterSnapshot) -> DeviceQuery:
        """The query of a pod; pods that ask the same share it.

        Raises `UnanswerableClaimError` for a claim that no node could ever satisfy.
        """
        key = tuple([(encode_spec(claim), list_unknown_fields(claim)) for claim in pending_pod.pending])
        known, classes = self._queries.get(key), snapshot.inventory.classes
        if known is None or any(classes.get(name) is not used for name, used in known.classes.items()):
            allocation_request = normalize_claims(
                self.gate_filter.admit_claims(pending_pod.pending), classes.get
            )
            known = DEVICE_QUERIES.put(
                self._queries, key, DeviceQuery(allocation_request, dict(allocation_request.classes))
            )
        return known

    def build_work_budget(self, pending_pod: PendingPod, snapshot: ClusterSnapshot) -> WorkBudget:
        """The work budget for explaining a pod: searches that were given up here are not repeated."""
        try:
            query = self.get_query(pending_pod, snapshot)
        except UnanswerableClaimError:
            return WorkBudget(self.searches.limit)

        def find_given_up(shape: NodeShape) -> GaveUp | None:
            ending = shape.endings.get(query)
            return ending if isinstance(ending, GaveUp) else None

        return WorkBudget(self.searches.limit, find_given_up=find_given_up)


def needs_ranking(query: DeviceQuery) -> bool:
    """Whether nodes are ranked for a query: it has requests with alternatives."""
    return any(len(choice.alternatives) > 1 for choice in query.allocation_request.choices)


class _PodEvaluation:
    """The evaluation of one pod in one cycle."""

    def __init__(
        self, plugin: DynamicResources, query: DeviceQuery, pending_pod: PendingPod, snapshot: ClusterSnapshot
    ) -> None:
        self._plugin = plugin
        self._searches = plugin.searches
        self._query = query
        self._pending_pod = pending_pod
        self._snapshot = snapshot
        self._time_budget = self._searches.compute_time_budget(pending_pod.attempts)
        self._seconds_left = self._searches.limit.total - pending_pod.search_seconds
        """Seconds of work that are left to this attempt, and below to this decision."""
        self._decision_seconds_left = self._searches.decision_seconds
        self._max_seconds = self._decision_seconds_left / 3
        self._is_sliced = self._searches.is_sliced
        self._endings: dict[NodeShape, SearchEnding] = {}
        """Endings used in this cycle, kept even if other caches drop them."""
        self._rejections: dict[object, PluginRejection] = {}

    def filter(self, node_state: NodeState) -> PluginRejection | None:
        ending = self._get_ending(node_state.group_key.shape)
        if isinstance(ending, Solved):
            return None
        kind = ending if isinstance(ending, GaveUp) else type(ending)
        rejection = self._rejections.get(kind)
        if rejection is None:
            rejection = self._rejections[kind] = self._build_rejection(ending)
        return rejection

    def _build_rejection(self, ending: SearchEnding | None) -> PluginRejection:
        plugin, pending = self._plugin.name, self._pending_pod.pending
        claims = f"claim{'s' if len(pending) > 1 else ''} {', '.join(map(format_claim_name, pending))}"
        if ending is None:
            text = f"devices for {claims} are still being searched for"
            return PluginRejection(
                plugin, text, _build_wake_signals(self._pending_pod), retry=True, unfinished=True
            )
        if isinstance(ending, GaveUp):
            return self._reject_given_up(ending, claims)
        said = "no devices for" if isinstance(ending, Exhausted) else "a device cannot be judged for"
        return PluginRejection(
            plugin, f"{said} {claims}", _build_wake_signals(self._pending_pod), searched=True
        )

    def _reject_given_up(self, ending: GaveUp, claims: str) -> PluginRejection:
        """A search that was given up is tried again as long as it gets more time than it had."""
        plugin = self._plugin.name
        if not ending.steps and not ending.seconds:
            text = (
                f"devices for {claims} were not searched for: the time of this attempt went into other nodes"
            )
            return PluginRejection(plugin, f"{text}; they are tried next time", retry=True, searched=True)
        text = f"the search for devices for {claims} was given up {_describe_progress(ending)}"
        if self._searches.is_final(ending):
            wakes = _build_wake_signals(self._pending_pod)
            text += "; it is tried again when devices change, a longer --search-timeout gives it more time"
            return PluginRejection(plugin, text, wakes, searched=True)
        return PluginRejection(
            plugin, f"{text}; it is tried again, with more time", retry=True, searched=True
        )

    def score(self, node_state: NodeState) -> int:
        ending = self._get_ending(node_state.group_key.shape)
        assert isinstance(ending, Solved)
        return rank_solution(ending.picks)

    def reserve(self, node_state: NodeState) -> tuple[ClaimAllocation, ...]:
        ending = self._get_ending(node_state.group_key.shape)
        assert isinstance(ending, Solved)
        view = self._snapshot.inventory.get_node_view(node_state.node)
        given = build_allocations(
            self._query.allocation_request, view, ending.picks, new_share_id=self._plugin.new_share_id
        )
        return tuple(zip(self._pending_pod.pending, given, strict=True))

    def _get_ending(self, shape: NodeShape) -> SearchEnding | None:
        """The ending of the search on a shape; None while it is running."""
        ending = self._endings.get(shape) or shape.endings.get(self._query)
        if ending is None or isinstance(ending, GaveUp):
            # A given-up search continues when this attempt has more time; once per cycle.
            ending = self._endings.get(shape) or self._continue_search(shape)
        if ending is not None:
            self._endings[shape] = ending
        return ending

    def _continue_search(self, shape: NodeShape) -> SearchEnding | None:
        return self._searches.get_ending(self._query, shape, self._time_budget) or self._run_search(shape)

    def _run_search(self, shape: NodeShape) -> SearchEnding | None:
        searches, query = self._searches, self._query
        seconds = min(self._seconds_left, self._decision_seconds_left, self._max_seconds)
        # A started search continues elsewhere: the time of this decision is for shapes that may be easy.
        if seconds > 0 and not (self._is_sliced and searches.has_started(query, shape)):
            before = query.seconds_spent
            ending = searches.run_search(query, shape, seconds, self._time_budget)
            spent = query.seconds_spent - before
            self._seconds_left -= spent
            self._decision_seconds_left -= spent
            if ending is not None:
                return ending
        if self._seconds_left <= 0:
            return searches.give_up(query, shape)
        searches.schedule_search(query, shape, self._time_budget)
        return None


def _describe_progress(ending: GaveUp) -> str:
    request = ending.stuck_at.alternative.name if ending.stuck_at is not None else ""
    return describe_progress(ending.steps, ending.seconds, ending.found, ending.wanted, request)


def encode_spec(claim: ResourceClaim) -> bytes:
    """The spec of a claim as a cache key."""
    return write_json(claim.spec)


def _build_claim_signal(claim: ResourceClaim) -> Signal:
    return Signal(Topic.CLAIM, format_claim_name(claim))


def _build_wake_signals(pending_pod: PendingPod) -> frozenset[Signal]:
    classes = {
        allocation_request.device_class_name
        for claim in pending_pod.pending
        for request in claim.spec.devices.requests
        for allocation_request in (*request.first_available, *((request.exactly,) if request.exactly else ()))
    }
    return frozenset(
        {_DEVICES, _NODES}
        | {Signal(Topic.CLASS, name) for name in classes}
        | {_build_claim_signal(claim) for claim in pending_pod.claims}
    )


def _read_node_names(selector: NodeSelector) -> tuple[str, ...] | None:
    """The node names of a selector that selects by name alone."""
    if len(selector.node_selector_terms) != 1:
        return None
    term = selector.node_selector_terms[0]
    if term.match_expressions or len(term.match_fields) != 1:
        return None
    field_ = term.match_fields[0]
    return field_.values if field_.key == NODE_NAME_FIELD and field_.operator == "In" else None
