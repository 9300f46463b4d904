"""Necessary conditions: what must hold for the open requests to be met at all.

Theory of operation: each function looks at one scarce resource and ignores the others: devices that only one
request can take (Hall's condition, by augmenting paths), values of attributes, counters, capacities of shared
devices. Requests take the cheapest devices they could, whether or not others want them too. So a condition
that fails is proof, and one that holds proves nothing. `narrow` applies them all to a state and leaves only
devices that none of them excludes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dray.allocator.refusals import ConstraintConflict, Refusal, RefusalReason, Shortage
from dray.allocator.search.pruning.assignment import has_assignment
from dray.allocator.search.pruning.components import ComponentPacking
from dray.allocator.search.pruning.counter_sums import build_counter_sums, group_capacities
from dray.allocator.search.pruning.model import ANY_VALUE, PruningModel, PruningState
from dray.allocator.search.pruning.open_requests import OpenAlternative, OpenRequest
from dray.values.bit_masks import iter_bits

MAX_SETS = 4096
"""Sets of devices whose values are remembered."""

MAX_SUMS = 2048
"""Sums of amounts that are enumerated for one device; with more, only totals are compared."""


class FeasibilityBounds:
    """The necessary conditions for one model."""

    def __init__(self, model: PruningModel, packing: ComponentPacking) -> None:
        self._model = model
        self._sums = build_counter_sums(model)
        self._packing = packing
        self._capacities = group_capacities(model)
        self._values: dict[tuple[int, int], tuple[int, int]] = {}

    def narrow(
        self, state: PruningState, open_requests: Sequence[OpenRequest]
    ) -> list[OpenRequest] | Refusal:
        """The open requests with only the devices that could serve them, or what is missing.

        Removes from the state the values that a match constraint can no longer agree on.
        """
        found: list[OpenRequest] = []
        feasible: dict[int, int] = {}
        for one in open_requests:
            left = self._keep_viable(state, one, feasible)
            if isinstance(left, Refusal):
                return left
            found.append(left)
        if state.pins:
            lacking = self._check_constraints(state, found)
            if lacking is not None:
                return lacking
        return self._find_blocker(state, found) or found

    def _keep_viable(
        self, state: PruningState, open_request: OpenRequest, feasible: dict[int, int]
    ) -> OpenRequest | Refusal:
        """An open request with the alternatives that have enough devices; `find_feasible` is by kind of
        demand.
        """
        kept: list[OpenAlternative] = []
        most = 0
        changed = False
        for alternative in open_request.alternatives:
            demand, count, mask = alternative
            devices = feasible.get(demand.kind)
            if devices is None:
                devices = feasible[demand.kind] = self._model.find_feasible(state, demand)
            now = mask & devices
            if now == mask:
                kept.append(alternative)
                continue
            changed = True
            size = now.bit_count()
            if size >= count and not demand.is_all:
                kept.append((demand, count, now))
            most = max(most, size)
        if not changed and open_request.has_enough:
            return open_request
        kept = [alternative for alternative in kept if alternative[2].bit_count() >= alternative[1]]
        if kept:
            return open_request.replace_alternatives(kept)
        return Refusal(RefusalReason.TOO_FEW, Shortage(open_request.name, open_request.count, most))

    def _find_blocker(self, state: PruningState, open_requests: Sequence[OpenRequest]) -> Refusal | None:
        if self._model.may_exceed_limit:
            counts = state.counts[:]
            for one in open_requests:
                counts[one.alternatives[0][0].claim_index] += one.count
            if max(counts) > self._model.max_devices:
                return Refusal(
                    RefusalReason.TOO_MANY_DEVICES, Shortage("", max(counts), self._model.max_devices)
                )
        return (
            self._check_exclusive(open_requests)
            or self._check_counters(state, open_requests)
            or self._check_components(state, open_requests)
            or self._check_shares(state, open_requests)
        )

    # --- devices that only one request can take ---

    def _check_exclusive(self, open_requests: Sequence[OpenRequest]) -> Refusal | None:
        shareable = self._model.shareable
        wanted: dict[int, int] = {}
        for one in open_requests:
            if not one.exclusive:
                continue
            count = one.count - (one.mask & shareable).bit_count()
            if count > 0:
                mask = one.mask & ~shareable
                wanted[mask] = wanted.get(mask, 0) + count
        if len(wanted) <= 1:
            for mask, count in wanted.items():
                if count > mask.bit_count():
                    return Refusal(RefusalReason.TOO_FEW, Shortage("", count, mask.bit_count()))
            return None
        return None if has_assignment(wanted) else _refuse_too_few(wanted)

    # --- values of attributes ---

    def _check_constraints(self, state: PruningState, open_requests: list[OpenRequest]) -> Refusal | None:
        model = self._model
        for index, constraint in enumerate(model.constraints):
            covered = [one for one in open_requests if one.count and one.constraint_mask >> index & 1]
            if not covered:
                continue
            if constraint.distinct:
                lacking = self._check_distinct(index, covered)
                if lacking is not None:
                    return lacking
                continue
            pin = state.pins[index]
            viable = self._find_common_values(index, pin, covered)
            if not viable:
                conflict = ConstraintConflict(constraint.attribute, False, frozenset(), frozenset())
                return Refusal(RefusalReason.CONSTRAINT, conflict)
            if viable != pin:
                state.pins[index] = viable
                mask = model.get_constraint_mask(index, viable)
                for position, one in enumerate(open_requests):
                    left = self._restrict(index, mask, one)
                    if left is None:
                        return Refusal(
                            RefusalReason.TOO_FEW,
                            Shortage(one.name, one.count, (one.mask & mask).bit_count()),
                        )
                    open_requests[position] = left
        return None

    def _restrict(self, index: int, mask: int, open_request: OpenRequest) -> OpenRequest | None:
        """A request with only the devices that a constraint can still agree on."""
        kept = []
        for demand, count, devices in open_request.alternatives:
            if index in demand.constraints:
                if demand.is_all and devices & ~mask:
                    continue
                devices &= mask
                if devices.bit_count() < count:
                    continue
            kept.append((demand, count, devices))
        return open_request.replace_alternatives(kept) if kept else None

    def _find_common_values(self, index: int, pin: int, covered: Sequence[OpenRequest]) -> int:
        """The values that all covered requests can find devices for."""
        masks = self._model.by_value[index]
        shareable = self._model.shareable
        viable = 0
        for value in range(len(masks)) if pin == ANY_VALUE else iter_bits(pin):
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

    def _check_distinct(self, index: int, covered: Sequence[OpenRequest]) -> Refusal | None:
        """Every device of the covered requests needs values of its own."""
        union = wanted = 0
        per_request: dict[int, int] = {}
        smallest = MAX_SUMS
        for one in covered:
            own, fewest = self._collect_values(index, one.mask)
            smallest = min(smallest, fewest)
            union |= own
            wanted += one.count
            per_request[own] = per_request.get(own, 0) + one.count
        available = union.bit_count() // max(smallest, 1)
        attribute = self._model.constraints[index].attribute
        if wanted > available:
            return Refusal(RefusalReason.TOO_FEW, Shortage(attribute, wanted, available))
        if len(per_request) > 1 and not has_assignment(per_request):
            return Refusal(RefusalReason.TOO_FEW, Shortage(attribute, wanted, wanted - 1))
        return None

    def _collect_values(self, index: int, mask: int) -> tuple[int, int]:
        """All values of some devices, and how many the device with the fewest has."""
        found = self._values.get((index, mask))
        if found is None:
            if len(self._values) >= MAX_SETS:
                self._values.clear()
            values = self._model.values[index]
            own, fewest = 0, MAX_SUMS
            for device in iter_bits(mask):
                own |= values[device]
                fewest = min(fewest, values[device].bit_count())
            found = self._values[index, mask] = (own, fewest)
        return found

    # --- counters ---

    def _check_counters(self, state: PruningState, open_requests: Sequence[OpenRequest]) -> Refusal | None:
        """Even the devices that draw least must not draw more than is left of a counter or a sum of them."""
        if not self._sums:
            return None
        shareable = self._model.shareable
        needs = []
        for one in open_requests:
            # Shares of a device draw once in total: they count as free here.
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
                    return Refusal(RefusalReason.COUNTER_SHORT, Shortage(name, least, left))
        return None

    def _check_components(self, state: PruningState, open_requests: Sequence[OpenRequest]) -> Refusal | None:
        """The devices that the components can provide together must be enough."""
        if not self._packing.components:
            return None
        shareable = self._model.shareable
        wanted: dict[int, int] = {}
        for one in open_requests:
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
                available = self._packing.count_available(state, mask, count)
                if available < count:
                    return Refusal(RefusalReason.TOO_FEW, Shortage("", count, available))
        return None

    # --- capacities of shared devices ---

    def _check_shares(self, state: PruningState, open_requests: Sequence[OpenRequest]) -> Refusal | None:
        """What all shares take at the least must fit into what the devices can be filled with."""
        shareable = self._model.shareable
        sharing = [one for one in open_requests if one.count and not one.mask & ~shareable]
        if not sharing or not self._capacities:
            return None
        for name, unit, amounts, devices in self._capacities:
            wanted = 0
            for one in sharing:
                wanted += min(
                    _sum_smallest(amounts[demand.shares], mask, count)
                    for demand, count, mask in one.alternatives
                )
            if not wanted:
                continue
            available = 0
            union = 0
            for one in sharing:
                union |= one.mask
            for device in iter_bits(union):
                index = devices.get(device)
                if index is None:
                    continue
                available += _fill_capacity(
                    state.rest[index], unit, self._list_sizes(sharing, amounts, device)
                )
            if wanted > available:
                return Refusal(RefusalReason.CAPACITY_SHORT, Shortage(name, wanted, available))
        return None

    def _list_sizes(
        self, sharing: Sequence[OpenRequest], amounts: Sequence[dict[int, int]], device: int
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


def _sum_smallest(amounts: dict[int, int], mask: int, count: int) -> int:
    """The sum of the smallest amounts."""
    if count == 1:
        return min([amounts.get(device, 0) for device in iter_bits(mask)])
    return sum(sorted([amounts.get(device, 0) for device in iter_bits(mask)])[:count])


def _fill_capacity(rest: int, unit: int, requests: Iterator[list[int]]) -> int:
    """How much of what is left of a device some of the requests can take together."""
    if rest <= 0:
        return 0
    limit = rest // unit
    if limit > MAX_SUMS:
        return min(rest, sum(max(sizes) for sizes in requests))
    everything = (1 << (limit + 1)) - 1
    sums = 1
    for sizes in requests:
        more = sums
        for size in sizes:
            more |= sums << (size // unit)
        sums = more & everything
    return (sums.bit_length() - 1) * unit


def _refuse_too_few(wanted: dict[int, int]) -> Refusal:
    union = 0
    for mask in wanted:
        union |= mask
    return Refusal(RefusalReason.TOO_FEW, Shortage("", sum(wanted.values()), union.bit_count()))
