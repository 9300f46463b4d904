"""Devices: a pod goes where its claims can have theirs, and rather where they get their first choice.

Theory of operation: a claim that has devices keeps the pod to the nodes that reach them. What the pending
claims ask together is normalised once for all pods that ask the same, and every shape of node is searched
once for it; both are remembered, as pods of one template come by the hundreds and shapes come back. The score
is the rank of KEP-4816: for every request with alternatives, the earlier the better.

A search takes its time (see `searches`). A shape whose search goes on is refused as `unfinished`, and so it
is not refused for good. When the time for one attempt is used up, searches that go on and those that were not
begun are given up, and the pod is tried again.
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
"""What a request earns a node when it gets its first alternative; every further one earns one less."""
DEVICE_QUERIES: Final = CacheBound("queries of claims", 512, "the scheduler")
SELECTED_NODES: Final = CacheBound("nodes of selectors", 64, "the scheduler")

_DEVICES = Signal(Topic.DEVICES)
_NODES = Signal(Topic.NODES)


def rank_solution(picks: Sequence[Pick]) -> int:
    """What a solution is worth to its node: better alternatives earn more (KEP-4816)."""
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
    _queries: dict[tuple[bytes, ...], DeviceQuery] = field(default_factory=dict)
    _selected: dict[NodeSelector, frozenset[str]] = field(default_factory=dict)
    _selected_from: object = None
    """The nodes that `_selected` is about."""

    @property
    def cached_queries(self) -> int:
        """How many different asks of claims are remembered."""
        return len(self._queries)

    def pre_filter(
        self, pending_pod: PendingPod, snapshot: ClusterSnapshot
    ) -> PreFilterResult | PluginRejection | None:
        """What it thinks of a pod."""
        if not pending_pod.claims:
            return None
        names, elsewhere = self._find_reachable_nodes(pending_pod, snapshot)
        if not pending_pod.pending:
            return PreFilterResult(names, elsewhere) if names is not None else None
        try:
            question = self.get_query(pending_pod, snapshot)
        except UnanswerableClaimError as fault:
            return PluginRejection(self.name, str(fault), _build_wake_signals(pending_pod))
        trial = _PodEvaluation(self, question, pending_pod, snapshot)
        score = trial.score if needs_ranking(question) else None
        return PreFilterResult(
            names, elsewhere, trial.filter, score, self.normalize_scores, reserve=trial.reserve
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
        """What a pod asks for; pods that ask the same have the same question.

        Raises `UnanswerableClaimError` for a claim that no node could ever answer.
        """
        key = tuple([encode_spec(claim) for claim in pending_pod.pending])
        known, classes = self._queries.get(key), snapshot.inventory.classes
        if known is None or any(classes.get(name) is not used for name, used in known.classes.items()):
            ask = normalize_claims(self.gate_filter.admit_claims(pending_pod.pending), classes.get)
            known = DEVICE_QUERIES.put(self._queries, key, DeviceQuery(ask, dict(ask.classes)))
        return known

    def build_work_budget(self, pending_pod: PendingPod, snapshot: ClusterSnapshot) -> WorkBudget:
        """The work that explaining a pod may be: searches that were given up here are not made again."""
        try:
            question = self.get_query(pending_pod, snapshot)
        except UnanswerableClaimError:
            return WorkBudget(self.searches.limit)

        def given_up(shape: NodeShape) -> GaveUp | None:
            ending = shape.endings.get(question)
            return ending if isinstance(ending, GaveUp) else None

        return WorkBudget(self.searches.limit, find_given_up=given_up)


def needs_ranking(query: DeviceQuery) -> bool:
    """Whether nodes are ranked for a question: requests with alternatives get better ones on some."""
    return any(len(choice.alternatives) > 1 for choice in query.allocation_request.choices)


class _PodEvaluation:
    """One pod in one cycle."""

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
        """How searches ended for this cycle, whatever is forgotten elsewhere."""
        self._rejections: dict[object, PluginRejection] = {}

    def filter(self, node_state: NodeState) -> PluginRejection | None:
        ending = self._get_ending(node_state.group_key.shape)
        if isinstance(ending, Solved):
            return None
        kind = ending if isinstance(ending, GaveUp) else type(ending)
        verdict = self._rejections.get(kind)
        if verdict is None:
            verdict = self._rejections[kind] = self._build_rejection(ending)
        return verdict

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
        """How the search on a shape ended; None while it goes on."""
        ending = self._endings.get(shape) or shape.endings.get(self._query)
        if ending is None or isinstance(ending, GaveUp):
            # What was given up is searched further when this attempt has more patience, and asked for once.
            ending = self._endings.get(shape) or self._continue_search(shape)
        if ending is not None:
            self._endings[shape] = ending
        return ending

    def _continue_search(self, shape: NodeShape) -> SearchEnding | None:
        return self._searches.get_ending(self._query, shape, self._time_budget) or self._run_search(shape)

    def _run_search(self, shape: NodeShape) -> SearchEnding | None:
        searches, question = self._searches, self._query
        seconds = min(self._seconds_left, self._decision_seconds_left, self._max_seconds)
        # What was begun goes on elsewhere: the time of this decision is for shapes that may be easy.
        if seconds > 0 and not (self._is_sliced and searches.has_started(question, shape)):
            before = question.seconds_spent
            ending = searches.run_search(question, shape, seconds, self._time_budget)
            spent = question.seconds_spent - before
            self._seconds_left -= spent
            self._decision_seconds_left -= spent
            if ending is not None:
                return ending
        if self._seconds_left <= 0:
            return searches.give_up(question, shape)
        searches.schedule_search(question, shape, self._time_budget)
        return None


def _describe_progress(ending: GaveUp) -> str:
    request = ending.stuck_at.alternative.name if ending.stuck_at is not None else ""
    return describe_progress(ending.steps, ending.seconds, ending.found, ending.wanted, request)


def encode_spec(claim: ResourceClaim) -> bytes:
    """What a claim asks for, as a key: claims that ask the same have the same."""
    return write_json(claim.spec)


def _build_claim_signal(claim: ResourceClaim) -> Signal:
    return Signal(Topic.CLAIM, format_claim_name(claim))


def _build_wake_signals(pending_pod: PendingPod) -> frozenset[Signal]:
    classes = {
        ask.device_class_name
        for claim in pending_pod.pending
        for request in claim.spec.devices.requests
        for ask in (*request.first_available, *((request.exactly,) if request.exactly else ()))
    }
    return frozenset(
        {_DEVICES, _NODES}
        | {Signal(Topic.CLASS, name) for name in classes}
        | {_build_claim_signal(claim) for claim in pending_pod.claims}
    )


def _read_node_names(selector: NodeSelector) -> tuple[str, ...] | None:
    """The names a selector means when it means nodes by name alone."""
    if len(selector.node_selector_terms) != 1:
        return None
    term = selector.node_selector_terms[0]
    if term.match_expressions or len(term.match_fields) != 1:
        return None
    field_ = term.match_fields[0]
    return field_.values if field_.key == NODE_NAME_FIELD and field_.operator == "In" else None
