"""Published devices as the ledger reads them: shareable or not, their capacities, their counter draws.

Theory of operation: the allocator reads slices completely; the ledger needs four facts of a device inside
every allocation, so it reads just those from the stored bytes. Which slices count is decided as in the
allocator: those of the newest generation that is complete and valid. While a driver is publishing there may
be no such generation; then the newest entry of each device counts, so that nothing is allocated twice in the
meantime.

Nodes may have devices of one name in one pool. A holder of the name does not tell which one, so while it is
held all of them draw from their counters, as in the allocator.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from sys import intern
from typing import Any

import msgspec

from dray.values.quantity import ZERO, Quantity

Source = tuple[bytes, int]
"""The key of a slice and the revision of its last write."""


class _Seen(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """Base of the structs read from slices; other fields are ignored."""


class StoredAmount(_Seen, frozen=True):
    """An amount, of a capacity or of a counter."""

    value: Quantity | None = None


class StoredDraw(_Seen, frozen=True):
    """What a device draws from one counter set."""

    counter_set: str = ""
    counters: dict[str, StoredAmount] = {}


class StoredDevice(_Seen, frozen=True):
    """What the ledger reads of a device."""

    name: str = ""
    capacity: dict[str, StoredAmount] = {}
    consumes_counters: tuple[StoredDraw, ...] = ()
    allow_multiple_allocations: bool | None = None
    node_name: str | None = None


class StoredCounterSet(_Seen, frozen=True):
    """A counter set."""

    name: str = ""
    counters: dict[str, StoredAmount] = {}


class StoredPool(_Seen, frozen=True):
    """The pool and its generation."""

    name: str = ""
    generation: int = 0
    resource_slice_count: int = 0
    priority: int | None = None


class StoredSliceSpec(_Seen, frozen=True):
    """What the ledger reads of a slice."""

    driver: str = ""
    pool: StoredPool = StoredPool()
    devices: tuple[StoredDevice, ...] = ()
    shared_counters: tuple[StoredCounterSet, ...] = ()
    node_name: str | None = None
    all_nodes: bool | None = None
    per_device_node_selection: bool | None = None


class StoredSlice(_Seen, frozen=True):
    """A slice as the ledger reads it."""

    spec: StoredSliceSpec = StoredSliceSpec()


class _SlicePool(_Seen, frozen=True):
    driver: str = ""
    pool: StoredPool = StoredPool()


class _SlicePoolOnly(_Seen, frozen=True):
    spec: _SlicePool = _SlicePool()


def _read_quantity(wanted: type, value: Any) -> Any:
    return Quantity.from_json_value(value)


_SLICE = msgspec.json.Decoder(StoredSlice, dec_hook=_read_quantity)
_SLICE_POOL = msgspec.json.Decoder(_SlicePoolOnly)


def read_slice(value: bytes) -> StoredSlice:
    """A slice from its stored bytes."""
    return _SLICE.decode(value)


def read_pool_id(value: bytes) -> tuple[str, str]:
    """Driver and pool of a slice, from its stored bytes."""
    spec = _SLICE_POOL.decode(value).spec
    return spec.driver, spec.pool.name


class DeviceFacts(msgspec.Struct, frozen=True, gc=False):
    """What counts of a published device; of all devices of a name, when several nodes have one."""

    shareable: bool
    capacity: Mapping[str, Quantity]
    draws: Mapping[str, Mapping[str, Quantity]]
    """What is charged while the name is held: what all devices of the name draw."""
    source: Source
    node: str = ""
    """The one node that reaches it; empty when several may."""
    each: tuple[DeviceFacts, ...] = ()
    """The devices of the name one by one; empty when there is just this one."""

    @property
    def sources(self) -> tuple[Source, ...]:
        """The slices it was read from."""
        return tuple(one.source for one in self.each) or (self.source,)

    def select_for_node(self, node: str) -> DeviceFacts:
        """The device of the name that an allocation for a node has.

        Where that cannot be told, as much is allowed as any of them allows, and drawn as any of them draws.
        """
        if not self.each:
            return self
        here = [one for one in self.each if node and one.node == node]
        here = here or [one for one in self.each if not one.node] or list(self.each)
        return here[0] if len(here) == 1 else _merge_same_name(here, _take_larger)


class PublishedPool(msgspec.Struct, frozen=True, gc=False):
    """A pool as it is published: devices, and counter sets with where they were read."""

    devices: Mapping[str, DeviceFacts] = {}
    counters: Mapping[str, tuple[Mapping[str, Quantity], Source]] = {}


EMPTY_POOL = PublishedPool()

PoolGeneration = Sequence[tuple[Source, StoredSlice]]
"""Slices of one generation."""


def build_published_pool(slices: Iterable[tuple[Source, StoredSlice]]) -> PublishedPool:
    """What counts of the slices of one pool."""
    editions: dict[int, list[tuple[Source, StoredSlice]]] = {}
    for source, seen in sorted(slices, key=lambda pair: pair[0]):
        editions.setdefault(seen.spec.pool.generation, []).append((source, seen))
    newest_first = [editions[generation] for generation in sorted(editions, reverse=True)]
    for edition in newest_first:
        if is_complete(edition) and is_sound(edition):
            return _read_generations([edition])
    return _read_generations(newest_first)


def is_complete(generation: PoolGeneration) -> bool:
    """Whether all slices of a generation are there, as all of them say."""
    return {seen.spec.pool.resource_slice_count for _, seen in generation} == {len(generation)}


def is_sound(generation: PoolGeneration) -> bool:
    """Whether no node sees a name twice, and whatever is drawn from exists."""
    specs = [seen.spec for _, seen in generation]
    sets = [counters for spec in specs for counters in spec.shared_counters]
    known = {counters.name: counters.counters for counters in sets}
    drawn = [draw for spec in specs for device in spec.devices for draw in device.consumes_counters]
    return (
        not _has_duplicate_names(spec for spec in specs if not spec.shared_counters)
        and len(known) == len(sets)
        and all(
            draw.counter_set in known and draw.counters.keys() <= known[draw.counter_set].keys()
            for draw in drawn
        )
        and len({spec.pool.priority or 0 for spec in specs}) == 1
    )


_ALL_NODES = "*"
"""In place of a node's name: every node."""


def _has_duplicate_names(specs: Iterable[StoredSliceSpec]) -> bool:
    """Whether some node certainly sees two devices of one name.

    Slices that other nodes see may repeat a name. Which nodes a selector matches is unknown here.
    """
    seen: dict[str, tuple[str, ...]] = {}
    for spec in specs:
        whom = _ALL_NODES if spec.all_nodes else spec.node_name or ""
        own: set[str] = set()
        for device in spec.devices:
            others = seen.get(device.name, ())
            if device.name in own or (others and whom == _ALL_NODES) or _ALL_NODES in others:
                return True
            if whom and whom in others:
                return True
            own.add(device.name)
            seen[device.name] = (*others, whom)
    return False


def _read_generations(generations: Sequence[PoolGeneration]) -> PublishedPool:
    """The first entry of each name, generations in the order given; one generation may repeat it per node."""
    devices: dict[str, DeviceFacts] = {}
    counters: dict[str, tuple[Mapping[str, Quantity], Source]] = {}
    for edition in generations:
        found: dict[str, list[DeviceFacts]] = {}
        for source, seen in edition:
            for group in seen.spec.shared_counters:
                counters.setdefault(group.name, (_read_amounts(group.counters), source))
            before: DeviceFacts | None = None
            for device in seen.spec.devices:
                if device.name not in devices:
                    before = _read_facts(device, source, seen.spec, before)
                    # Nodes name their devices alike: all pools share one text.
                    found.setdefault(intern(device.name), []).append(before)
        for name, each in found.items():
            devices[name] = each[0] if len(each) == 1 else _merge_same_name(each, _add_amounts)
    return PublishedPool(devices, counters)


def _read_facts(
    device: StoredDevice, source: Source, spec: StoredSliceSpec, before: DeviceFacts | None
) -> DeviceFacts:
    """What counts of a device; most are like the one before them in the slice and share its amounts."""
    shareable = bool(device.allow_multiple_allocations)
    node = (device.node_name if spec.per_device_node_selection else spec.node_name) or ""
    capacity: Mapping[str, Quantity] = _read_amounts(device.capacity)
    if before is not None and _is_written_alike(capacity, before.capacity):
        capacity = before.capacity
    return DeviceFacts(shareable, capacity, read_draws(device.consumes_counters), source, node)


def _is_written_alike(one: Mapping[str, Quantity], other: Mapping[str, Quantity]) -> bool:
    """Whether amounts are equal and read alike in messages."""
    return one == other and all(amount.form is other[name].form for name, amount in one.items())


def _merge_same_name(
    each: Sequence[DeviceFacts], combine: Callable[[Quantity, Quantity], Quantity]
) -> DeviceFacts:
    """Devices of one name on several nodes as one; `combine` computes what they draw together."""
    capacity: dict[str, Quantity] = {}
    draws: dict[str, dict[str, Quantity]] = {}
    for one in each:
        for name, amount in one.capacity.items():
            capacity[name] = _take_larger(capacity.get(name, ZERO), amount)
        for group, drawn in one.draws.items():
            together = draws.setdefault(group, {})
            for name, amount in drawn.items():
                together[name] = combine(together.get(name, ZERO), amount)
    nodes = {one.node for one in each}
    node = nodes.pop() if len(nodes) == 1 else ""
    return DeviceFacts(any(one.shareable for one in each), capacity, draws, each[0].source, node, tuple(each))


def _add_amounts(one: Quantity, other: Quantity) -> Quantity:
    return one + other


def _take_larger(one: Quantity, other: Quantity) -> Quantity:
    return other if other.nanos > one.nanos else one


def read_draws(consumptions: Iterable[Any]) -> dict[str, dict[str, Quantity]]:
    """What a device draws from each counter set, from what it says it consumes."""
    draws: dict[str, dict[str, Quantity]] = {}
    for draw in consumptions:
        drawn = draws.setdefault(draw.counter_set, {})
        for name, amount in _read_amounts(draw.counters).items():
            # A negative amount must not add to what others can take.
            drawn[name] = drawn.get(name, ZERO) + (amount if amount.nanos >= 0 else ZERO)
    return draws


def _read_amounts(written: Mapping[str, Any]) -> dict[str, Quantity]:
    return {name: amount.value or ZERO for name, amount in written.items()}
