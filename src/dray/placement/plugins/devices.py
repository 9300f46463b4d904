"""Devices: a pod goes where its claims can have theirs, and rather where they get their first choice.

Theory of operation: a claim that has devices keeps the pod to the nodes that reach them. What the pending
claims ask together is normalised once for all pods that ask the same, and every shape of node is searched
once for it; both are remembered, as pods of one template come by the hundreds and shapes come back. The score
is the rank of KEP-4816: for every request with alternatives, the earlier the better.

Rules for this file: a search that was given up is never remembered, and after a few of them in one cycle the
other shapes are not tried: one pod must not hold up all others. The next attempt has more patience.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from dray.allocator.admit import Admission
from dray.allocator.allocate import outcome
from dray.allocator.assemble import assemble
from dray.allocator.beats import Ending, Exhausted, GaveUp, Pick, Solved
from dray.allocator.search import BUDGET
from dray.allocator.stock import Shape
from dray.allocator.wants import Ask, ask_of, named
from dray.api.core import Node
from dray.api.jsontext import write_json
from dray.api.resource import DeviceClass, ResourceClaim
from dray.errors import AllocationFault
from dray.placement.phases import Given, Opinion, Spread, between
from dray.placement.snapshot import Seat, Snapshot
from dray.placement.subject import PLUGIN, Subject
from dray.placement.verdicts import Signal, Topic, Verdict
from dray.values.bounds import Bound
from dray.values.nodeselector import NODE_NAME, NodeSelector

FIRST_CHOICE: Final = 8
"""What a request earns a node when it gets its first alternative; every further one earns one less."""
ASKS: Final = Bound("what claims ask for", 512, "the scheduler")
ENDINGS: Final = Bound("endings of searches", 64, "a shape")
REACHED: Final = Bound("nodes of selectors", 64, "the scheduler")
MOST_GIVEN_UP: Final = 2
"""Searches that may be given up in a first cycle before the shapes that are left are not tried; one more with
every attempt, so that hard shapes do not keep a pod from an easy one for ever."""
MOST_PATIENCE: Final = 16

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
class _Known:
    """What is asked. How the search for it ended on a shape is kept with the shape, and goes with it."""

    ask: Ask
    classes: dict[str, DeviceClass]


@dataclass(slots=True, eq=False)
class Devices:
    """The plugin."""

    door: Admission
    new_share_id: Callable[[], str]
    spread: Spread = between
    name: str = PLUGIN
    searches: Counter[str] = field(default_factory=Counter)
    """Searches made, by how they ended."""
    _known: dict[tuple[bytes, ...], _Known] = field(default_factory=dict)
    _reached: dict[NodeSelector, frozenset[str]] = field(default_factory=dict)
    _reached_of: object = None
    """The nodes that `_reached` is about."""

    @property
    def remembered(self) -> int:
        """How many different asks of claims are remembered."""
        return len(self._known)

    def opinion(self, subject: Subject, snapshot: Snapshot) -> Opinion | Verdict | None:
        """What it thinks of a pod."""
        if not subject.claims:
            return None
        names, elsewhere = self._reachable(subject, snapshot)
        if not subject.pending:
            return Opinion(names, elsewhere) if names is not None else None
        try:
            known = self._asked(subject, snapshot)
        except AllocationFault as fault:
            return Verdict(self.name, str(fault), _wakes(subject))
        trial = _Trial(self, known, subject, snapshot)
        minds_rank = any(len(choice.wants) > 1 for choice in known.ask.choices)
        score = trial.score if minds_rank else None
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

    def _asked(self, subject: Subject, snapshot: Snapshot) -> _Known:
        key = tuple([encode_spec(claim) for claim in subject.pending])
        known, classes = self._known.get(key), snapshot.stock.classes
        if known is None or any(classes.get(name) is not used for name, used in known.classes.items()):
            ask = ask_of(self.door.claims(subject.pending), classes.get)
            known = ASKS.keep(self._known, key, _Known(ask, dict(ask.classes)))
        return known


class _Trial:
    """One pod in one cycle."""

    def __init__(self, plugin: Devices, known: _Known, subject: Subject, snapshot: Snapshot) -> None:
        self._plugin = plugin
        self._known = known
        self._subject = subject
        self._snapshot = snapshot
        self._budget = BUDGET * min(2**subject.attempts, MOST_PATIENCE)
        self._endings: dict[Shape, Ending] = {}
        """How the search ended in this cycle, whatever is forgotten elsewhere."""
        self._given_up: list[GaveUp] = []
        self._verdicts: dict[type, Verdict] = {}

    def filter(self, seat: Seat) -> Verdict | None:
        ending = self._ending(seat.likeness.shape)
        if isinstance(ending, Solved):
            return None
        verdict = self._verdicts.get(type(ending))
        if verdict is None:
            verdict = self._verdicts[type(ending)] = self._verdict(ending)
        return verdict

    def _verdict(self, ending: Ending) -> Verdict:
        plugin, pending = self._plugin.name, self._subject.pending
        claims = f"claim{'s' if len(pending) > 1 else ''} {', '.join(map(named, pending))}"
        if isinstance(ending, GaveUp):
            text = f"the search for devices for {claims} was given up; it is tried again, with more patience"
            return Verdict(plugin, text, again=True, searched=True)
        said = "no devices for" if isinstance(ending, Exhausted) else "a device cannot be judged for"
        return Verdict(plugin, f"{said} {claims}", _wakes(self._subject), searched=True)

    def score(self, seat: Seat) -> int:
        ending = self._ending(seat.likeness.shape)
        assert isinstance(ending, Solved)
        return rank(ending.picks)

    def reserve(self, seat: Seat) -> tuple[Given, ...]:
        ending = self._ending(seat.likeness.shape)
        assert isinstance(ending, Solved)
        view = self._snapshot.stock.seen_from(seat.node)
        given = assemble(self._known.ask, view, ending.picks, new_share_id=self._plugin.new_share_id)
        return tuple(zip(self._subject.pending, given, strict=True))

    def _ending(self, shape: Shape) -> Ending:
        known = self._endings.get(shape) or shape.endings.get(self._known)
        if known is None and len(self._given_up) >= MOST_GIVEN_UP + self._subject.attempts:
            known = self._given_up[0]
        ending: Ending = known or self._searched(shape)
        self._endings[shape] = ending
        return ending

    def _searched(self, shape: Shape) -> Ending:
        ending = outcome(self._known.ask, shape, self._budget)
        self._plugin.searches[type(ending).__name__] += 1
        if isinstance(ending, GaveUp):
            self._given_up.append(ending)
            return ending
        ENDINGS.keep(shape.endings, self._known, ending)
        return ending


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
