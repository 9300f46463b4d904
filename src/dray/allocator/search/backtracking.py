"""The search: one loop, one stack, one trail.

Theory of operation: depth first over choices, alternatives and devices, in order; the first full solution is
the answer. A *frame* is a point of the walk with its options and the place it has come to. Taking a candidate
writes facts on the board; leaving a frame rewinds them. A walk that goes astray (`PRUNING_THRESHOLD`) asks
for help before it goes on (see pruning): whether the rest can be completed at a point at all, and which
devices are interchangeable with one that failed. A completion that was found is a *witness*: as long as the
walk agrees with it nothing needs to be asked again. Pruning changes how long the walk takes, never where it
ends.

The walk is told as beats, and only as beats: nothing here logs, counts for others or calls back. A beat comes
at least every few milliseconds of work, so that whoever drives the search can stop it in time.

Rules for this file: no gates, no names of devices, no text, no clock. A candidate is a number.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator

from dray.allocator.checks import capacity, constraints, counters
from dray.allocator.inventory.device_inventory import NodeShape
from dray.allocator.partial_solution import USED_DEVICES, PartialSolution
from dray.allocator.refusals import Refusal, RefusalReason, Shortage
from dray.allocator.requests import MAX_RESULTS, AllocationRequest, RequestAlternative, RequestChoice
from dray.allocator.search.candidates import NOT_EVALUATED, CandidateSet, get_candidate_set
from dray.allocator.search.frames import NO_CANDIDATE, NO_DEVICE_NEEDED, SearchFrame
from dray.allocator.search.pruning import CompletionSearch, KnownCompletion, Pruner
from dray.allocator.search.trace import (
    CandidateTaken,
    DeadEnd,
    Exhausted,
    Faulted,
    GaveUp,
    Pick,
    SearchPoint,
    SearchProgress,
    Solved,
    TraceEvent,
)

STEP_BUDGET = 100_000
"""Steps a search may take before it gives up."""

PRUNING_THRESHOLD = 600
"""Work since the first dead end after which a walk asks for help, counted in refused candidates. It is about
what asking for the first time costs, so that a walk never takes more than twice what it would have taken."""

STEP_WORK = 4
"""What a step is worth in refused candidates."""

MAX_PRUNING_STATES = 2_000
"""States that one question may look at. A walk that gets no answer goes on without it, and asks the next with
half as much patience: questions must not cost more than the walk. Every answer gives some of it back."""

PROGRESS_INTERVAL = 24
"""States looked at, or devices evaluated, between two beats."""


def search(
    allocation_request: AllocationRequest, shape: NodeShape, budget: int = STEP_BUDGET, *, prune: bool = True
) -> Iterator[TraceEvent]:
    """Walk; yields what happens and ends with exactly one ending."""
    return BacktrackingSearch(allocation_request, shape, prune).run(budget)


class BacktrackingSearch:
    """One search while it lasts."""

    def __init__(self, allocation_request: AllocationRequest, shape: NodeShape, prune: bool) -> None:
        self._allocation_request = allocation_request
        self._shape = shape
        self._solution = PartialSolution()
        self._stack: list[SearchFrame] = []
        self._picks: list[Pick] = []
        self._may_prune = prune
        self._pruner: Pruner | None = None
        self._steps = self._wasted_work = 0
        self._first_dead_end = -1
        self._state_budget = MAX_PRUNING_STATES

    def run(self, budget: int) -> Iterator[TraceEvent]:
        frame = self._enter_choice(0, 0)
        while frame is not None:
            self._steps += 1
            if self._steps > budget:
                yield GaveUp(self._steps)
                return
            if not frame.is_counted:
                yield from self._count_devices(frame)
            if self._pruner is not None and not frame.is_checked:
                yield from self._look_ahead(frame)
            while (candidate := self._find_next(frame)) == NOT_EVALUATED:
                yield SearchProgress(self._steps)
            if candidate >= 0 and frame.candidates.faulty >> candidate & 1:
                yield Faulted(frame.point, candidate, frame.candidates.refusals[candidate], self._steps)
                return
            if candidate != NO_CANDIDATE:
                if candidate >= 0:
                    yield CandidateTaken(self._take_candidate(frame, candidate), tuple(frame.refused))
                frame = self._advance(frame, candidate)
                continue
            yield DeadEnd(frame.point, tuple(frame.refused), frame.blocker)
            if self._may_prune and self._should_prune(frame) and (yield from self._begin_pruning()):
                self._solution.rewind(0)
                self._picks.clear()
                yield Exhausted(self._steps)
                return
            frame = self._backtrack(frame)
            if frame is None:
                yield Exhausted(self._steps)
                return
        yield Solved(tuple(self._picks), self._steps)

    # --- moving ---

    def _enter_choice(self, index: int, devices_before: int) -> SearchFrame | None:
        """The first alternative of a choice; None when there is no choice left, which is a solution."""
        if index == len(self._allocation_request.choices):
            return None
        choice = self._allocation_request.choices[index]
        if index and self._allocation_request.choices[index - 1].claim_index != choice.claim_index:
            devices_before = 0
        return self._open_frame(choice, 0, self._solution.mark(), devices_before)

    def _open_frame(
        self, choice: RequestChoice, alternative_index: int, mark: int, devices_before: int
    ) -> SearchFrame:
        want = choice.alternatives[alternative_index]
        frame = SearchFrame(
            choice, alternative_index, get_candidate_set(self._shape, want), mark, devices_before
        )
        if want.takes_all:
            frame.is_counted = False
        elif devices_before + frame.count > MAX_RESULTS:
            frame.blocker = self._find_blocker(frame)
        return frame

    def _count_devices(self, frame: SearchFrame) -> Iterator[TraceEvent]:
        """Find out how many devices a frame for all of them needs."""
        while not frame.candidates.evaluate_some(PROGRESS_INTERVAL):
            yield SearchProgress(self._steps)
        frame.count = frame.candidates.matching.bit_count()
        frame.blocker = self._find_blocker(frame)
        frame.is_counted = True

    def _find_blocker(self, frame: SearchFrame) -> Refusal | None:
        """What keeps an alternative from being tried at all."""
        if frame.alternative.takes_all:
            if self._shape.flaws:
                return self._shape.flaws[0][1]
            if not frame.count and not frame.candidates.faulty:
                return Refusal(RefusalReason.NOTHING_MATCHES)
        if frame.devices_before + frame.count > MAX_RESULTS:
            return Refusal(
                RefusalReason.TOO_MANY_DEVICES, Shortage("", frame.devices_before + frame.count, MAX_RESULTS)
            )
        return None

    def _advance(self, frame: SearchFrame, candidate: int) -> SearchFrame | None:
        """The frame behind a candidate that was taken."""
        frame.taken = candidate
        self._stack.append(frame)
        if frame.device_index + 1 >= frame.count:
            return self._enter_choice(frame.choice.index + 1, frame.devices_before + (candidate >= 0))
        return frame.build_next(self._solution.mark())

    def _backtrack(self, frame: SearchFrame) -> SearchFrame | None:
        """The next frame to try after one came to its end; None when everything was tried."""
        while True:
            if frame.device_index == 0 and frame.alternative_index + 1 < len(frame.choice.alternatives):
                return self._open_frame(
                    frame.choice, frame.alternative_index + 1, frame.mark, frame.devices_before
                )
            if not self._stack:
                return None
            frame = self._stack.pop()
            self._solution.rewind(frame.mark)
            if frame.taken == NO_DEVICE_NEEDED:
                continue
            self._picks.pop()
            if frame.alternative.takes_all:
                continue
            self._exclude_equivalents(frame)
            return frame

    # --- pruning ---

    def _should_prune(self, frame: SearchFrame) -> bool:
        """Whether enough was tried in vain to ask for help."""
        if self._first_dead_end < 0:
            self._first_dead_end = self._steps
        self._wasted_work += len(frame.refused)
        return self._wasted_work + STEP_WORK * (self._steps - self._first_dead_end) >= PRUNING_THRESHOLD

    def _begin_pruning(self) -> Generator[TraceEvent, None, bool]:
        """Ask for help from now on; the result is whether there is no solution at all."""
        self._may_prune = False
        options: dict[RequestAlternative, CandidateSet] = {}
        for choice in self._allocation_request.choices:
            for want in choice.alternatives:
                options[want] = get_candidate_set(self._shape, want)
                while not options[want].evaluate_some(PROGRESS_INTERVAL):
                    yield SearchProgress(self._steps)
        pruning = Pruner(self._allocation_request, self._shape, options, MAX_RESULTS)
        if not pruning.usable:
            return False
        self._pruner = pruning
        whole = pruning.build_whole_search()
        return whole is not None and (yield from self._run_completion(whole)) is False

    def _exclude_equivalents(self, frame: SearchFrame) -> None:
        """Come back to a frame whose candidate failed: what else is not worth trying there."""
        frame.is_checked = False
        if self._pruner is None:
            return
        failed = self._pruner.find_equivalents(self._picks, frame.point, frame.first_position, frame.taken)
        frame.allowed &= ~failed
        witness = frame.completion
        if witness is not None:
            if witness.devices.get(frame.choice.index, 0) & failed:
                frame.completion = None
            else:
                frame.is_checked = True

    def _look_ahead(self, frame: SearchFrame) -> Iterator[TraceEvent]:
        """Ask whether a frame is worth trying at all."""
        assert self._pruner is not None
        frame.is_checked = True
        if frame.blocker is not None or self._may_fault(frame):
            return
        frame.completion = self._inherit_completion(frame)
        if frame.completion is not None:
            return
        question = self._pruner.build_completion_search(self._picks, frame.point, frame.cursor, frame.allowed)
        if (yield from self._run_completion(question)) is False:
            frame.blocker = question.blocker
        frame.completion = question.completion

    def _may_fault(self, frame: SearchFrame) -> bool:
        """Whether a frame has a device that cannot be judged: the walk never steps back from it."""
        faulty = frame.candidates.faulty
        if not faulty or frame.alternative.takes_all:  # who wants all looks at all, also at what somebody has
            return bool(faulty)
        return bool(faulty & ~self._find_blocked(frame) >> frame.cursor << frame.cursor)

    def _inherit_completion(self, frame: SearchFrame) -> KnownCompletion | None:
        """The witness of the frame before, when the walk has agreed with it so far."""
        assert self._pruner is not None
        witness = self._stack[-1].completion if self._stack else None
        if witness is None:
            return None
        index = frame.choice.index
        agreed = witness.demands.get(index) is self._pruner.get_demand(frame.point)
        before = self._stack[-1]
        if not agreed or (
            before.taken >= 0 and not witness.devices.get(before.choice.index, 0) >> before.taken & 1
        ):
            return None
        left = witness.devices[index] >> frame.cursor << frame.cursor & frame.allowed
        return witness if left.bit_count() >= frame.count - frame.device_index else None

    def _run_completion(self, completion: CompletionSearch) -> Generator[TraceEvent, None, bool | None]:
        """The answer to a question, with beats in between."""
        while completion.visited < self._state_budget:
            before = completion.visited
            answer = completion.run(min(PROGRESS_INTERVAL, self._state_budget - before))
            self._steps += completion.visited - before
            if answer is not None:
                self._state_budget = min(self._state_budget + completion.visited // 2 + 1, MAX_PRUNING_STATES)
                return answer
            yield SearchProgress(self._steps)
        self._state_budget = max(self._state_budget // 2, 1)
        return None

    # --- one candidate ---

    def _find_next(self, frame: SearchFrame) -> int:
        """The next candidate that every check lets pass."""
        if frame.blocker is not None:
            return NO_CANDIDATE
        options = frame.candidates
        if frame.alternative.takes_all:
            return self._find_next_of_all(frame)
        if frame.count == 0:
            return NO_DEVICE_NEEDED if frame.taken == NO_CANDIDATE else NO_CANDIDATE
        blocked = self._find_blocked(frame) | ~frame.allowed
        while True:
            candidate = options.find_first(frame.cursor, blocked, PROGRESS_INTERVAL)
            if candidate < 0 or options.faulty >> candidate & 1:
                return candidate
            frame.cursor = candidate + 1
            refusal = self._check_candidate(frame, candidate)
            if refusal is None:
                return candidate
            frame.refused.append((candidate, refusal))

    def _find_next_of_all(self, frame: SearchFrame) -> int:
        """The one device that must come next when all are wanted."""
        options = frame.candidates
        if options.faulty:
            return (options.faulty & -options.faulty).bit_length() - 1
        if frame.taken != NO_CANDIDATE or frame.refused:
            return NO_CANDIDATE
        there = options.matching >> frame.cursor << frame.cursor
        candidate = (there & -there).bit_length() - 1
        frame.cursor = candidate + 1
        refusal = options.refusals.get(candidate)
        if refusal is None and self._find_blocked(frame) >> candidate & 1:
            refusal = Refusal(RefusalReason.IN_USE)
        if refusal is None:
            refusal = self._check_candidate(frame, candidate)
        if refusal is None:
            return candidate
        frame.refused.append((candidate, refusal))
        return NO_CANDIDATE

    def _find_blocked(self, frame: SearchFrame) -> int:
        """Candidates somebody has; admin access only minds those of its own claim."""
        facts = self._solution.facts
        if frame.alternative.admin:
            own: int = facts.get(("claim", frame.choice.claim_index), 0)
            return own
        used: int = facts.get(USED_DEVICES, 0)
        return self._shape.taken | used

    def _check_candidate(self, frame: SearchFrame, candidate: int) -> Refusal | None:
        """The checks that depend on what was taken before."""
        shape, board, want = self._shape, self._solution, frame.alternative
        content = shape.profiles[candidate]
        refusal = None
        if content.shareable:
            share = frame.candidates.get_share(candidate)
            refusal = capacity.check(board, candidate, share, shape.capacity_left[candidate])
        elif candidate in shape.capacity_left:
            # Only admin access comes here: what old shares hold of a device is not there to look at, either.
            refusal = capacity.check(
                board, candidate, frame.candidates.get_share(candidate), shape.capacity_left[candidate]
            )
        if refusal is None and content.counter_sets and self._charges_counters(want, candidate):
            pool = shape.pool_indexes[candidate]
            if pool in shape.overdrawn:
                return Refusal(RefusalReason.COUNTER_SHORT)
            refusal = counters.check(board, pool, content.counters, shape.counters_left[pool])
        for rule in want.constraints if refusal is None else ():
            refusal = constraints.check(board, rule, content.get_values(rule.attribute))
            if refusal is not None:
                break
        return refusal

    def _charges_counters(self, alternative: RequestAlternative, candidate: int) -> bool:
        """Whether taking a candidate charges counters: not twice for shares, never for admin access."""
        return not (
            alternative.admin
            or self._shape.shared >> candidate & 1
            or ("shared", candidate) in self._solution.facts
        )

    def _take_candidate(self, frame: SearchFrame, candidate: int) -> Pick:
        """Write what taking a candidate means on the board."""
        shape, board, want = self._shape, self._solution, frame.alternative
        content = shape.profiles[candidate]
        if content.counters and self._charges_counters(want, candidate):
            counters.take(board, shape.pool_indexes[candidate], content.counters)
        consumed: dict[str, int] | None = None
        if content.shareable:
            consumed = frame.candidates.get_share(candidate)
            capacity.take(board, candidate, consumed)
            if content.counters and not want.admin:
                board.set_fact(("shared", candidate), True)
        else:
            board.set_fact(USED_DEVICES, board.facts.get(USED_DEVICES, 0) | 1 << candidate)
            if self._allocation_request.has_admin_access:
                own = ("claim", frame.choice.claim_index)
                board.set_fact(own, board.facts.get(own, 0) | 1 << candidate)
        for rule in want.constraints:
            constraints.take(board, rule, content.get_values(rule.attribute))
        pick = Pick(SearchPoint(frame.choice, want, frame.device_index), candidate, consumed)
        self._picks.append(pick)
        return pick
