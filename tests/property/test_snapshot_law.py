"""A snapshot that is updated step by step equals one that is built from scratch.

Nodes, slices, pods, claims and assumed allocations are added, changed and removed. After every step the
snapshot of the cache has the same node states and groups as one built of everything at once; the snapshot
before it is unchanged; and whenever a device is released, the listener is called.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from msgspec.structs import replace

from dray.allocator.inventory.device_inventory import DeviceInventory
from dray.allocator.inventory.node_shapes import NodeShape
from dray.allocator.inventory.usage import DeviceUsage
from dray.api.core import Node, Pod, PodStatus
from dray.api.meta import ObjectMeta
from dray.api.resource import AllocationResult, ResourceClaim, ResourceSlice
from dray.placement.resource_requests import NO_REQUESTS, ResourceRequests, compute_requests
from dray.placement.snapshot import ClusterSnapshot
from dray.scheduler.cache import SchedulerCache
from tests.brute import builders as make
from tests.brute.toy_selectors import evaluate_toy
from tests.effort import effort
from tests.property.test_placement_law import OPEN
from tests.unit.placement.pods_and_nodes import asking
from tests.unit.placement.pods_and_nodes import node as node_of

CLASSES = (make.device_class("any"),)
nodes = st.sampled_from(["n0", "n1", "n2"])
names = st.sampled_from(["p", "q"])
devices = st.sampled_from(["d0", "d1"])
pools = nodes | st.just("rack")


def given(pool: str, device: str) -> AllocationResult:
    allocation = make.holding(make.result(device, pool)).status.allocation
    assert allocation is not None
    return allocation


def look(shape: NodeShape) -> tuple[object, ...]:
    return len(shape.profiles), shape.taken, shape.shared, shape.capacity_left, shape.counters_left


def node_states(snapshot: ClusterSnapshot) -> dict[str, Any]:
    return {
        name: (state.traits, state.node.metadata.labels, state.requests, look(state.shape))
        for name, state in snapshot.node_states.items()
    }


def groups(snapshot: ClusterSnapshot) -> set[frozenset[str]]:
    return {frozenset(group) for group in snapshot.groups.values()}


class Snapshots(RuleBasedStateMachine):
    """A cluster, the cache that is updated with it, and a plain model of the same."""

    def __init__(self) -> None:
        super().__init__()
        self.heard = 0
        self.overlay = SchedulerCache(OPEN, on_freed=self.hear)
        self.revision = 0
        self.nodes: dict[str, Node] = {}
        self.slices: dict[str, ResourceSlice] = {}
        self.guests: dict[str, tuple[str, ResourceRequests]] = {}
        self.held: Counter[tuple[str, str]] = Counter()
        self.last: tuple[ClusterSnapshot, dict[str, Any], set[frozenset[str]]] | None = None
        self.overlay.update_class(CLASSES[0])

    def hear(self) -> None:
        self.heard += 1

    @rule(name=nodes, cpu=st.sampled_from(["4", "8"]), rack=st.sampled_from(["1", "2"]))
    def see_node(self, name: str, cpu: str, rack: str) -> None:
        node = node_of(name, {"cpu": cpu, "memory": "8Gi", "pods": "9"}, labels={"rack": rack})
        self.overlay.update_node(node)
        self.nodes[name] = node

    @rule(name=nodes)
    def lose_node(self, name: str) -> None:
        if name in self.nodes:
            self.overlay.remove_node(self.nodes.pop(name))

    @rule(pool=pools, count=st.integers(0, 2))
    def publish(self, pool: str, count: int) -> None:
        """Devices of a node, or of everybody in a rack."""
        where: dict[str, Any] = {"node_name": pool}
        if pool == "rack":
            where = {"node_selector": make.labelled({"rack": "1"})}
        found = make.devices(*[f"d{number}" for number in range(count)])
        published = make.published(*found, name=f"s-{pool}", pool=pool, **where)
        self.overlay.update_slice(published)
        self.slices[published.metadata.name] = published

    @rule(pool=pools)
    def withdraw(self, pool: str) -> None:
        published = self.slices.pop(f"s-{pool}", None)
        if published is not None:
            self.overlay.remove_slice(published)

    @rule(name=names, pool=pools, device=devices, held=st.booleans())
    def see_claim(self, name: str, pool: str, device: str, held: bool) -> None:
        claim = self.claim(name)
        if held:
            claim = replace(claim, status=replace(claim.status, allocation=given(pool, device)))
        self.overlay.claims.update(claim)

    @rule(name=names)
    def lose_claim(self, name: str) -> None:
        claim = self.overlay.claims.get("ml", name)
        if claim is not None:
            self.overlay.claims.remove(claim)

    @rule(name=names, pool=pools, device=devices, user=names)
    def promise(self, name: str, pool: str, device: str, user: str) -> None:
        claim = self.overlay.claims.get("ml", name)
        if claim is not None and claim.status.allocation is None:
            self.overlay.claims.add_pending_allocation(claim, given(pool, device), user)

    @rule(name=names, user=names)
    def let_go(self, name: str, user: str) -> None:
        claim = self.overlay.claims.get("ml", name)
        if claim is not None:
            self.overlay.claims.remove_pending_user(claim, user)

    def claim(self, name: str) -> ResourceClaim:
        """A claim as the server has it now; one that was deleted comes back as another."""
        self.revision += 1
        known = self.overlay.claims.get("ml", name)
        uid = known.metadata.uid if known is not None else f"{name}-{self.revision}"
        metadata = ObjectMeta(name=name, namespace="ml", uid=uid, resource_version=str(self.revision))
        return ResourceClaim(metadata=metadata)

    @rule(name=names, node=nodes, cpu=st.sampled_from(["1", "2"]), ended=st.booleans())
    def see_pod(self, name: str, node: str, cpu: str, ended: bool) -> None:
        """A pod on a node; it may need more or less than it did."""
        pod = self.pod(name, cpu, node, "Failed" if ended else "Running")
        self.overlay.update_pod(pod)
        self.guests.pop(name, None)
        if not ended:
            self.guests[name] = (node, compute_requests(pod))

    @rule(name=names, node=nodes, fails=st.booleans())
    def assume(self, name: str, node: str, fails: bool) -> None:
        if name in self.guests:
            return
        pod = self.pod(name, "1")
        self.overlay.assume_pod(pod, node, compute_requests(pod))
        if fails:
            assert self.overlay.forget_pod(pod)
            assert not self.overlay.forget_pod(pod)
        else:
            self.guests[name] = (node, compute_requests(pod))

    @rule(name=names)
    def lose_pod(self, name: str) -> None:
        self.overlay.remove_pod(self.pod(name, "1"))
        self.guests.pop(name, None)

    def pod(self, name: str, cpu: str, node: str = "", phase: str = "Pending") -> Pod:
        spec = replace(asking(cpu=cpu).spec, node_name=node)
        metadata = ObjectMeta(name=name, namespace="ml", uid=name)
        return Pod(metadata=metadata, spec=spec, status=PodStatus(phase=phase))

    @invariant()
    def the_snapshot_is_exact(self) -> None:
        snapshot = self.overlay.update_snapshot()
        stock = DeviceInventory(
            self.slices.values(), CLASSES, DeviceUsage.from_claims(self.overlay.claims), evaluate_toy
        )
        needs: dict[str, ResourceRequests] = {}
        for name, asked in self.guests.values():
            needs[name] = needs.get(name, NO_REQUESTS).add(asked)
        anew = ClusterSnapshot.build(self.nodes.values(), stock, needs)
        assert node_states(snapshot) == node_states(anew)
        assert groups(snapshot) == groups(anew)
        assert snapshot.nodes.keys() == self.nodes.keys()
        for likeness, group in snapshot.groups.items():
            for name, state in group.items():
                assert snapshot.node_states[name] is state
                assert state.group_key == likeness
        if self.last is not None:
            before, states, alike = self.last
            assert (node_states(before), groups(before)) == (states, alike)
        self.last = (snapshot, node_states(snapshot), groups(snapshot))

    @invariant()
    def what_is_given_back_is_heard(self) -> None:
        held: Counter[tuple[str, str]] = Counter()
        for claim in self.overlay.claims:
            if claim.status.allocation is not None:
                held.update((each.pool, each.device) for each in claim.status.allocation.devices.results)
        assert self.heard or not self.held - held
        self.held, self.heard = held, 0


TestSnapshots = Snapshots.TestCase
TestSnapshots.settings = effort(1, stateful_step_count=40)
