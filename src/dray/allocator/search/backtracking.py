"""The search: one loop, one stack, one trail.

Theory of operation: depth first over choices, alternatives and devices, in order; the first full solution is
the answer. A *frame* is a point of the walk with its options and the place it has come to. Taking a candidate
writes facts on the board; leaving a frame rewinds them. A walk that goes astray (`PLAIN_WORK`) asks for help
before it goes on (see pruning): whether the rest can be completed at a point at all, and which devices are
interchangeable with one that failed. A completion that was found is a *witness*: as long as the walk agrees
with it nothing needs to be asked again. Pruning changes how long the walk takes, never where it ends.

The walk is told as beats, and only as beats: nothing here logs, counts for others or calls back. A beat comes
at least every few milliseconds of work, so that whoever drives the search can stop it in time.

Rules for this file: no gates, no names of devices, no text, no clock. A candidate is a number.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator

from dray.allocator.checks import capacity, constraints, counters
from dray.allocator.inventory.device_inventory import Shape
from dray.allocator.partial_solution import USED, Board
from dray.allocator.refusals import Reason, Refusal, Short
from dray.allocator.requests import MAX_RESULTS, Ask, Choice, Want
from dray.allocator.search.candidates import NOT_YET, Options, options_of
from dray.allocator.search.frames import NO_DEVICE_NEEDED, NOTHING, Frame
from dray.allocator.search.pruning import Completion, Pruning, Witness
from dray.allocator.search.trace import (
    Beat,
    DeadEnd,
    Exhausted,
    Faulted,
    GaveUp,
    Pick,
    Point,
    Progress,
    Solved,
    Took,
)

BUDGET = 100_000
"""Steps a search may take before it gives up."""

PLAIN_WORK = 600
"""Work since the first dead end after which a walk asks for help, counted in refused candidates. It is about
what asking for the first time costs, so that a walk never takes more than twice what it would have taken."""

STEP_WORK = 4
"""What a step is worth in refused candidates."""

PATIENCE = 2_000
"""States that one question may look at. A walk that gets no answer goes on without it, and asks the next with
half as much patience: questions must not cost more than the walk. Every answer gives some of it back."""

PORTION = 24
"""States looked at, or devices evaluated, between two beats."""


def search(ask: Ask, shape: Shape, budget: int = BUDGET, *, prune: bool = True) -> Iterator[Beat]:
    """Walk; yields what happens and ends with exactly one ending."""
    return _Walk(ask, shape, prune).beats(budget)


class _Walk:
    """One search while it lasts."""

    def __init__(self, ask: Ask, shape: Shape, prune: bool) -> None:
        self._ask = ask
        self._shape = shape
        self._board = Board()
        self._stack: list[Frame] = []
        self._picks: list[Pick] = []
        self._may_prune = prune
        self._pruning: Pruning | None = None
        self._steps = self._wasted = 0
        self._first_dead_end = -1
        self._patience = PATIENCE

    def beats(self, budget: int) -> Iterator[Beat]:
        frame = self._enter(0, 0)
        while frame is not None:
            self._steps += 1
            if self._steps > budget:
                yield GaveUp(self._steps)
                return
            if not frame.sized:
                yield from self._size(frame)
            if self._pruning is not None and not frame.settled:
                yield from self._look_ahead(frame)
            while (candidate := self._next(frame)) == NOT_YET:
                yield Progress(self._steps)
            if candidate >= 0 and frame.options.faulty >> candidate & 1:
                yield Faulted(frame.point, candidate, frame.options.refusals[candidate], self._steps)
                return
            if candidate != NOTHING:
                if candidate >= 0:
                    yield Took(self._take(frame, candidate), tuple(frame.refused))
                frame = self._onward(frame, candidate)
                continue
            yield DeadEnd(frame.point, tuple(frame.refused), frame.lacking)
            if self._may_prune and self._is_astray(frame) and (yield from self._begin_pruning()):
                self._board.rewind(0)
                self._picks.clear()
                yield Exhausted(self._steps)
                return
            frame = self._back(frame)
            if frame is None:
                yield Exhausted(self._steps)
                return
        yield Solved(tuple(self._picks), self._steps)

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
        frame = Frame(choice, alternative, options_of(self._shape, want), mark, before)
        if want.wants_all:
            frame.sized = False
        elif before + frame.count > MAX_RESULTS:
            frame.lacking = self._structural(frame)
        return frame

    def _size(self, frame: Frame) -> Iterator[Beat]:
        """Find out how many devices a frame for all of them needs."""
        while not frame.options.judge_some(PORTION):
            yield Progress(self._steps)
        frame.count = frame.options.suiting.bit_count()
        frame.lacking = self._structural(frame)
        frame.sized = True

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
        return frame.following(self._board.mark())

    def _back(self, frame: Frame) -> Frame | None:
        """The next frame to try after one came to its end; None when everything was tried."""
        while True:
            if frame.nth == 0 and frame.alternative + 1 < len(frame.choice.wants):
                return self._open(frame.choice, frame.alternative + 1, frame.mark, frame.before)
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

    # --- pruning ---

    def _is_astray(self, frame: Frame) -> bool:
        """Whether enough was tried in vain to ask for help."""
        if self._first_dead_end < 0:
            self._first_dead_end = self._steps
        self._wasted += len(frame.refused)
        return self._wasted + STEP_WORK * (self._steps - self._first_dead_end) >= PLAIN_WORK

    def _begin_pruning(self) -> Generator[Beat, None, bool]:
        """Ask for help from now on; the result is whether there is no solution at all."""
        self._may_prune = False
        options: dict[Want, Options] = {}
        for choice in self._ask.choices:
            for want in choice.wants:
                options[want] = options_of(self._shape, want)
                while not options[want].judge_some(PORTION):
                    yield Progress(self._steps)
        pruning = Pruning(self._ask, self._shape, options, MAX_RESULTS)
        if not pruning.usable:
            return False
        self._pruning = pruning
        whole = pruning.whole()
        return whole is not None and (yield from self._answer(whole)) is False

    def _learn(self, frame: Frame) -> None:
        """Come back to a frame whose candidate failed: what else is not worth trying there."""
        frame.settled = False
        if self._pruning is None:
            return
        failed = self._pruning.equivalents(self._picks, frame.point, frame.start, frame.taken)
        frame.allowed &= ~failed
        witness = frame.witness
        if witness is not None:
            if witness.devices.get(frame.choice.index, 0) & failed:
                frame.witness = None
            else:
                frame.settled = True

    def _look_ahead(self, frame: Frame) -> Iterator[Beat]:
        """Ask whether a frame is worth trying at all."""
        assert self._pruning is not None
        frame.settled = True
        if frame.lacking is not None or self._ends_the_search(frame):
            return
        frame.witness = self._inherited(frame)
        if frame.witness is not None:
            return
        question = self._pruning.question(self._picks, frame.point, frame.cursor, frame.allowed)
        if (yield from self._answer(question)) is False:
            frame.lacking = question.lacking
        frame.witness = question.witness

    def _ends_the_search(self, frame: Frame) -> bool:
        """Whether a frame has a device that cannot be judged: the walk never steps back from it."""
        faulty = frame.options.faulty
        if not faulty or frame.want.wants_all:  # who wants all looks at all, also at what somebody has
            return bool(faulty)
        return bool(faulty & ~self._blocked(frame) >> frame.cursor << frame.cursor)

    def _inherited(self, frame: Frame) -> Witness | None:
        """The witness of the frame before, when the walk has agreed with it so far."""
        assert self._pruning is not None
        witness = self._stack[-1].witness if self._stack else None
        if witness is None:
            return None
        index = frame.choice.index
        agreed = witness.demands.get(index) is self._pruning.demand(frame.point)
        before = self._stack[-1]
        if not agreed or (
            before.taken >= 0 and not witness.devices.get(before.choice.index, 0) >> before.taken & 1
        ):
            return None
        left = witness.devices[index] >> frame.cursor << frame.cursor & frame.allowed
        return witness if left.bit_count() >= frame.count - frame.nth else None

    def _answer(self, question: Completion) -> Generator[Beat, None, bool | None]:
        """The answer to a question, with beats in between."""
        while question.nodes < self._patience:
            before = question.nodes
            answer = question.run(min(PORTION, self._patience - before))
            self._steps += question.nodes - before
            if answer is not None:
                self._patience = min(self._patience + question.nodes // 2 + 1, PATIENCE)
                return answer
            yield Progress(self._steps)
        self._patience = max(self._patience // 2, 1)
        return None

    # --- one candidate ---

    def _next(self, frame: Frame) -> int:
        """The next candidate that every check lets pass."""
        if frame.lacking is not None:
            return NOTHING
        options = frame.options
        if frame.want.wants_all:
            return self._next_of_all(frame)
        if frame.count == 0:
            return NO_DEVICE_NEEDED if frame.taken == NOTHING else NOTHING
        blocked = self._blocked(frame) | ~frame.allowed
        while True:
            candidate = options.first(frame.cursor, blocked, PORTION)
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
        if refusal is None and content.counter_sets and self._draws(want, candidate):
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
