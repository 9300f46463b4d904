"""Completion search: whether a partial solution can be completed at all, in whatever order is quickest.

Theory of operation: the search must try requests and devices in order, because its first solution is the
answer. Whether there is any solution behind a point does not depend on the order, so here the request with
the fewest possibilities goes first, a match constraint is settled value by value, and forced devices are
taken at once. A branch is *take this device* against *leave it, and every device interchangeable with it*.
Failed states are remembered, also from one completion search to the next.

A "no" is proof. A "yes" may be wrong in rare cases (the order of admin access, the limit of results per
claim), so it is never used as a solution: it only tells the search where trying is worthwhile.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dray.allocator.refusals import Refusal, RefusalReason, Shortage
from dray.allocator.search.pruning.bounds import FeasibilityBounds
from dray.allocator.search.pruning.demands import Demand
from dray.allocator.search.pruning.model import ANY_VALUE, PruningModel, PruningState
from dray.allocator.search.pruning.open_requests import OpenPart, OpenRequest, merge_requests
from dray.allocator.search.pruning.prices import DevicePrices
from dray.allocator.search.pruning.symmetry import DeviceSymmetry
from dray.values.bit_masks import iter_bits

MAX_FAILED_STATES = 20_000
"""Failed states to remember in one search."""

MIN_OPEN_TO_REMEMBER = 2
"""Open requests from which on a failed state is worth remembering."""

TakenDevices = tuple[tuple[OpenPart, ...], int, Any]
"""Requests with their alternatives, the devices taken for them, and what was taken before that."""


class KnownCompletion:
    """A way to complete a partial solution: for each request the alternative and its devices."""

    __slots__ = ("demands", "devices")

    def __init__(self, taken: TakenDevices | None) -> None:
        self.demands: dict[int, Demand] = {}
        self.devices: dict[int, int] = {}
        while taken is not None:
            parts, mask, taken = taken
            for choice, demand, count in parts:
                self.demands[choice] = demand
                for _ in range(min(count, mask.bit_count())):
                    bit = mask & -mask
                    self.devices[choice] = self.devices.get(choice, 0) | bit
                    mask ^= bit


class CompletionSearch:
    """One completion search, run in portions."""

    def __init__(
        self,
        model: PruningModel,
        bounds: FeasibilityBounds,
        symmetry: DeviceSymmetry,
        failed: set[Any],
        state: PruningState,
        open_requests: Sequence[OpenRequest],
    ) -> None:
        self._model = model
        self._bounds = bounds
        self._symmetry = symmetry
        self._prices = DevicePrices(symmetry.classes)
        self._failed = failed
        self._stack: list[Any] = [(state, open_requests, None)]
        self.visited = 0
        self.completion: KnownCompletion | None = None
        self.blocker: Refusal | None = None
        """What is missing when the answer is no; a single rule where one is enough."""

    def run(self, states: int) -> bool | None:
        """Visit some states; whether the solution can be completed, or None while that is unknown."""
        stack = self._stack
        most = self.visited + states
        while stack:
            if self.visited >= most:
                return None
            entry = stack.pop()
            if len(entry) == 1:
                if len(self._failed) >= MAX_FAILED_STATES:
                    self._failed.clear()
                self._failed.add(entry[0])
                continue
            self.visited += 1
            state, opens, taken = entry
            if self._visit(state, opens, taken):
                return True
        if self.visited > 1 or self.blocker is None:
            self.blocker = Refusal(RefusalReason.LEADS_NOWHERE)
        return False

    def _visit(
        self, state: PruningState, open_requests: Sequence[OpenRequest], taken: TakenDevices | None
    ) -> bool:
        """Visit one state and push its branches; True when every request is met."""
        while True:
            found = self._bounds.narrow(state, open_requests)
            if isinstance(found, Refusal):
                self.blocker = found
                return False
            open_requests = merge_requests([one for one in found if one.count], self._model.shareable)
            if not open_requests:
                self.completion = KnownCompletion(taken)
                return True
            forced = _find_forced(open_requests)
            if forced is None:
                if self._prices.proves_infeasible(open_requests):
                    self.blocker = Refusal(
                        RefusalReason.TOO_FEW, Shortage("", sum(one.count for one in open_requests), 0)
                    )
                    return False
                break
            demand, _count, mask = forced.alternatives[0]
            taken = (forced.parts, mask, taken)
            open_requests = [one for one in open_requests if one is not forced]
            for device in iter_bits(mask):
                if not self._model.find_feasible(state, demand) >> device & 1:
                    return False
                self._model.take(state, demand, device)
        if len(open_requests) >= MIN_OPEN_TO_REMEMBER:
            key = self._build_key(state, open_requests)
            if key in self._failed:
                return False
            self._stack.append((key,))
        self._branch(state, open_requests, taken)
        return False

    def _build_key(self, state: PruningState, open_requests: Sequence[OpenRequest]) -> Any:
        """Key of a state: everything that the rest of the search depends on."""
        union = 0
        for one in open_requests:
            union |= one.mask
        model = self._model
        rest = [state.rest[index] for index, mask in enumerate(model.devices_of) if mask & union]
        return (
            tuple(sorted([one.key for one in open_requests])),
            tuple(rest),
            tuple(state.pins),
            state.drawn & union,
            tuple(state.counts) if model.may_exceed_limit else (),
        )

    def _branch(
        self, state: PruningState, open_requests: Sequence[OpenRequest], taken: TakenDevices | None
    ) -> None:
        if self._branch_on_value(state, open_requests, taken):
            return
        chosen = min(open_requests, key=self._rank_urgency)
        others = [one for one in open_requests if one is not chosen]
        if len(chosen.alternatives) > 1:
            # Small alternatives with many devices are the likeliest, so they are tried first.
            likely = sorted(chosen.alternatives, key=lambda one: (one[1], one[1] - one[2].bit_count()))
            for alternative in reversed(likely):
                self._stack.append(
                    (state.copy(), [*others, chosen.replace_alternatives([alternative])], taken)
                )
            return
        demand, _count, mask = chosen.alternatives[0]
        device = self._choose_device(state, demand, mask, others)
        masks = [devices for one in open_requests for _, _, devices in one.alternatives]
        excluded = ~self._symmetry.find_equivalents(state, masks, device)
        key = chosen.key
        left = [_exclude_devices(one, excluded) if one.key == key else one for one in others]
        self._stack.append((state.copy(), [*left, _exclude_devices(chosen, excluded)], taken))
        self._model.take(state, demand, device)
        bit = 1 << device
        if chosen.count > 1:
            others = [*others, chosen.take_devices(bit)]
        self._stack.append((state, others, (chosen.parts, bit, taken)))

    def _branch_on_value(
        self, state: PruningState, open_requests: Sequence[OpenRequest], taken: TakenDevices | None
    ) -> bool:
        """Settle the match constraint with the fewest values left, if one has several."""
        model = self._model
        best, values = -1, 0
        for index, constraint in enumerate(model.constraints):
            pin = state.pins[index]
            if constraint.distinct or pin == ANY_VALUE or not pin & (pin - 1):
                continue
            if not any(
                index in alternative[0].constraints
                for one in open_requests
                for alternative in one.alternatives
            ):
                continue
            if best < 0 or pin.bit_count() < values.bit_count():
                best, values = index, pin
        if best < 0:
            return False
        for value in reversed(list(iter_bits(values))):
            branch = state.copy()
            branch.pins[best] = 1 << value
            self._stack.append((branch, open_requests, taken))
        return True

    def _rank_urgency(self, open_request: OpenRequest) -> tuple[int, int, int]:
        """Few alternatives first, then few devices to spare, then large shares."""
        ways = 0
        for _demand, count, mask in open_request.alternatives:
            ways += mask.bit_count() - count
        return len(open_request.alternatives), ways, -open_request.alternatives[0][0].weight

    def _choose_device(
        self, state: PruningState, demand: Demand, mask: int, others: Sequence[OpenRequest]
    ) -> int:
        """The device to try first: one that no other request can use, and of shared devices the fullest."""
        contested = 0
        for one in others:
            contested |= one.mask
        free = mask & ~contested
        if free:
            return (free & -free).bit_length() - 1
        shared = mask & self._model.shareable
        if shared and not mask & ~shared:
            shares = self._model.shares[demand.shares]
            return min(
                iter_bits(shared), key=lambda device: sum(state.rest[index] for index, _ in shares[device])
            )
        return (mask & -mask).bit_length() - 1


def _find_forced(open_requests: Sequence[OpenRequest]) -> OpenRequest | None:
    """A request that has no choice left."""
    for one in open_requests:
        if len(one.alternatives) == 1 and one.alternatives[0][2].bit_count() == one.alternatives[0][1]:
            return one
    return None


def _exclude_devices(open_request: OpenRequest, excluded: int) -> OpenRequest:
    return open_request.replace_alternatives(
        [(demand, count, mask & excluded) for demand, count, mask in open_request.alternatives]
    )
