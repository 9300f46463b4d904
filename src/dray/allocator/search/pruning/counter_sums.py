"""Sums of counters and capacities, as the bounds compare them.

A sum over counters of one name decides between partitions of several equal devices, where each single counter
has enough left for some of them. Any sum of limits with weights that are not negative is a limit again.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd

from dray.allocator.search.pruning.model import PruningModel

SCALE = 1 << 32
"""Counters of different sizes are added up as parts of this."""

Levels = list[tuple[int, int]]
"""Ascending: an amount, and the devices that draw exactly so much."""

CounterSum = tuple[str, list[tuple[int, int]], Levels]
"""A name, the counters with their weights, and what devices draw of the weighted sum."""


def build_counter_sums(model: PruningModel) -> list[tuple[int, list[CounterSum]]]:
    """Counters and sums of counters worth looking at, with the devices that draw from them.

    Sums over counters of one name are what decides between partitions of several equal devices.
    """
    by_set: dict[tuple[int, str], list[int]] = {}
    by_name: dict[tuple[int, str], list[int]] = {}
    by_pool: dict[int, list[int]] = {}
    names: dict[int, str] = {}
    for (pool, group, name), index in model.counters.items():
        by_set.setdefault((pool, group), []).append(index)
        by_name.setdefault((pool, name), []).append(index)
        by_pool.setdefault(pool, []).append(index)
        names[index] = f"{group}/{name}"
    found: list[tuple[int, list[CounterSum]]] = []
    for indices in by_pool.values():
        if len(indices) > 1:
            weights = [(i, SCALE // model.totals[i]) for i in indices if model.totals[i] > 0]
            found.append(_build_weighted(model, [("", weights)]))
    for (_pool, name), indices in by_name.items():
        if len(indices) > 1:
            found.append(_build_weighted(model, [(name, [(i, 1) for i in indices])]))
    for indices in by_set.values():
        found.append(_build_weighted(model, [(names[i], [(i, 1)]) for i in indices]))
    return found


def _build_weighted(
    model: PruningModel, sums: Sequence[tuple[str, list[tuple[int, int]]]]
) -> tuple[int, list[CounterSum]]:
    drawing = 0
    members: list[CounterSum] = []
    for name, weights in sums:
        by_index = dict(weights)
        exactly: dict[int, int] = {}
        for device, amounts in enumerate(model.draws):
            amount = sum(by_index[i] * drawn for i, drawn in amounts if i in by_index)
            if amount:
                exactly[amount] = exactly.get(amount, 0) | 1 << device
                drawing |= 1 << device
        members.append((name, weights, sorted(exactly.items())))
    # A device of the group that does not draw from one of its counters has the amount zero there.
    for position, (name, weights, levels) in enumerate(members):
        nothing = drawing
        for _amount, mask in levels:
            nothing &= ~mask
        members[position] = (name, weights, [(0, nothing), *levels] if nothing else levels)
    return drawing, members


CapacityAmounts = tuple[str, int, list[dict[int, int]], dict[int, int]]
"""A name, the unit all amounts are multiples of, amounts by demand and device, each device's resource."""


def group_capacities(model: PruningModel) -> list[CapacityAmounts]:
    """The capacities of shared devices that demands ask for, one entry for each name."""
    found: list[CapacityAmounts] = []
    for name in dict.fromkeys(name for _device, name in model.capacities):
        devices = {device: index for (device, other), index in model.capacities.items() if other == name}
        names = {index: device for device, index in devices.items()}
        amounts: list[dict[int, int]] = []
        unit = 0
        for shares in model.shares:
            own = {names[i]: amount for taken in shares.values() for i, amount in taken if i in names}
            amounts.append(own)
            for amount in own.values():
                unit = gcd(unit, amount)
        if unit:
            found.append((name, unit, amounts, devices))
    return found
