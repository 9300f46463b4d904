"""The search: one loop, one stack, one trail.

Theory of operation: depth first over choices, alternatives and devices, in order; the first full
solution is the answer. A *frame* is a point of the walk with its options and the place it has come to.
Taking a candidate writes facts on the board; leaving a frame rewinds them. After the first step back
foresight comes in: it knows which branches are hopeless, which candidates are interchangeable, and
which places were seen to fail. It changes how long the walk takes, never where it ends.

The walk is told as beats, and only as beats: nothing here logs, counts for others or calls back.

Rules for this file: no gates, no names of devices, no text. A candidate is a number.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dray.allocator.beats import Beat, DeadEnd, Exhausted, Faulted, GaveUp, Pick, Point, Solved, Took
from dray.allocator.board import USED, Board
from dray.allocator.checks import capacity, constraints, counters
from dray.allocator.foresight import Foresight
from dray.allocator.options import Options, options_of
from dray.allocator.reasons import Reason, Refusal, Short
from dray.allocator.stock import Shape
from dray.allocator.wants import MAX_RESULTS, Ask, Choice, Want

BUDGET = 100_000
"""Steps a search may take before it gives up."""


class Frame:
    """A point of the walk: what is tried there, how far, and what came of it."""

    __slots__ = (
        "allowed",
        "alternative",
        "before",
        "choice",
        "count",
        "cursor",
        "hopeless",
        "lacking",
        "mark",
        "nth",
        "options",
        "refused",
        "taken",
        "want",
    )

    def __init__(self, choice: Choice, alternative: int, options: Options, mark: int, before: int) -> None:
        want = choice.wants[alternative]
        self.choice = choice
        self.alternative = alternative
        self.want: Want = want
        self.options = options
        self.mark = mark
        self.before = before
        self.count = options.suiting.bit_count() if want.wants_all else want.count
        self.nth = self.cursor = 0
        self.allowed = -1
        self.hopeless = False
        self.taken = NOTHING
        self.lacking: Refusal | None = None
        self.refused: list[tuple[int, Refusal]] = []

    def following(self, mark: int) -> Frame:
        """The frame for the next device of the same want."""
        frame = Frame(self.choice, self.alternative, self.options, mark, self.before + 1)
        frame.nth = self.nth + 1
        frame.cursor = self.cursor
        return frame

    @property
    def point(self) -> Point:
        return Point(self.choice, self.want, self.nth)


NOTHING = -1
NO_DEVICE_NEEDED = -2


def search(ask: Ask, shape: Shape, budget: int = BUDGET, *, foresight: bool = True) -> Iterator[Beat]:
    """Walk; yields what happens and ends with exactly one ending."""
    return _Walk(ask, shape, foresight).beats(budget)


class _Walk:
    """One search while it lasts."""

    def __init__(self, ask: Ask, shape: Shape, foresight: bool) -> None:
        self._ask = ask
        self._shape = shape
        self._board = Board()
        self._stack: list[Frame] = []
        self._picks: list[Pick] = []
        self._may_look_ahead = foresight
        self._foresight: Foresight | None = None
        self._dead: set[Any] = set()

    def beats(self, budget: int) -> Iterator[Beat]:
        frame = self._enter(0, 0)
        steps = 0
        while frame is not None:
            steps += 1
            if steps > budget:
                yield GaveUp(steps)
                return
            candidate = self._next(frame)
            if candidate >= 0 and frame.options.faulty >> candidate & 1:
                yield Faulted(frame.point, candidate, frame.options.refusals[candidate], steps)
                return
            if candidate != NOTHING:
                if candidate >= 0:
                    yield Took(self._take(frame, candidate), tuple(frame.refused))
                frame = self._onward(frame, candidate)
                continue
            yield DeadEnd(frame.point, tuple(frame.refused), frame.lacking)
            frame = self._back(frame)
            if frame is None:
                yield Exhausted(steps)
                return
        yield Solved(tuple(self._picks), steps)

    # --- moving ---

    def _enter(self, index: int, before: int) -> Frame | None:
        """The first alternative of a choice; None when there is no choice left, which is a solution."""
        if index == len(self._ask.choices):
            return None
        choice = self._ask.choices[index]
        if index and self._ask.choices[index - 1].claim != choice.claim:
            before = 0
        return self._open(choice, 0, self._board.mark(), before)

    def _open(self, choice: Choice, alternative: int, mark: int, before: int) -> Frame:
        want = choice.wants[alternative]
        options = options_of(self._shape, want)
        if want.wants_all:
            options.complete()
        frame = Frame(choice, alternative, options, mark, before)
        if want.wants_all or before + frame.count > MAX_RESULTS:
            frame.lacking = self._structural(frame)
        if frame.lacking is None and self._foresight is not None:
            self._look_ahead(frame)
        return frame

    def _structural(self, frame: Frame) -> Refusal | None:
        """What keeps an alternative from being tried at all."""
        if frame.want.wants_all:
            if self._shape.flaws:
                return self._shape.flaws[0][1]
            if not frame.count and not frame.options.faulty:
                return Refusal(Reason.NOTHING_MATCHES)
        if frame.before + frame.count > MAX_RESULTS:
            return Refusal(Reason.TOO_MANY_DEVICES, Short("", frame.before + frame.count, MAX_RESULTS))
        return None

    def _onward(self, frame: Frame, candidate: int) -> Frame | None:
        """The frame behind a candidate that was taken."""
        frame.taken = candidate
        self._stack.append(frame)
        if frame.nth + 1 >= frame.count:
            return self._enter(frame.choice.index + 1, frame.before + (candidate >= 0))
        following = frame.following(self._board.mark())
        if self._foresight is not None:
            self._look_ahead(following)
        return following

    def _back(self, frame: Frame) -> Frame | None:
        """The next frame to try after one came to its end; None when everything was tried."""
        while True:
            # At a place seen to fail the other alternatives fail, too.
            if frame.nth == 0 and not frame.hopeless:
                if frame.alternative + 1 < len(frame.choice.wants):
                    return self._open(frame.choice, frame.alternative + 1, frame.mark, frame.before)
                if self._foresight is not None:
                    self._dead.add(self._image(frame))
            if not self._stack:
                return None
            frame = self._stack.pop()
            self._board.rewind(frame.mark)
            if frame.taken == NO_DEVICE_NEEDED:
                continue
            self._picks.pop()
            if frame.want.wants_all:
                continue
            self._learn(frame)
            return frame

    # --- looking ahead ---

    def _learn(self, frame: Frame) -> None:
        """Come back to a frame whose candidate failed: what else is worth trying there."""
        if self._foresight is None and self._may_look_ahead:
            foresight = Foresight(self._ask, self._shape)
            self._may_look_ahead = foresight.usable
            self._foresight = foresight if foresight.usable else None
        if self._foresight is not None:
            twins = self._foresight.twins(frame.taken)
            if frame.want.admin:
                used = self._board.facts.get(USED, 0)
                twins &= used if used >> frame.taken & 1 else ~used
            frame.allowed &= ~twins
            self._look_ahead(frame)

    def _look_ahead(self, frame: Frame) -> None:
        assert self._foresight is not None
        fresh = frame.nth == 0 and frame.alternative == 0
        if fresh and self._dead and self._image(frame) in self._dead:
            frame.hopeless = True
            return
        allowed, frame.lacking = self._foresight.look(self._board, frame.point, frame.cursor, frame.before)
        frame.allowed &= allowed

    def _image(self, frame: Frame) -> Any:
        """What the rest of the walk depends on at the start of a choice."""
        assert self._foresight is not None
        return self._foresight.image(frame.choice, self._board), frame.before

    # --- one candidate ---

    def _next(self, frame: Frame) -> int:
        """The next candidate that every check lets pass."""
        if frame.lacking is not None or frame.hopeless:
            return NOTHING
        options = frame.options
        if frame.want.wants_all:
            return self._next_of_all(frame)
        if frame.count == 0:
            return NO_DEVICE_NEEDED if frame.taken == NOTHING else NOTHING
        blocked = self._blocked(frame) | ~frame.allowed
        while True:
            candidate = options.first(frame.cursor, blocked)
            if candidate < 0 or options.faulty >> candidate & 1:
                return candidate
            frame.cursor = candidate + 1
            refusal = self._refuse(frame, candidate)
            if refusal is None:
                return candidate
            frame.refused.append((candidate, refusal))

    def _next_of_all(self, frame: Frame) -> int:
        """The one device that must come next when all are wanted."""
        options = frame.options
        if options.faulty:
            return (options.faulty & -options.faulty).bit_length() - 1
        if frame.taken != NOTHING or frame.refused:
            return NOTHING
        there = options.suiting >> frame.cursor << frame.cursor
        candidate = (there & -there).bit_length() - 1
        frame.cursor = candidate + 1
        refusal = options.refusals.get(candidate)
        if refusal is None and self._blocked(frame) >> candidate & 1:
            refusal = Refusal(Reason.IN_USE)
        if refusal is None:
            refusal = self._refuse(frame, candidate)
        if refusal is None:
            return candidate
        frame.refused.append((candidate, refusal))
        return NOTHING

    def _blocked(self, frame: Frame) -> int:
        """Candidates somebody has; admin access only minds those of its own claim."""
        facts = self._board.facts
        if frame.want.admin:
            own: int = facts.get(("claim", frame.choice.claim), 0)
            return own
        used: int = facts.get(USED, 0)
        return self._shape.taken | used

    def _refuse(self, frame: Frame, candidate: int) -> Refusal | None:
        """The checks that depend on what was taken before."""
        shape, board, want = self._shape, self._board, frame.want
        content = shape.contents[candidate]
        refusal = None
        if content.shareable:
            share = frame.options.share(candidate)
            refusal = capacity.refuse(board, candidate, share, shape.left[candidate])
        elif candidate in shape.left:
            # Only admin access comes here: what old shares hold of a device is not there to look at, either.
            refusal = capacity.refuse(board, candidate, frame.options.share(candidate), shape.left[candidate])
        if refusal is None and content.counters and self._draws(want, candidate):
            pool = shape.pool_of[candidate]
            if pool in shape.overdrawn:
                return Refusal(Reason.COUNTER_SHORT)
            refusal = counters.refuse(board, pool, content.counters, shape.counters[pool])
        for rule in want.rules if refusal is None else ():
            refusal = constraints.refuse(board, rule, content.values(rule.attribute))
            if refusal is not None:
                break
        return refusal

    def _draws(self, want: Want, candidate: int) -> bool:
        """Whether taking a candidate charges counters: not twice for shares, never for admin access."""
        return not (
            want.admin or self._shape.shared >> candidate & 1 or ("shared", candidate) in self._board.facts
        )

    def _take(self, frame: Frame, candidate: int) -> Pick:
        """Write what taking a candidate means on the board."""
        shape, board, want = self._shape, self._board, frame.want
        content = shape.contents[candidate]
        if content.counters and self._draws(want, candidate):
            counters.take(board, shape.pool_of[candidate], content.counters)
        consumed: dict[str, int] | None = None
        if content.shareable:
            consumed = frame.options.share(candidate)
            capacity.take(board, candidate, consumed)
            if content.counters and not want.admin:
                board.write(("shared", candidate), True)
        else:
            board.write(USED, board.facts.get(USED, 0) | 1 << candidate)
            if self._ask.minds_admin:
                own = ("claim", frame.choice.claim)
                board.write(own, board.facts.get(own, 0) | 1 << candidate)
        for rule in want.rules:
            constraints.take(board, rule, content.values(rule.attribute))
        pick = Pick(Point(frame.choice, want, frame.nth), candidate, consumed)
        self._picks.append(pick)
        return pick
