"""Components: devices connected by the counters they draw from, and how many of them fit together.

Theory of operation: a GPU with its partitions is a component; taking devices of one component does not affect
the others. How many devices of a component fit into what is left of its counters is a small problem
of its own. It is solved exactly, within `MAX_PACKING_STEPS`, and remembered: the same few states come back
all the time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dray.allocator.search.pruning.model import PruningModel, PruningState
from dray.values.bit_masks import iter_bits

MAX_PACKING_STEPS = 200
"""Steps to find out how many devices of a component fit; after that it may be all of them."""

MAX_COMPONENT_DEVICES = 16
"""Largest component that is packed exactly; for larger ones that costs more than it saves."""

MAX_STATES = 4096
"""States of components to remember in one search."""


class CounterComponent:
    """Devices connected by counters, in order, with the resources and the private values only they use."""

    __slots__ = ("mask", "offset", "positions", "private", "resources")

    def __init__(self, positions: list[int]) -> None:
        self.positions = positions
        self.mask = sum(1 << device for device in positions)
        contiguous = positions[-1] - positions[0] + 1 == len(positions)
        self.offset = positions[0] if contiguous else -1
        self.resources: list[int] = []
        self.private: list[tuple[int, int]] = []

    def to_relative(self, mask: int) -> int:
        """A mask as seen from the first device of the component."""
        if self.offset >= 0:
            return (mask & self.mask) >> self.offset
        found = 0
        for position, device in enumerate(self.positions):
            found |= (mask >> device & 1) << position
        return found

    def capture_state(self, state: PruningState, masks: Sequence[int]) -> Any:
        """Everything about the component that can change."""
        return (
            [state.rest[index] for index in self.resources],
            [self.to_relative(mask) for mask in masks],
            self.to_relative(state.used),
            self.to_relative(state.drawn),
            [self.to_relative(own) for own in state.own if own],
            [state.pins[constraint] >> value & 1 for constraint, value in self.private],
        )


def find_components(model: PruningModel) -> list[CounterComponent]:
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
    return [CounterComponent(positions) for positions in joined.values()]


class ComponentPacking:
    """How many devices of each component fit together."""

    def __init__(self, model: PruningModel, components: Sequence[CounterComponent]) -> None:
        self.components = components
        self._drawing = 0
        for component in components:
            self._drawing |= component.mask
        self._fields = [_CounterFields(model, component) for component in components]
        self._known: dict[tuple[int, int, int], int] = {}

    def count_available(self, state: PruningState, mask: int, enough: int) -> int:
        """An upper bound for the devices of a mask that fit together; counted only until there are enough."""
        found = (mask & ~self._drawing).bit_count()
        for number, component in enumerate(self.components):
            if found >= enough:
                return found
            here = mask & component.mask
            size = here.bit_count()
            found += (
                size if size < 2 or size > MAX_COMPONENT_DEVICES else self._count_max(state, number, here)
            )
        return found

    def _count_max(self, state: PruningState, number: int, mask: int) -> int:
        fields = self._fields[number]
        left = fields.pack_left(state)
        key = (number, mask, left)
        found = self._known.get(key)
        if found is None:
            if len(self._known) >= MAX_STATES:
                self._known.clear()
            draws = sorted(fields.draws[device] for device in iter_bits(mask))
            found = self._known[key] = _count_max_fitting(draws, left, fields.guards)
        return found


class _CounterFields:
    """The counters of a component in one number: a field for each, below a bit that borrowing clears."""

    __slots__ = ("_shifts", "draws", "guards")

    def __init__(self, model: PruningModel, component: CounterComponent) -> None:
        self._shifts: list[tuple[int, int]] = []
        self.guards = shift = 0
        places: dict[int, int] = {}
        for index in sorted({index for device in component.positions for index, _ in model.draws[device]}):
            largest = max(model.totals[index], model.levels[index][-1][0])
            places[index] = shift
            self._shifts.append((index, shift))
            shift += largest.bit_length()
            self.guards |= 1 << shift
            shift += 1
        self.draws = {
            device: sum(amount << places[index] for index, amount in model.draws[device])
            for device in component.positions
        }

    def pack_left(self, state: PruningState) -> int:
        """What is left of all counters."""
        rest = state.rest
        return sum([rest[index] << shift for index, shift in self._shifts])


def _count_max_fitting(draws: list[int], left: int, guards: int) -> int:
    """The largest number of consumers that fit together; too many when that takes too long to find out."""
    best = steps = 0
    most = len(draws)
    stack = [(left, draws, 0)]
    while stack:
        left, draws, taken = stack.pop()
        available = left | guards
        fitting = [drawn for drawn in draws if (available - drawn) & guards == guards]
        steps += 1
        if steps == 1:
            most = len(fitting)
        if steps > MAX_PACKING_STEPS:
            return most
        if taken > best:
            best = taken
        if taken + len(fitting) > best:
            first = fitting[0]
            # Leaving one out leaves out its equals, too: which of them is taken makes no difference.
            stack.append((left, [drawn for drawn in fitting if drawn != first], taken))
            stack.append((left - first, fitting[1:], taken + 1))
    return best
