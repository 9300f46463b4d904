"""Pruning: what the search asks once it had to step back.

Theory of operation: a search that has to try again asks at every point whether the rest can be completed at
all (`question`), and leaves out devices that are interchangeable with one that failed there (`equivalents`).
A choice in which the search may reach a device that cannot be judged ends it, so questions stop before the
first such choice: whether what comes after could be met is not for them to say.

Rules for this package: nothing here decides what is taken; leaving it out changes time, not answers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dray.allocator.inventory.device_inventory import Shape
from dray.allocator.requests import Ask, Want
from dray.allocator.search.candidates import Options
from dray.allocator.search.pruning.bounds import Bounds
from dray.allocator.search.pruning.completion import Completion
from dray.allocator.search.pruning.components import Packing, find_components
from dray.allocator.search.pruning.demands import Demand
from dray.allocator.search.pruning.model import Model, bits
from dray.allocator.search.pruning.open_requests import Alternative, Open
from dray.allocator.search.pruning.symmetry import Symmetry
from dray.allocator.search.trace import Pick, Point


class Pruning:
    """Questions about one search."""

    def __init__(self, ask: Ask, shape: Shape, options: Mapping[Want, Options], most_devices: int) -> None:
        self._model = Model(ask, shape, options, most_devices)
        components = find_components(self._model)
        self._bounds = Bounds(self._model, Packing(self._model, components))
        self._symmetry = Symmetry(self._model, components, [found.faulty for found in options.values()])
        self._failed: set[Any] = set()

    @property
    def usable(self) -> bool:
        """Whether the model can say anything about this search."""
        return self._model.usable

    def demand(self, point: Point) -> Demand:
        """What is asked at a point."""
        return self._model.demands[point.choice.index][point.choice.wants.index(point.want)]

    def whole(self) -> Completion | None:
        """Whether there is any solution at all; None when that is not for us to say."""
        opens = self._later(0)
        return self._ask((), opens) if opens else None

    def question(self, picks: Sequence[Pick], point: Point, start: int, allowed: int) -> Completion:
        """Whether the rest can be completed with some of the allowed devices from a place on."""
        return self._ask(picks, [self._here(point, start, allowed), *self._later(point.choice.index + 1)])

    def equivalents(self, picks: Sequence[Pick], point: Point, start: int, failed: int) -> int:
        """The devices that need not be tried at a point after one of them failed there, itself among them."""
        state = self._model.state_after(picks)
        opens = [self._here(point, start, -1), *self._later(point.choice.index + 1)]
        masks = [
            mask & self._model.feasible(state, demand)
            for one in opens
            for demand, _, mask in one.alternatives
        ]
        found = self._symmetry.equivalents(state, masks, failed)
        kept = 1 << failed
        for other in bits(found ^ kept):
            if self._symmetry.follows(failed, other):
                kept |= 1 << other
        return kept

    def _ask(self, picks: Sequence[Pick], opens: list[Open]) -> Completion:
        state = self._model.state_after(picks)
        return Completion(self._model, self._bounds, self._symmetry, self._failed, state, opens)

    def _here(self, point: Point, start: int, allowed: int) -> Open:
        demand = self.demand(point)
        count = _least(demand) - point.nth
        alternative: Alternative = (demand, count, (demand.mask & allowed) >> start << start)
        return Open(point.choice.index, [alternative])

    def _later(self, first: int) -> list[Open]:
        """The choices from one on that must be met whatever happens before."""
        model = self._model
        found = []
        for index in range(first, len(model.demands)):
            if model.faulty[index]:
                break
            # With no possible alternative the first one stands for what is lacking.
            demands = model.needed[index] or model.demands[index][:1]
            found.append(Open(index, [(d, _least(d), d.mask) for d in demands]))
        return found


def _least(demand: Demand) -> int:
    """How many devices a demand needs; more than there are when it cannot be met."""
    return demand.count if demand.possible else demand.count + 1
