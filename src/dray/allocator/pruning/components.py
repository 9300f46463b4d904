"""Components: devices connected by the counters they draw from, and how many of them can be had together.

Theory of operation: a GPU with its partitions is a component; what is taken of one component leaves the
others as they are. How many devices of a component fit into what is left of its counters is a small problem
of its own. It is solved exactly, within `PATIENCE`, and remembered: the same few states come back all the
time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dray.allocator.pruning.model import Amounts, Model, State, bits

PATIENCE = 200
"""Steps to find out how many devices of a component fit; after that it may be all of them."""

MANY_DEVICES = 16
"""Devices of a component that are looked at together; with more, it costs more than it is worth."""

MANY_STATES = 4096
"""States of components to remember in one search."""


class Component:
    """Devices connected by counters, in order, with the resources and the private values only they use."""

    __slots__ = ("mask", "offset", "positions", "private", "resources")

    def __init__(self, positions: list[int]) -> None:
        self.positions = positions
        self.mask = sum(1 << device for device in positions)
        contiguous = positions[-1] - positions[0] + 1 == len(positions)
        self.offset = positions[0] if contiguous else -1
        self.resources: list[int] = []
        self.private: list[tuple[int, int]] = []

    def relative(self, mask: int) -> int:
        """A mask as seen from the first device of the component."""
        if self.offset >= 0:
            return (mask & self.mask) >> self.offset
        found = 0
        for position, device in enumerate(self.positions):
            found |= (mask >> device & 1) << position
        return found

    def state(self, state: State, masks: Sequence[int]) -> Any:
        """Everything about the component that can change."""
        return (
            [state.rest[index] for index in self.resources],
            [self.relative(mask) for mask in masks],
            self.relative(state.used),
            self.relative(state.drawn),
            [self.relative(own) for own in state.own if own],
            [state.pins[rule] >> value & 1 for rule, value in self.private],
        )


def find_components(model: Model) -> list[Component]:
    """The devices of a model joined by counters; devices that draw nothing belong to none."""
    root = list(range(len(model.levels)))

    def find(counter: int) -> int:
        while root[counter] != counter:
            root[counter] = root[root[counter]]
            counter = root[counter]
        return counter

    sets: dict[tuple[int, str], int] = {}
    for (pool, group, _name), index in model.counters.items():
        root[find(index)] = find(sets.setdefault((pool, group), index))
    for amounts in model.draws:
        for index, _amount in amounts[1:]:
            root[find(index)] = find(amounts[0][0])
    joined: dict[int, list[int]] = {}
    for device, amounts in enumerate(model.draws):
        if amounts:
            joined.setdefault(find(amounts[0][0]), []).append(device)
    return [Component(positions) for positions in joined.values()]


class Packing:
    """How many devices of each component can be had together."""

    def __init__(self, model: Model, components: Sequence[Component]) -> None:
        self._model = model
        self.components = components
        self._drawing = 0
        self._resources: list[list[int]] = []
        for component in components:
            self._drawing |= component.mask
            own = {index for device in component.positions for index, _ in model.draws[device]}
            self._resources.append(sorted(own))
        self._known: dict[Any, int] = {}

    def room(self, state: State, mask: int, enough: int) -> int:
        """How many devices of a mask can be had at the most; counted only until there are enough."""
        found = (mask & ~self._drawing).bit_count()
        for number, component in enumerate(self.components):
            if found >= enough:
                return found
            here = mask & component.mask
            size = here.bit_count()
            found += size if size < 2 or size > MANY_DEVICES else self._most(state, number, here)
        return found

    def _most(self, state: State, number: int, mask: int) -> int:
        rest = state.rest
        key = (number, mask, tuple([rest[index] for index in self._resources[number]]))
        found = self._known.get(key)
        if found is None:
            if len(self._known) >= MANY_STATES:
                self._known.clear()
            draws = [self._model.draws[device] for device in bits(mask)]
            found = self._known[key] = _most_that_fit(draws, rest)
        return found


def _most_that_fit(draws: list[Amounts], rest: Sequence[int]) -> int:
    """The largest number of consumers that fit together; too many when that takes too long to find out."""
    draws = sorted(draws, key=lambda amounts: sum(amount for _, amount in amounts))
    left = {index: rest[index] for amounts in draws for index, _ in amounts}
    best, steps = 0, 0
    # Where to go on, how many are taken, what is left.
    stack: list[tuple[int, int, dict[int, int]]] = [(0, 0, left)]
    while stack:
        place, taken, left = stack.pop()
        steps += 1
        if steps > PATIENCE:
            return len(draws)
        while place < len(draws) and taken + len(draws) - place > best:
            amounts = draws[place]
            place += 1
            if all(amount <= left[index] for index, amount in amounts):
                stack.append((place, taken, left))
                left = dict(left)
                for index, amount in amounts:
                    left[index] -= amount
                taken += 1
        best = max(best, taken)
    return best
