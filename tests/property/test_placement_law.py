"""Caches between scheduling cycles change nothing: each pod gets what a cold start would give it.

A cluster is drawn with devices, alternatives, shares and claims that hold some of them. Pods with the same
requests come one after the other through one cache and one plugin, which reuse snapshots, shapes and
searches. Each is compared with a plain reference that calls the allocator for every single node: the same
nodes are suitable, the chosen one has the highest score, and its claims get the same devices.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from typing import Any, cast

import pytest
from hypothesis import event, given
from hypothesis import strategies as st
from msgspec.structs import replace

from dray.allocator.allocate import SuccessfulAllocation, allocate
from dray.allocator.feature_gates import AllocatorGateFilter
from dray.allocator.inventory.device_inventory import DeviceInventory
from dray.allocator.inventory.usage import DeviceUsage
from dray.allocator.search.resumable import TimeLimit
from dray.api.core import Node, Pod
from dray.api.meta import ObjectMeta
from dray.api.resource import AllocationResult, ResourceClaim, ResourceSlice
from dray.errors import UnanswerableClaimError
from dray.placement.device_searches import DeviceSearches
from dray.placement.pending_pod import PendingPod
from dray.placement.plugins.dynamic_resources import DynamicResources
from dray.placement.profile import SchedulerProfile, WeightedPlugin
from dray.placement.resource_requests import NO_REQUESTS
from dray.placement.scheduling_cycle import Placement, Unschedulable, find_rejections, place_pod
from dray.placement.snapshot import ClusterSnapshot
from dray.scheduler.cache import SchedulerCache
from tests.brute import builders as make
from tests.brute.problem import Problem
from tests.brute.toy_selectors import evaluate_toy
from tests.property.strategies.problems import problems

SHARE = "00000000-0000-4000-8000-000000000000"


class PermissiveGateFilter:
    """A gate filter that admits everything, and an evaluator of the toy selectors."""

    def admit_slices(self, slices: Sequence[ResourceSlice]) -> list[ResourceSlice]:
        return list(slices)

    def admit_claims(self, claims: Sequence[ResourceClaim]) -> list[ResourceClaim]:
        return list(claims)

    def build_selector_evaluator(self) -> Any:
        return evaluate_toy


OPEN = cast(AllocatorGateFilter, PermissiveGateFilter())


def one_share() -> str:
    return SHARE


def unlimited() -> DeviceSearches:
    """Searches that take as long as they take, in one go."""
    return DeviceSearches(TimeLimit(lambda: 0.0))


def overlay_of(problem: Problem, nodes: Sequence[Node]) -> SchedulerCache:
    overlay = SchedulerCache(OPEN)
    for node in nodes:
        overlay.update_node(node)
    for published in problem.slices:
        overlay.update_slice(published)
    for device_class in problem.classes:
        overlay.update_class(device_class)
    for number, claim in enumerate(problem.held):
        overlay.claims.update(known(claim, f"held-{number}"))
    return overlay


def known(claim: ResourceClaim, name: str) -> ResourceClaim:
    """A claim as a server would tell it."""
    metadata = ObjectMeta(name=name, namespace="ml", uid=name, resource_version="1")
    return replace(claim, metadata=metadata)


Answer = dict[str, tuple[int, tuple[AllocationResult, ...]]]


def plainly(
    problem: Problem, nodes: Sequence[Node], held: Sequence[ResourceClaim], claims: Sequence[ResourceClaim]
) -> Answer | None:
    """The nodes that will do with their rank and what claims get there; None when the claims are at fault."""
    found: Answer = {}
    for node in nodes:
        stock = DeviceInventory(problem.slices, problem.classes, DeviceUsage.from_claims(held), evaluate_toy)
        try:
            got = allocate(stock, claims, node, new_share_id=one_share)
        except UnanswerableClaimError:
            return None
        if isinstance(got, SuccessfulAllocation):
            found[node.metadata.name] = (rank_of(claims, got.results), got.results)
    return found


def rank_of(claims: Sequence[ResourceClaim], results: Sequence[AllocationResult]) -> int:
    """Eight for every request that got its first alternative, one less for each further one."""
    rank = 0
    for claim, result in zip(claims, results, strict=True):
        got = {each.request for each in result.devices.results}
        for request in claim.spec.devices.requests:
            names = [f"{request.name}/{each.name}" for each in request.first_available]
            taken = [8 - position for position, name in enumerate(names) if name in got]
            rank += max(taken, default=0)
    return rank


MODELS = ("a", "b", "c")


@st.composite
def ranked(draw: st.DrawFn) -> Problem:
    """A few nodes with different models, and claims that would rather have one than another."""
    names = [f"n{number}" for number in range(draw(st.integers(2, 5)))]
    slices = []
    for name in names:
        models = draw(st.lists(st.sampled_from(MODELS), min_size=1, max_size=3))
        attributes = [{"gpu.example/model": make.attribute(model)} for model in models]
        found = [make.device(f"d{at}", attributes=each) for at, each in enumerate(attributes)]
        slices.append(make.published(*found, name=name, pool=name, node_name=name))
    claims = []
    for number in range(draw(st.integers(1, 2))):
        requests = [
            make.first_of(
                f"r{at}",
                *[(model, make.asking(1, f"attr?:gpu.example/model={model}")) for model in order],
            )
            for at, order in enumerate(draw(st.lists(st.permutations(MODELS), min_size=1, max_size=2)))
        ]
        claims.append(make.claim(*requests, name=f"c{number}"))
    nodes = tuple(make.node(name) for name in names)
    return Problem(tuple(slices), (make.device_class("any"),), tuple(claims), (), nodes)


def decided(
    snapshot: ClusterSnapshot, subject: PendingPod, plugin: DynamicResources, turn: int
) -> Placement | Unschedulable:
    """What becomes of a pod once searches that go on have ended, worked on in slices of a few events."""
    profile = SchedulerProfile((WeightedPlugin(plugin, 2),))
    while True:
        found = place_pod(snapshot, subject, profile, rotation=turn)
        if isinstance(found, Placement) or not found.unfinished:
            return found
        assert plugin.searches.unfinished, "somebody works on what is waited for"
        event("unfinished")
        plugin.searches.run_next(3)


@given(problems | ranked(), st.integers(1, 3), st.integers(0, 5))
def test_time_slices_change_only_when_the_result_comes(problem: Problem, pods: int, turn: int) -> None:
    """The clock goes on by one with every event, and a decision has time for three of them."""
    ticks = count()
    sliced = DynamicResources(
        OPEN, one_share, DeviceSearches(TimeLimit(lambda: float(next(ticks)), 1e9), 3.0)
    )
    _check(problem, pods, turn, lambda snapshot, subject, at: decided(snapshot, subject, sliced, at))


@pytest.mark.req("K4816-065", "K4816-066", "K4816-067", "K4816-068")
@given(problems | ranked(), st.integers(1, 3), st.integers(0, 5))
def test_consecutive_pods_get_what_a_cold_start_would_give(problem: Problem, pods: int, turn: int) -> None:
    plugin = DynamicResources(OPEN, one_share, unlimited())
    profile = SchedulerProfile((WeightedPlugin(plugin, 2),))
    _check(
        problem, pods, turn, lambda snapshot, subject, at: place_pod(snapshot, subject, profile, rotation=at)
    )


Decide = Callable[[ClusterSnapshot, PendingPod, int], Placement | Unschedulable]


def _check(problem: Problem, pods: int, turn: int, decide: Decide) -> None:
    twin = replace(
        problem.nodes[0], metadata=replace(problem.nodes[0].metadata, name="twin", labels={"zone": "z1"})
    )
    nodes = (*problem.nodes, twin)
    overlay = overlay_of(problem, nodes)
    plainly_asked = SchedulerProfile((WeightedPlugin(DynamicResources(OPEN, one_share, unlimited()), 2),))
    for number in range(pods):
        claims = tuple(known(claim, f"pod-{number}-{at}") for at, claim in enumerate(problem.claims))
        for claim in claims:
            overlay.claims.update(claim)
        pod = Pod(metadata=ObjectMeta(name=f"pod-{number}", namespace="ml", uid=f"pod-{number}"))
        subject = PendingPod(pod, NO_REQUESTS, claims)
        expected = plainly(problem, nodes, list(overlay.claims), claims)
        snapshot = overlay.update_snapshot()
        found = decide(snapshot, subject, turn + number)
        if not expected:
            event("refused")
            assert isinstance(found, Unschedulable)
            assert_tells_all(found, nodes, whole=expected is None)
            continue
        event(f"placed, {len({rank for rank, _ in expected.values()})} ranks")
        assert isinstance(found, Placement)
        refused = {name for each in find_rejections(snapshot, subject, plainly_asked) for name in each.nodes}
        assert refused == {node.metadata.name for node in nodes} - expected.keys()
        rank, results = expected[found.node_state.name]
        assert rank == max(rank for rank, _ in expected.values())
        assert tuple(given for _, given in found.allocations) == results
        for claim, allocation in found.allocations:
            overlay.claims.add_pending_allocation(claim, allocation, pod.metadata.uid)


def assert_tells_all(found: Unschedulable, nodes: Sequence[Node], *, whole: bool) -> None:
    told = {name for each in found.rejected for name in each.nodes}
    assert told == (set() if whole else {node.metadata.name for node in nodes})
    assert found.rejected
    assert found.wake_signals
