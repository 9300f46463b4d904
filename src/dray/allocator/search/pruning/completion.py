"""Whether a partial solution can be completed, in whatever order is quickest.

Theory of operation: the search must walk requests and devices in their order, because its first solution is
the answer. Whether there is any solution at all behind a point does not depend on the order, so here the
request with the fewest ways to be met goes first, a match constraint is settled value by value, and what is
forced is taken at once. A branch is *take this device* against *leave it, and every device interchangeable
with it*. States that failed are remembered, also from one question to the next.

A "no" is proof. A "yes" may be too hopeful in rare cases (the order of admin access, the limit of results per
claim), so nobody takes it for a solution: it only tells the search where looking is worthwhile.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dray.allocator.refusals import Reason, Refusal, Short
from dray.allocator.search.pruning.bounds import Bounds
from dray.allocator.search.pruning.demands import Demand
from dray.allocator.search.pruning.model import ANY_VALUE, Model, State, bits
from dray.allocator.search.pruning.open_requests import Open, Part, merge
from dray.allocator.search.pruning.prices import Prices
from dray.allocator.search.pruning.symmetry import Symmetry

MANY_FAILED = 20_000
"""Failed states to remember in one search."""

WORTH_REMEMBERING = 2
"""Open requests from which on a failed state is worth remembering."""

Taken = tuple[tuple[Part, ...], int, Any]
"""Requests with their alternatives, the devices taken for them, and what was taken before that."""


class Witness:
    """A way to complete a partial solution: for each request the alternative and its devices."""

    __slots__ = ("demands", "devices")

    def __init__(self, taken: Taken | None) -> None:
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


class Completion:
    """One question, answered in portions of work."""

    def __init__(
        self,
        model: Model,
        bounds: Bounds,
        symmetry: Symmetry,
        failed: set[Any],
        state: State,
        opens: Sequence[Open],
    ) -> None:
        self._model = model
        self._bounds = bounds
        self._symmetry = symmetry
        self._prices = Prices(symmetry.classes)
        self._failed = failed
        self._stack: list[Any] = [(state, opens, None)]
        self.nodes = 0
        self.witness: Witness | None = None
        self.lacking: Refusal | None = None
        """What is lacking, when the answer is no; a single rule where one is enough."""

    def run(self, nodes: int) -> bool | None:
        """Look at so many states: whether it can be completed, or None when that is not known yet."""
        stack = self._stack
        most = self.nodes + nodes
        while stack:
            if self.nodes >= most:
                return None
            entry = stack.pop()
            if len(entry) == 1:
                if len(self._failed) >= MANY_FAILED:
                    self._failed.clear()
                self._failed.add(entry[0])
                continue
            self.nodes += 1
            state, opens, taken = entry
            if self._visit(state, opens, taken):
                return True
        if self.nodes > 1 or self.lacking is None:
            self.lacking = Refusal(Reason.LEADS_NOWHERE)
        return False

    def _visit(self, state: State, opens: Sequence[Open], taken: Taken | None) -> bool:
        """Look at one state; its branches go onto the stack. True when everything is met."""
        while True:
            found = self._bounds.narrow(state, opens)
            if isinstance(found, Refusal):
                self.lacking = found
                return False
            opens = merge([one for one in found if one.count], self._model.shareable)
            if not opens:
                self.witness = Witness(taken)
                return True
            forced = _forced(opens)
            if forced is None:
                if self._prices.exclude(opens):
                    self.lacking = Refusal(Reason.TOO_FEW, Short("", sum(one.count for one in opens), 0))
                    return False
                break
            demand, _count, mask = forced.alternatives[0]
            taken = (forced.parts, mask, taken)
            opens = [one for one in opens if one is not forced]
            for device in bits(mask):
                if not self._model.feasible(state, demand) >> device & 1:
                    return False
                self._model.take(state, demand, device)
        if len(opens) >= WORTH_REMEMBERING:
            key = self._key(state, opens)
            if key in self._failed:
                return False
            self._stack.append((key,))
        self._branch(state, opens, taken)
        return False

    def _key(self, state: State, opens: Sequence[Open]) -> Any:
        """What the rest depends on."""
        union = 0
        for one in opens:
            union |= one.mask
        model = self._model
        rest = [state.rest[index] for index, mask in enumerate(model.devices_of) if mask & union]
        return (
            tuple(sorted([one.key for one in opens])),
            tuple(rest),
            tuple(state.pins),
            state.drawn & union,
            tuple(state.counts) if model.minds_limit else (),
        )

    def _branch(self, state: State, opens: Sequence[Open], taken: Taken | None) -> None:
        if self._branch_on_value(state, opens, taken):
            return
        chosen = min(opens, key=self._urgency)
        others = [one for one in opens if one is not chosen]
        if len(chosen.alternatives) > 1:
            # The modest ones with many devices to choose from are the likeliest, so they are tried first.
            likely = sorted(chosen.alternatives, key=lambda one: (one[1], one[1] - one[2].bit_count()))
            for alternative in reversed(likely):
                self._stack.append((state.copy(), [*others, chosen.keeping([alternative])], taken))
            return
        demand, _count, mask = chosen.alternatives[0]
        device = self._preferred(state, demand, mask, others)
        masks = [devices for one in opens for _, _, devices in one.alternatives]
        excluded = ~self._symmetry.equivalents(state, masks, device)
        key = chosen.key
        left = [_without(one, excluded) if one.key == key else one for one in others]
        self._stack.append((state.copy(), [*left, _without(chosen, excluded)], taken))
        self._model.take(state, demand, device)
        bit = 1 << device
        if chosen.count > 1:
            others = [*others, chosen.after(bit)]
        self._stack.append((state, others, (chosen.parts, bit, taken)))

    def _branch_on_value(self, state: State, opens: Sequence[Open], taken: Taken | None) -> bool:
        """Settle the match constraint with the fewest values left, if one has several."""
        model = self._model
        best, values = -1, 0
        for index, rule in enumerate(model.rules):
            pin = state.pins[index]
            if rule.distinct or pin == ANY_VALUE or not pin & (pin - 1):
                continue
            if not any(index in alternative[0].rules for one in opens for alternative in one.alternatives):
                continue
            if best < 0 or pin.bit_count() < values.bit_count():
                best, values = index, pin
        if best < 0:
            return False
        for value in reversed(list(bits(values))):
            branch = state.copy()
            branch.pins[best] = 1 << value
            self._stack.append((branch, opens, taken))
        return True

    def _urgency(self, one: Open) -> tuple[int, int, int]:
        """Few alternatives first, then few devices to spare, then large shares."""
        ways = 0
        for _demand, count, mask in one.alternatives:
            ways += mask.bit_count() - count
        return len(one.alternatives), ways, -one.alternatives[0][0].weight

    def _preferred(self, state: State, demand: Demand, mask: int, others: Sequence[Open]) -> int:
        """The device to try first: one nobody else wants, and of shared devices the fullest."""
        contested = 0
        for one in others:
            contested |= one.mask
        free = mask & ~contested
        if free:
            return (free & -free).bit_length() - 1
        shared = mask & self._model.shareable
        if shared and not mask & ~shared:
            shares = self._model.shares[demand.shares]
            return min(bits(shared), key=lambda device: sum(state.rest[index] for index, _ in shares[device]))
        return (mask & -mask).bit_length() - 1


def _forced(opens: Sequence[Open]) -> Open | None:
    """A request that has no choice left."""
    for one in opens:
        if len(one.alternatives) == 1 and one.alternatives[0][2].bit_count() == one.alternatives[0][1]:
            return one
    return None


def _without(one: Open, excluded: int) -> Open:
    return one.keeping([(demand, count, mask & excluded) for demand, count, mask in one.alternatives])
