"""Pruner: what the search uses of pruning once it wasted work on dead ends.

Theory of operation: the search asks at every point whether the rest can be completed at all
(`build_completion_search`), and leaves out devices that are interchangeable with one that failed there
(`find_equivalents`). A choice in which the search may reach a device that cannot be evaluated ends the
search, so completion searches stop before the first such choice.

Nothing here decides what is taken; leaving it out changes the time of a search, never its answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dray.allocator.inventory.node_shapes import NodeShape
from dray.allocator.requests import AllocationRequest, RequestAlternative
from dray.allocator.search.candidates import CandidateSet
from dray.allocator.search.pruning.bounds import FeasibilityBounds
from dray.allocator.search.pruning.completion import CompletionSearch
from dray.allocator.search.pruning.components import ComponentPacking, find_components
from dray.allocator.search.pruning.demands import Demand
from dray.allocator.search.pruning.model import PruningModel
from dray.allocator.search.pruning.open_requests import OpenAlternative, OpenRequest
from dray.allocator.search.pruning.symmetry import DeviceSymmetry
from dray.allocator.search.trace import Pick, SearchPoint
from dray.values.bit_masks import iter_bits


class Pruner:
    """The pruning of one search."""

    def __init__(
        self,
        allocation_request: AllocationRequest,
        shape: NodeShape,
        candidate_sets: Mapping[RequestAlternative, CandidateSet],
        max_devices: int,
    ) -> None:
        self._model = PruningModel(allocation_request, shape, candidate_sets, max_devices)
        components = find_components(self._model)
        self._bounds = FeasibilityBounds(self._model, ComponentPacking(self._model, components))
        self._symmetry = DeviceSymmetry(
            self._model, components, [found.faulty for found in candidate_sets.values()]
        )
        self._failed: set[Any] = set()

    @property
    def usable(self) -> bool:
        """Whether the model applies to this search."""
        return self._model.usable

    def get_demand(self, point: SearchPoint) -> Demand:
        """The demand at a point."""
        return self._model.demands[point.choice.index][point.choice.alternatives.index(point.alternative)]

    def build_whole_search(self) -> CompletionSearch | None:
        """A search for any solution at all; None when the model cannot decide that."""
        opens = self._open_later(0)
        return self._build_search((), opens) if opens else None

    def build_completion_search(
        self, picks: Sequence[Pick], point: SearchPoint, start: int, allowed: int
    ) -> CompletionSearch:
        """A search for a completion with some of the allowed devices from a position on."""
        return self._build_search(
            picks, [self._open_point(point, start, allowed), *self._open_later(point.choice.index + 1)]
        )

    def find_equivalents(self, picks: Sequence[Pick], point: SearchPoint, start: int, failed: int) -> int:
        """The devices that need not be tried at a point after one of them failed there, itself among them."""
        state = self._model.build_state_after(picks)
        opens = [self._open_point(point, start, -1), *self._open_later(point.choice.index + 1)]
        masks = [
            mask & self._model.find_feasible(state, demand)
            for one in opens
            for demand, _, mask in one.alternatives
        ]
        found = self._symmetry.find_equivalents(state, masks, failed)
        kept = 1 << failed
        for other in iter_bits(found ^ kept):
            if self._symmetry.follows(failed, other):
                kept |= 1 << other
        return kept

    def _build_search(self, picks: Sequence[Pick], open_requests: list[OpenRequest]) -> CompletionSearch:
        state = self._model.build_state_after(picks)
        return CompletionSearch(self._model, self._bounds, self._symmetry, self._failed, state, open_requests)

    def _open_point(self, point: SearchPoint, start: int, allowed: int) -> OpenRequest:
        demand = self.get_demand(point)
        count = _count_required(demand) - point.device_index
        alternative: OpenAlternative = (demand, count, (demand.mask & allowed) >> start << start)
        return OpenRequest(point.choice.index, [alternative])

    def _open_later(self, first: int) -> list[OpenRequest]:
        """The choices from one on that must be met whatever happens before."""
        model = self._model
        found = []
        for index in range(first, len(model.demands)):
            if model.faulty[index]:
                break
            # Without a possible alternative the first one stands for what is missing.
            demands = model.needed[index] or model.demands[index][:1]
            found.append(OpenRequest(index, [(d, _count_required(d), d.mask) for d in demands]))
        return found


def _count_required(demand: Demand) -> int:
    """How many devices a demand needs; more than there are when it cannot be met."""
    return demand.count if demand.possible else demand.count + 1
