"""What is left of a shelf: devices nobody holds, capacities of shared ones, counters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dray.allocator.inventory.pool_views import CounterId, Shelf
from dray.allocator.inventory.usage import PoolUsage


@dataclass(frozen=True, slots=True)
class Left:
    """What is taken of a shelf and what is left; masks and positions count from its first device."""

    taken: int
    shared: int
    amounts: Mapping[int, Mapping[str, int]]
    counters: Mapping[CounterId, int]
    key: tuple[Any, ...]


def left_of(shelf: Shelf, use: PoolUsage) -> Left:
    """What is left of a shelf when something is taken of its pool."""
    taken = shared = 0
    amounts: dict[int, Mapping[str, int]] = {}
    for i, (name, content) in enumerate(zip(shelf.names, shelf.contents, strict=True)):
        shares = use.shares.get(name)
        if name in use.whole or (shares is not None and not content.shareable):
            taken |= 1 << i
        if content.shareable:
            shared |= (shares is not None) << i
        if content.shareable or shares:
            held = shares or {}
            amounts[i] = {cap: total - held.get(cap, 0) for cap, total in content.totals.items()}
    counters = dict(shelf.counters)
    if counters:
        for name in use.devices & shelf.consumers.keys():
            for group, counter, nanos in shelf.consumers[name]:
                counters[group, counter] -= nanos
    key = (taken, shared, tuple((i, *left.values()) for i, left in amounts.items()), tuple(counters.values()))
    return Left(taken, shared, amounts, counters, key)
