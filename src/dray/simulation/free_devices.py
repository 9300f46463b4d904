"""Free devices: what every pool still has to give, who holds the rest, and what uses devices up.

Theory of operation: the allocator says for each device whether a claim could get it now (see
`availability`); here names, holders and amounts are added. A device that draws from counters can be used up
although nobody holds it: by devices in use that draw from the same counters, its `blockers`. A pool that
several nodes see in the same way is one entry with all of these nodes.

Rules for this file: frozen values from a bundle and an inventory; no text for people, no I/O.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from dray.allocator.inventory.device_inventory import DeviceInventory
from dray.allocator.inventory.device_profiles import DeviceProfile
from dray.allocator.inventory.node_shapes import NodeShape, NodeView
from dray.allocator.inventory.pool_views import CounterDraws, CounterId, PoolView
from dray.allocator.inventory.usage import PoolId, PoolUsage
from dray.allocator.refusals import Refusal, RefusalReason
from dray.allocator.requests import format_claim_name
from dray.allocator.search.availability import find_device_refusals
from dray.api.core import Node
from dray.api.resource import ResourceClaim
from dray.placement.node_health import NOT_READY, UNREACHABLE
from dray.simulation.bundle import Bundle
from dray.values.quantity import Quantity, QuantityForm


class AvailabilityState(StrEnum):
    """What can be had of a device."""

    FREE = "free"
    """All of it."""
    SHARED = "shared"
    """Another share: claims hold some, and some is left."""
    IN_USE = "in use"
    """Nothing: a claim holds it as a whole."""
    USED_UP = "used up"
    """Nothing: shares hold its capacity, or other devices its counters."""
    UNUSABLE = "unusable"
    """Nothing, whoever holds it: it is tainted, for instance."""

    @property
    def can_be_had(self) -> bool:
        """Whether a claim that asks for the device gets it."""
        return self in (AvailabilityState.FREE, AvailabilityState.SHARED)


@dataclass(frozen=True, slots=True)
class DeviceHolder:
    """A claim that holds a device, and the pods that it is reserved for."""

    claim: str
    pods: tuple[str, ...] = ()

    @property
    def namespace(self) -> str:
        """The namespace of the claim."""
        return self.claim.partition("/")[0]


@dataclass(frozen=True, slots=True)
class CounterBlocker:
    """A device in use that draws from the counters of another device."""

    device: str
    is_partition: bool
    """Whether it draws less than the other one, like a partition of it."""
    holders: tuple[DeviceHolder, ...]


@dataclass(frozen=True, slots=True)
class CapacityLeft:
    """A capacity of a shareable device."""

    name: str
    left: Quantity
    total: Quantity


@dataclass(frozen=True, slots=True)
class DeviceAvailability:
    """A device, and what can be had of it."""

    name: str
    state: AvailabilityState
    holders: tuple[DeviceHolder, ...] = ()
    capacity: tuple[CapacityLeft, ...] = ()
    """For shareable devices only: others are had as a whole."""
    blockers: tuple[CounterBlocker, ...] = ()
    refusal: Refusal | None = None
    profile: DeviceProfile | None = field(default=None, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class PoolAvailability:
    """A pool as some nodes see it; one with a `flaw` has no devices to give."""

    nodes: tuple[str, ...]
    driver: str
    pool: str
    devices: tuple[DeviceAvailability, ...] = ()
    counters_left: Mapping[CounterId, Quantity] = field(default_factory=dict)
    has_overlap: bool = False
    """Whether the devices that can be had cannot all be had at once: they draw from the same counters."""
    flaw: Refusal | None = None

    @property
    def available(self) -> tuple[DeviceAvailability, ...]:
        """The devices that can be had."""
        return tuple(device for device in self.devices if device.state.can_be_had)


@dataclass(frozen=True, slots=True)
class FreeDevices:
    """All pools, those that no node sees, and nodes with devices that take no new pods, with their state."""

    pools: tuple[PoolAvailability, ...]
    unseen: tuple[PoolId, ...] = ()
    closed_nodes: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class DeviceFilter:
    """Limits the answer to a node, a driver, and to what is free or held in a namespace."""

    node: str | None = None
    driver: str | None = None
    namespace: str | None = None

    def admits_device(self, device: DeviceAvailability) -> bool:
        """Whether a device is free, or held by a claim of the namespace."""
        if self.namespace is None or device.state.can_be_had:
            return True
        return any(holder.namespace == self.namespace for holder in device.holders)


NO_FILTER = DeviceFilter()


def find_free_devices(
    bundle: Bundle, inventory: DeviceInventory, device_filter: DeviceFilter = NO_FILTER
) -> FreeDevices:
    """Find what every pool has to give, in the order of nodes and of the search."""
    nodes = [node for node in bundle.nodes if device_filter.node in (None, node.metadata.name)]
    survey = _PoolSurvey(inventory, bundle.claims, device_filter)
    for node in nodes:
        survey.add_node(node)
    pools = tuple(survey.build_pools())
    unseen: tuple[PoolId, ...] = ()
    if device_filter.node is None:
        published = {(each.spec.driver, each.spec.pool.name) for each in bundle.slices}
        wanted = (pool for pool in published if device_filter.driver in (None, pool[0]))
        unseen = tuple(sorted(set(wanted) - {(each.driver, each.pool) for each in pools}))
    seen_from = {name for each in pools if each.available for name in each.nodes}
    closed = tuple(
        (node.metadata.name, state)
        for node in nodes
        if node.metadata.name in seen_from and (state := _find_closed_state(node))
    )
    return FreeDevices(pools, unseen, closed)


def _find_closed_state(node: Node) -> str:
    """Return why a node takes no new pods; empty when it takes some."""
    keys = {taint.key for taint in node.spec.taints}
    return next((state for key, state in _CLOSING_TAINTS.items() if key in keys), "") or (
        "cordoned" if node.spec.unschedulable else ""
    )


_CLOSING_TAINTS = {UNREACHABLE: "lost", NOT_READY: "not ready"}
"""The state of a node by the taints that mean it."""


class _PoolSurvey:
    """The pools of the nodes added so far; equal views of one pool are computed once."""

    def __init__(
        self, inventory: DeviceInventory, claims: Iterable[ResourceClaim], device_filter: DeviceFilter
    ) -> None:
        self._inventory = inventory
        self._filter = device_filter
        self._holders = {
            format_claim_name(claim): DeviceHolder(format_claim_name(claim), _list_pods(claim))
            for claim in claims
            if claim.status.allocation is not None
        }
        self._refusals: dict[NodeShape, tuple[Refusal | None, ...]] = {}
        self._pools: dict[int, tuple[PoolAvailability, list[str], PoolView]] = {}

    def add_node(self, node: Node) -> None:
        view = self._inventory.get_node_view(node)
        offset = 0
        for index, pool_view in enumerate(view.pool_views):
            start, offset = offset, offset + len(pool_view.profiles)
            if self._filter.driver not in (None, pool_view.pool[0]):
                continue
            known = self._pools.get(id(pool_view))
            if known is not None:
                known[1].append(node.metadata.name)
                continue
            built = self._build_pool(view, index, start)
            # The pool view is kept, too: its id must not be reused.
            self._pools[id(pool_view)] = (built, [node.metadata.name], pool_view)

    def build_pools(self) -> Iterator[PoolAvailability]:
        for built, nodes, _ in self._pools.values():
            yield PoolAvailability(
                tuple(nodes),
                built.driver,
                built.pool,
                tuple(device for device in built.devices if self._filter.admits_device(device)),
                built.counters_left,
                built.has_overlap,
                built.flaw,
            )

    def _build_pool(self, view: NodeView, index: int, start: int) -> PoolAvailability:
        pool_view, usage = view.pool_views[index], view.pool_usages[index]
        driver, pool = pool_view.pool
        if pool_view.flaw is not None:
            return PoolAvailability((), driver, pool, flaw=pool_view.flaw)
        shape = view.shape
        refusals = self._refusals.get(shape)
        if refusals is None:
            refusals = self._refusals[shape] = find_device_refusals(shape)
        counters = shape.counters_left[index]
        devices = []
        for position, name in enumerate(pool_view.names):
            candidate = start + position
            refusal, profile = refusals[candidate], pool_view.profiles[position]
            holders = self._find_holders(usage, name)
            is_short = refusal is not None and refusal.reason is RefusalReason.COUNTER_SHORT
            blockers = (
                tuple(self._find_blockers(pool_view, usage, profile.counters, counters)) if is_short else ()
            )
            devices.append(
                DeviceAvailability(
                    name,
                    _decide_state(refusal, bool(holders), bool(blockers)),
                    holders,
                    _list_capacity(profile, shape.capacity_left.get(candidate, {})),
                    blockers,
                    refusal,
                    profile,
                )
            )
        left = self._list_counters(pool_view.pool, counters)
        return PoolAvailability((), driver, pool, tuple(devices), left, _overlap(devices, counters))

    def _list_counters(self, pool: PoolId, left: Mapping[CounterId, int]) -> dict[CounterId, Quantity]:
        """List what is left of each counter, in the form in which its driver writes the total."""
        if not left:
            return {}
        forms = {
            (group.name, name): counter.value.form
            for published in self._inventory.list_slices(pool)
            for group in published.spec.shared_counters
            for name, counter in group.counters.items()
            if counter.value is not None
        }
        return {key: Quantity(nanos, forms.get(key, QuantityForm.DECIMAL)) for key, nanos in left.items()}

    def _find_holders(self, usage: PoolUsage, device: str) -> tuple[DeviceHolder, ...]:
        names = dict.fromkeys(usage.holders.get(device, ()))
        return tuple(self._holders.get(name) or DeviceHolder(name) for name in names)

    def _find_blockers(
        self,
        pool_view: PoolView,
        usage: PoolUsage,
        needed: CounterDraws,
        left: Mapping[CounterId, int],
    ) -> Iterator[CounterBlocker]:
        """Find the devices in use that leave too little of the counters of a device."""
        short = {(group, name): nanos for group, name, nanos in needed if nanos > left[group, name]}
        short = short or {key: 0 for key, nanos in left.items() if nanos < 0}
        for device in sorted(usage.devices & pool_view.consumers.keys()):
            draws = [
                (nanos, short[group, name])
                for group, name, nanos in pool_view.consumers[device]
                if nanos > 0 and (group, name) in short
            ]
            if draws:
                smaller = all(nanos < wanted for nanos, wanted in draws)
                yield CounterBlocker(device, smaller, self._find_holders(usage, device))


def _list_pods(claim: ResourceClaim) -> tuple[str, ...]:
    return tuple(
        f"{claim.metadata.namespace}/{consumer.name}"
        for consumer in claim.status.reserved_for
        if consumer.resource == "pods"
    )


def _decide_state(refusal: Refusal | None, is_held: bool, is_blocked: bool) -> AvailabilityState:
    if refusal is None:
        return AvailabilityState.SHARED if is_held else AvailabilityState.FREE
    if refusal.reason is RefusalReason.IN_USE:
        return AvailabilityState.IN_USE
    if refusal.reason in _SHORTAGES and (is_held or is_blocked):
        return AvailabilityState.USED_UP
    return AvailabilityState.UNUSABLE


_SHORTAGES = (RefusalReason.CAPACITY_SHORT, RefusalReason.COUNTER_SHORT)
"""Refusals of a device that could be had if others held less, unless nobody holds anything."""


def _list_capacity(profile: DeviceProfile, left: Mapping[str, int]) -> tuple[CapacityLeft, ...]:
    if not profile.shareable:
        return ()
    found = []
    for name, total in profile.totals.items():
        value = profile.device.capacity[name].value
        form = QuantityForm.DECIMAL if value is None else value.form
        found.append(CapacityLeft(name, Quantity(max(left.get(name, total), 0), form), Quantity(total, form)))
    return tuple(found)


def _overlap(devices: Sequence[DeviceAvailability], left: Mapping[CounterId, int]) -> bool:
    """Whether the free devices together draw more from a counter than is left."""
    drawn: dict[CounterId, int] = {}
    for device in devices:
        if device.state is AvailabilityState.FREE and device.profile is not None:
            for group, name, nanos in device.profile.counters:
                drawn[group, name] = drawn.get((group, name), 0) + nanos
    return any(nanos > left.get(key, 0) for key, nanos in drawn.items())
