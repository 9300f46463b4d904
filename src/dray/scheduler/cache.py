"""The scheduler cache: the cluster as seen, with assumed pods and pending allocations applied.

Theory of operation: claims are kept in the assume cache, pods by the node they count for, slices and classes
as they are. Each change records the nodes it affects. `update_snapshot` derives the next snapshot from
exactly these changes, so that a cycle costs what changed and not what exists.

Rules for this file: no method awaits, so no cycle sees half of a change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from dray.allocator.feature_gates import AllocatorGateFilter
from dray.allocator.inventory.device_inventory import DeviceInventory
from dray.allocator.inventory.usage import DeviceUsage, PoolId
from dray.api.core import Node, Pod
from dray.api.devices.taint_rules import TaintedSlices
from dray.api.resource import (
    AllocationResult,
    DeviceClass,
    DeviceTaintRule,
    ResourceClaim,
    ResourceSlice,
)
from dray.claims.reservation import FINISHED_PHASES
from dray.placement.resource_requests import NO_REQUESTS, ResourceRequests, compute_requests
from dray.placement.snapshot import ClusterSnapshot, read_traits
from dray.scheduler.assume_cache import ClaimAssumeCache

MANY_POOLS: Final = 50
"""Pools whose usage changed since the last snapshot; a decision alone changes a few."""


@dataclass(frozen=True, slots=True)
class _AssignedPod:
    """A pod that counts for a node; `assumed` until the watch shows it there."""

    node: str
    needs: ResourceRequests
    assumed: bool


class SchedulerCache:
    """The nodes, pods, slices, classes and claims that count now."""

    def __init__(self, admission: AllocatorGateFilter, on_freed: Callable[[], None] = lambda: None) -> None:
        """`on_freed` is called when devices become free: the watch does not show all of it."""
        self.claims = ClaimAssumeCache(self._on_claim_changed)
        self._on_freed = on_freed
        self._admission = admission
        self._nodes: dict[str, Node] = {}
        self._needs: dict[str, ResourceRequests] = {}
        self._assigned_pods: dict[str, _AssignedPod] = {}
        self._slices = TaintedSlices()
        self._classes: dict[str, DeviceClass] = {}
        self._usage = DeviceUsage()
        self._inventory = DeviceInventory((), (), self._usage, admission.build_selector_evaluator())
        self._snapshot = ClusterSnapshot.build((), self._inventory)
        self.on_capacity_freed: Callable[[], None] = lambda: None
        """Is called when a node does not get a pod that was assumed for it."""
        self.on_nodes_changed: Callable[[], None] = lambda: None
        """Is called when nodes or their slices change, or the devices of claims on many nodes."""
        self._changed_nodes: set[str] = set()
        self._changed_pools: set[PoolId] = set()
        self._slices_changed = self._classes_changed = False

    @property
    def last_snapshot(self) -> ClusterSnapshot:
        """The snapshot that was made last."""
        return self._snapshot

    @property
    def has_changes(self) -> bool:
        """Whether the last snapshot is behind."""
        return bool(
            self._changed_nodes or self._changed_pools or self._slices_changed or self._classes_changed
        )

    def update_snapshot(self, max_nodes: int | None = None) -> ClusterSnapshot:
        """Build the snapshot of what counts now; it shares with the last one what stays the same.

        With `max_nodes` only so many nodes are updated, the others by the next call: no decision may use it.
        """
        touched = self._changed_nodes | self._find_nodes_of_pools(self._changed_pools)
        if self._slices_changed:
            self._inventory = self._inventory.replace_slices(self._slices.slices)
            touched |= self._find_nodes_of_pools(self._changed_pools)
            self._slices_changed = False
        if self._classes_changed:
            self._inventory = self._inventory.replace_classes(self._classes.values())
            self._classes_changed = False
        if self._inventory.usage is not self._usage:
            self._inventory = self._inventory.replace_usage(self._usage)
        # Among equal nodes the first wins; that must not depend on the order of a set.
        names = sorted(touched)
        changes = {name: self._get_node_state(name) for name in names[:max_nodes]}
        for name, state in changes.items():
            if state is None:
                self._inventory.forget_node(name)
        self._snapshot = self._snapshot.apply_changes(self._inventory, changes)
        self._changed_nodes, self._changed_pools = set(names[len(changes) :]), set()
        return self._snapshot

    def _get_node_state(self, name: str) -> tuple[Node, ResourceRequests] | None:
        node = self._nodes.get(name)
        return None if node is None else (node, self._needs.get(name, NO_REQUESTS))

    def _find_nodes_of_pools(self, pools: Iterable[PoolId]) -> set[str]:
        found: set[str] = set()
        for pool in pools:
            names = self._inventory.find_nodes(pool)
            if names is None:
                return set(self._nodes)
            found |= names
        return found

    # --- nodes ---

    def update_node(self, node: Node) -> None:
        """Take over a node from the watch."""
        known = self._nodes.get(node.metadata.name)
        if known is None or not _is_equivalent_node(known, node):
            self._nodes[node.metadata.name] = node
            self._changed_nodes.add(node.metadata.name)
            self.on_nodes_changed()

    def remove_node(self, node: Node) -> None:
        self._nodes.pop(node.metadata.name, None)
        self._changed_nodes.add(node.metadata.name)

    def has_node(self, name: str) -> bool:
        return name in self._nodes

    # --- pods ---

    def update_pod(self, pod: Pod) -> None:
        """Take over a pod from the watch; one with a node counts there until it has ended."""
        if not pod.spec.node_name:
            return
        if pod.status.phase in FINISHED_PHASES:
            self.remove_pod(pod)
        else:
            self._assign_pod(pod, pod.spec.node_name, assumed=False)

    def remove_pod(self, pod: Pod) -> None:
        assigned = self._assigned_pods.pop(pod.metadata.uid, None)
        if assigned is not None:
            self._set_node_needs(
                assigned.node, self._needs.get(assigned.node, NO_REQUESTS).subtract(assigned.needs)
            )
            if assigned.assumed:
                # No change of the pod tells that: on the server it had no node, or has another one.
                self.on_capacity_freed()

    def assume_pod(self, pod: Pod, node: str, needs: ResourceRequests) -> None:
        """Count a pod for a node before its binding is written."""
        self._assign_pod(pod, node, assumed=True, needs=needs)

    def forget_pod(self, pod: Pod) -> bool:
        """Drop an assumed pod whose binding failed; whether it was still assumed."""
        assigned = self._assigned_pods.get(pod.metadata.uid)
        if assigned is None or not assigned.assumed:
            return False
        self.remove_pod(pod)
        return True

    def _assign_pod(
        self, pod: Pod, node: str, *, assumed: bool, needs: ResourceRequests | None = None
    ) -> None:
        known = self._assigned_pods.get(pod.metadata.uid)
        needs = needs or compute_requests(pod)
        if known is not None and known.node == node and known.needs == needs:
            if known.assumed and not assumed:
                self._assigned_pods[pod.metadata.uid] = _AssignedPod(node, needs, False)
            return
        if known is not None:
            self.remove_pod(pod)
        self._assigned_pods[pod.metadata.uid] = _AssignedPod(node, needs, assumed)
        self._set_node_needs(node, self._needs.get(node, NO_REQUESTS).add(needs))

    def _set_node_needs(self, node: str, needs: ResourceRequests) -> None:
        if needs == NO_REQUESTS:
            self._needs.pop(node, None)
        else:
            self._needs[node] = needs
        self._changed_nodes.add(node)

    # --- devices ---

    def update_slice(self, published: ResourceSlice) -> None:
        """Take over a slice from the watch, without fields behind closed gates."""
        self._mark_pool_changed(self._slices.get(published.metadata.name))
        (admitted,) = self._admission.admit_slices([published])
        self._mark_pool_changed(self._slices.upsert_slice(admitted))
        self._slices_changed = True

    def remove_slice(self, published: ResourceSlice) -> None:
        self._mark_pool_changed(self._slices.remove_slice(published.metadata.name))
        self._slices_changed = True

    def list_pool_slices(self, pool: PoolId) -> list[ResourceSlice]:
        """The slices of a pool, as of the last snapshot."""
        return self._inventory.list_slices(pool)

    def count_duplicates(self) -> int:
        """Count the devices that several claims have as a whole: an error made elsewhere."""
        return sum(len(usage.extra_holders) for usage in self._usage.pools.values())

    def update_taint_rule(self, rule: DeviceTaintRule) -> None:
        """Take over a taint rule from the watch, if the gates admit rules."""
        for admitted in self._admission.admit_taint_rules([rule]):
            self._mark_slices_changed(self._slices.upsert_rule(admitted))

    def remove_taint_rule(self, rule: DeviceTaintRule) -> None:
        self._mark_slices_changed(self._slices.remove_rule(rule.metadata.name))

    def _mark_slices_changed(self, changed: Iterable[ResourceSlice]) -> None:
        for published in changed:
            self._mark_pool_changed(published)
            self._slices_changed = True

    def _mark_pool_changed(self, published: ResourceSlice | None) -> None:
        if published is not None:
            self._changed_pools.add((published.spec.driver, published.spec.pool.name))
            self.on_nodes_changed()

    def update_class(self, device_class: DeviceClass) -> None:
        self._classes[device_class.metadata.name] = device_class
        self._classes_changed = True

    def remove_class(self, device_class: DeviceClass) -> None:
        self._classes.pop(device_class.metadata.name, None)
        self._classes_changed = True

    def _on_claim_changed(self, before: ResourceClaim | None, now: ResourceClaim | None) -> None:
        old, new = _get_allocation(before), _get_allocation(now)
        if old is new or (old is not None and new is not None and old.devices == new.devices):
            return
        if before is not None and old is not None:
            self._usage = self._usage.remove_claims((before,))
            self._changed_pools |= _collect_pools(old)
        if now is not None and new is not None:
            self._usage = self._usage.add_claims((now,))
            self._changed_pools |= _collect_pools(new)
        if len(self._changed_pools) > MANY_POOLS:
            self.on_nodes_changed()
        if old is not None:
            self._on_freed()


def _get_allocation(claim: ResourceClaim | None) -> AllocationResult | None:
    return None if claim is None else claim.status.allocation


def _collect_pools(allocation: AllocationResult) -> set[PoolId]:
    return {(result.driver, result.pool) for result in allocation.devices.results}


def _is_equivalent_node(known: Node, node: Node) -> bool:
    """Whether scheduling sees no difference between two versions of a node; most updates are heartbeats."""
    return known.metadata.labels == node.metadata.labels and read_traits(known) is read_traits(node)
