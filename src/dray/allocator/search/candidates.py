"""Candidate sets: which devices of a shape match an alternative, evaluated as far as the search needs.

Theory of operation: whether a device matches an alternative (selectors, amounts it could ever give, taints,
node selector) depends on these two only. It is evaluated per pool (see device_lists) and combined here as
masks over the candidates of a shape. An error on a device that the search never reaches must not count:
`frontier` is how far the search looked, and results behind it show only when the search gets there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from dray.allocator.checks import taints
from dray.allocator.inventory.device_lists import filter_lists
from dray.allocator.inventory.node_shapes import NodeShape
from dray.allocator.refusals import Refusal, RefusalReason
from dray.allocator.requests import RequestAlternative
from dray.values.cache_bounds import CacheBound

NOT_EVALUATED = -3
"""Returned instead of a candidate: not all of them are evaluated yet."""

CANDIDATE_SETS = CacheBound("candidates of alternatives", 128, "a shape")


class CandidateSet:
    """The candidates of one alternative, as masks over the candidates of a shape.

    `mask`: candidates that can be taken. `matching`: also those that match but cannot be taken. `faulty`:
    those that cannot be evaluated. All three as far as `find_first` and `evaluate_all` had to look.
    """

    # Not the shape itself: it caches this set, and the cycle would have to wait for the garbage collector.
    __slots__ = (
        "_alternative",
        "_device_lists",
        "_evaluated",
        "_list_index",
        "_node_scopes",
        "_profiles",
        "_shares",
        "_size",
        "faulty",
        "frontier",
        "mask",
        "matching",
    )

    def __init__(self, shape: NodeShape, alternative: RequestAlternative) -> None:
        self._profiles = shape.profiles
        self._node_scopes = shape.node_scopes
        self._device_lists = filter_lists(shape.device_lists, alternative)
        self._alternative = alternative
        self._size = len(shape.profiles)
        self._list_index = 0
        self._evaluated = 0
        self.frontier = 0
        self.mask = 0
        self.matching = 0
        self.faulty = 0
        self._shares: dict[int, dict[str, int]] = {}

    def find_first(self, start: int, blocked: int, max_evaluations: int) -> int:
        """The first unblocked candidate from a position on that matches or cannot be evaluated; or -1.

        `NOT_EVALUATED` when none was found after evaluating so many more candidates.
        """
        while True:
            there = (self.mask | self.faulty) & ~blocked
            there = there >> start << start
            if there:
                found = (there & -there).bit_length() - 1
                if found >= self.frontier:
                    self.frontier = found + 1
                return found
            self.frontier = self._evaluated
            if self._evaluated == self._size:
                return -1
            if max_evaluations <= 0:
                return NOT_EVALUATED
            max_evaluations -= self._evaluate_more()

    def get_share(self, candidate: int) -> dict[str, int]:
        """What one share of a matching candidate takes of each capacity."""
        found = self._shares.get(candidate)
        if found is None:
            taken = self._profiles[candidate].compute_consumption(self._alternative.amounts)
            assert not isinstance(taken, Refusal)
            found = self._shares[candidate] = taken
        return found

    def evaluate_some(self, count: int) -> bool:
        """Evaluate about so many more candidates at most; whether all of them are evaluated now."""
        while self._evaluated < self._size and count > 0:
            count -= self._evaluate_more()
        self.frontier = self._evaluated
        return self._evaluated == self._size

    def evaluate_all(self) -> int:
        """Evaluate all candidates; the mask of those that can be taken."""
        self.evaluate_some(self._size)
        return self.mask

    @property
    def refusals(self) -> Mapping[int, Refusal]:
        """Why candidates are refused, of all that the search looked at."""
        return _RefusalMap(self)

    def _evaluate_more(self) -> int:
        """Add the known results of the next pool, or evaluate more of it; how many devices were evaluated."""
        if self._list_index == len(self._device_lists):
            self._evaluated = self._size
            return 0
        offset, devices = self._device_lists[self._list_index]
        known, judged = devices.evaluate(self._alternative, max(self._evaluated - offset, 0))
        self._evaluated = offset + known.evaluated
        self.mask |= known.mask << offset
        self.matching |= known.matching << offset
        self.faulty |= known.faulty << offset
        if known.evaluated == len(devices.profiles):
            self._list_index += 1
        return judged

    def find_refusal(self, candidate: int) -> Refusal | None:
        """The first static rule that refuses a candidate."""
        if self.mask >> candidate & 1:
            return None
        profile, alternative = self._profiles[candidate], self._alternative
        withheld = profile.withheld
        if withheld is RefusalReason.BINDING_CONDITIONS:
            return Refusal(withheld)
        for _owner, expression in alternative.selectors:
            result = profile.evaluate(expression)
            if result is not True:
                reason = RefusalReason.UNSUITED if result is False else RefusalReason.BROKEN_SELECTOR
                return Refusal(reason, (expression, result))
        consumed = (
            profile.compute_consumption(alternative.amounts)
            if profile.capacity_limited or alternative.amounts
            else None
        )
        if isinstance(consumed, Refusal):
            return consumed
        if withheld is not None:
            return Refusal(withheld)
        if self._node_scopes[candidate].has_several_terms:
            return Refusal(RefusalReason.NODE_SELECTOR)
        return taints.check(profile.taints, alternative.tolerations)


class _RefusalMap(Mapping[int, Refusal]):
    """The refusals of a candidate set, each computed on access."""

    __slots__ = ("_candidates",)

    def __init__(self, candidates: CandidateSet) -> None:
        self._candidates = candidates

    def __getitem__(self, candidate: int) -> Refusal:
        candidates = self._candidates
        refusal = candidates.find_refusal(candidate) if 0 <= candidate < candidates.frontier else None
        if refusal is None:
            raise KeyError(candidate)
        return refusal

    def __iter__(self) -> Iterator[int]:
        candidates = self._candidates
        return (i for i in range(candidates.frontier) if not candidates.mask >> i & 1)

    def __len__(self) -> int:
        return sum(1 for _ in self)


def get_candidate_set(shape: NodeShape, alternative: RequestAlternative) -> CandidateSet:
    """The candidate set of an alternative on a shape; alternatives that ask the same of a device share it."""
    found: CandidateSet | None = shape.candidate_sets.get(alternative.key)
    if found is None:
        found = CANDIDATE_SETS.put(shape.candidate_sets, alternative.key, CandidateSet(shape, alternative))
    return found
