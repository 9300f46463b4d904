"""A place of the walk, stood at again: what the rules say of every candidate there.

Theory of operation: the search tells whom it refused, as far as it looked. An explanation wants to hear of
every candidate, at one place, by the first rule that fails. So the picks that led to the place are taken
once more, by the code of the walk itself, and each candidate is put before the same checks.

Rules for this file: nothing is decided here, and no rule is written a second time. Candidates that nobody
judged stay unjudged: looking twice must not evaluate more selectors than looking once.
"""

from __future__ import annotations

from collections.abc import Sequence

from dray.allocator.inventory.device_inventory import Shape
from dray.allocator.refusals import Reason, Refusal
from dray.allocator.requests import Ask
from dray.allocator.search.backtracking import _Walk
from dray.allocator.search.candidates import options_of
from dray.allocator.search.frames import Frame
from dray.allocator.search.trace import Pick, Point

_RANK = {reason: rank for rank, reason in enumerate(Reason)}
_NEVER = frozenset({Reason.UNSUITED, Reason.BROKEN_SELECTOR, Reason.BINDING_CONDITIONS})
_IN_USE = Refusal(Reason.IN_USE)
_AFTER_AMOUNTS = frozenset({Reason.TAINTED, Reason.NODE_SELECTOR})


class Standpoint:
    """The board as it was after some picks."""

    def __init__(self, ask: Ask, shape: Shape, picks: Sequence[Pick]) -> None:
        self._shape = shape
        self._walk = _Walk(ask, shape, False)
        self._takers: dict[int, Point] = {}
        for pick in picks:
            self._walk._take(self._frame(pick.point), pick.candidate)
            self._takers[pick.candidate] = pick.point

    def refusals(self, point: Point) -> dict[int, Refusal | None]:
        """For each candidate the search looked at, the first rule that refuses it at a point.

        `TAKEN_HERE` carries the point that has the candidate. None means that no rule is against it.
        """
        frame = self._frame(point)
        return {candidate: self._refusal(frame, candidate) for candidate in range(frame.options.frontier)}

    def _refusal(self, frame: Frame, candidate: int) -> Refusal | None:
        static = frame.options.refusals.get(candidate)
        if static is not None and static.reason in _NEVER:
            return static
        if not frame.want.admin and self._shape.taken >> candidate & 1:
            return _IN_USE
        if self._walk._blocked(frame) >> candidate & 1:
            return Refusal(Reason.TAKEN_HERE, self._takers.get(candidate))
        if static is not None and static.reason not in _AFTER_AMOUNTS:
            return static
        dynamic = self._walk._refuse(frame, candidate)
        if static is None or dynamic is None:
            return static or dynamic
        return min(static, dynamic, key=lambda refusal: _RANK[refusal.reason])

    def _frame(self, point: Point) -> Frame:
        alternative = point.choice.wants.index(point.want)
        return Frame(point.choice, alternative, options_of(self._shape, point.want), 0, 0)
