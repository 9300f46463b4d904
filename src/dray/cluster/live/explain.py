"""Why a pod of a running cluster waits, or where it is: the scheduler's own judges, asked once more.

Theory of operation: the pod is judged against what is there now, alone, as the scheduler does it. The plugins
that look at nodes say first which nodes are left out; on the nodes that are left, the devices are explained
by the same search that would allocate them. A pod that has its node is told with the devices it holds.

Rules for this file: nothing is read or written here; a bundle comes in, values go out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from dray.allocator.feature_gates import Admission
from dray.allocator.inventory.device_inventory import Stock
from dray.allocator.requests import named
from dray.allocator.search.resumable import TimeLimit
from dray.api.core import Node, Pod
from dray.api.resource import ResourceClaim
from dray.claims.binding_conditions import why_not_ready
from dray.claims.claim_names import Name, name_of, recorded
from dray.claims.reservation import ENDED, is_reserved
from dray.errors import AllocationFault
from dray.explain import Diagnosis, Effort, NodeStory, Outcome, diagnose, of_fault, summary
from dray.explain import Verdict as Answer
from dray.explain.diagnosis import DeviceName, Found
from dray.explain.rendering.text import headline
from dray.placement.classic_negotiation import Wait
from dray.placement.device_searches import Searches
from dray.placement.framework import Plugin
from dray.placement.pending_pod import ClaimsSeen, Subject, subject_of
from dray.placement.plugins.classic_resources import ClassicResources, next_step
from dray.placement.plugins.dynamic_resources import Devices, out_of_reach
from dray.placement.profile import DEFAULT_SCHEDULER, Choices, profile_of
from dray.placement.rejections import Verdict
from dray.placement.resource_requests import NOTHING, Needs, needs_of
from dray.placement.scheduling_cycle import Refused, Unplaceable, place, refusals
from dray.placement.snapshot import Snapshot
from dray.placement.unschedulable_message import why
from dray.simulation.bundle import Bundle
from dray.simulation.share_ids import new_share_id

T = TypeVar("T")
UNSCHEDULED: Final = "PodScheduled"


@dataclass(frozen=True, slots=True)
class Inquiry:
    """The answer for one pod or claim."""

    headline: str
    diagnosis: Diagnosis
    summary: str
    """The same in one line, as the event of a scheduler says it."""
    left_out: tuple[Refused, ...] = ()
    """Nodes that were not searched for devices, and why."""
    node: str = ""
    """Where it is already."""
    holds: bool = False
    """Whether the diagnosis tells of devices that are held, and not of a search."""
    remarks: tuple[str, ...] = ()

    @property
    def is_good(self) -> bool:
        """Whether it has its place, or could have it."""
        return self.diagnosis.verdict is Answer.FITS


class Inquirer:
    """Answers questions about one bundle."""

    def __init__(
        self, bundle: Bundle, door: Admission, stock: Stock, node: str | None, limit: TimeLimit
    ) -> None:
        self._bundle = bundle
        self._door = door
        self._stock = stock
        self._limit = limit
        self._devices = Devices(door, new_share_id, Searches(limit))
        self._nodes = [each for each in bundle.nodes if node in (None, each.metadata.name)]
        self._claims = {name_of(claim.metadata): claim for claim in bundle.claims}
        classic = {name_of(claim.metadata): claim for claim in bundle.classic_claims}
        self._seen = ClaimsSeen(_finding(self._claims), _finding(classic))

    def pod(self, name: Name) -> Inquiry:
        """Where a pod is, or why it has no node."""
        pod = next(each for each in self._bundle.pods if name_of(each.metadata) == name)
        if pod.spec.node_name or pod.status.phase in ENDED:
            return self._placed(pod)
        if pod.spec.scheduling_gates:
            gates = ", ".join(gate.name for gate in pod.spec.scheduling_gates)
            return _plainly(pod, f"it is held back by scheduling gates: {gates}")
        subject = subject_of(pod, self._seen)
        if isinstance(subject, Verdict):
            return replace(_plainly(pod, subject.reason), remarks=tuple(self._missing(pod)))
        unready = [why_not_ready(claim) for claim in subject.claims if is_reserved(claim, pod)]
        if any(unready):
            # It has its place already, and is bound as soon as its devices are ready.
            return _plainly(pod, next(filter(None, unready)))
        return self._waiting(subject)

    def _missing(self, pod: Pod) -> Iterable[str]:
        """What a pod names and nobody made."""
        there = {name_of(each.metadata) for each in self._bundle.templates}
        for name in dict.fromkeys(entry.resource_claim_template_name for entry in pod.spec.resource_claims):
            if name is not None and (pod.metadata.namespace, name) not in there:
                yield f"ResourceClaimTemplate {name} does not exist"

    def claim(self, name: Name) -> Inquiry:
        """What a claim has, or could have."""
        claim = self._claims[name]
        full = named(claim)
        if claim.status.allocation is not None:
            holders = [each.name for each in claim.status.reserved_for]
            remarks = (f"reserved for {', '.join(holders)}",) if holders else ("reserved for nobody",)
            found = _found([claim])
            story = NodeStory(nodes=("",), outcome=Outcome.FITS, steps=0, found=found)
            answer = Diagnosis(verdict=Answer.FITS, claims=(full,), stories=(story,))
            said = f"Claim {full} has its devices"
            return Inquiry(said, answer, summary(answer), holds=True, remarks=remarks)
        answer = self._diagnosed((claim,), self._nodes, Effort(self._limit))
        return Inquiry(headline(answer), answer, summary(answer))

    def _placed(self, pod: Pod) -> Inquiry:
        node = pod.spec.node_name
        ended = pod.status.phase in ENDED
        words = f"has ended ({pod.status.phase})" if ended else f"is on {node}"
        claims = list(self._held(pod))
        story = NodeStory(nodes=(node,), outcome=Outcome.FITS, steps=0, found=_found(claims))
        names = tuple(map(named, claims))
        answer = Diagnosis(verdict=Answer.FITS, pod=_full(pod), claims=names, stories=(story,))
        bare = [] if ended else [named(claim) for claim in claims if claim.status.allocation is None]
        remarks = tuple(
            f"claim {name} has no devices: the pod got its node without a scheduler" for name in bare
        )
        return Inquiry(f"Pod {_full(pod)} {words}", answer, words, node=node, holds=True, remarks=remarks)

    def _held(self, pod: Pod) -> Iterable[ResourceClaim]:
        for entry in pod.spec.resource_claims:
            name = entry.resource_claim_name or recorded(pod, entry)[1]
            claim = self._claims.get((pod.metadata.namespace, name or ""))
            if claim is not None:
                yield claim

    def _waiting(self, subject: Subject) -> Inquiry:
        snapshot = Snapshot.of(self._nodes, self._stock, self._needs())
        # Devices are explained below, in more words than a verdict has.
        refused = refusals(snapshot, subject, profile_of(Choices(), [ClassicResources()]))
        everywhere = next((each for each in refused if not each.nodes), None)
        if everywhere is not None:
            return _plainly(subject.pod, everywhere.verdict.reason)
        left, barred = self._reaching(subject, {name for each in refused for name in each.nodes})
        # The scheduler is asked first: what it gives up is not searched for again.
        line = self._event(snapshot, subject)
        effort = self._devices.effort(subject, snapshot)
        answer = self._diagnosed(subject.pending, left, effort, _full(subject.pod))
        said = headline(answer) if left else f"Pod {_full(subject.pod)} cannot run yet: {self._nobody()}"
        if line and answer.verdict is Answer.FITS:
            # Devices are not what it waits for: the driver of a classic claim comes first.
            return replace(_plainly(subject.pod, line), left_out=(*refused, *barred))
        remarks = tuple(_remarks(subject, answer))
        return Inquiry(said, answer, line or summary(answer), (*refused, *barred), remarks=remarks)

    def _nobody(self) -> str:
        count = len(self._nodes)
        few = ("there are no nodes", f"{self._nodes[0].metadata.name} does not take it" if count else "")
        return few[count] if count < len(few) else f"none of {count} nodes takes it"

    def _event(self, snapshot: Snapshot, subject: Subject) -> str:
        """What the scheduler says when it is asked now; nothing when it finds a node."""
        plugins: list[Plugin] = [self._devices, ClassicResources()]
        found = place(snapshot, subject, profile_of(Choices(), plugins))
        if isinstance(found, Unplaceable):
            return why(found, self._door, effort=self._devices.effort(subject, snapshot))
        step = next_step(subject, (found.seat.name, *found.others), found.seat.name)
        return step.verdict.reason if isinstance(step, Wait) else ""

    def _reaching(self, subject: Subject, out: set[str]) -> tuple[list[Node], list[Refused]]:
        """The nodes that nobody left out and that reach the devices claims already have; the others."""
        left: list[Node] = []
        barred: dict[str, list[str]] = {}
        for node in self._nodes:
            if node.metadata.name in out:
                continue
            claim = out_of_reach(subject.claims, node)
            if claim is None:
                left.append(node)
            else:
                barred.setdefault(f"claim {named(claim)} has its devices elsewhere", []).append(
                    node.metadata.name
                )
        return left, [Refused(Verdict("", reason), tuple(nodes)) for reason, nodes in barred.items()]

    def _needs(self) -> dict[str, Needs]:
        """What the pods of each node need together."""
        sums: dict[str, Needs] = {}
        for pod in self._bundle.pods:
            if pod.spec.node_name and pod.status.phase not in ENDED:
                sums[pod.spec.node_name] = sums.get(pod.spec.node_name, NOTHING).plus(needs_of(pod))
        return sums

    def _diagnosed(
        self, claims: Sequence[ResourceClaim], nodes: Sequence[Node], effort: Effort, pod: str = ""
    ) -> Diagnosis:
        try:
            return diagnose(self._stock, self._door.claims(claims), nodes, effort=effort, pod=pod)
        except AllocationFault as fault:
            return of_fault(fault, claims, pod=pod)


def _finding(objects: Mapping[Name, T]) -> Callable[[str, str], T | None]:
    return lambda namespace, name: objects.get((namespace, name))


def _full(pod: Pod) -> str:
    return "/".join(name_of(pod.metadata))


def _plainly(pod: Pod, reason: str) -> Inquiry:
    """A pod that waits for something no search can tell about."""
    said = f"Pod {_full(pod)} cannot run yet: {reason}"
    return Inquiry(said, Diagnosis(verdict=Answer.REFUSED, pod=_full(pod)), reason)


def _found(claims: Sequence[ResourceClaim]) -> tuple[Found, ...]:
    """The devices that claims have."""
    return tuple(
        Found(
            claim=named(claim),
            request=result.request,
            label=result.request,
            device=DeviceName(driver=result.driver, pool=result.pool, device=result.device),
            consumed={name: str(amount) for name, amount in result.consumed_capacity.items()},
            admin=bool(result.admin_access),
        )
        for claim in claims
        if claim.status.allocation is not None
        for result in claim.status.allocation.devices.results
    )


def _remarks(subject: Subject, answer: Diagnosis) -> Iterable[str]:
    """What else is worth knowing about a pod that waits."""
    held = [named(claim) for claim in subject.claims if claim.status.allocation is not None]
    if held:
        yield f"has devices already: {', '.join(held)}"
    if answer.verdict is not Answer.FITS:
        return
    said = [c for c in subject.pod.status.conditions if c.type == UNSCHEDULED and c.status == "False"]
    told = f", which said last: {said[0].message}" if said and said[0].message else ""
    yield f"waits for scheduler `{subject.pod.spec.scheduler_name or DEFAULT_SCHEDULER}`{told}"
