"""Explains a pod or claim of a running cluster: why it waits, or what it has.

Theory of operation: the pod is evaluated alone against the current cluster, with the scheduler's own plugins.
The plugins that filter nodes first say which nodes are excluded; on the remaining nodes, the devices are
explained by the same search that would allocate them. A pod with a node is shown with its devices. For a user
who may not read what the search needs, the last words of the scheduler are the answer.

Rules for this file: nothing is read or written here; a snapshot comes in, values go out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from dray.allocator.feature_gates import AllocatorGateFilter
from dray.allocator.inventory.device_inventory import DeviceInventory
from dray.allocator.requests import format_claim_name
from dray.allocator.search.resumable import TimeLimit
from dray.api.core import Node, Pod
from dray.api.resource import ResourceClaim, ResourceClaimTemplate
from dray.claims.binding_conditions import explain_not_ready
from dray.claims.claim_names import NamespacedName, find_recorded_name, get_namespaced_name
from dray.claims.pod_claims import PodClaimLookup
from dray.claims.reservation import FINISHED_PHASES, is_reserved_for
from dray.cluster.live.snapshot import LiveSnapshot
from dray.errors import UnanswerableClaimError
from dray.explain import Diagnosis, NodeOutcome, NodeReport, WorkBudget, diagnose, diagnose_fault, summarize
from dray.explain import DiagnosisVerdict as Answer
from dray.explain.diagnosis import DeviceName, FoundDevice
from dray.explain.rendering.text import render_headline
from dray.placement.classic_negotiation import WaitForDrivers
from dray.placement.device_searches import DeviceSearches
from dray.placement.framework import SchedulingPlugin
from dray.placement.pending_pod import PendingPod, resolve_pending_pod
from dray.placement.plugins.classic_resources import ClassicResources, decide_next_step
from dray.placement.plugins.dynamic_resources import DynamicResources, find_unreachable_claim
from dray.placement.profile import DEFAULT_SCHEDULER, PlacementOptions, build_profile
from dray.placement.rejections import PluginRejection
from dray.placement.resource_requests import NO_REQUESTS, ResourceRequests, compute_requests
from dray.placement.scheduling_cycle import RejectedNodes, Unschedulable, find_rejections, place_pod
from dray.placement.snapshot import ClusterSnapshot
from dray.placement.unschedulable_message import explain_unschedulable
from dray.share_ids import generate_share_id

T = TypeVar("T")
POD_SCHEDULED_CONDITION: Final = "PodScheduled"


@dataclass(frozen=True, slots=True)
class LiveExplanation:
    """The explanation of one pod or claim."""

    headline: str
    diagnosis: Diagnosis
    summary: str
    """The same in one line, as the event of a scheduler says it."""
    excluded_nodes: tuple[RejectedNodes, ...] = ()
    """Nodes that were not searched for devices, and why."""
    node: str = ""
    """The node of a placed pod."""
    is_allocated: bool = False
    """Whether the diagnosis lists allocated devices, and not the result of a search."""
    remarks: tuple[str, ...] = ()

    @property
    def is_good(self) -> bool:
        """Whether it has a node or devices, or could have them."""
        return self.diagnosis.verdict is Answer.FITS


class LiveExplainer:
    """Explains objects of one snapshot."""

    def __init__(
        self,
        snapshot: LiveSnapshot,
        admission: AllocatorGateFilter,
        inventory: DeviceInventory,
        node: str | None,
        time_limit: TimeLimit,
    ) -> None:
        bundle = snapshot.bundle
        self._snapshot = snapshot
        self._bundle = bundle
        self._admission = admission
        self._inventory = inventory
        self._time_limit = time_limit
        self._devices = DynamicResources(admission, generate_share_id, DeviceSearches(time_limit))
        self._nodes = [each for each in bundle.nodes if node in (None, each.metadata.name)]
        self._claims = {get_namespaced_name(claim.metadata): claim for claim in bundle.claims}
        classic = {get_namespaced_name(claim.metadata): claim for claim in bundle.classic_claims}
        self._claim_lookup = PodClaimLookup(_build_lookup(self._claims), _build_lookup(classic))

    def explain_pod(self, name: NamespacedName) -> LiveExplanation:
        """Explain where a pod is, or why it has no node."""
        pod = next(each for each in self._bundle.pods if get_namespaced_name(each.metadata) == name)
        if pod.spec.node_name or pod.status.phase in FINISHED_PHASES:
            return self._explain_placed_pod(pod)
        if pod.spec.scheduling_gates:
            gates = ", ".join(gate.name for gate in pod.spec.scheduling_gates)
            return _explain_without_search(pod, f"it is held back by scheduling gates: {gates}")
        if not self._can_search(pod.metadata.namespace):
            return self._explain_by_conditions(pod)
        pending_pod = resolve_pending_pod(pod, self._claim_lookup)
        if isinstance(pending_pod, PluginRejection):
            return replace(
                _explain_without_search(pod, pending_pod.reason),
                remarks=tuple(self._list_missing_templates(pod)),
            )
        unready = [explain_not_ready(claim) for claim in pending_pod.claims if is_reserved_for(claim, pod)]
        if any(unready):
            # It is placed already, and is bound as soon as its devices are ready.
            return _explain_without_search(pod, next(filter(None, unready)))
        return self._explain_pending_pod(pending_pod)

    def _can_search(self, namespace: str) -> bool:
        """Whether everything could be read without which a search would give wrong answers."""
        return self._snapshot.shows_devices and self._snapshot.is_readable(ResourceClaim, namespace)

    def _explain_by_conditions(self, pod: Pod) -> LiveExplanation:
        """Explain a pod by what the scheduler wrote, where nothing else can be known."""
        message = _get_scheduler_message(pod) or "the scheduler has not said yet why"
        remarks = [
            f"claim {format_claim_name(claim)} has "
            + ("no devices yet" if claim.status.allocation is None else "its devices")
            for claim in self._list_pod_claims(pod)
        ]
        remarks.append("the reason is the scheduler's: not enough can be read to search for devices here")
        return replace(_explain_without_search(pod, message), remarks=tuple(remarks))

    def _list_missing_templates(self, pod: Pod) -> Iterable[str]:
        """List templates that a pod names and that do not exist."""
        if not self._snapshot.is_readable(ResourceClaimTemplate, pod.metadata.namespace):
            return
        existing = {get_namespaced_name(each.metadata) for each in self._bundle.templates}
        for name in dict.fromkeys(entry.resource_claim_template_name for entry in pod.spec.resource_claims):
            if name is not None and (pod.metadata.namespace, name) not in existing:
                yield f"ResourceClaimTemplate {name} does not exist"

    def explain_claim(self, name: NamespacedName) -> LiveExplanation:
        """Explain what a claim has, or could have."""
        claim = self._claims[name]
        full = format_claim_name(claim)
        if claim.status.allocation is not None:
            holders = [each.name for each in claim.status.reserved_for]
            remarks = (f"reserved for {', '.join(holders)}",) if holders else ("reserved for nobody",)
            found = _list_allocated_devices([claim])
            report = NodeReport(nodes=("",), outcome=NodeOutcome.FITS, steps=0, found=found)
            answer = Diagnosis(verdict=Answer.FITS, claims=(full,), node_reports=(report,))
            headline = f"Claim {full} has its devices"
            return LiveExplanation(headline, answer, summarize(answer), is_allocated=True, remarks=remarks)
        if not self._snapshot.shows_devices:
            refused = Diagnosis(verdict=Answer.REFUSED, claims=(full,))
            return LiveExplanation(f"Claim {full} has no devices yet", refused, "it has no devices yet")
        answer = self._diagnose_claims((claim,), self._nodes, WorkBudget(self._time_limit))
        return LiveExplanation(render_headline(answer), answer, summarize(answer))

    def _explain_placed_pod(self, pod: Pod) -> LiveExplanation:
        node = pod.spec.node_name
        ended = pod.status.phase in FINISHED_PHASES
        words = f"has ended ({pod.status.phase})" if ended else f"is on {node}"
        claims = list(self._list_pod_claims(pod))
        report = NodeReport(
            nodes=(node,), outcome=NodeOutcome.FITS, steps=0, found=_list_allocated_devices(claims)
        )
        names = tuple(map(format_claim_name, claims))
        answer = Diagnosis(verdict=Answer.FITS, pod=_format_name(pod), claims=names, node_reports=(report,))
        bare = (
            [] if ended else [format_claim_name(claim) for claim in claims if claim.status.allocation is None]
        )
        remarks = tuple(
            f"claim {name} has no devices: the pod got its node without a scheduler" for name in bare
        )
        return LiveExplanation(
            f"Pod {_format_name(pod)} {words}", answer, words, node=node, is_allocated=True, remarks=remarks
        )

    def _list_pod_claims(self, pod: Pod) -> Iterable[ResourceClaim]:
        for entry in pod.spec.resource_claims:
            name = entry.resource_claim_name or find_recorded_name(pod, entry)[1]
            claim = self._claims.get((pod.metadata.namespace, name or ""))
            if claim is not None:
                yield claim

    def _explain_pending_pod(self, pending_pod: PendingPod) -> LiveExplanation:
        if not self._snapshot.is_readable(Node):
            return self._explain_devices(pending_pod)
        snapshot = ClusterSnapshot.build(self._nodes, self._inventory, self._sum_node_needs())
        # Devices are explained below, in more detail than a rejection has.
        refused = find_rejections(
            snapshot, pending_pod, build_profile(PlacementOptions(), [ClassicResources()])
        )
        everywhere = next((each for each in refused if not each.nodes), None)
        if everywhere is not None:
            return _explain_without_search(pending_pod.pod, everywhere.rejection.reason)
        left, barred = self._split_by_reach(pending_pod, {name for each in refused for name in each.nodes})
        # The scheduler's message comes first: a search it gave up is not repeated.
        line = self._compute_scheduler_message(snapshot, pending_pod)
        effort = self._devices.build_work_budget(pending_pod, snapshot)
        answer = self._diagnose_claims(pending_pod.pending, left, effort, _format_name(pending_pod.pod))
        headline = (
            render_headline(answer)
            if left
            else f"Pod {_format_name(pending_pod.pod)} cannot run yet: {self._describe_no_nodes()}"
        )
        if line and answer.verdict is Answer.FITS:
            # The pod does not wait for devices but for the driver of a classic claim.
            return replace(_explain_without_search(pending_pod.pod, line), excluded_nodes=(*refused, *barred))
        remarks = tuple(_list_remarks(pending_pod, answer))
        return LiveExplanation(
            headline, answer, line or summarize(answer), (*refused, *barred), remarks=remarks
        )

    def _explain_devices(self, pending_pod: PendingPod) -> LiveExplanation:
        """Explain only the devices of a pod: nothing else is known about the nodes."""
        left, barred = self._split_by_reach(pending_pod, set())
        answer = self._diagnose_claims(
            pending_pod.pending, left, WorkBudget(self._time_limit), _format_name(pending_pod.pod)
        )
        message = _get_scheduler_message(pending_pod.pod)
        remarks = [*_list_remarks(pending_pod, answer)]
        remarks += [f"the scheduler says: {message}"] if message else []
        return LiveExplanation(
            render_headline(answer), answer, summarize(answer), tuple(barred), remarks=tuple(remarks)
        )

    def _describe_no_nodes(self) -> str:
        count = len(self._nodes)
        few = ("there are no nodes", f"{self._nodes[0].metadata.name} does not take it" if count else "")
        return few[count] if count < len(few) else f"none of {count} nodes takes it"

    def _compute_scheduler_message(self, snapshot: ClusterSnapshot, pending_pod: PendingPod) -> str:
        """Return what the scheduler would report now; nothing when it finds a node."""
        plugins: list[SchedulingPlugin] = [self._devices, ClassicResources()]
        found = place_pod(snapshot, pending_pod, build_profile(PlacementOptions(), plugins))
        if isinstance(found, Unschedulable):
            return explain_unschedulable(
                found, self._admission, work_budget=self._devices.build_work_budget(pending_pod, snapshot)
            )
        step = decide_next_step(
            pending_pod, (found.node_state.name, *found.other_nodes), found.node_state.name
        )
        return step.rejection.reason if isinstance(step, WaitForDrivers) else ""

    def _split_by_reach(
        self, pending_pod: PendingPod, excluded: set[str]
    ) -> tuple[list[Node], list[RejectedNodes]]:
        """Split the nodes that are not excluded by whether they reach the devices that claims already
        have.
        """
        left: list[Node] = []
        barred: dict[str, list[str]] = {}
        for node in self._nodes:
            if node.metadata.name in excluded:
                continue
            claim = find_unreachable_claim(pending_pod.claims, node)
            if claim is None:
                left.append(node)
            else:
                barred.setdefault(f"claim {format_claim_name(claim)} has its devices elsewhere", []).append(
                    node.metadata.name
                )
        return left, [
            RejectedNodes(PluginRejection("", reason), tuple(nodes)) for reason, nodes in barred.items()
        ]

    def _sum_node_needs(self) -> dict[str, ResourceRequests]:
        """Sum the requests of the pods of each node."""
        sums: dict[str, ResourceRequests] = {}
        for pod in self._bundle.pods:
            if pod.spec.node_name and pod.status.phase not in FINISHED_PHASES:
                sums[pod.spec.node_name] = sums.get(pod.spec.node_name, NO_REQUESTS).add(
                    compute_requests(pod)
                )
        return sums

    def _diagnose_claims(
        self, claims: Sequence[ResourceClaim], nodes: Sequence[Node], effort: WorkBudget, pod: str = ""
    ) -> Diagnosis:
        try:
            return diagnose(
                self._inventory, self._admission.admit_claims(claims), nodes, work_budget=effort, pod=pod
            )
        except UnanswerableClaimError as fault:
            return diagnose_fault(fault, claims, pod=pod)


def _build_lookup(objects: Mapping[NamespacedName, T]) -> Callable[[str, str], T | None]:
    return lambda namespace, name: objects.get((namespace, name))


def _format_name(pod: Pod) -> str:
    return "/".join(get_namespaced_name(pod.metadata))


def _explain_without_search(pod: Pod, reason: str) -> LiveExplanation:
    """Explain a pod that waits for something a search cannot show."""
    headline = f"Pod {_format_name(pod)} cannot run yet: {reason}"
    return LiveExplanation(headline, Diagnosis(verdict=Answer.REFUSED, pod=_format_name(pod)), reason)


def _list_allocated_devices(claims: Sequence[ResourceClaim]) -> tuple[FoundDevice, ...]:
    """List the devices allocated to claims."""
    return tuple(
        FoundDevice(
            claim=format_claim_name(claim),
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


def _list_remarks(pending_pod: PendingPod, answer: Diagnosis) -> Iterable[str]:
    """List other facts about a pod that waits."""
    allocated = [
        format_claim_name(claim) for claim in pending_pod.claims if claim.status.allocation is not None
    ]
    if allocated:
        yield f"has devices already: {', '.join(allocated)}"
    if answer.verdict is not Answer.FITS:
        return
    message = _get_scheduler_message(pending_pod.pod)
    last = f", which said last: {message}" if message else ""
    yield f"waits for scheduler `{pending_pod.pod.spec.scheduler_name or DEFAULT_SCHEDULER}`{last}"


def _get_scheduler_message(pod: Pod) -> str:
    """Return why the scheduler has found no node, in its own words; empty when it has not said."""
    conditions = [
        each
        for each in pod.status.conditions
        if each.type == POD_SCHEDULED_CONDITION and each.status == "False"
    ]
    return conditions[0].message if conditions else ""
