"""The open part of an allocation problem in integers, for pruning.

Theory of operation: a search that backtracks checks the same things thousands of times: which devices can
still serve a request, and whether enough is left. Here the requests and the devices of one node shape are
translated once: sets of devices and of attribute values are bit masks, counters and capacities are numbers in
one list (`PruningState.rest`). A `PruningState` is cheap to copy, so that a branch needs no undo.

Everything here is a relaxation or exact: a device that `find_feasible` leaves out would be refused by the
checks of the search as well. Leaving the model out changes how long a search takes, never its answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dray.allocator.inventory.node_shapes import NodeShape
from dray.allocator.requests import AllocationRequest, ClaimConstraint, RequestAlternative, RequestChoice
from dray.allocator.search.candidates import CandidateSet
from dray.allocator.search.pruning.demands import Demand, drop_dominated
from dray.allocator.search.trace import Pick
from dray.values.bit_masks import iter_bits

ANY_VALUE = -1
"""The values a match constraint can still agree on before the first device is taken: all of them."""

MAX_MASKS = 4096
"""Masks remembered per constraint; a search may come across many combinations of values."""

ResourceAmounts = tuple[tuple[int, int], ...]
"""Index of a resource and how much of it."""


class PruningState:
    """What is left at some point of the search."""

    __slots__ = ("counts", "drawn", "full", "own", "pins", "rest", "short", "used")

    def __init__(self, model: PruningModel) -> None:
        self.used = self.drawn = self.short = 0
        self.rest = list(model.totals)
        self.full = [0] * len(model.shares)
        self.pins = [0 if constraint.distinct else ANY_VALUE for constraint in model.constraints]
        self.own = [0] * model.claims
        self.counts = [0] * model.claims

    def copy(self) -> PruningState:
        other: PruningState = object.__new__(PruningState)
        other.used, other.drawn, other.short = self.used, self.drawn, self.short
        other.rest, other.full = self.rest[:], self.full[:]
        other.pins, other.own, other.counts = self.pins[:], self.own[:], self.counts[:]
        return other


class PruningModel:
    """The requests and devices of one search, in integers."""

    def __init__(
        self,
        allocation_request: AllocationRequest,
        shape: NodeShape,
        candidate_sets: Mapping[RequestAlternative, CandidateSet],
        max_devices: int,
    ) -> None:
        self.shape = shape
        self.max_devices = max_devices
        self.constraints = allocation_request.constraints
        self.claims = len(allocation_request.claims)
        self.has_admin_access = allocation_request.has_admin_access
        self.shareable = shape.shareable
        self.totals: list[int] = []
        self.usable = True
        numbers = {constraint: i for i, constraint in enumerate(allocation_request.constraints)}
        self.demands: list[tuple[Demand, ...]] = []
        """The alternatives of each choice."""
        self.needed: list[tuple[Demand, ...]] = []
        """Those of them that decide whether a choice can be met at all: the others need more."""
        self.faulty: list[bool] = []
        """Whether the search may reach a device that cannot be evaluated in this choice: it ends there."""
        for choice in allocation_request.choices:
            self._add_choice(choice, candidate_sets, numbers)
        self.may_exceed_limit = self._may_exceed()
        self._number_values()
        self._number_counters()
        self._number_shares(candidate_sets)
        self._number_kinds()
        self._weigh()
        self.needed = [drop_dominated(alternatives) for alternatives in self.demands]

    # --- translating ---

    def _add_choice(
        self,
        choice: RequestChoice,
        candidate_sets: Mapping[RequestAlternative, CandidateSet],
        numbers: dict[ClaimConstraint, int],
    ) -> None:
        """Add the demands of a choice, and whether it may reach a device that cannot be evaluated."""
        demands, faulty = [], False
        for alternative in choice.alternatives:
            candidates = candidate_sets[alternative]
            demands.append(Demand(choice, alternative, candidates, self.shape, numbers))
            reachable = -1 if alternative.takes_all or alternative.admin else ~self.shape.taken
            faulty = faulty or bool(candidates.faulty & reachable)
        self.demands.append(tuple(demands))
        self.faulty.append(faulty)

    def _may_exceed(self) -> bool:
        """Whether some choice of alternatives asks for more devices than a claim may hold."""
        most = [0] * self.claims
        for alternatives in self.demands:
            if alternatives:
                most[alternatives[0].claim_index] += max(demand.count for demand in alternatives)
        return max(most, default=0) > self.max_devices

    def _number_values(self) -> None:
        """The values of every attribute in a constraint, as bits."""
        self.by_value: list[list[int]] = []
        self.with_attribute: list[int] = []
        self.values: list[list[int]] = []
        known: dict[str, tuple[int, list[int], list[int]]] = {}
        for constraint in self.constraints:
            if constraint.attribute not in known:
                having, by_value = self.shape.get_value_masks(constraint.attribute)
                of_device = [0] * len(self.shape.profiles)
                for bit, mask in enumerate(by_value.values()):
                    for device in iter_bits(mask):
                        of_device[device] |= 1 << bit
                known[constraint.attribute] = (having, list(by_value.values()), of_device)
            having, masks, of_device = known[constraint.attribute]
            self.with_attribute.append(having)
            self.by_value.append(masks)
            self.values.append(of_device)
        self._masks: list[dict[int, int]] = [{} for _ in self.constraints]

    def _number_counters(self) -> None:
        """What each device draws from which counter; nothing where shares in use are charged already."""
        shape = self.shape
        relevant = 0
        for alternatives in self.demands:
            for demand in alternatives:
                relevant |= 0 if demand.admin else demand.mask
        self.draws: list[ResourceAmounts] = [()] * len(shape.profiles)
        self.counters: dict[tuple[int, str, str], int] = {}
        blocked = 0
        for device in iter_bits(relevant):
            profile = shape.profiles[device]
            if not profile.counter_sets or shape.shared >> device & 1:
                continue
            pool = shape.pool_indexes[device]
            if pool in shape.overdrawn:
                blocked |= 1 << device
                continue
            drawn: dict[int, int] = {}
            for group, name, amount in profile.counters:
                if amount < 0:
                    self.usable = False  # never valid; the bounds rely on amounts that only grow
                if amount:
                    index = self._number_counter(pool, group, name)
                    drawn[index] = drawn.get(index, 0) + amount
            self.draws[device] = tuple(drawn.items())
        self.levels: list[list[tuple[int, int]]] = _build_levels(self.draws, len(self.totals))
        self.blocked = blocked
        """Devices that draw from a pool whose counters are overdrawn: only admin access can have them."""

    def _number_counter(self, pool: int, group: str, name: str) -> int:
        index = self.counters.get((pool, group, name))
        if index is None:
            index = self.counters[pool, group, name] = len(self.totals)
            self.totals.append(self.shape.counters_left[pool][group, name])
        return index

    def _number_shares(self, candidate_sets: Mapping[RequestAlternative, CandidateSet]) -> None:
        """What one share of each shareable device takes, by the amounts that are asked for."""
        shape = self.shape
        self.shares: list[dict[int, ResourceAmounts]] = []
        self.capacities: dict[tuple[int, str], int] = {}
        known: dict[Any, int] = {}
        for alternatives in self.demands:
            for demand in alternatives:
                if not demand.mask & shape.shareable:
                    continue
                amounts = demand.alternative.amounts
                if amounts not in known:
                    known[amounts] = len(self.shares)
                    self.shares.append({})
                demand.shares = known[amounts]
                self._add_shares(
                    self.shares[demand.shares],
                    candidate_sets[demand.alternative],
                    demand.mask & shape.shareable,
                )

    def _add_shares(self, found: dict[int, ResourceAmounts], candidates: CandidateSet, devices: int) -> None:
        for device in iter_bits(devices & candidates.mask):
            if device in found:
                continue
            amounts = []
            for name, amount in candidates.get_share(device).items():
                index = self.capacities.get((device, name))
                if index is None:
                    index = self.capacities[device, name] = len(self.totals)
                    self.totals.append(self.shape.capacity_left[device][name])
                if amount or self.totals[index] < 0:
                    amounts.append((index, amount))
            found[device] = tuple(amounts)

    def _number_kinds(self) -> None:
        """Demands of one kind are served by the same devices under the same conditions."""
        kinds: dict[Any, int] = {}
        for alternatives in self.demands:
            for demand in alternatives:
                key = (
                    demand.mask,
                    demand.shares,
                    demand.constraints,
                    demand.admin,
                    demand.is_all,
                    demand.claim_index if self.has_admin_access or self.may_exceed_limit else -1,
                )
                demand.kind = kinds.setdefault(key, len(kinds))

    def _weigh(self) -> None:
        """Which devices use a resource, and how large a part of everything a device of a demand is."""
        self.devices_of = [0] * len(self.totals)
        for device, amounts in enumerate(self.draws):
            for index, _amount in amounts:
                self.devices_of[index] |= 1 << device
        for shares in self.shares:
            for device, amounts in shares.items():
                for index, _amount in amounts:
                    self.devices_of[index] |= 1 << device
        for alternatives in self.demands:
            for demand in alternatives:
                demand.weight = self._compute_weight(demand)

    def _compute_weight(self, demand: Demand) -> int:
        """The part of its resources that the smallest device of a demand takes, in thousandths."""
        shares = self.shares[demand.shares] if demand.shares >= 0 else {}
        least = -1
        for device in iter_bits(demand.mask):
            amounts = (*self.draws[device], *shares.get(device, ()))
            part = sum(1000 * amount // max(self.totals[index], 1) for index, amount in amounts)
            least = part if least < 0 else min(least, part)
        return least

    # --- states ---

    def build_start_state(self) -> PruningState:
        """The state before anything is taken."""
        state = PruningState(self)
        for index, levels in enumerate(self.levels):
            state.short |= _find_above(levels, state.rest[index])
        for key, shares in enumerate(self.shares):
            for device in shares:
                self._check_share(state, key, device)
        return state

    def build_state_after(self, picks: Iterable[Pick]) -> PruningState:
        """The state after the search took these devices."""
        state = self.build_start_state()
        for pick in picks:
            choice = pick.point.choice
            demand = self.demands[choice.index][choice.alternatives.index(pick.point.alternative)]
            self.take(state, demand, pick.candidate)
            # In the search a device that admin access took in this attempt is blocked for all others.
            if demand.admin and not self.shareable >> pick.candidate & 1:
                state.used |= 1 << pick.candidate
        return state

    def find_feasible(self, state: PruningState, demand: Demand) -> int:
        """The devices that can serve a demand now."""
        if demand.admin:
            mask = demand.mask & ~state.own[demand.claim_index]
        else:
            mask = demand.mask & ~(state.used | self.blocked | state.short & ~state.drawn)
        if demand.shares >= 0:
            mask &= ~state.full[demand.shares]
        for constraint in demand.constraints:
            mask &= self.get_constraint_mask(constraint, state.pins[constraint])
        return mask

    def get_constraint_mask(self, constraint: int, pin: int) -> int:
        """The devices that a constraint admits, given what was agreed on or is taken already."""
        known = self._masks[constraint]
        found = known.get(pin)
        if found is None:
            found = self.with_attribute[constraint]
            if pin != ANY_VALUE:
                touched = 0
                for value in iter_bits(pin):
                    touched |= self.by_value[constraint][value]
                found = found & ~touched if self.constraints[constraint].distinct else touched
            if len(known) >= MAX_MASKS:
                known.clear()
            known[pin] = found
        return found

    def take(self, state: PruningState, demand: Demand, device: int) -> None:
        """Change a state as if a device were taken for a demand."""
        bit = 1 << device
        state.counts[demand.claim_index] += 1
        if self.draws[device] and not demand.admin and not state.drawn & bit:
            for index, amount in self.draws[device]:
                state.rest[index] -= amount
                state.short |= _find_above(self.levels[index], state.rest[index])
        if self.shareable & bit:
            if not demand.admin:
                state.drawn |= bit
            for index, amount in self.shares[demand.shares][device]:
                state.rest[index] -= amount
            for key in range(len(self.shares)):
                self._check_share(state, key, device)
        else:
            if not demand.admin:
                state.used |= bit
            if self.has_admin_access:
                state.own[demand.claim_index] |= bit
        for constraint in demand.constraints:
            values = self.values[constraint][device]
            if self.constraints[constraint].distinct:
                state.pins[constraint] |= values
            else:
                state.pins[constraint] = (
                    values if state.pins[constraint] == ANY_VALUE else state.pins[constraint] & values
                )

    def _check_share(self, state: PruningState, key: int, device: int) -> None:
        rest = state.rest
        for index, amount in self.shares[key].get(device, ()):
            if amount > rest[index]:
                state.full[key] |= 1 << device
                return


def _build_levels(draws: Sequence[ResourceAmounts], counters: int) -> list[list[tuple[int, int]]]:
    """For each counter, ascending: an amount, and the devices that draw as much or more."""
    exactly: list[dict[int, int]] = [{} for _ in range(counters)]
    for device, amounts in enumerate(draws):
        for counter, amount in amounts:
            exactly[counter][amount] = exactly[counter].get(amount, 0) | 1 << device
    found = []
    for masks in exactly:
        above, levels = 0, []
        for amount in sorted(masks, reverse=True):
            above |= masks[amount]
            levels.append((amount, above))
        found.append(levels[::-1])
    return found


def _find_above(levels: list[tuple[int, int]], rest: int) -> int:
    """The devices that draw more than what is left."""
    for amount, mask in levels:
        if amount > rest:
            return mask
    return 0
