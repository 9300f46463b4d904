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

from dray.allocator.allocation_results import assemble
from dray.allocator.feature_gates import Admission
from dray.allocator.inventory.device_inventory import Shape
from dray.allocator.requests import ask_of, named
from dray.allocator.search.trace import Ending, Exhausted, GaveUp, Pick, Solved
from dray.api.core import Node
from dray.api.json_text import write_json
from dray.api.resource import ResourceClaim
from dray.errors import AllocationFault
from dray.explain import Effort
from dray.explain.wording import how_far
from dray.placement.device_searches import Question, Searches
from dray.placement.framework import Given, Opinion, Spread, between
from dray.placement.pending_pod import PLUGIN, Subject
from dray.placement.rejections import Signal, Topic, Verdict
from dray.placement.snapshot import Seat, Snapshot
from dray.values.cache_bounds import Bound
from dray.values.node_selectors import NODE_NAME, NodeSelector

FIRST_CHOICE: Final = 8
"""What a request earns a node when it gets its first alternative; every further one earns one less."""
ASKS: Final = Bound("what claims ask for", 512, "the scheduler")
REACHED: Final = Bound("nodes of selectors", 64, "the scheduler")

_DEVICES = Signal(Topic.DEVICES)
_NODES = Signal(Topic.NODES)


def rank(picks: Sequence[Pick]) -> int:
    """What a solution is worth to its node: better alternatives earn more (KEP-4816)."""
    earned = {
        pick.point.choice.index: FIRST_CHOICE - pick.point.choice.wants.index(pick.point.want)
        for pick in picks
        if "/" in pick.point.want.name  # an alternative: `request/subrequest`
    }
    return sum(earned.values())


def out_of_reach(claims: Sequence[ResourceClaim], node: Node) -> ResourceClaim | None:
    """The first claim whose devices a node does not reach; None when it reaches all that claims have."""
    for claim in claims:
        allocation = claim.status.allocation
        where = allocation.node_selector if allocation is not None else None
        if where is not None and not where.matches(node.metadata.name, node.metadata.labels):
            return claim
    return None


@dataclass(slots=True, eq=False)
class Devices:
    """The plugin."""

    door: Admission
    new_share_id: Callable[[], str]
    searches: Searches
    spread: Spread = between
    name: str = PLUGIN
    _questions: dict[tuple[bytes, ...], Question] = field(default_factory=dict)
    _reached: dict[NodeSelector, frozenset[str]] = field(default_factory=dict)
    _reached_of: object = None
    """The nodes that `_reached` is about."""

    @property
    def remembered(self) -> int:
        """How many different asks of claims are remembered."""
        return len(self._questions)

    def opinion(self, subject: Subject, snapshot: Snapshot) -> Opinion | Verdict | None:
        """What it thinks of a pod."""
        if not subject.claims:
            return None
        names, elsewhere = self._reachable(subject, snapshot)
        if not subject.pending:
            return Opinion(names, elsewhere) if names is not None else None
        try:
            question = self.question(subject, snapshot)
        except AllocationFault as fault:
            return Verdict(self.name, str(fault), _wakes(subject))
        trial = _Trial(self, question, subject, snapshot)
        score = trial.score if minds_rank(question) else None
        return Opinion(names, elsewhere, trial.filter, score, self.spread, reserve=trial.reserve)

    def _reachable(
        self, subject: Subject, snapshot: Snapshot
    ) -> tuple[frozenset[str] | None, Verdict | None]:
        """The nodes that reach the devices claims already have; None when all do."""
        names: frozenset[str] | None = None
        elsewhere: Verdict | None = None
        for claim in subject.claims:
            allocation = claim.status.allocation
            if allocation is None or allocation.node_selector is None:
                continue
            here = self._matching(allocation.node_selector, snapshot)
            names = here if names is None else names & here
            if elsewhere is None:
                wakes = frozenset({_claim_signal(claim), _NODES})
                elsewhere = Verdict(self.name, f"claim {named(claim)} has its devices elsewhere", wakes)
        return names, elsewhere

    def _matching(self, where: NodeSelector, snapshot: Snapshot) -> frozenset[str]:
        only = _only_names(where)
        if only is not None:
            return frozenset(name for name in only if name in snapshot.nodes)
        if self._reached_of is not snapshot.nodes:
            self._reached, self._reached_of = {}, snapshot.nodes
        known = self._reached.get(where)
        if known is None:
            found = [n for n, node in snapshot.nodes.items() if where.matches(n, node.metadata.labels)]
            known = REACHED.keep(self._reached, where, frozenset(found))
        return known

    def question(self, subject: Subject, snapshot: Snapshot) -> Question:
        """What a pod asks for; pods that ask the same have the same question.

        Raises `AllocationFault` for a claim that no node could ever answer.
        """
        key = tuple([encode_spec(claim) for claim in subject.pending])
        known, classes = self._questions.get(key), snapshot.stock.classes
        if known is None or any(classes.get(name) is not used for name, used in known.classes.items()):
            ask = ask_of(self.door.claims(subject.pending), classes.get)
            known = ASKS.keep(self._questions, key, Question(ask, dict(ask.classes)))
        return known

    def effort(self, subject: Subject, snapshot: Snapshot) -> Effort:
        """The work that explaining a pod may be: searches that were given up here are not made again."""
        try:
            question = self.question(subject, snapshot)
        except AllocationFault:
            return Effort(self.searches.limit)

        def given_up(shape: Shape) -> GaveUp | None:
            ending = shape.endings.get(question)
            return ending if isinstance(ending, GaveUp) else None

        return Effort(self.searches.limit, given_up=given_up)


def minds_rank(question: Question) -> bool:
    """Whether nodes are ranked for a question: requests with alternatives get better ones on some."""
    return any(len(choice.wants) > 1 for choice in question.ask.choices)


class _Trial:
    """One pod in one cycle."""

    def __init__(self, plugin: Devices, question: Question, subject: Subject, snapshot: Snapshot) -> None:
        self._plugin = plugin
        self._searches = plugin.searches
        self._question = question
        self._subject = subject
        self._snapshot = snapshot
        self._patience = self._searches.patience(subject.attempts)
        self._left = self._searches.limit.total - subject.worked
        """Seconds of work that are left to this attempt, and below to this decision."""
        self._left_now = self._searches.at_once
        self._most = self._left_now / 3
        self._is_sliced = self._searches.is_sliced
        self._endings: dict[Shape, Ending] = {}
        """How searches ended for this cycle, whatever is forgotten elsewhere."""
        self._verdicts: dict[object, Verdict] = {}

    def filter(self, seat: Seat) -> Verdict | None:
        ending = self._ending(seat.likeness.shape)
        if isinstance(ending, Solved):
            return None
        kind = ending if isinstance(ending, GaveUp) else type(ending)
        verdict = self._verdicts.get(kind)
        if verdict is None:
            verdict = self._verdicts[kind] = self._verdict(ending)
        return verdict

    def _verdict(self, ending: Ending | None) -> Verdict:
        plugin, pending = self._plugin.name, self._subject.pending
        claims = f"claim{'s' if len(pending) > 1 else ''} {', '.join(map(named, pending))}"
        if ending is None:
            text = f"devices for {claims} are still being searched for"
            return Verdict(plugin, text, _wakes(self._subject), again=True, unfinished=True)
        if isinstance(ending, GaveUp):
            return self._given_up(ending, claims)
        said = "no devices for" if isinstance(ending, Exhausted) else "a device cannot be judged for"
        return Verdict(plugin, f"{said} {claims}", _wakes(self._subject), searched=True)

    def _given_up(self, ending: GaveUp, claims: str) -> Verdict:
        """A search that was given up is tried again as long as it gets more time than it had."""
        plugin = self._plugin.name
        if not ending.steps and not ending.seconds:
            text = (
                f"devices for {claims} were not searched for: the time of this attempt went into other nodes"
            )
            return Verdict(plugin, f"{text}; they are tried next time", again=True, searched=True)
        text = f"the search for devices for {claims} was given up {_how_far(ending)}"
        if self._searches.is_final(ending):
            wakes = _wakes(self._subject)
            text += "; it is tried again when devices change, a longer --search-timeout gives it more time"
            return Verdict(plugin, text, wakes, searched=True)
        return Verdict(plugin, f"{text}; it is tried again, with more time", again=True, searched=True)

    def score(self, seat: Seat) -> int:
        ending = self._ending(seat.likeness.shape)
        assert isinstance(ending, Solved)
        return rank(ending.picks)

    def reserve(self, seat: Seat) -> tuple[Given, ...]:
        ending = self._ending(seat.likeness.shape)
        assert isinstance(ending, Solved)
        view = self._snapshot.stock.seen_from(seat.node)
        given = assemble(self._question.ask, view, ending.picks, new_share_id=self._plugin.new_share_id)
        return tuple(zip(self._subject.pending, given, strict=True))

    def _ending(self, shape: Shape) -> Ending | None:
        """How the search on a shape ended; None while it goes on."""
        ending = self._endings.get(shape) or shape.endings.get(self._question)
        if ending is None or isinstance(ending, GaveUp):
            # What was given up is searched further when this attempt has more patience, and asked for once.
            ending = self._endings.get(shape) or self._further(shape)
        if ending is not None:
            self._endings[shape] = ending
        return ending

    def _further(self, shape: Shape) -> Ending | None:
        return self._searches.known(self._question, shape, self._patience) or self._searched(shape)

    def _searched(self, shape: Shape) -> Ending | None:
        searches, question = self._searches, self._question
        seconds = min(self._left, self._left_now, self._most)
        # What was begun goes on elsewhere: the time of this decision is for shapes that may be easy.
        if seconds > 0 and not (self._is_sliced and searches.is_begun(question, shape)):
            before = question.worked
            ending = searches.run(question, shape, seconds, self._patience)
            spent = question.worked - before
            self._left -= spent
            self._left_now -= spent
            if ending is not None:
                return ending
        if self._left <= 0:
            return searches.give_up(question, shape)
        searches.want(question, shape, self._patience)
        return None


def _how_far(ending: GaveUp) -> str:
    request = ending.stuck.want.name if ending.stuck is not None else ""
    return how_far(ending.steps, ending.seconds, ending.found, ending.wanted, request)


def encode_spec(claim: ResourceClaim) -> bytes:
    """What a claim asks for, as a key: claims that ask the same have the same."""
    return write_json(claim.spec)


def _claim_signal(claim: ResourceClaim) -> Signal:
    return Signal(Topic.CLAIM, named(claim))


def _wakes(subject: Subject) -> frozenset[Signal]:
    classes = {
        ask.device_class_name
        for claim in subject.pending
        for request in claim.spec.devices.requests
        for ask in (*request.first_available, *((request.exactly,) if request.exactly else ()))
    }
    return frozenset(
        {_DEVICES, _NODES}
        | {Signal(Topic.CLASS, name) for name in classes}
        | {_claim_signal(claim) for claim in subject.claims}
    )


def _only_names(where: NodeSelector) -> tuple[str, ...] | None:
    """The names a selector means when it means nodes by name alone."""
    if len(where.node_selector_terms) != 1:
        return None
    term = where.node_selector_terms[0]
    if term.match_expressions or len(term.match_fields) != 1:
        return None
    field_ = term.match_fields[0]
    return field_.values if field_.key == NODE_NAME and field_.operator == "In" else None
