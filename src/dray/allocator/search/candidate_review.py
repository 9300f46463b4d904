"""A place of the walk, stood at again: what the rules say of every candidate there.

Theory of operation: the search tells whom it refused, as far as it looked. An explanation wants to hear of
every candidate, at one place, by the first rule that fails. So the picks that led to the place are taken
once more, by the code of the walk itself, and each candidate is put before the same checks.

Rules for this file: nothing is decided here, and no rule is written a second time. Candidates that nobody
judged stay unjudged: looking twice must not evaluate more selectors than looking once.
"""

from __future__ import annotations

from collections.abc import Sequence

from dray.allocator.inventory.device_inventory import NodeShape
from dray.allocator.refusals import Refusal, RefusalReason
from dray.allocator.requests import AllocationRequest
from dray.allocator.search.backtracking import BacktrackingSearch
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
    """The board as it was after some picks."""

    def __init__(
        self, allocation_request: AllocationRequest, shape: NodeShape, picks: Sequence[Pick]
    ) -> None:
        self._shape = shape
        self._search = BacktrackingSearch(allocation_request, shape, False)
        self._taken_at: dict[int, SearchPoint] = {}
        for pick in picks:
            self._search._take_candidate(self._build_frame(pick.point), pick.candidate)
            self._taken_at[pick.candidate] = pick.point

    def find_refusals(self, point: SearchPoint) -> dict[int, Refusal | None]:
        """For each candidate the search looked at, the first rule that refuses it at a point.

        `TAKEN_HERE` carries the point that has the candidate. None means that no rule is against it.
        """
        frame = self._build_frame(point)
        return {
            candidate: self._find_refusal(frame, candidate) for candidate in range(frame.candidates.frontier)
        }

    def _find_refusal(self, frame: SearchFrame, candidate: int) -> Refusal | None:
        static = frame.candidates.refusals.get(candidate)
        if static is not None and static.reason in _STATIC_REASONS:
            return static
        if not frame.alternative.admin and self._shape.taken >> candidate & 1:
            return _IN_USE
        if self._search._find_blocked(frame) >> candidate & 1:
            return Refusal(RefusalReason.TAKEN_HERE, self._taken_at.get(candidate))
        if static is not None and static.reason not in _AFTER_AMOUNTS:
            return static
        dynamic = self._search._check_candidate(frame, candidate)
        if static is None or dynamic is None:
            return static or dynamic
        return min(static, dynamic, key=lambda refusal: _RANK[refusal.reason])

    def _build_frame(self, point: SearchPoint) -> SearchFrame:
        alternative = point.choice.alternatives.index(point.alternative)
        return SearchFrame(point.choice, alternative, get_candidate_set(self._shape, point.alternative), 0, 0)
