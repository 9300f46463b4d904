"""What the ledger must know of published devices: shared or not, how much they have, what they draw.

Theory of operation: the allocator looks at slices with everything in them; the ledger needs four facts of a
device and is asked inside every allocation, so it reads just those from the stored bytes. Which slices count
is judged as the allocator does: those of the newest generation that is complete and sound. While a driver is
publishing anew there may be no such generation; then the newest word on each device counts, so that nothing
is lent out twice in the meantime.

Nodes may have devices of one name in one pool. Who holds the name does not say which one, so while it is held
all of them draw from their counters, as in the allocator.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from dray.values.quantity import ZERO, Quantity

Source = tuple[bytes, int]
"""The key of a slice and the revision of its last write."""


class _Seen(msgspec.Struct, frozen=True, rename="camel"):
    """Base of what is read of slices; everything else in them is passed over."""


class Amount(_Seen, frozen=True):
    """An amount, of a capacity or of a counter."""

    value: Quantity | None = None


class Draw(_Seen, frozen=True):
    """What a device draws from one counter set."""

    counter_set: str = ""
    counters: dict[str, Amount] = {}


class SeenDevice(_Seen, frozen=True):
    """What the ledger sees of a device."""

    name: str = ""
    capacity: dict[str, Amount] = {}
    consumes_counters: tuple[Draw, ...] = ()
    allow_multiple_allocations: bool | None = None
    node_name: str | None = None


class SeenSet(_Seen, frozen=True):
    """A counter set."""

    name: str = ""
    counters: dict[str, Amount] = {}


class SeenPool(_Seen, frozen=True):
    """Which pool, and which edition of it."""

    name: str = ""
    generation: int = 0
    resource_slice_count: int = 0
    priority: int | None = None


class SeenSpec(_Seen, frozen=True):
    """What the ledger sees of a slice."""

    driver: str = ""
    pool: SeenPool = SeenPool()
    devices: tuple[SeenDevice, ...] = ()
    shared_counters: tuple[SeenSet, ...] = ()
    node_name: str | None = None
    all_nodes: bool | None = None
    per_device_node_selection: bool | None = None


class SeenSlice(_Seen, frozen=True):
    """A slice as the ledger reads it."""

    spec: SeenSpec = SeenSpec()


class _Place(_Seen, frozen=True):
    driver: str = ""
    pool: SeenPool = SeenPool()


class _Placed(_Seen, frozen=True):
    spec: _Place = _Place()


def _read_custom(wanted: type, value: Any) -> Any:
    return Quantity.read(value)


_SLICE = msgspec.json.Decoder(SeenSlice, dec_hook=_read_custom)
_PLACED = msgspec.json.Decoder(_Placed)


def read_slice(value: bytes) -> SeenSlice:
    """A slice from its stored bytes."""
    return _SLICE.decode(value)


def pool_of(value: bytes) -> tuple[str, str]:
    """Driver and pool of a slice, from its stored bytes."""
    spec = _PLACED.decode(value).spec
    return spec.driver, spec.pool.name


@dataclass(frozen=True, slots=True)
class Facts:
    """What counts of a published device; of all devices of a name, when several nodes have one."""

    shareable: bool
    capacity: Mapping[str, Quantity]
    draws: Mapping[str, Mapping[str, Quantity]]
    """What is charged while the name is held: what all devices of the name draw."""
    source: Source
    node: str = ""
    """The one node that reaches it; empty when several may."""
    each: tuple[Facts, ...] = ()
    """The devices of the name one by one; empty when there is just this one."""

    @property
    def sources(self) -> tuple[Source, ...]:
        """Where it was read."""
        return tuple(one.source for one in self.each) or (self.source,)

    def on(self, node: str) -> Facts:
        """The device of the name that an allocation for a node has.

        Where that cannot be told, as much is allowed as any of them allows, and drawn as any of them draws.
        """
        if not self.each:
            return self
        here = [one for one in self.each if node and one.node == node]
        here = here or [one for one in self.each if not one.node] or list(self.each)
        return here[0] if len(here) == 1 else _of_one_name(here, _largest)


@dataclass(frozen=True, slots=True)
class Published:
    """A pool as it is published: devices, and counter sets with where they were read."""

    devices: Mapping[str, Facts] = field(default_factory=dict)
    counters: Mapping[str, tuple[Mapping[str, Quantity], Source]] = field(default_factory=dict)


NOWHERE = Published()

Edition = Sequence[tuple[Source, SeenSlice]]
"""Slices of one generation."""


def published(slices: Iterable[tuple[Source, SeenSlice]]) -> Published:
    """What counts of the slices of one pool."""
    editions: dict[int, list[tuple[Source, SeenSlice]]] = {}
    for source, seen in sorted(slices, key=lambda pair: pair[0]):
        editions.setdefault(seen.spec.pool.generation, []).append((source, seen))
    newest_first = [editions[generation] for generation in sorted(editions, reverse=True)]
    for edition in newest_first:
        if is_complete(edition) and is_sound(edition):
            return _read([edition])
    return _read(newest_first)


def is_complete(edition: Edition) -> bool:
    """Whether all slices of a generation are there, as all of them say."""
    return {seen.spec.pool.resource_slice_count for _, seen in edition} == {len(edition)}


def is_sound(edition: Edition) -> bool:
    """Whether no node sees a name twice, and whatever is drawn from exists."""
    specs = [seen.spec for _, seen in edition]
    sets = [counters for spec in specs for counters in spec.shared_counters]
    known = {counters.name: counters.counters for counters in sets}
    drawn = [draw for spec in specs for device in spec.devices for draw in device.consumes_counters]
    return (
        not _is_any_name_twice(spec for spec in specs if not spec.shared_counters)
        and len(known) == len(sets)
        and all(
            draw.counter_set in known and draw.counters.keys() <= known[draw.counter_set].keys()
            for draw in drawn
        )
        and len({spec.pool.priority or 0 for spec in specs}) == 1
    )


_EVERYBODY = "*"
"""In place of a node's name: every node."""


def _is_any_name_twice(specs: Iterable[SeenSpec]) -> bool:
    """Whether some node certainly sees two devices of one name.

    Slices that other nodes see may repeat a name. Whom a selector chooses is not known here.
    """
    seen: dict[str, tuple[str, ...]] = {}
    for spec in specs:
        whom = _EVERYBODY if spec.all_nodes else spec.node_name or ""
        own: set[str] = set()
        for device in spec.devices:
            others = seen.get(device.name, ())
            if device.name in own or (others and whom == _EVERYBODY) or _EVERYBODY in others:
                return True
            if whom and whom in others:
                return True
            own.add(device.name)
            seen[device.name] = (*others, whom)
    return False


def _read(editions: Sequence[Edition]) -> Published:
    """The first word on each name, editions in the order given; one edition may have a name on many nodes."""
    devices: dict[str, Facts] = {}
    counters: dict[str, tuple[Mapping[str, Quantity], Source]] = {}
    for edition in editions:
        found: dict[str, list[Facts]] = {}
        for source, seen in edition:
            for group in seen.spec.shared_counters:
                counters.setdefault(group.name, (_amounts(group.counters), source))
            for device in seen.spec.devices:
                if device.name not in devices:
                    found.setdefault(device.name, []).append(_facts(device, source, seen.spec))
        for name, each in found.items():
            devices[name] = each[0] if len(each) == 1 else _of_one_name(each, _sum)
    return Published(devices, counters)


def _facts(device: SeenDevice, source: Source, spec: SeenSpec) -> Facts:
    shareable = bool(device.allow_multiple_allocations)
    node = (device.node_name if spec.per_device_node_selection else spec.node_name) or ""
    return Facts(shareable, _amounts(device.capacity), draws_of(device.consumes_counters), source, node)


def _of_one_name(each: Sequence[Facts], joined: Callable[[Quantity, Quantity], Quantity]) -> Facts:
    """Devices of one name on several nodes as one; `joined` says what they draw together."""
    capacity: dict[str, Quantity] = {}
    draws: dict[str, dict[str, Quantity]] = {}
    for one in each:
        for name, amount in one.capacity.items():
            capacity[name] = _largest(capacity.get(name, ZERO), amount)
        for group, drawn in one.draws.items():
            together = draws.setdefault(group, {})
            for name, amount in drawn.items():
                together[name] = joined(together.get(name, ZERO), amount)
    nodes = {one.node for one in each}
    node = nodes.pop() if len(nodes) == 1 else ""
    return Facts(any(one.shareable for one in each), capacity, draws, each[0].source, node, tuple(each))


def _sum(one: Quantity, other: Quantity) -> Quantity:
    return one + other


def _largest(one: Quantity, other: Quantity) -> Quantity:
    return other if other.nanos > one.nanos else one


def draws_of(written: Iterable[Any]) -> dict[str, dict[str, Quantity]]:
    """What a device draws from each counter set, from what it says it consumes."""
    draws: dict[str, dict[str, Quantity]] = {}
    for draw in written:
        drawn = draws.setdefault(draw.counter_set, {})
        for name, amount in _amounts(draw.counters).items():
            # What is below nothing must not make room for others.
            drawn[name] = drawn.get(name, ZERO) + (amount if amount.nanos >= 0 else ZERO)
    return draws


def _amounts(written: Mapping[str, Any]) -> dict[str, Quantity]:
    return {name: amount.value or ZERO for name, amount in written.items()}
