"""Pool remainders: the devices of a pool view that are free, and what is left of capacities and counters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dray.allocator.inventory.pool_views import CounterId, PoolView
from dray.allocator.inventory.usage import PoolUsage


@dataclass(frozen=True, slots=True)
class PoolRemainder:
    """What is taken of a pool view and what is left; masks and positions count from its first device."""

    taken: int
    shared: int
    amounts: Mapping[int, Mapping[str, int]]
    counters: Mapping[CounterId, int]
    key: tuple[Any, ...]


def compute_remainder(pool_view: PoolView, usage: PoolUsage) -> PoolRemainder:
    """Compute what is left of a pool view under some usage of its pool."""
    taken = shared = 0
    amounts: dict[int, Mapping[str, int]] = {}
    for i, (name, profile) in enumerate(zip(pool_view.names, pool_view.profiles, strict=True)):
        shares = usage.shares.get(name)
        if name in usage.whole or (shares is not None and not profile.shareable):
            taken |= 1 << i
        if profile.shareable:
            shared |= (shares is not None) << i
        if profile.shareable or shares:
            held = shares or {}
            amounts[i] = {cap: total - held.get(cap, 0) for cap, total in profile.totals.items()}
    counters = dict(pool_view.counters)
    if counters:
        for name in usage.devices & pool_view.consumers.keys():
            for group, counter, nanos in pool_view.consumers[name]:
                counters[group, counter] -= nanos
    key = (taken, shared, tuple((i, *left.values()) for i, left in amounts.items()), tuple(counters.values()))
    return PoolRemainder(taken, shared, amounts, counters, key)
