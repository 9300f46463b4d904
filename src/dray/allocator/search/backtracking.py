"""Backtracking search: finds a device for every request of a pod on one node shape.

Theory of operation: depth first over choices, alternatives and devices, in order; the first complete solution
is the answer. A *frame* is one search point with its candidates and how far they were tried. Taking a
candidate records facts in the partial solution; backtracking rewinds them. A search that wasted too much work
(`PRUNING_THRESHOLD`) starts to prune (see pruning): it asks whether the rest can be completed at a point at
all, and which devices are interchangeable with one that failed. While the search agrees with a *known
completion*, nothing needs to be proven again. Pruning changes how long the search takes, never its answer.

The search reports what it does as trace events, and only as trace events: it does not log, count or call
back. An event comes at least every few milliseconds of work, so that the caller can stop the search in time.

This module must not contain feature gates, device names, message texts or a clock. A candidate is a number.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator

from dray.allocator.inventory.node_shapes import NodeShape
from dray.allocator.refusals import Refusal, RefusalReason, Shortage
from dray.allocator.requests import MAX_RESULTS, AllocationRequest, RequestAlternative, RequestChoice
from dray.allocator.search.candidate_checks import CandidateChecks
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
    SearchProgress,
    Solved,
    TraceEvent,
)

STEP_BUDGET = 100_000
"""Steps a search may take before it gives up."""

PRUNING_THRESHOLD = 600
"""Work since the first dead end after which a search starts to prune, counted in refused candidates. This is
about what building the pruning model costs, so that pruning never makes a search more than twice as long."""

STEP_WORK = 4
"""Cost of a step, counted in refused candidates."""

MAX_PRUNING_STATES = 2_000
"""States that one completion search may visit. When it ends without an answer the search continues without
pruning there and halves the limit for the next one: pruning must not cost more than the search. Every answer
raises the limit again."""

PROGRESS_INTERVAL = 24
"""States visited, or devices evaluated, between two trace events."""


def search(
    allocation_request: AllocationRequest, shape: NodeShape, budget: int = STEP_BUDGET, *, prune: bool = True
) -> Iterator[TraceEvent]:
    """Search for devices; yields trace events, of which the last one is the only ending."""
    return BacktrackingSearch(allocation_request, shape, prune).run(budget)


class BacktrackingSearch:
    """The state of one search: its stack of frames, its picks and what pruning knows."""

    def __init__(self, allocation_request: AllocationRequest, shape: NodeShape, prune: bool) -> None:
        self._allocation_request = allocation_request
        self._shape = shape
        self._checks = CandidateChecks(allocation_request, shape)
        self._solution = self._checks.solution
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
                    pick = self._checks.take(frame, candidate)
                    self._picks.append(pick)
                    yield CandidateTaken(pick, tuple(frame.refused))
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

    # --- frames ---

    def _enter_choice(self, index: int, devices_before: int) -> SearchFrame | None:
        """Open the first alternative of a choice; None when no choice is left, which is a solution."""
        if index == len(self._allocation_request.choices):
            return None
        choice = self._allocation_request.choices[index]
        if index and self._allocation_request.choices[index - 1].claim_index != choice.claim_index:
            devices_before = 0
        return self._open_frame(choice, 0, self._solution.mark(), devices_before)

    def _open_frame(
        self, choice: RequestChoice, alternative_index: int, mark: int, devices_before: int
    ) -> SearchFrame:
        alternative = choice.alternatives[alternative_index]
        frame = SearchFrame(
            choice, alternative_index, get_candidate_set(self._shape, alternative), mark, devices_before
        )
        if alternative.takes_all:
            frame.is_counted = False
        elif devices_before + frame.count > MAX_RESULTS:
            frame.blocker = self._find_blocker(frame)
        return frame

    def _count_devices(self, frame: SearchFrame) -> Iterator[TraceEvent]:
        """Evaluate all candidates of an "All" request to learn how many devices it needs."""
        while not frame.candidates.evaluate_some(PROGRESS_INTERVAL):
            yield SearchProgress(self._steps)
        frame.count = frame.candidates.matching.bit_count()
        frame.blocker = self._find_blocker(frame)
        frame.is_counted = True

    def _find_blocker(self, frame: SearchFrame) -> Refusal | None:
        """Why an alternative cannot be tried at all; None when it can."""
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
        """Open the next frame after a candidate was taken; None when everything is taken."""
        frame.taken = candidate
        self._stack.append(frame)
        if frame.device_index + 1 >= frame.count:
            return self._enter_choice(frame.choice.index + 1, frame.devices_before + (candidate >= 0))
        return frame.build_next(self._solution.mark())

    def _backtrack(self, frame: SearchFrame) -> SearchFrame | None:
        """The next frame to try after a dead end; None when everything was tried."""
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
        """Count the work of a dead end; whether enough was wasted to start pruning."""
        if self._first_dead_end < 0:
            self._first_dead_end = self._steps
        self._wasted_work += len(frame.refused)
        return self._wasted_work + STEP_WORK * (self._steps - self._first_dead_end) >= PRUNING_THRESHOLD

    def _begin_pruning(self) -> Generator[TraceEvent, None, bool]:
        """Prune from now on; returns whether pruning proves that there is no solution at all."""
        self._may_prune = False
        candidate_sets: dict[RequestAlternative, CandidateSet] = {}
        for choice in self._allocation_request.choices:
            for alternative in choice.alternatives:
                found = candidate_sets[alternative] = get_candidate_set(self._shape, alternative)
                while not found.evaluate_some(PROGRESS_INTERVAL):
                    yield SearchProgress(self._steps)
        pruner = Pruner(self._allocation_request, self._shape, candidate_sets, MAX_RESULTS)
        if not pruner.usable:
            return False
        self._pruner = pruner
        whole = pruner.build_whole_search()
        return whole is not None and (yield from self._run_completion(whole)) is False

    def _exclude_equivalents(self, frame: SearchFrame) -> None:
        """Exclude from a frame the candidates that are interchangeable with the one that failed."""
        frame.is_checked = False
        if self._pruner is None:
            return
        failed = self._pruner.find_equivalents(self._picks, frame.point, frame.first_position, frame.taken)
        frame.allowed &= ~failed
        known = frame.completion
        if known is not None:
            if known.devices.get(frame.choice.index, 0) & failed:
                frame.completion = None
            else:
                frame.is_checked = True

    def _look_ahead(self, frame: SearchFrame) -> Iterator[TraceEvent]:
        """Block a frame from which the search cannot be completed."""
        assert self._pruner is not None
        frame.is_checked = True
        if frame.blocker is not None or self._may_fault(frame):
            return
        frame.completion = self._inherit_completion(frame)
        if frame.completion is not None:
            return
        completion = self._pruner.build_completion_search(
            self._picks, frame.point, frame.cursor, frame.allowed
        )
        if (yield from self._run_completion(completion)) is False:
            frame.blocker = completion.blocker
        frame.completion = completion.completion

    def _may_fault(self, frame: SearchFrame) -> bool:
        """Whether a frame has a device that cannot be evaluated: the search ends there."""
        faulty = frame.candidates.faulty
        if not faulty or frame.alternative.takes_all:  # "All" requests also evaluate devices in use
            return bool(faulty)
        return bool(faulty & ~self._checks.find_blocked(frame) >> frame.cursor << frame.cursor)

    def _inherit_completion(self, frame: SearchFrame) -> KnownCompletion | None:
        """The known completion of the previous frame, if the search has agreed with it so far."""
        assert self._pruner is not None
        known = self._stack[-1].completion if self._stack else None
        if known is None:
            return None
        index = frame.choice.index
        agreed = known.demands.get(index) is self._pruner.get_demand(frame.point)
        before = self._stack[-1]
        if not agreed or (
            before.taken >= 0 and not known.devices.get(before.choice.index, 0) >> before.taken & 1
        ):
            return None
        left = known.devices[index] >> frame.cursor << frame.cursor & frame.allowed
        return known if left.bit_count() >= frame.count - frame.device_index else None

    def _run_completion(self, completion: CompletionSearch) -> Generator[TraceEvent, None, bool | None]:
        """Run a completion search, with progress events in between; None when it ends without an answer."""
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
        """The next candidate that no rule refuses."""
        if frame.blocker is not None:
            return NO_CANDIDATE
        candidates = frame.candidates
        if frame.alternative.takes_all:
            return self._find_next_of_all(frame)
        if frame.count == 0:
            return NO_DEVICE_NEEDED if frame.taken == NO_CANDIDATE else NO_CANDIDATE
        blocked = self._checks.find_blocked(frame) | ~frame.allowed
        while True:
            candidate = candidates.find_first(frame.cursor, blocked, PROGRESS_INTERVAL)
            if candidate < 0 or candidates.faulty >> candidate & 1:
                return candidate
            frame.cursor = candidate + 1
            refusal = self._checks.find_refusal(frame, candidate)
            if refusal is None:
                return candidate
            frame.refused.append((candidate, refusal))

    def _find_next_of_all(self, frame: SearchFrame) -> int:
        """The one device that must come next in an "All" request."""
        candidates = frame.candidates
        if candidates.faulty:
            return (candidates.faulty & -candidates.faulty).bit_length() - 1
        if frame.taken != NO_CANDIDATE or frame.refused:
            return NO_CANDIDATE
        there = candidates.matching >> frame.cursor << frame.cursor
        candidate = (there & -there).bit_length() - 1
        frame.cursor = candidate + 1
        refusal = candidates.refusals.get(candidate)
        if refusal is None and self._checks.find_blocked(frame) >> candidate & 1:
            refusal = Refusal(RefusalReason.IN_USE)
        if refusal is None:
            refusal = self._checks.find_refusal(frame, candidate)
        if refusal is None:
            return candidate
        frame.refused.append((candidate, refusal))
        return NO_CANDIDATE
