"""What the ledger must know of published devices: shared or not, how much they have, what they draw.

Theory of operation: the allocator looks at slices with everything in them; the ledger needs four facts of a
device and is asked inside every allocation, so it reads just those from the stored bytes. Which slices count
is judged as the allocator does: those of the newest generation that is complete and sound. While a driver is
publishing anew there may be no such generation; then the newest word on each device counts, so that nothing
is lent out twice in the meantime.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
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
    """What counts of a published device."""

    shareable: bool
    capacity: Mapping[str, Quantity]
    draws: Mapping[str, Mapping[str, Quantity]]
    source: Source
    node: str = ""
    """The one node that reaches it; empty when several may."""


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
    """Whether names are given once, and whatever is drawn from exists."""
    specs = [seen.spec for _, seen in edition]
    devices = [device for spec in specs for device in spec.devices if not spec.shared_counters]
    sets = [counters for spec in specs for counters in spec.shared_counters]
    known = {counters.name: counters.counters for counters in sets}
    drawn = [draw for spec in specs for device in spec.devices for draw in device.consumes_counters]
    return (
        len({device.name for device in devices}) == len(devices)
        and len(known) == len(sets)
        and all(
            draw.counter_set in known and draw.counters.keys() <= known[draw.counter_set].keys()
            for draw in drawn
        )
        and len({spec.pool.priority or 0 for spec in specs}) == 1
    )


def _read(editions: Sequence[Edition]) -> Published:
    """The first word on each name, editions in the order given."""
    devices: dict[str, Facts] = {}
    counters: dict[str, tuple[Mapping[str, Quantity], Source]] = {}
    for source, seen in (pair for edition in editions for pair in edition):
        for group in seen.spec.shared_counters:
            counters.setdefault(group.name, (_amounts(group.counters), source))
        for device in seen.spec.devices:
            if device.name not in devices:
                devices[device.name] = _facts(device, source, seen.spec.node_name or "")
    return Published(devices, counters)


def _facts(device: SeenDevice, source: Source, node: str) -> Facts:
    shareable = bool(device.allow_multiple_allocations)
    return Facts(shareable, _amounts(device.capacity), draws_of(device.consumes_counters), source, node)


def draws_of(written: Iterable[Any]) -> dict[str, dict[str, Quantity]]:
    """What a device draws from each counter set, from what it says it consumes."""
    draws: dict[str, dict[str, Quantity]] = {}
    for draw in written:
        drawn = draws.setdefault(draw.counter_set, {})
        for name, amount in _amounts(draw.counters).items():
            drawn[name] = drawn.get(name, ZERO) + amount
    return draws


def _amounts(written: Mapping[str, Any]) -> dict[str, Quantity]:
    return {name: amount.value or ZERO for name, amount in written.items()}
