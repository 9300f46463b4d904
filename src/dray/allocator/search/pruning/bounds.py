"""Necessary conditions: what must hold for the open requests to be met at all.

Theory of operation: each function looks at one scarce thing and ignores the others. Devices that only one
request can have (Hall's condition, by augmenting paths), values of attributes, counters, capacities of shared
devices. Requests take the cheapest devices they could, whether or not others want them too. So a condition
that fails is proof, and one that holds proves nothing. `narrow` applies them all to a state and leaves only
devices that none of them excludes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dray.allocator.refusals import Conflict, Reason, Refusal, Short
from dray.allocator.search.pruning.assignment import has_assignment
from dray.allocator.search.pruning.components import Packing
from dray.allocator.search.pruning.counter_sums import capacities_by_name, counter_sums
from dray.allocator.search.pruning.model import ANY_VALUE, Model, State, bits
from dray.allocator.search.pruning.open_requests import Alternative, Open

MANY_SETS = 4096
"""Sets of devices whose values are remembered."""

MANY_SUMS = 2048
"""Sums of amounts that are enumerated for one device; with more, only totals are compared."""


class Bounds:
    """The necessary conditions for one model."""

    def __init__(self, model: Model, packing: Packing) -> None:
        self._model = model
        self._sums = counter_sums(model)
        self._packing = packing
        self._capacities = capacities_by_name(model)
        self._values: dict[tuple[int, int], tuple[int, int]] = {}

    def narrow(self, state: State, opens: Sequence[Open]) -> list[Open] | Refusal:
        """The open requests with only the devices that could serve them, or what is lacking.

        Values that a match constraint cannot agree on any more leave the state.
        """
        found: list[Open] = []
        feasible: dict[int, int] = {}
        for one in opens:
            left = self._viable(state, one, feasible)
            if isinstance(left, Refusal):
                return left
            found.append(left)
        if state.pins:
            lacking = self._constraints(state, found)
            if lacking is not None:
                return lacking
        return self._lacking(state, found) or found

    def _viable(self, state: State, one: Open, feasible: dict[int, int]) -> Open | Refusal:
        """An open request with the alternatives that have enough devices; `feasible` is by kind of demand."""
        kept: list[Alternative] = []
        most = 0
        changed = False
        for alternative in one.alternatives:
            demand, count, mask = alternative
            devices = feasible.get(demand.kind)
            if devices is None:
                devices = feasible[demand.kind] = self._model.feasible(state, demand)
            now = mask & devices
            if now == mask:
                kept.append(alternative)
                continue
            changed = True
            size = now.bit_count()
            if size >= count and not demand.is_all:
                kept.append((demand, count, now))
            most = max(most, size)
        if not changed and one.is_enough:
            return one
        kept = [alternative for alternative in kept if alternative[2].bit_count() >= alternative[1]]
        if kept:
            return one.keeping(kept)
        return Refusal(Reason.TOO_FEW, Short(one.name, one.count, most))

    def _lacking(self, state: State, opens: Sequence[Open]) -> Refusal | None:
        if self._model.minds_limit:
            counts = state.counts[:]
            for one in opens:
                counts[one.alternatives[0][0].claim] += one.count
            if max(counts) > self._model.most_devices:
                return Refusal(Reason.TOO_MANY_DEVICES, Short("", max(counts), self._model.most_devices))
        return (
            self._exclusive(opens)
            or self._counters(state, opens)
            or self._components(state, opens)
            or self._shares(state, opens)
        )

    # --- devices that only one request can have ---

    def _exclusive(self, opens: Sequence[Open]) -> Refusal | None:
        shareable = self._model.shareable
        wanted: dict[int, int] = {}
        for one in opens:
            if not one.exclusive:
                continue
            count = one.count - (one.mask & shareable).bit_count()
            if count > 0:
                mask = one.mask & ~shareable
                wanted[mask] = wanted.get(mask, 0) + count
        if len(wanted) <= 1:
            for mask, count in wanted.items():
                if count > mask.bit_count():
                    return Refusal(Reason.TOO_FEW, Short("", count, mask.bit_count()))
            return None
        return None if has_assignment(wanted) else _too_few(wanted)

    # --- values of attributes ---

    def _constraints(self, state: State, opens: list[Open]) -> Refusal | None:
        model = self._model
        for index, rule in enumerate(model.rules):
            covered = [one for one in opens if one.count and one.rules >> index & 1]
            if not covered:
                continue
            if rule.distinct:
                lacking = self._distinct(index, covered)
                if lacking is not None:
                    return lacking
                continue
            pin = state.pins[index]
            viable = self._common_values(index, pin, covered)
            if not viable:
                conflict = Conflict(rule.attribute, False, frozenset(), frozenset())
                return Refusal(Reason.CONSTRAINT, conflict)
            if viable != pin:
                state.pins[index] = viable
                mask = model.rule_mask(index, viable)
                for position, one in enumerate(opens):
                    left = self._within(index, mask, one)
                    if left is None:
                        return Refusal(
                            Reason.TOO_FEW, Short(one.name, one.count, (one.mask & mask).bit_count())
                        )
                    opens[position] = left
        return None

    def _within(self, index: int, mask: int, one: Open) -> Open | None:
        """A request with only the devices that a constraint can still agree on."""
        kept = []
        for demand, count, devices in one.alternatives:
            if index in demand.rules:
                if demand.is_all and devices & ~mask:
                    continue
                devices &= mask
                if devices.bit_count() < count:
                    continue
            kept.append((demand, count, devices))
        return one.keeping(kept) if kept else None

    def _common_values(self, index: int, pin: int, covered: Sequence[Open]) -> int:
        """The values that all covered requests can find devices for."""
        masks = self._model.by_value[index]
        shareable = self._model.shareable
        viable = 0
        for value in range(len(masks)) if pin == ANY_VALUE else bits(pin):
            mask = masks[value]
            union = total = 0
            for one in covered:
                if not any((devices & mask).bit_count() >= count for _, count, devices in one.alternatives):
                    break
                if one.exclusive and not one.mask & mask & shareable:
                    union |= one.mask & mask
                    total += one.count
            else:
                if total <= union.bit_count():
                    viable |= 1 << value
        return viable

    def _distinct(self, index: int, covered: Sequence[Open]) -> Refusal | None:
        """Every device of the covered requests needs values of its own."""
        union = wanted = 0
        per_request: dict[int, int] = {}
        smallest = MANY_SUMS
        for one in covered:
            own, fewest = self._values_of(index, one.mask)
            smallest = min(smallest, fewest)
            union |= own
            wanted += one.count
            per_request[own] = per_request.get(own, 0) + one.count
        room = union.bit_count() // max(smallest, 1)
        attribute = self._model.rules[index].attribute
        if wanted > room:
            return Refusal(Reason.TOO_FEW, Short(attribute, wanted, room))
        if len(per_request) > 1 and not has_assignment(per_request):
            return Refusal(Reason.TOO_FEW, Short(attribute, wanted, wanted - 1))
        return None

    def _values_of(self, index: int, mask: int) -> tuple[int, int]:
        """All values of some devices, and how many the device with the fewest has."""
        found = self._values.get((index, mask))
        if found is None:
            if len(self._values) >= MANY_SETS:
                self._values.clear()
            values = self._model.values[index]
            own, fewest = 0, MANY_SUMS
            for device in bits(mask):
                own |= values[device]
                fewest = min(fewest, values[device].bit_count())
            found = self._values[index, mask] = (own, fewest)
        return found

    # --- counters ---

    def _counters(self, state: State, opens: Sequence[Open]) -> Refusal | None:
        """Even the devices that draw least must not draw more than is left of a counter or a sum of them."""
        if not self._sums:
            return None
        shareable = self._model.shareable
        needs = []
        for one in opens:
            # Shares of a device draw once, whoever has them: they are taken as free.
            count = one.count - (one.mask & shareable).bit_count()
            if one.exclusive and count > 0:
                needs.append((one.mask & ~shareable, count))
        if not needs:
            return None
        rest = state.rest
        for drawing, members in self._sums:
            relevant = [
                (mask & drawing, missing)
                for mask, count in needs
                if (missing := count - (mask & ~drawing).bit_count()) > 0
            ]
            if not relevant:
                continue
            for name, weights, levels in members:
                left = 0
                for index, weight in weights:
                    left += rest[index] * weight
                least = 0
                for mask, count in relevant:
                    for amount, devices in levels:
                        here = (mask & devices).bit_count()
                        if here >= count:
                            least += amount * count
                            break
                        least += amount * here
                        count -= here
                if least > left:
                    return Refusal(Reason.COUNTER_SHORT, Short(name, least, left))
        return None

    def _components(self, state: State, opens: Sequence[Open]) -> Refusal | None:
        """Of each component so many devices can be had together; all of them must be enough."""
        if not self._packing.components:
            return None
        shareable = self._model.shareable
        wanted: dict[int, int] = {}
        for one in opens:
            count = one.count - (one.mask & shareable).bit_count()
            if one.exclusive and count > 0:
                mask = one.mask & ~shareable
                wanted[mask] = wanted.get(mask, 0) + count
        if len(wanted) > 1:
            union = 0
            for mask in wanted:
                union |= mask
            wanted[union] = sum(wanted.values())
        for mask, count in wanted.items():
            if count > 1:
                room = self._packing.room(state, mask, count)
                if room < count:
                    return Refusal(Reason.TOO_FEW, Short("", count, room))
        return None

    # --- capacities of shared devices ---

    def _shares(self, state: State, opens: Sequence[Open]) -> Refusal | None:
        """What all shares take at the least must fit into what the devices can be filled with."""
        shareable = self._model.shareable
        sharing = [one for one in opens if one.count and not one.mask & ~shareable]
        if not sharing or not self._capacities:
            return None
        for name, unit, amounts, devices in self._capacities:
            wanted = 0
            for one in sharing:
                wanted += min(
                    _least(amounts[demand.shares], mask, count) for demand, count, mask in one.alternatives
                )
            if not wanted:
                continue
            room = 0
            union = 0
            for one in sharing:
                union |= one.mask
            for device in bits(union):
                index = devices.get(device)
                if index is None:
                    continue
                room += _fill(state.rest[index], unit, self._sizes(sharing, amounts, device))
            if wanted > room:
                return Refusal(Reason.CAPACITY_SHORT, Short(name, wanted, room))
        return None

    def _sizes(
        self, sharing: Sequence[Open], amounts: Sequence[dict[int, int]], device: int
    ) -> Iterator[list[int]]:
        bit = 1 << device
        for one in sharing:
            if one.mask & bit:
                sizes = [
                    amounts[demand.shares].get(device, 0)
                    for demand, _, mask in one.alternatives
                    if mask & bit
                ]
                yield sizes


def _least(amounts: dict[int, int], mask: int, count: int) -> int:
    """The sum of the smallest amounts."""
    if count == 1:
        return min([amounts.get(device, 0) for device in bits(mask)])
    return sum(sorted([amounts.get(device, 0) for device in bits(mask)])[:count])


def _fill(rest: int, unit: int, requests: Iterator[list[int]]) -> int:
    """How much of what is left of a device some of the requests can take together."""
    if rest <= 0:
        return 0
    limit = rest // unit
    if limit > MANY_SUMS:
        return min(rest, sum(max(sizes) for sizes in requests))
    everything = (1 << (limit + 1)) - 1
    sums = 1
    for sizes in requests:
        more = sums
        for size in sizes:
            more |= sums << (size // unit)
        sums = more & everything
    return (sums.bit_length() - 1) * unit


def _too_few(wanted: dict[int, int]) -> Refusal:
    union = 0
    for mask in wanted:
        union |= mask
    return Refusal(Reason.TOO_FEW, Short("", sum(wanted.values()), union.bit_count()))
