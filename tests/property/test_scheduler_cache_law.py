"""The scheduler cache counts each device exactly once, in whatever order watch events, replies and
assumptions come.

Two machines. In one, a server gives versions to claims, and others allocate, free, delete and recreate them;
the watch reports this late and in order; replies to the scheduler's own writes come early, late, or after the
claim is gone; and meanwhile placements assume devices, and several pods depend on one assumption and release
it. In the other, pods are assumed on nodes, observed there, and removed. After every step the incremental
counts equal a full recount.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from typing import TypeVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from msgspec.structs import replace

from dray.allocator.feature_gates import AllocatorGateFilter
from dray.allocator.inventory.usage import DeviceUsage
from dray.api.core import Pod
from dray.api.meta import ObjectMeta
from dray.api.resource import (
    AllocationResult,
    Device,
    DeviceAllocationResult,
    DeviceRequestAllocationResult,
    ResourceClaim,
    ResourcePool,
    ResourceSlice,
    ResourceSliceSpec,
)
from dray.gates import GateSet
from dray.placement.resource_requests import NO_REQUESTS, ResourceRequests, compute_requests
from dray.placement.snapshot import ClusterSnapshot, NodeGroupKey, NodeState
from dray.scheduler.assume_cache import parse_claim_version
from dray.scheduler.cache import SchedulerCache
from tests.effort import effort
from tests.unit.placement.pods_and_nodes import asking, node

T = TypeVar("T")

DRIVER = "d.example.com"
NODES = ("a", "b")
DEVICES = ("x", "y")
CLAIMS = ("one", "two")
PODS = ("p", "q")
PLACES = [(name, device) for name in NODES for device in DEVICES]

users = st.sampled_from(PODS)


def of_node(name: str) -> ResourceSlice:
    pool = ResourcePool(name=name, generation=1, resource_slice_count=1)
    devices = tuple(Device(name=each) for each in DEVICES)
    spec = ResourceSliceSpec(driver=DRIVER, node_name=name, pool=pool, devices=devices)
    return ResourceSlice(metadata=ObjectMeta(name=name), spec=spec)


def of_device(place: tuple[str, str]) -> AllocationResult:
    result = DeviceRequestAllocationResult(request="r", driver=DRIVER, pool=place[0], device=place[1])
    return AllocationResult(devices=DeviceAllocationResult(results=(result,)))


def held_in(every: DeviceUsage) -> set[tuple[str, str]]:
    return {(pool, device) for (_, pool), used in every.pools.items() for device in used.devices}


def overlay() -> SchedulerCache:
    """The overlay of a cluster that has nodes and devices, and nothing else."""
    made = SchedulerCache(AllocatorGateFilter(GateSet.from_defaults()))
    for name in NODES:
        made.update_node(node(name))
        made.update_slice(of_node(name))
    return made


def with_devices(claim: ResourceClaim, allocation: AllocationResult | None) -> ResourceClaim:
    return replace(claim, status=replace(claim.status, allocation=allocation))


def pod_of(name: str, cpu: str = "1", on: str = "") -> Pod:
    pod = asking(cpu=cpu)
    metadata = replace(pod.metadata, name=name, uid=name)
    return replace(pod, metadata=metadata, spec=replace(pod.spec, node_name=on))


def check_groups(snapshot: ClusterSnapshot) -> None:
    """Every node state has the current shape of its node, and is in the group of its key."""
    assert set(snapshot.node_states) == set(NODES)
    assert sum(map(len, snapshot.groups.values())) == len(NODES)
    for name, state in snapshot.node_states.items():
        assert state.shape is snapshot.inventory.get_node_view(state.node).shape
        assert snapshot.groups[state.group_key][name] is state


def groups_of(snapshot: ClusterSnapshot) -> dict[NodeGroupKey, dict[str, NodeState]]:
    return {likeness: dict(group) for likeness, group in snapshot.groups.items()}


def one_of(data: st.DataObject, choices: Iterable[T]) -> T:
    return data.draw(st.sampled_from(sorted(choices, key=str)))


class CountingClaims(RuleBasedStateMachine):
    """A server with claims, and the overlay that counts them."""

    def __init__(self) -> None:
        super().__init__()
        self.overlay = overlay()
        self.book = self.overlay.claims
        self.revision = 0
        self.server: dict[str, ResourceClaim] = {}
        self.watch: list[tuple[ResourceClaim, bool]] = []
        """What the watch will tell, and whether the claim is gone with it."""
        self.answers: list[ResourceClaim] = []
        self.building: set[tuple[str, str]] = set()
        """Uids of claims, and the pods that build on what is promised to them and have not let go."""
        self.standing: dict[str, set[str]] = {}
        """Promises that should stand: uids of claims, and who builds on them."""
        self.versions: dict[str, int] = {}

    # The server and others.

    def _store(self, claim: ResourceClaim) -> ResourceClaim:
        self.revision += 1
        metadata = replace(claim.metadata, resource_version=str(self.revision))
        stored = self.server[claim.metadata.name] = replace(claim, metadata=metadata)
        self.watch.append((stored, False))
        return stored

    def _held(self, *, devices: bool) -> list[str]:
        return [name for name, each in self.server.items() if bool(each.status.allocation) is devices]

    @precondition(lambda self: len(self.server) < len(CLAIMS))
    @rule(data=st.data())
    def somebody_makes_a_claim(self, data: st.DataObject) -> None:
        name = one_of(data, set(CLAIMS) - set(self.server))
        self._store(
            ResourceClaim(metadata=ObjectMeta(name=name, namespace="ns", uid=f"{name}-{self.revision}"))
        )

    @precondition(lambda self: self._held(devices=False))
    @rule(data=st.data())
    def somebody_allocates(self, data: st.DataObject) -> None:
        claim = self.server[one_of(data, self._held(devices=False))]
        place = one_of(data, set(PLACES) - held_in(DeviceUsage.from_claims(self.server.values())))
        self._store(with_devices(claim, of_device(place)))

    @precondition(lambda self: self._held(devices=True))
    @rule(data=st.data())
    def somebody_frees(self, data: st.DataObject) -> None:
        self._store(with_devices(self.server[one_of(data, self._held(devices=True))], None))

    @precondition(lambda self: self.server)
    @rule(data=st.data())
    def somebody_deletes(self, data: st.DataObject) -> None:
        claim = self.server.pop(one_of(data, self.server))
        self.revision += 1
        self.watch.append((claim, True))

    # What we hear.

    @precondition(lambda self: self.watch)
    @rule()
    def the_watch_tells(self) -> None:
        claim, gone = self.watch.pop(0)
        (self.book.remove if gone else self.book.update)(claim)

    @precondition(lambda self: self.answers)
    @rule(data=st.data())
    def an_answer_comes(self, data: st.DataObject) -> None:
        self.book.update(self.answers.pop(data.draw(st.integers(0, len(self.answers) - 1))))

    # What we do.

    def _free(self) -> list[str]:
        return [claim.metadata.name for claim in self.book if claim.status.allocation is None]

    def _promised(self) -> list[str]:
        return [claim.metadata.name for claim in self.book if self.book.has_pending_allocation(claim)]

    @precondition(lambda self: self._free())
    @rule(data=st.data(), user=users)
    def a_placement_promises(self, data: st.DataObject, user: str) -> None:
        claim = self.book.get("ns", one_of(data, self._free()))
        assert claim is not None
        self.book.add_pending_allocation(
            claim, of_device(one_of(data, set(PLACES) - held_in(DeviceUsage.from_claims(self.book)))), user
        )
        self._build(claim.metadata.uid, user)

    def _build(self, uid: str, user: str) -> None:
        self.building.add((uid, user))
        self.standing.setdefault(uid, set()).add(user)

    @precondition(lambda self: self._promised())
    @rule(data=st.data(), user=users)
    def another_pod_builds_on_it(self, data: st.DataObject, user: str) -> None:
        claim = self.book.get("ns", one_of(data, self._promised()))
        assert claim is not None
        self.book.add_pending_user(claim, user)
        self._build(claim.metadata.uid, user)

    @precondition(lambda self: self._promised())
    @rule(data=st.data())
    def a_promise_is_written(self, data: st.DataObject) -> None:
        counted = self.book.get("ns", one_of(data, self._promised()))
        assert counted is not None
        stored = self.server.get(counted.metadata.name)
        taken = held_in(DeviceUsage.from_claims(self.server.values()))
        if (
            stored is not None
            and parse_claim_version(stored) == parse_claim_version(counted)
            and not taken & held_in(DeviceUsage.from_claims([counted]))
        ):
            self.answers.append(self._store(replace(stored, status=counted.status)))

    @precondition(lambda self: self.building)
    @rule(data=st.data())
    def a_pod_lets_go(self, data: st.DataObject) -> None:
        self._let_go(*one_of(data, self.building))

    def _let_go(self, uid: str, user: str) -> None:
        name = uid.partition("-")[0]
        self.book.remove_pending_user(
            ResourceClaim(metadata=ObjectMeta(name=name, namespace="ns", uid=uid)), user
        )
        self.building.discard((uid, user))
        self.standing.get(uid, set()).discard(user)

    # What always holds.

    @invariant()
    def devices_are_promised_or_stored(self) -> None:
        stored = {claim.metadata.uid: self.book.get_stored(claim) for claim in self.book}
        for uid, pods in list(self.standing.items()):
            claim = stored.get(uid)
            if not pods or claim is None or claim.status.allocation is not None:
                del self.standing[uid]
        for counted in self.book:
            uid = counted.metadata.uid
            claim = stored[uid]
            assert claim is not None
            assert self.book.has_pending_allocation(counted) is (uid in self.standing)
            has = claim.status.allocation is not None or uid in self.standing
            assert (counted.status.allocation is not None) is has

    @invariant()
    def nothing_older_comes_back(self) -> None:
        for claim in self.book:
            name = claim.metadata.name
            assert parse_claim_version(claim) >= self.versions.get(name, 0)
            self.versions[name] = parse_claim_version(claim)

    @invariant()
    def a_snapshot_equals_a_full_recount(self) -> None:
        self.overlay.update_snapshot(max_nodes=1)
        snapshot = self.overlay.update_snapshot()
        assert held_in(snapshot.inventory.usage) == held_in(DeviceUsage.from_claims(self.book))
        check_groups(snapshot)

    def teardown(self) -> None:
        """When all is quiet, what counts is what the server has."""
        while self.watch:
            self.the_watch_tells()
        for answer in self.answers:
            self.book.update(answer)
        for uid, user in set(self.building):
            self._let_go(uid, user)
        assert {claim.metadata.name: claim for claim in self.book} == self.server
        assert self.book.count_pending_allocations() == 0
        self.a_snapshot_equals_a_full_recount()


class CountingPods(RuleBasedStateMachine):
    """Pods on nodes, assumed by us or shown by the watch."""

    def __init__(self) -> None:
        super().__init__()
        self.overlay = overlay()
        self.seated: dict[str, tuple[str, str]] = {}
        """The node of each pod, and its cpu."""
        self.assumed: set[str] = set()
        self.last = self.overlay.last_snapshot, groups_of(self.overlay.last_snapshot)

    @rule(name=users, on=st.sampled_from(NODES), cpu=st.sampled_from("12"))
    def a_pod_is_assumed(self, name: str, on: str, cpu: str) -> None:
        if name not in self.seated:
            pod = pod_of(name, cpu)
            self.overlay.assume_pod(pod, on, compute_requests(pod))
            self.seated[name] = on, cpu
            self.assumed.add(name)

    @rule(name=users, on=st.sampled_from(NODES), cpu=st.sampled_from("12"))
    def the_watch_shows_a_pod(self, name: str, on: str, cpu: str) -> None:
        self.overlay.update_pod(pod_of(name, cpu, on))
        self.seated[name] = on, cpu
        self.assumed.discard(name)

    @rule(name=users)
    def a_binding_fails(self, name: str) -> None:
        self.overlay.forget_pod(pod_of(name))
        if name in self.assumed:
            del self.seated[name]
            self.assumed.discard(name)

    @rule(name=users)
    def a_pod_goes(self, name: str) -> None:
        self.overlay.remove_pod(pod_of(name))
        self.seated.pop(name, None)
        self.assumed.discard(name)

    @invariant()
    def nodes_hold_what_their_pods_need(self) -> None:
        snapshot = self.overlay.update_snapshot()
        check_groups(snapshot)
        for name, state in snapshot.node_states.items():
            here = [
                compute_requests(pod_of(pod, cpu)) for pod, (on, cpu) in self.seated.items() if on == name
            ]
            assert state.requests == reduce(ResourceRequests.add, here, NO_REQUESTS)

    @invariant()
    def an_older_snapshot_stays_unchanged(self) -> None:
        before, groups = self.last
        now = self.overlay.update_snapshot()
        assert groups_of(before) == groups
        self.last = now, groups_of(now)


CountingClaims.TestCase.settings = effort(2, stateful_step_count=50)
CountingPods.TestCase.settings = effort(0.5, stateful_step_count=20)
TestCountingClaims = CountingClaims.TestCase
TestCountingPods = CountingPods.TestCase
