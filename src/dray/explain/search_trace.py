"""Listening to a search: how far it came, where it ended, what it turned back from.

Theory of operation: beats come depth first, so the picks that stand at any moment are a stack, and a beat at
a point says that everything taken at that point or behind it is undone. Of all dead ends the *furthest* is
kept: the latest request anybody came to, with the most devices for it, and under those very picks the dead
ends of its other alternatives. Picks that were undone leave a *fate*: the request that found nothing then.

Counting ahead ends branches without looking at devices, which is fast and tells little. So the story is
first asked for without it, with a small budget (`DETAILED_STEPS`); only when that does not come to an end the
search is run as the allocator runs it. Both give the same answer.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from dray.allocator.inventory.node_shapes import NodeShape
from dray.allocator.refusals import Refusal, RefusalReason
from dray.allocator.requests import AllocationRequest, RequestAlternative
from dray.allocator.search.backtracking import search
from dray.allocator.search.resumable import ResumableSearch
from dray.allocator.search.trace import (
    CandidateTaken,
    DeadEnd,
    Faulted,
    GaveUp,
    Pick,
    SearchEnding,
    SearchPoint,
    Solved,
    TraceEvent,
)
from dray.explain.work_budget import Steps, WorkBudget, run_to_end

DETAILED_STEPS = 1_000
"""Steps that a search may take for the sake of a better story."""

SearchPosition = tuple[int, int]
"""Choice and device of it: where on the way a pick stands."""


class DeadEndRecord(msgspec.Struct, frozen=True, eq=False):
    """A dead end: the point, the picks that stood, and what kept the whole alternative from being tried.

    `examined_count` is how many candidates the search looked at here; None means all of them. Others may have
    been judged for somebody else, but are no part of this story.
    """

    point: SearchPoint
    picks: tuple[Pick, ...]
    obstacle: Refusal | None
    examined_count: int | None = None


class SearchTrace(msgspec.Struct, frozen=True, eq=False):
    """What a search told: its ending, the furthest dead ends, and for the final path what was left behind."""

    ending: SearchEnding
    furthest: tuple[DeadEndRecord, ...]
    skipped: dict[int, tuple[DeadEndRecord, ...]]
    undo_causes: dict[SearchPosition, dict[tuple[RequestAlternative, int], SearchPoint]]


def trace_search(
    allocation_request: AllocationRequest,
    shape: NodeShape,
    max_steps: int,
    detailed_steps: int = DETAILED_STEPS,
) -> SearchTrace:
    """The story of an ask on a shape, as much of it as patience allows."""
    return run_to_end(
        trace_search_stepwise(allocation_request, shape, WorkBudget(max_steps=max_steps), detailed_steps)
    )


def trace_search_stepwise(
    allocation_request: AllocationRequest,
    shape: NodeShape,
    work_budget: WorkBudget,
    detailed_steps: int = DETAILED_STEPS,
) -> Steps[SearchTrace]:
    """The same in small steps, with a limit in time.

    A search that is known to have been given up is not made again: the story of the first steps has to do.
    """
    given_up = work_budget.find_given_up(shape)
    if not detailed_steps and given_up is None:
        tale = yield from _run_traced(allocation_request, shape, work_budget, work_budget.max_steps)
        return tale
    tale = yield from _run_traced(
        allocation_request,
        shape,
        work_budget,
        min(detailed_steps or DETAILED_STEPS, work_budget.max_steps),
        prune=False,
    )
    if given_up is not None and isinstance(tale.ending, GaveUp | Solved):
        # Also where these steps happen to find devices: whoever gave up did not.
        most = max([given_up.found, *(len(halt.picks) for halt in tale.furthest)])
        return msgspec.structs.replace(tale, ending=msgspec.structs.replace(given_up, found=most))
    if not isinstance(tale.ending, GaveUp):
        return tale
    answer = yield from _run_traced(allocation_request, shape, work_budget, work_budget.max_steps)
    if not answer.furthest or (tale.furthest and _get_depth(tale) >= _get_depth(answer)):
        # The answer is the real one; the way there is told by the walk that looked at every device.
        return msgspec.structs.replace(answer, furthest=tale.furthest)
    return answer


def _get_depth(trace: SearchTrace) -> SearchPosition:
    return max(_get_position(halt.point) for halt in trace.furthest)


def _run_traced(
    allocation_request: AllocationRequest,
    shape: NodeShape,
    work_budget: WorkBudget,
    max_steps: int,
    *,
    prune: bool = True,
) -> Steps[SearchTrace]:
    """Run a search and hear what it tells."""
    listener = _TraceRecorder()
    events = listener.record_events(iter(search(allocation_request, shape, max_steps, prune=prune)))
    ending = yield from work_budget.run_search(ResumableSearch(allocation_request, shape, events))
    return listener.build_trace(ending)


def _get_position(point: SearchPoint) -> SearchPosition:
    return point.choice.index, point.device_index


class _DeadEndGroup:
    """The dead ends of one choice under the same picks: the furthest of each alternative."""

    def __init__(self, preceding_picks: tuple[Pick, ...]) -> None:
        self.preceding_picks = preceding_picks
        self.dead_ends: dict[RequestAlternative, DeadEndRecord] = {}


class _TraceRecorder:
    """A story while it is being told."""

    def __init__(self) -> None:
        self._picks: list[Pick] = []
        self._groups: dict[int, _DeadEndGroup] = {}
        self._furthest: _DeadEndGroup | None = None
        self._depth: SearchPosition = (-1, -1)
        self._latest_dead_end: SearchPoint | None = None
        self._undo_causes: dict[SearchPosition, dict[tuple[RequestAlternative, int], SearchPoint]] = {}

    def record_events(self, events: Iterator[TraceEvent]) -> Iterator[TraceEvent]:
        """Pass events on, and hear each."""
        for beat in events:
            self.record_event(beat)
            yield beat

    def record_event(self, event: TraceEvent) -> None:
        match event:
            case CandidateTaken():
                self._undo_picks(event.pick.point)
                self._picks.append(event.pick)
            case DeadEnd():
                self._undo_picks(event.point)
                unseen = event.blocker is not None and event.blocker.reason is RefusalReason.TOO_MANY_DEVICES
                looked = 0 if unseen and not event.point.alternative.takes_all else None
                self._record_dead_end(DeadEndRecord(event.point, tuple(self._picks), event.blocker, looked))
            case Faulted():
                self._undo_picks(event.point)
                self._record_dead_end(
                    DeadEndRecord(event.point, tuple(self._picks), event.refusal, event.candidate + 1)
                )
            case _:
                pass  # other endings, and signs of progress

    def _undo_picks(self, point: SearchPoint) -> None:
        """Forget the picks at a point and behind it; the one at the point has met its fate."""
        here = _get_position(point)
        while self._picks and _get_position(self._picks[-1].point) >= here:
            gone = self._picks.pop()
            if self._latest_dead_end is not None and _get_position(gone.point) == here:
                self._undo_causes.setdefault(here, {})[gone.point.alternative, gone.candidate] = (
                    self._latest_dead_end
                )
        if self._undo_causes:
            # What was tried further on was tried behind other picks.
            self._undo_causes = {place: fate for place, fate in self._undo_causes.items() if place <= here}

    def _record_dead_end(self, dead_end: DeadEndRecord) -> None:
        index = dead_end.point.choice.index
        before = tuple([pick for pick in dead_end.picks if pick.point.choice.index < index])
        record = self._groups.get(index)
        if record is None or record.preceding_picks != before:
            record = self._groups[index] = _DeadEndGroup(before)
        known = record.dead_ends.get(dead_end.point.alternative)
        if known is None or dead_end.point.device_index > known.point.device_index:
            record.dead_ends[dead_end.point.alternative] = dead_end
        if _get_position(dead_end.point) > self._depth:
            self._depth = _get_position(dead_end.point)
            self._furthest = record
        self._latest_dead_end = dead_end.point

    def build_trace(self, ending: SearchEnding) -> SearchTrace:
        furthest = tuple(self._furthest.dead_ends.values()) if self._furthest is not None else ()
        behind = {
            index: tuple(record.dead_ends.values())
            for index, record in self._groups.items()
            if record.preceding_picks
            == tuple(pick for pick in self._picks if pick.point.choice.index < index)
        }
        return SearchTrace(ending, furthest, behind, self._undo_causes)
