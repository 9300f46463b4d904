"""Candidate review: why each candidate is refused at one point of a search, for explanations.

Theory of operation: the trace of a search has the candidates it refused, as far as it looked. An explanation
needs every candidate at one point, with the first rule that refuses it. So the review takes the picks that
led to the point once more, through the checks of the search itself, and applies the same checks to each
candidate.

This module must not contain a rule of its own. Candidates that the search did not evaluate stay unevaluated:
an explanation must not evaluate more selectors than the search did.
"""

from __future__ import annotations

from collections.abc import Sequence

from dray.allocator.inventory.node_shapes import NodeShape
from dray.allocator.refusals import Refusal, RefusalReason
from dray.allocator.requests import AllocationRequest
from dray.allocator.search.candidate_checks import CandidateChecks
from dray.allocator.search.candidates import get_candidate_set
from dray.allocator.search.frames import SearchFrame
from dray.allocator.search.trace import Pick, SearchPoint

_RANK = {reason: rank for rank, reason in enumerate(RefusalReason)}
_STATIC_REASONS = frozenset(
    {RefusalReason.UNSUITED, RefusalReason.BROKEN_SELECTOR, RefusalReason.BINDING_CONDITIONS}
)
_IN_USE = Refusal(RefusalReason.IN_USE)
_AFTER_AMOUNTS = frozenset({RefusalReason.TAINTED, RefusalReason.NODE_SELECTOR})


class CandidateReview:
    """The partial solution after some picks, with every rule applied to each candidate."""

    def __init__(
        self, allocation_request: AllocationRequest, shape: NodeShape, picks: Sequence[Pick]
    ) -> None:
        self._shape = shape
        self._checks = CandidateChecks(allocation_request, shape)
        self._taken_at: dict[int, SearchPoint] = {}
        for pick in picks:
            self._checks.take(self._build_frame(pick.point), pick.candidate)
            self._taken_at[pick.candidate] = pick.point

    def find_refusals(self, point: SearchPoint) -> dict[int, Refusal | None]:
        """For each candidate the search looked at, the first rule that refuses it at a point.

        `TAKEN_HERE` carries the point that took the candidate. None means that no rule refuses it.
        """
        frame = self._build_frame(point)
        return {
            candidate: self._find_refusal(frame, candidate) for candidate in range(frame.candidates.frontier)
        }

    def find_matching_refusals(self, point: SearchPoint) -> dict[int, Refusal | None]:
        """Like `find_refusals`, for the candidates that match the selectors; all of them when none does."""
        matching = get_candidate_set(self._shape, point.alternative).matching
        refusals = self.find_refusals(point)
        return {number: found for number, found in refusals.items() if not matching or matching >> number & 1}

    def _find_refusal(self, frame: SearchFrame, candidate: int) -> Refusal | None:
        static = frame.candidates.refusals.get(candidate)
        if static is not None and static.reason in _STATIC_REASONS:
            return static
        if not frame.alternative.admin and self._shape.taken >> candidate & 1:
            return _IN_USE
        if self._checks.find_blocked(frame) >> candidate & 1:
            return Refusal(RefusalReason.TAKEN_HERE, self._taken_at.get(candidate))
        if static is not None and static.reason not in _AFTER_AMOUNTS:
            return static
        dynamic = self._checks.find_refusal(frame, candidate)
        if static is None or dynamic is None:
            return static or dynamic
        return min(static, dynamic, key=lambda refusal: _RANK[refusal.reason])

    def _build_frame(self, point: SearchPoint) -> SearchFrame:
        index = point.choice.alternatives.index(point.alternative)
        return SearchFrame(point.choice, index, get_candidate_set(self._shape, point.alternative), 0, 0)
