"""Listening to a search: how far it came, where it ended, what it turned back from.

Theory of operation: beats come depth first, so the picks that stand at any moment are a stack, and a beat at
a point says that everything taken at that point or behind it is undone. Of all dead ends the *furthest* is
kept: the latest request anybody came to, with the most devices for it, and under those very picks the dead
ends of its other alternatives. Picks that were undone leave a *fate*: the request that found nothing then.

Counting ahead ends branches without looking at devices, which is fast and tells little. So the story is
first asked for without it, with a small budget (`PATIENCE`); only when that does not come to an end the
search is run as the allocator runs it. Both give the same answer.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from dray.allocator.inventory.device_inventory import Shape
from dray.allocator.refusals import Reason, Refusal
from dray.allocator.requests import Ask, Want
from dray.allocator.search.backtracking import search
from dray.allocator.search.resumable import RunningSearch
from dray.allocator.search.trace import Beat, DeadEnd, Ending, Faulted, GaveUp, Pick, Point, Solved, Took
from dray.explain.work_budget import Effort, Steps, at_once

PATIENCE = 1_000
"""Steps that a search may take for the sake of a better story."""

Place = tuple[int, int]
"""Choice and device of it: where on the way a pick stands."""


class Halt(msgspec.Struct, frozen=True, eq=False):
    """A dead end: the point, the picks that stood, and what kept the whole alternative from being tried.

    `looked` is how many candidates the search looked at here; None means all of them. Others may have been
    judged for somebody else, but are no part of this story.
    """

    point: Point
    picks: tuple[Pick, ...]
    obstacle: Refusal | None
    looked: int | None = None


class Tale(msgspec.Struct, frozen=True, eq=False):
    """What a search told: its ending, the furthest dead ends, and for the final path what was left behind."""

    ending: Ending
    furthest: tuple[Halt, ...]
    left_behind: dict[int, tuple[Halt, ...]]
    fates: dict[Place, dict[tuple[Want, int], Point]]


def tell(ask: Ask, shape: Shape, budget: int, patience: int = PATIENCE) -> Tale:
    """The story of an ask on a shape, as much of it as patience allows."""
    return at_once(telling(ask, shape, Effort(budget=budget), patience))


def telling(ask: Ask, shape: Shape, effort: Effort, patience: int = PATIENCE) -> Steps[Tale]:
    """The same in small steps, with a limit in time.

    A search that is known to have been given up is not made again: the story of the first steps has to do.
    """
    given_up = effort.given_up(shape)
    if not patience and given_up is None:
        tale = yield from _listening(ask, shape, effort, effort.budget)
        return tale
    tale = yield from _listening(ask, shape, effort, min(patience or PATIENCE, effort.budget), prune=False)
    if given_up is not None and isinstance(tale.ending, GaveUp | Solved):
        # Also where these steps happen to find devices: whoever gave up did not.
        most = max([given_up.found, *(len(halt.picks) for halt in tale.furthest)])
        return msgspec.structs.replace(tale, ending=msgspec.structs.replace(given_up, found=most))
    if not isinstance(tale.ending, GaveUp):
        return tale
    answer = yield from _listening(ask, shape, effort, effort.budget)
    if not answer.furthest or (tale.furthest and _depth(tale) >= _depth(answer)):
        # The answer is the real one; the way there is told by the walk that looked at every device.
        return msgspec.structs.replace(answer, furthest=tale.furthest)
    return answer


def _depth(tale: Tale) -> Place:
    return max(_place(halt.point) for halt in tale.furthest)


def _listening(ask: Ask, shape: Shape, effort: Effort, budget: int, *, prune: bool = True) -> Steps[Tale]:
    """Run a search and hear what it tells."""
    listener = _Listener()
    events = listener.hearing(iter(search(ask, shape, budget, prune=prune)))
    ending = yield from effort.run(RunningSearch(ask, shape, events))
    return listener.tale(ending)


def _place(point: Point) -> Place:
    return point.choice.index, point.nth


class _Record:
    """The dead ends of one choice under the same picks: the furthest of each alternative."""

    def __init__(self, before: tuple[Pick, ...]) -> None:
        self.before = before
        self.halts: dict[Want, Halt] = {}


class _Listener:
    """A story while it is being told."""

    def __init__(self) -> None:
        self._stack: list[Pick] = []
        self._here: dict[int, _Record] = {}
        self._furthest: _Record | None = None
        self._depth: Place = (-1, -1)
        self._latest: Point | None = None
        self._fates: dict[Place, dict[tuple[Want, int], Point]] = {}

    def hearing(self, beats: Iterator[Beat]) -> Iterator[Beat]:
        """Pass events on, and hear each."""
        for beat in beats:
            self.hear(beat)
            yield beat

    def hear(self, beat: Beat) -> None:
        match beat:
            case Took():
                self._undo(beat.pick.point)
                self._stack.append(beat.pick)
            case DeadEnd():
                self._undo(beat.point)
                unseen = beat.short is not None and beat.short.reason is Reason.TOO_MANY_DEVICES
                looked = 0 if unseen and not beat.point.want.wants_all else None
                self._note(Halt(beat.point, tuple(self._stack), beat.short, looked))
            case Faulted():
                self._undo(beat.point)
                self._note(Halt(beat.point, tuple(self._stack), beat.refusal, beat.candidate + 1))
            case _:
                pass  # other endings, and signs of progress

    def _undo(self, point: Point) -> None:
        """Forget the picks at a point and behind it; the one at the point has met its fate."""
        here = _place(point)
        while self._stack and _place(self._stack[-1].point) >= here:
            gone = self._stack.pop()
            if self._latest is not None and _place(gone.point) == here:
                self._fates.setdefault(here, {})[gone.point.want, gone.candidate] = self._latest
        if self._fates:
            # What was tried further on was tried behind other picks.
            self._fates = {place: fate for place, fate in self._fates.items() if place <= here}

    def _note(self, halt: Halt) -> None:
        index = halt.point.choice.index
        before = tuple([pick for pick in halt.picks if pick.point.choice.index < index])
        record = self._here.get(index)
        if record is None or record.before != before:
            record = self._here[index] = _Record(before)
        known = record.halts.get(halt.point.want)
        if known is None or halt.point.nth > known.point.nth:
            record.halts[halt.point.want] = halt
        if _place(halt.point) > self._depth:
            self._depth = _place(halt.point)
            self._furthest = record
        self._latest = halt.point

    def tale(self, ending: Ending) -> Tale:
        furthest = tuple(self._furthest.halts.values()) if self._furthest is not None else ()
        behind = {
            index: tuple(record.halts.values())
            for index, record in self._here.items()
            if record.before == tuple(pick for pick in self._stack if pick.point.choice.index < index)
        }
        return Tale(ending, furthest, behind, self._fates)
