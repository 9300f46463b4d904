"""Device symmetry: which devices are interchangeable, alone and in groups.

Theory of operation: two devices that serve the same demands, draw the same from the same counters and have
the same values in constraints are *twins*: where one fails, the other fails. Partitions of two equal GPUs are
no twins, because they draw from different counters; but the GPUs are, as *components*: sets of devices
connected by counters. Two components have one signature when their devices, position by position, differ only
in which counters, capacities and private values (those no device outside has) they use. When also what is
left of them is the same, exchanging one for the other changes nothing, and a device at a position of one
stands for the device at that position of the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dray.allocator.search.pruning.components import CounterComponent
from dray.allocator.search.pruning.model import PruningModel, PruningState
from dray.values.bit_masks import iter_bits

MAX_ALIKE = 64
"""Components of one signature that are compared; with more, the others count as different."""


class DeviceSymmetry:
    """Interchangeable devices of one model."""

    def __init__(
        self, model: PruningModel, components: Sequence[CounterComponent], faulty: Sequence[int]
    ) -> None:
        self._model = model
        demanded: dict[int, None] = {}
        relevant = 0
        for alternatives in model.demands:
            for demand in alternatives:
                demanded[demand.mask] = None
                relevant |= demand.mask
        self._masks = [*demanded, *dict.fromkeys(faulty)]
        self._twins = self._find_twins(relevant)
        self.classes = [mask for mask in dict.fromkeys(self._twins) if mask]
        """Exclusive devices by twins."""
        self._class_of: dict[int, list[CounterComponent]] = {}
        self._positions: dict[int, tuple[CounterComponent, int]] = {}
        self._group_components(relevant, components)

    def find_equivalents(self, state: PruningState, masks: Sequence[int], device: int) -> int:
        """The devices that are interchangeable with this one, including itself.

        `masks` are the devices that each open demand may take.
        """
        found = self._twins[device]
        if found & (found - 1):
            for mask in masks:
                found &= mask if mask >> device & 1 else ~mask
            found &= ~state.used
            for held in state.own:
                found &= ~held
        found |= 1 << device
        others = self._class_of.get(device)
        if others:
            own, position = self._positions[device]
            now = own.capture_state(state, masks)
            for other in others:
                if other is not own and other.capture_state(state, masks) == now:
                    found |= 1 << other.positions[position]
        return found

    def follows(self, device: int, other: int) -> bool:
        """Whether each device of the component of `other` comes after its counterpart in that of `device`.

        Only then every set of devices that a search tries after `other` has a counterpart after `device`.
        """
        if self._twins[device] >> other & 1:
            return other > device
        first, second = self._positions[device][0], self._positions[other][0]
        return all(b > a for a, b in zip(first.positions, second.positions, strict=True))

    def _find_twins(self, relevant: int) -> list[int]:
        model = self._model
        groups: dict[Any, int] = {}
        keys: dict[int, Any] = {}
        for device in iter_bits(relevant):
            if model.shareable >> device & 1:
                continue
            keys[device] = key = (
                self._collect_memberships(device),
                model.draws[device],
                model.blocked >> device & 1,
                device if device in model.shape.capacity_left else -1,  # old shares hold some of it
                *[values[device] for values in model.values],
            )
            groups[key] = groups.get(key, 0) | 1 << device
        twins = [0] * len(model.draws)
        for device, key in keys.items():
            twins[device] = groups[key]
        return twins

    def _collect_memberships(self, device: int) -> int:
        found = 0
        for number, mask in enumerate(self._masks):
            found |= (mask >> device & 1) << number
        return found

    # --- components ---

    def _group_components(self, relevant: int, components: Sequence[CounterComponent]) -> None:
        """Sort components into classes; devices that only have twins need no component."""
        model = self._model
        classes: dict[Any, list[CounterComponent]] = {}
        alone = [
            CounterComponent([device])
            for device in iter_bits(relevant)
            if not model.draws[device] and (model.shareable >> device & 1 or model.constraints)
        ]
        for component in (*components, *alone):
            classes.setdefault(self._build_signature(component), []).append(component)
        for members in classes.values():
            if len(members) > 1:
                compared = members[:MAX_ALIKE]
                for component in members:
                    for position, device in enumerate(component.positions):
                        self._class_of[device] = compared
                        self._positions[device] = (component, position)

    def _build_signature(self, component: CounterComponent) -> Any:
        model = self._model
        numbers: dict[int, int] = {}
        private: dict[tuple[int, int], int] = {}

        def relative(amounts: Any) -> tuple[tuple[int, int], ...]:
            return tuple([(numbers.setdefault(index, len(numbers)), amount) for index, amount in amounts])

        def value(constraint: int, number: int) -> tuple[bool, int]:
            if model.by_value[constraint][number] & ~component.mask:
                return False, number
            return True, private.setdefault((constraint, number), len(private))

        parts = tuple(
            (
                self._collect_memberships(device),
                model.shareable >> device & 1,
                model.blocked >> device & 1,
                device if device in model.shape.capacity_left and not model.shareable >> device & 1 else -1,
                relative(model.draws[device]),
                tuple([relative(shares.get(device, ())) for shares in model.shares]),
                tuple(
                    [tuple([value(r, v) for v in iter_bits(of[device])]) for r, of in enumerate(model.values)]
                ),
            )
            for device in component.positions
        )
        component.resources = list(numbers)
        component.private = list(private)
        return parts
