"""Searches for devices: what is known per question and node shape, what goes on, and what was given up.

Theory of operation: a *question* is what pods of one kind ask for. How its search ends on a shape depends on
both alone, so the ending holds in every snapshot and is remembered. A search that takes long is run in
slices. One decision works on searches for `at_once` seconds, and for a third of that on any one of them;
shapes that are not done by then are *wanted*, and whoever drives `work` continues them. Questions take turns.
Within a question the shape comes next that had least work, and goes on until it had twice as much. So a hard
shape does not keep a pod from an easy one, and a search that could not be kept costs the same work again at
most.

A search gets `limit.per_search` seconds of work in the first attempt of a pod and twice as much with every
further one, up to `MOST_PATIENCE` times. Then it is given up. The give-up is remembered with its seconds, so
it is paid once: it is the answer until somebody has more patience, and then the search goes on where it was
stopped, unless too many others were stopped since (`RUNNING`).

Rules for this file: nothing is wanted unless somebody waits for it; see `forget`.
"""

from __future__ import annotations

import math
from collections import Counter, OrderedDict
from dataclasses import dataclass, field
from typing import Final

from dray.allocator.inventory.device_inventory import Shape
from dray.allocator.requests import Ask
from dray.allocator.search.resumable import RunningSearch, TimeLimit, begin
from dray.allocator.search.trace import Ending, GaveUp
from dray.api.resource import DeviceClass
from dray.values.cache_bounds import Bound

ENDINGS: Final = Bound("endings of searches", 64, "a shape")
MANY_WANTED: Final = 4096
"""Shapes that are wanted for one question at the same time; others have to ask again."""
RUNNING: Final = Bound("searches to continue", 64, "the scheduler")
MOST_PATIENCE: Final = 8
"""How many times `per_search` a search may get in later attempts."""

_UNSEEN: Final = GaveUp(0)


@dataclass(slots=True)
class _Wanted:
    """A search that goes on: the seconds of work it may take, and when it is another one's turn."""

    patience: float
    goal: float


@dataclass(slots=True, eq=False)
class Question:
    """What pods ask for. How the search for it ended on a shape is kept with the shape, and goes with it."""

    ask: Ask
    classes: dict[str, DeviceClass]
    wanted: dict[Shape, _Wanted] = field(default_factory=dict)
    """Shapes that somebody waits for."""
    current: Shape | None = None
    """The one of them whose turn it is."""
    worked: float = 0.0
    """Seconds of work for this question so far."""


class Searches:
    """All searches of one scheduler."""

    def __init__(self, limit: TimeLimit, at_once: float = math.inf) -> None:
        self.limit = limit
        self.at_once = at_once
        """Seconds of work in one decision."""
        self.ended: Counter[str] = Counter()
        """Searches, by how they ended."""
        self.seconds = 0.0
        """Work on all searches so far."""
        self._running: dict[tuple[Question, Shape], RunningSearch] = {}
        self._open: OrderedDict[Question, None] = OrderedDict()
        """Questions with shapes that are wanted; the first has its turn."""

    @property
    def is_sliced(self) -> bool:
        """Whether searches go on between decisions."""
        return self.at_once < math.inf

    # --- one search ---

    def patience(self, attempts: int) -> float:
        """Seconds of work a search may take after so many attempts."""
        return self.limit.per_search * min(2.0 ** min(attempts, MOST_PATIENCE), MOST_PATIENCE)

    def is_final(self, given_up: GaveUp) -> bool:
        """Whether a search that was given up gets no more time in any later attempt."""
        return given_up.seconds >= self.limit.per_search * MOST_PATIENCE

    def known(self, question: Question, shape: Shape, patience: float) -> Ending | None:
        """How the search on a shape ended; None also when it was given up with less patience."""
        ending: Ending | None = shape.endings.get(question)
        return None if isinstance(ending, GaveUp) and ending.seconds < patience else ending

    def is_begun(self, question: Question, shape: Shape) -> bool:
        """Whether a search was begun and can be continued."""
        return (question, shape) in self._running

    def run(self, question: Question, shape: Shape, seconds: float, patience: float) -> Ending | None:
        """Work on a search for some seconds; None when it neither ended nor used up all patience."""
        clock = self.limit.clock
        began = clock()
        kept = self._running.pop((question, shape), None) if self._running else None
        found = kept or begin(question.ask, shape, clock)
        ending: Ending | None
        if isinstance(found, RunningSearch):
            ending = found.advance(clock, min(seconds, patience - found.spent))
            if ending is None:
                RUNNING.keep(self._running, (question, shape), found)
                ending = found.give_up() if found.spent >= patience else None
        else:
            ending = found
        spent = clock() - began
        question.worked += spent
        self.seconds += spent
        if ending is not None:
            self._note(question, shape, ending)
        return ending

    def give_up(self, question: Question, shape: Shape) -> GaveUp:
        """The answer when a pod has no time left: how far the search came, if it was begun."""
        running = self._running.get((question, shape))
        if running is None:
            ending = shape.endings.get(question)
            return ending if isinstance(ending, GaveUp) else _UNSEEN
        given_up = running.give_up()
        ENDINGS.keep(shape.endings, question, given_up)
        return given_up

    def _note(self, question: Question, shape: Shape, ending: Ending) -> None:
        self.ended[type(ending).__name__] += 1
        ENDINGS.keep(shape.endings, question, ending)
        if question.wanted:
            question.wanted.pop(shape, None)
            question.current = None
            if not question.wanted:
                self._open.pop(question, None)

    # --- searches that go on between decisions ---

    @property
    def unfinished(self) -> int:
        """How many searches somebody waits for."""
        return sum(len(question.wanted) for question in self._open)

    def open_questions(self) -> tuple[Question, ...]:
        """Questions with searches that go on."""
        return tuple(self._open)

    def want(self, question: Question, shape: Shape, patience: float) -> None:
        """Have a search continued until it ends or has used up some patience."""
        known = question.wanted.get(shape)
        if known is not None:
            known.patience = max(patience, known.patience)
        elif len(question.wanted) < MANY_WANTED:
            running = self._running.get((question, shape))
            question.wanted[shape] = _Wanted(patience, 2 * running.spent if running is not None else 0.0)
            self._open.setdefault(question)

    def work(self, seconds: float) -> tuple[Question, Ending | None] | None:
        """Work on the next search that is wanted; the question and how the search ended, if it did."""
        if not self._open:
            return None
        question, _ = self._open.popitem(last=False)
        wanted = question.wanted
        shape = question.current
        if shape is None:
            shape = question.current = min(wanted, key=lambda each: wanted[each].goal)
        ending = self.run(question, shape, seconds, wanted[shape].patience)
        if ending is None and self._running[question, shape].spent >= wanted[shape].goal:
            wanted[shape].goal = 2 * self._running[question, shape].spent
            question.current = None
        if question.wanted:
            self._open[question] = None
        return question, ending

    def forget(self, question: Question) -> None:
        """Nobody waits for a question any more."""
        question.wanted.clear()
        question.current = None
        self._open.pop(question, None)
