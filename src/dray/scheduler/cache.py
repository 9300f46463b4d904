"""The cluster as the scheduler counts it: what was seen, with everything on its way laid over it.

Theory of operation: claims are kept in the book of claims, pods by the node they count for, slices and
classes as they are. Each change notes which nodes look different after it. `photograph` makes the next
snapshot of exactly those changes, so that a cycle costs what changed and not what there is.

Rules for this file: nothing here waits, so no cycle ever sees half of a change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from dray.allocator.feature_gates import Admission
from dray.allocator.inventory.device_inventory import Stock
from dray.allocator.inventory.usage import PoolId, Usage
from dray.api.core import Node, Pod
from dray.api.devices.taint_rules import Tainted
from dray.api.resource import (
    AllocationResult,
    DeviceClass,
    DeviceTaintRule,
    ResourceClaim,
    ResourceSlice,
)
from dray.claims.reservation import ENDED
from dray.placement.resource_requests import NOTHING, Needs, needs_of
from dray.placement.snapshot import Snapshot, traits_of
from dray.scheduler.assume_cache import ClaimBook


@dataclass(frozen=True, slots=True)
class _Guest:
    """A pod that counts for a node; `assumed` until the watch shows it there."""

    node: str
    needs: Needs
    assumed: bool


class Overlay:
    """What counts now."""

    def __init__(self, door: Admission, freed: Callable[[], None] = lambda: None) -> None:
        """`freed` hears of devices that are no longer taken or promised: not all of that is watched."""
        self.claims = ClaimBook(self._claim_changed)
        self._freed = freed
        self._door = door
        self._nodes: dict[str, Node] = {}
        self._needs: dict[str, Needs] = {}
        self._guests: dict[str, _Guest] = {}
        self._slices = Tainted()
        self._classes: dict[str, DeviceClass] = {}
        self._usage = Usage()
        self._stock = Stock((), (), self._usage, door.judge())
        self._snapshot = Snapshot.of((), self._stock)
        self._touched: set[str] = set()
        self._pools: set[PoolId] = set()
        self._slices_changed = self._classes_changed = False

    @property
    def last(self) -> Snapshot:
        """The photograph that was made last."""
        return self._snapshot

    def photograph(self) -> Snapshot:
        """The cluster as it counts now; the next one shares what stays the same."""
        touched = self._touched | self._nodes_of(self._pools)
        if self._slices_changed:
            self._stock = self._stock.with_slices(self._slices.slices)
            touched |= self._nodes_of(self._pools)
            self._slices_changed = False
        if self._classes_changed:
            self._stock = self._stock.with_classes(self._classes.values())
            self._classes_changed = False
        if self._stock.usage is not self._usage:
            self._stock = self._stock.with_usage(self._usage)
        news = {name: self._said(name) for name in touched}
        for name, said in news.items():
            if said is None:
                self._stock.forget(name)
        self._snapshot = self._snapshot.changed(self._stock, news)
        self._touched, self._pools = set(), set()
        return self._snapshot

    def _said(self, name: str) -> tuple[Node, Needs] | None:
        node = self._nodes.get(name)
        return None if node is None else (node, self._needs.get(name, NOTHING))

    def _nodes_of(self, pools: Iterable[PoolId]) -> set[str]:
        found: set[str] = set()
        for pool in pools:
            names = self._stock.nodes_of(pool)
            if names is None:
                return set(self._nodes)
            found |= names
        return found

    # --- nodes ---

    def saw_node(self, node: Node) -> None:
        """A node as the watch tells it."""
        known = self._nodes.get(node.metadata.name)
        if known is None or not _looks_like(known, node):
            self._nodes[node.metadata.name] = node
            self._touched.add(node.metadata.name)

    def lost_node(self, node: Node) -> None:
        self._nodes.pop(node.metadata.name, None)
        self._touched.add(node.metadata.name)

    def has_node(self, name: str) -> bool:
        return name in self._nodes

    # --- pods ---

    def saw_pod(self, pod: Pod) -> None:
        """A pod as the watch tells it; one with a node counts there until it has ended."""
        if not pod.spec.node_name:
            return
        if pod.status.phase in ENDED:
            self.lost_pod(pod)
        else:
            self._seat(pod, pod.spec.node_name, assumed=False)

    def lost_pod(self, pod: Pod) -> None:
        guest = self._guests.pop(pod.metadata.uid, None)
        if guest is not None:
            self._ask(guest.node, self._needs.get(guest.node, NOTHING).minus(guest.needs))

    def assume(self, pod: Pod, node: str, needs: Needs) -> None:
        """A pod will be on a node when its binding is written."""
        self._seat(pod, node, assumed=True, needs=needs)

    def forget(self, pod: Pod) -> bool:
        """The binding of a pod failed; whether that leaves room on its node."""
        guest = self._guests.get(pod.metadata.uid)
        if guest is None or not guest.assumed:
            return False
        self.lost_pod(pod)
        return True

    def _seat(self, pod: Pod, node: str, *, assumed: bool, needs: Needs | None = None) -> None:
        known = self._guests.get(pod.metadata.uid)
        needs = needs or needs_of(pod)
        if known is not None and known.node == node and known.needs == needs:
            if known.assumed and not assumed:
                self._guests[pod.metadata.uid] = _Guest(node, needs, False)
            return
        if known is not None:
            self.lost_pod(pod)
        self._guests[pod.metadata.uid] = _Guest(node, needs, assumed)
        self._ask(node, self._needs.get(node, NOTHING).plus(needs))

    def _ask(self, node: str, needs: Needs) -> None:
        if needs == NOTHING:
            self._needs.pop(node, None)
        else:
            self._needs[node] = needs
        self._touched.add(node)

    # --- devices ---

    def saw_slice(self, published: ResourceSlice) -> None:
        """A slice as the watch tells it, behind the door of the gates."""
        self._note_pool(self._slices.get(published.metadata.name))
        (admitted,) = self._door.slices([published])
        self._note_pool(self._slices.saw_slice(admitted))
        self._slices_changed = True

    def lost_slice(self, published: ResourceSlice) -> None:
        self._note_pool(self._slices.lost_slice(published.metadata.name))
        self._slices_changed = True

    def saw_rule(self, rule: DeviceTaintRule) -> None:
        """A taint rule as the watch tells it, behind the door of the gates."""
        for admitted in self._door.rules([rule]):
            self._retainted(self._slices.saw_rule(admitted))

    def lost_rule(self, rule: DeviceTaintRule) -> None:
        self._retainted(self._slices.lost_rule(rule.metadata.name))

    def _retainted(self, changed: Iterable[ResourceSlice]) -> None:
        for published in changed:
            self._note_pool(published)
            self._slices_changed = True

    def _note_pool(self, published: ResourceSlice | None) -> None:
        if published is not None:
            self._pools.add((published.spec.driver, published.spec.pool.name))

    def saw_class(self, device_class: DeviceClass) -> None:
        self._classes[device_class.metadata.name] = device_class
        self._classes_changed = True

    def lost_class(self, device_class: DeviceClass) -> None:
        self._classes.pop(device_class.metadata.name, None)
        self._classes_changed = True

    def _claim_changed(self, before: ResourceClaim | None, now: ResourceClaim | None) -> None:
        held, holds = _allocation(before), _allocation(now)
        if held is holds or (held is not None and holds is not None and held.devices == holds.devices):
            return
        if before is not None and held is not None:
            self._usage = self._usage.releasing((before,))
            self._pools |= _pools(held)
        if now is not None and holds is not None:
            self._usage = self._usage.taking((now,))
            self._pools |= _pools(holds)
        if held is not None:
            self._freed()


def _allocation(claim: ResourceClaim | None) -> AllocationResult | None:
    return None if claim is None else claim.status.allocation


def _pools(allocation: AllocationResult) -> set[PoolId]:
    return {(result.driver, result.pool) for result in allocation.devices.results}


def _looks_like(known: Node, node: Node) -> bool:
    """Whether a node is to pods what it was; most updates are signs of life."""
    return known.metadata.labels == node.metadata.labels and traits_of(known) is traits_of(node)
