"""Which candidates suit a want, found out as far as anybody asked.

Theory of operation: whether a device suits a want (selectors, amounts it could ever give, taints, node
selector) depends on both alone, so it is judged once per shape and want and kept as a mask. Judging
goes only as far as the search looks (`frontier`): an error on a device nobody reaches is nobody's error.
"""

from __future__ import annotations

from dray.allocator.checks import taints
from dray.allocator.reasons import Reason, Refusal
from dray.allocator.stock import Shape
from dray.allocator.wants import Want
from dray.values.bounds import Bound

FAULTS = frozenset({Reason.BROKEN_SELECTOR, Reason.CAPACITY_UNREPRESENTABLE})
"""Reasons that end a search when it reaches them: the device cannot be judged."""

_MATCHING = frozenset({Reason.TAINTED, Reason.NODE_SELECTOR, Reason.COUNTERS_OFF})
"""Reasons not to take a device that is what the want asks for: who wants all of them cannot do without it."""


NOT_YET = -3
"""Instead of a candidate: not all of them are judged yet."""

WANTS = Bound("candidates of wants", 128, "a shape")


class Options:
    """The candidates of one want, as masks over the candidates of a shape."""

    # Not the shape itself: what remembers these options would be a cycle, and wait for the garbage collector.
    __slots__ = (
        "_contents",
        "_reaches",
        "_shares",
        "_size",
        "_want",
        "faulty",
        "frontier",
        "mask",
        "refusals",
        "suiting",
    )

    def __init__(self, shape: Shape, want: Want) -> None:
        self._contents = shape.contents
        self._reaches = shape.reaches
        self._want = want
        self._size = len(shape.contents)
        self.frontier = 0
        self.mask = 0
        self.suiting = 0
        self.faulty = 0
        self.refusals: dict[int, Refusal] = {}
        self._shares: dict[int, dict[str, int]] = {}

    def first(self, start: int, blocked: int, most: int) -> int:
        """The first unblocked candidate from a place on that suits, or cannot be judged; or -1.

        `NOT_YET` when none was found after judging so many more candidates.
        """
        until = self.frontier + most
        while True:
            there = (self.mask | self.faulty) & ~blocked
            there = there >> start << start
            if there:
                return (there & -there).bit_length() - 1
            if self.frontier == self._size:
                return -1
            if self.frontier == until:
                return NOT_YET
            self._judge_next()

    def share(self, candidate: int) -> dict[str, int]:
        """What one share of a candidate that suits takes of each capacity."""
        found = self._shares.get(candidate)
        if found is None:
            taken = self._contents[candidate].consumed(self._want.amounts)
            assert not isinstance(taken, Refusal)
            found = self._shares[candidate] = taken
        return found

    def judge_some(self, count: int) -> bool:
        """Judge so many more candidates at most; whether all of them are judged now."""
        until = min(self.frontier + count, self._size)
        while self.frontier < until:
            self._judge_next()
        return self.frontier == self._size

    def complete(self) -> int:
        """The mask of all candidates that suit, all of them judged."""
        while self.frontier < self._size:
            self._judge_next()
        return self.mask

    def _judge_next(self) -> None:
        candidate = self.frontier
        self.frontier += 1
        bit = 1 << candidate
        refusal = self._refuse(candidate)
        if refusal is None:
            self.mask |= bit
            self.suiting |= bit
            return
        self.refusals[candidate] = refusal
        if refusal.reason in FAULTS:
            self.faulty |= bit
        elif refusal.reason in _MATCHING:
            self.suiting |= bit

    def _refuse(self, candidate: int) -> Refusal | None:
        content, want = self._contents[candidate], self._want
        withheld = content.withheld
        if withheld is Reason.BINDING_CONDITIONS:
            return Refusal(withheld)
        for _owner, expression in want.selectors:
            verdict = content.verdict(expression)
            if verdict is not True:
                reason = Reason.UNSUITED if verdict is False else Reason.BROKEN_SELECTOR
                return Refusal(reason, (expression, verdict))
        consumed = content.consumed(want.amounts) if content.limited or want.amounts else None
        if isinstance(consumed, Refusal):
            return consumed
        if withheld is not None:
            return Refusal(withheld)
        if self._reaches[candidate].is_tangled:
            return Refusal(Reason.NODE_SELECTOR)
        return taints.refuse(content.taints, want.tolerations) if content.taints else None


def options_of(shape: Shape, want: Want) -> Options:
    """The options of a want on a shape; wants that ask the same of a device share them."""
    found: Options | None = shape.memo.get(want.key)
    if found is None:
        found = WANTS.keep(shape.memo, want.key, Options(shape, want))
    return found
