"""Pods and claims find their nodes: one after the other, each on its best node.

Theory of operation: a subject (a pod with its claims, or a claim on its own) is tried on every node that
comes into question, with one search per distinct shape of node. The best node is the one where requests with
alternatives get their better ones; among equals the first by name. What it takes is taken from then on:
the next subject sees a stock with that usage. What goes wrong with one subject is that subject's answer and
touches no other.

Rules for this file: devices decide, nothing else does: no taints of nodes, no CPU, no affinity.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import msgspec

from dray.allocator.allocate import survey
from dray.allocator.allocation_results import assemble
from dray.allocator.feature_gates import Admission
from dray.allocator.inventory.device_inventory import Stock, View
from dray.allocator.inventory.device_profiles import Judge
from dray.allocator.inventory.usage import Usage
from dray.allocator.requests import ask_of, named
from dray.allocator.search.resumable import TimeLimit
from dray.allocator.search.trace import Ending, GaveUp, Solved
from dray.api.core import Node, Pod
from dray.api.devices.taint_rules import all_under
from dray.api.resource import AllocationResult, ConsumerReference, ResourceClaim
from dray.claims.claim_names import Name
from dray.errors import AllocationFault
from dray.explain import Abort, find_abort
from dray.placement.plugins.dynamic_resources import out_of_reach, rank
from dray.simulation.bundle import Bundle
from dray.simulation.object_reader import listed
from dray.simulation.placement_units import Claims, Subject, refused_subjects, waiting_pods


@dataclass(frozen=True, slots=True)
class Limits:
    """What a run is limited to: a node, some pods, some claims; everything when nothing is named."""

    node: str | None = None
    pods: frozenset[Name] = frozenset()
    claims: frozenset[Name] = frozenset()
    search: TimeLimit | None = None
    """How long searches may take; without, they are limited in steps."""

    @property
    def everything(self) -> bool:
        """Whether no pod and no claim is named."""
        return not self.pods and not self.claims


@dataclass(frozen=True, slots=True)
class Outlook:
    """What a subject met when its turn came: the stock as it was, and the nodes that came into question.

    `barred` are the nodes that a claim with devices elsewhere ruled out. With these values `explain` can tell
    the whole story.
    """

    stock: Stock
    nodes: tuple[Node, ...] = ()
    barred: tuple[tuple[Node, ResourceClaim], ...] = ()


@dataclass(frozen=True, slots=True)
class Placed:
    """A subject with a node; its claims as they are now, and which of them got their devices just now.

    `abort` says why Kubernetes would not have placed it: it ends the whole attempt where we refuse one node.
    """

    subject: Subject
    outlook: Outlook
    node: Node
    claims: tuple[ResourceClaim, ...]
    fresh: tuple[ResourceClaim, ...]
    abort: Abort | None = None


@dataclass(frozen=True, slots=True)
class NotPlaced:
    """A subject without a node; `why` is set when no search was needed to know."""

    subject: Subject
    outlook: Outlook
    why: str = ""
    gave_up: bool = False


Outcome = Placed | NotPlaced


def stock_of(bundle: Bundle, door: Admission, judge: Judge | None = None) -> Stock:
    """What a bundle's nodes see, with what its claims hold already taken; selectors are CEL by default."""
    slices = all_under(door.slices(bundle.slices), door.rules(bundle.rules))
    return Stock(slices, bundle.classes, Usage.of(bundle.holders), judge or door.judge())


def place(
    bundle: Bundle,
    stock: Stock,
    door: Admission,
    *,
    new_share_id: Callable[[], str],
    limits: Limits | None = None,
) -> Iterator[Outcome]:
    """Place everything that waits, pods first; each answer as soon as it is known."""
    run = _Run(bundle, stock, door, new_share_id)
    return run.outcomes(limits or Limits())


class _Run:
    """One run over a bundle."""

    def __init__(
        self, bundle: Bundle, stock: Stock, door: Admission, new_share_id: Callable[[], str]
    ) -> None:
        self._bundle = bundle
        self._stock = stock
        self._door = door
        self._new_share_id = new_share_id
        self._claims = Claims(bundle)

    def outcomes(self, limits: Limits) -> Iterator[Outcome]:
        used: set[Name] = set()
        for pod in waiting_pods(self._bundle):
            used |= self._claims.used_by(pod)
            if limits.everything or (pod.metadata.namespace, pod.metadata.name) in limits.pods:
                subject = self._claims.of(pod)
                if not pod.spec.node_name or subject.pending or subject.obstacle:
                    yield self._place(subject, limits)
        for name in sorted(limits.claims):
            claim = self._claims.get(name)
            if claim is not None and claim.status.allocation is None:
                yield self._place(self._claims.single(claim), limits)
        if limits.everything:
            for claim in self._claims.alone(used):
                yield self._place(self._claims.single(claim), limits)
            for subject in refused_subjects(self._bundle):
                yield NotPlaced(subject, Outlook(self._stock), subject.obstacle)

    def _place(self, subject: Subject, limits: Limits) -> Outcome:
        outlook = Outlook(self._stock)
        if subject.obstacle:
            return NotPlaced(subject, outlook, subject.obstacle)
        nodes = self._in_question(subject.pod, limits.node)
        if isinstance(nodes, str):
            return NotPlaced(subject, outlook, nodes)
        outlook = _reaching(outlook, subject.claims, nodes)
        if not outlook.nodes:
            return NotPlaced(subject, outlook, _elsewhere(outlook))
        try:
            ask = ask_of(self._door.claims(subject.pending), self._stock.classes.get)
        except AllocationFault as fault:
            return NotPlaced(subject, outlook, str(fault))
        looked_at = list(survey(self._stock, ask, outlook.nodes, limit=limits.search))
        best = _best(looked_at)
        if best is None:
            gave_up = any(isinstance(ending, GaveUp) for _, ending in looked_at)
            return NotPlaced(subject, outlook, gave_up=gave_up)
        view, solved = best
        results = assemble(ask, view, solved.picks, new_share_id=self._new_share_id)
        placed = self._settled(subject, outlook, view.node, results)
        return replace(placed, abort=find_abort(ask, looked_at))

    def _in_question(self, pod: Pod | None, only: str | None) -> tuple[Node, ...] | str:
        """The nodes to try, or why there is none."""
        bound = pod.spec.node_name if pod is not None else ""
        if bound and only and bound != only:
            return f"the pod is bound to node `{bound}`, not to `{only}`"
        chosen = bound or only
        nodes = self._bundle.nodes
        if not chosen:
            free = tuple(node for node in nodes if not node.spec.unschedulable)
            if not nodes:
                return "no valid node is among the manifests"
            return free or f"no node takes pods: {listed(n.metadata.name for n in nodes)} unschedulable"
        found = tuple(node for node in nodes if node.metadata.name == chosen)
        return found or f"node `{chosen}` is not among the manifests"

    def _settled(
        self, subject: Subject, outlook: Outlook, node: Node, results: Sequence[AllocationResult]
    ) -> Placed:
        """Write down what a subject got."""
        given = dict(zip([named(claim) for claim in subject.pending], results, strict=True))
        claims: list[ResourceClaim] = []
        fresh: list[ResourceClaim] = []
        for claim in subject.claims:
            allocation = given.get(named(claim))
            changed = _with_status(claim, allocation, subject.pod)
            self._claims.keep(changed)
            claims.append(changed)
            if allocation is not None:
                fresh.append(changed)
        self._stock = self._stock.with_usage(self._stock.usage.taking(fresh))
        return Placed(subject, outlook, node, tuple(claims), tuple(fresh))


def _best(looked_at: Sequence[tuple[View, Ending]]) -> tuple[View, Solved] | None:
    """The best node with its solution, if any node has one."""
    best: tuple[View, Solved] | None = None
    most = -1
    for view, ending in looked_at:
        if isinstance(ending, Solved):
            worth = rank(ending.picks)
            if worth > most:
                best, most = (view, ending), worth
    return best


def _with_status(claim: ResourceClaim, allocation: AllocationResult | None, pod: Pod | None) -> ResourceClaim:
    status = claim.status
    if allocation is not None:
        status = msgspec.structs.replace(status, allocation=allocation)
    if pod is not None and all(consumer.name != pod.metadata.name for consumer in status.reserved_for):
        consumer = ConsumerReference(resource="pods", name=pod.metadata.name, uid=pod.metadata.uid)
        status = msgspec.structs.replace(status, reserved_for=(*status.reserved_for, consumer))
    return msgspec.structs.replace(claim, status=status)


def _reaching(outlook: Outlook, claims: Sequence[ResourceClaim], nodes: Sequence[Node]) -> Outlook:
    """Keep the nodes where the devices that claims already have can be used."""
    kept: list[Node] = []
    barred: list[tuple[Node, ResourceClaim]] = []
    for node in nodes:
        claim = out_of_reach(claims, node)
        if claim is None:
            kept.append(node)
        else:
            barred.append((node, claim))
    return Outlook(outlook.stock, tuple(kept), tuple(barred))


def _elsewhere(outlook: Outlook) -> str:
    names = dict.fromkeys(named(claim) for _, claim in outlook.barred)
    return f"no node reaches the devices that these claims already have: {listed(names)}"
