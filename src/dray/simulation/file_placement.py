"""Placement of the pods and claims of a bundle: one after the other, each on its best node.

Theory of operation: a placement unit (a pod with its claims, or a claim on its own) is tried on every node
that comes into question, with one search per distinct node shape. The best node is the one where requests
with alternatives get their better ones; among equals the first by name. Its devices are in use from then on:
the next unit sees an inventory with that usage. An error of one unit is the outcome of that unit and does not
affect others.

Only devices decide: taints, CPU and affinity of nodes do not count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import msgspec

from dray.allocator.allocate import search_nodes
from dray.allocator.allocation_results import build_allocations
from dray.allocator.feature_gates import AllocatorGateFilter
from dray.allocator.inventory.device_inventory import DeviceInventory
from dray.allocator.inventory.device_profiles import DeviceSelectorEvaluator
from dray.allocator.inventory.node_shapes import NodeView
from dray.allocator.inventory.usage import DeviceUsage
from dray.allocator.requests import format_claim_name, normalize_claims
from dray.allocator.search.resumable import TimeLimit
from dray.allocator.search.trace import GaveUp, SearchEnding, Solved
from dray.api.core import Node, Pod
from dray.api.devices.taint_rules import apply_taint_rules_to_all
from dray.api.resource import AllocationResult, ResourceClaim
from dray.claims import reservation
from dray.claims.claim_names import NamespacedName
from dray.errors import UnanswerableClaimError
from dray.explain import KubernetesAbort, find_abort
from dray.placement.plugins.dynamic_resources import find_unreachable_claim, rank_solution
from dray.simulation.bundle import Bundle
from dray.simulation.object_reader import format_names
from dray.simulation.placement_units import BundleClaims, PlacementUnit, list_invalid_units, list_pending_pods


@dataclass(frozen=True, slots=True)
class PlacementScope:
    """Limits a run to a node, some pods, some claims; without any it covers everything."""

    node: str | None = None
    pods: frozenset[NamespacedName] = frozenset()
    claims: frozenset[NamespacedName] = frozenset()
    time_limit: TimeLimit | None = None
    """How long searches may take; without, they are limited in steps."""

    @property
    def everything(self) -> bool:
        """Whether no pod and no claim is named."""
        return not self.pods and not self.claims


@dataclass(frozen=True, slots=True)
class PlacementContext:
    """The inventory and the nodes that a unit was tried on, as `explain` needs them.

    `excluded` are the nodes that a claim with devices elsewhere ruled out.
    """

    inventory: DeviceInventory
    nodes: tuple[Node, ...] = ()
    excluded: tuple[tuple[Node, ResourceClaim], ...] = ()


@dataclass(frozen=True, slots=True)
class PlacedUnit:
    """A unit with a node; its claims as they are now, and those that just got their devices.

    `abort` tells why Kubernetes would not have placed it: it ends the whole attempt where we refuse one node.
    """

    unit: PlacementUnit
    context: PlacementContext
    node: Node
    claims: tuple[ResourceClaim, ...]
    newly_allocated: tuple[ResourceClaim, ...]
    abort: KubernetesAbort | None = None


@dataclass(frozen=True, slots=True)
class UnplacedUnit:
    """A unit without a node; `why` is set when no search was needed."""

    unit: PlacementUnit
    context: PlacementContext
    why: str = ""
    gave_up: bool = False


PlacementOutcome = PlacedUnit | UnplacedUnit


def build_inventory(
    bundle: Bundle, gate_filter: AllocatorGateFilter, evaluator: DeviceSelectorEvaluator | None = None
) -> DeviceInventory:
    """Build the inventory of a bundle, with the usage of its claims; selectors are CEL by default."""
    slices = apply_taint_rules_to_all(
        gate_filter.admit_slices(bundle.slices), gate_filter.admit_taint_rules(bundle.rules)
    )
    return DeviceInventory(
        slices,
        bundle.classes,
        DeviceUsage.from_claims(bundle.holders),
        evaluator or gate_filter.build_selector_evaluator(),
    )


def place_all(
    bundle: Bundle,
    inventory: DeviceInventory,
    gate_filter: AllocatorGateFilter,
    *,
    new_share_id: Callable[[], str],
    scope: PlacementScope | None = None,
) -> Iterator[PlacementOutcome]:
    """Place everything that is pending, pods first; yields each outcome as soon as it is known."""
    run = _PlacementRun(bundle, inventory, gate_filter, new_share_id)
    return run.place_pending(scope or PlacementScope())


class _PlacementRun:
    """One run over a bundle."""

    def __init__(
        self,
        bundle: Bundle,
        inventory: DeviceInventory,
        gate_filter: AllocatorGateFilter,
        new_share_id: Callable[[], str],
    ) -> None:
        self._bundle = bundle
        self._inventory = inventory
        self._gate_filter = gate_filter
        self._new_share_id = new_share_id
        self._claims = BundleClaims(bundle)

    def place_pending(self, scope: PlacementScope) -> Iterator[PlacementOutcome]:
        used: set[NamespacedName] = set()
        for pod in list_pending_pods(self._bundle):
            used |= self._claims.list_used_names(pod)
            if scope.everything or (pod.metadata.namespace, pod.metadata.name) in scope.pods:
                unit = self._claims.build_pod_unit(pod)
                if not pod.spec.node_name or unit.pending or unit.obstacle:
                    yield self._place_unit(unit, scope)
        for name in sorted(scope.claims):
            claim = self._claims.get(name)
            if claim is not None and claim.status.allocation is None:
                yield self._place_unit(self._claims.build_claim_unit(claim), scope)
        if scope.everything:
            for claim in self._claims.list_unused_claims(used):
                yield self._place_unit(self._claims.build_claim_unit(claim), scope)
            for unit in list_invalid_units(self._bundle):
                yield UnplacedUnit(unit, PlacementContext(self._inventory), unit.obstacle)

    def _place_unit(self, unit: PlacementUnit, scope: PlacementScope) -> PlacementOutcome:
        context = PlacementContext(self._inventory)
        if unit.obstacle:
            return UnplacedUnit(unit, context, unit.obstacle)
        nodes = self._select_nodes(unit.pod, scope.node)
        if isinstance(nodes, str):
            return UnplacedUnit(unit, context, nodes)
        context = _filter_reachable(context, unit.claims, nodes)
        if not context.nodes:
            return UnplacedUnit(unit, context, _explain_unreachable(context))
        try:
            allocation_request = normalize_claims(
                self._gate_filter.admit_claims(unit.pending), self._inventory.classes.get
            )
        except UnanswerableClaimError as fault:
            return UnplacedUnit(unit, context, str(fault))
        searched = list(
            search_nodes(self._inventory, allocation_request, context.nodes, limit=scope.time_limit)
        )
        best = _choose_best(searched)
        if best is None:
            gave_up = any(isinstance(ending, GaveUp) for _, ending in searched)
            return UnplacedUnit(unit, context, gave_up=gave_up)
        view, solved = best
        results = build_allocations(allocation_request, view, solved.picks, new_share_id=self._new_share_id)
        placed = self._commit_placement(unit, context, view.node, results)
        return replace(placed, abort=find_abort(allocation_request, searched))

    def _select_nodes(self, pod: Pod | None, only: str | None) -> tuple[Node, ...] | str:
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
            return free or f"no node takes pods: {format_names(n.metadata.name for n in nodes)} unschedulable"
        found = tuple(node for node in nodes if node.metadata.name == chosen)
        return found or f"node `{chosen}` is not among the manifests"

    def _commit_placement(
        self, unit: PlacementUnit, context: PlacementContext, node: Node, results: Sequence[AllocationResult]
    ) -> PlacedUnit:
        """Update the claims and the usage with what a unit got."""
        given = dict(zip([format_claim_name(claim) for claim in unit.pending], results, strict=True))
        claims: list[ResourceClaim] = []
        fresh: list[ResourceClaim] = []
        for claim in unit.claims:
            allocation = given.get(format_claim_name(claim))
            changed = _update_status(claim, allocation, unit.pod)
            self._claims.update(changed)
            claims.append(changed)
            if allocation is not None:
                fresh.append(changed)
        self._inventory = self._inventory.replace_usage(self._inventory.usage.add_claims(fresh))
        return PlacedUnit(unit, context, node, tuple(claims), tuple(fresh))


def _choose_best(searched: Sequence[tuple[NodeView, SearchEnding]]) -> tuple[NodeView, Solved] | None:
    """The best node with its solution, if any node has one."""
    best: tuple[NodeView, Solved] | None = None
    most = -1
    for view, ending in searched:
        if isinstance(ending, Solved):
            worth = rank_solution(ending.picks)
            if worth > most:
                best, most = (view, ending), worth
    return best


def _update_status(
    claim: ResourceClaim, allocation: AllocationResult | None, pod: Pod | None
) -> ResourceClaim:
    status = claim.status
    if allocation is not None:
        status = msgspec.structs.replace(status, allocation=allocation)
    if pod is not None and not reservation.is_reserved_for(claim, pod):
        consumers = (*status.reserved_for, reservation.build_consumer(pod))
        status = msgspec.structs.replace(status, reserved_for=consumers)
    return msgspec.structs.replace(claim, status=status)


def _filter_reachable(
    context: PlacementContext, claims: Sequence[ResourceClaim], nodes: Sequence[Node]
) -> PlacementContext:
    """Keep the nodes where the devices that claims already have can be used."""
    kept: list[Node] = []
    barred: list[tuple[Node, ResourceClaim]] = []
    for node in nodes:
        claim = find_unreachable_claim(claims, node)
        if claim is None:
            kept.append(node)
        else:
            barred.append((node, claim))
    return PlacementContext(context.inventory, tuple(kept), tuple(barred))


def _explain_unreachable(context: PlacementContext) -> str:
    names = dict.fromkeys(format_claim_name(claim) for _, claim in context.excluded)
    return f"no node reaches the devices that these claims already have: {format_names(names)}"
