"""Checks of one candidate against the partial solution, and the effect of taking it.

Theory of operation: the dynamic rules (devices in use, capacity, counters, constraints) depend on what the
search took before. `CandidateChecks` applies them in the order of explanation and records a candidate that is
taken. The search uses it while it advances and backtracks; the candidate review uses it to replay picks.
"""

from __future__ import annotations

from dray.allocator.checks import capacity, constraints, counters
from dray.allocator.inventory.node_shapes import NodeShape
from dray.allocator.partial_solution import EVERY_CLAIM, PartialSolution
from dray.allocator.refusals import Refusal, RefusalReason
from dray.allocator.requests import AllocationRequest, RequestAlternative
from dray.allocator.search.frames import SearchFrame
from dray.allocator.search.trace import Pick, SearchPoint


class CandidateChecks:
    """The dynamic rules for the candidates of one shape, with the partial solution they read and change."""

    __slots__ = ("_has_admin_access", "_shape", "solution")

    def __init__(self, allocation_request: AllocationRequest, shape: NodeShape) -> None:
        self._shape = shape
        self._has_admin_access = allocation_request.has_admin_access
        self.solution = PartialSolution()

    def find_blocked(self, frame: SearchFrame) -> int:
        """Mask of the candidates in use; for admin access only those that its own claim took."""
        used = self.solution.used_devices
        if frame.alternative.admin:
            return used.get(frame.choice.claim_index, 0)
        return self._shape.taken | used.get(EVERY_CLAIM, 0)

    def find_refusal(self, frame: SearchFrame, candidate: int) -> Refusal | None:
        """The first dynamic rule that refuses a candidate; None when it can be taken."""
        shape, solution, alternative = self._shape, self.solution, frame.alternative
        profile = shape.profiles[candidate]
        refusal = None
        if profile.shareable or candidate in shape.capacity_left:
            # A device that is not shareable has an entry when shares from before hold some of it. Only admin
            # access gets here with one, and even admin access cannot use those amounts.
            share = frame.candidates.get_share(candidate)
            refusal = capacity.check(solution, candidate, share, shape.capacity_left[candidate])
        if refusal is None and profile.counter_sets and self._charges_counters(alternative, candidate):
            pool = shape.pool_indexes[candidate]
            if pool in shape.overdrawn:
                return Refusal(RefusalReason.COUNTER_SHORT)
            refusal = counters.check(solution, pool, profile.counters, shape.counters_left[pool])
        for constraint in alternative.constraints if refusal is None else ():
            refusal = constraints.check(solution, constraint, profile.get_values(constraint.attribute))
            if refusal is not None:
                break
        return refusal

    def take(self, frame: SearchFrame, candidate: int) -> Pick:
        """Record everything that taking a candidate uses up."""
        shape, solution, alternative = self._shape, self.solution, frame.alternative
        profile = shape.profiles[candidate]
        if profile.counters and self._charges_counters(alternative, candidate):
            counters.take(solution, shape.pool_indexes[candidate], profile.counters)
        consumed: dict[str, int] | None = None
        if profile.shareable:
            consumed = frame.candidates.get_share(candidate)
            capacity.take(solution, candidate, consumed)
            if profile.counters and not alternative.admin:
                solution.assign(solution.charged_devices, candidate, True)
        else:
            used = solution.used_devices
            solution.assign(used, EVERY_CLAIM, used.get(EVERY_CLAIM, 0) | 1 << candidate)
            if self._has_admin_access:
                claim = frame.choice.claim_index
                solution.assign(used, claim, used.get(claim, 0) | 1 << candidate)
        for constraint in alternative.constraints:
            constraints.take(solution, constraint, profile.get_values(constraint.attribute))
        return Pick(SearchPoint(frame.choice, alternative, frame.device_index), candidate, consumed)

    def _charges_counters(self, alternative: RequestAlternative, candidate: int) -> bool:
        """Whether taking a candidate charges counters: only its first share, and never admin access."""
        return not (
            alternative.admin
            or self._shape.shared >> candidate & 1
            or candidate in self.solution.charged_devices
        )
