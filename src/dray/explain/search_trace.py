"""The search trace: how far a search came, where it ended, and what it backtracked from.

Theory of operation: trace events come depth first, so the current picks are a stack, and an event at a point
means that everything taken at that point or after it is undone. Of all dead ends the trace keeps the
*furthest*: that of the latest request, with the most devices for it, and under the same picks the dead ends
of its other alternatives. For an undone pick it keeps the cause: the request that found no device then. The
refusals that the search reports with its events are kept with the dead ends and with the picks of the
solution.

Pruning ends branches without examining devices, which is fast and explains little. So the search first runs
without pruning, with a small budget (`DETAILED_STEPS`); only when that does not finish does it run as the
allocator runs it. Both give the same answer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

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
"""Steps of a search without pruning, for a more detailed trace."""

SearchPosition = tuple[int, int]
"""The choice, and which device of it: the depth of a point."""


class DeadEndRecord(msgspec.Struct, frozen=True, eq=False):
    """A dead end: the point, the current picks, and what ruled out the whole alternative.

    `examined_count` is how many candidates the search examined here; None means all of them. Others may have
    been evaluated for another request, but are no part of this trace. `refused` are the refusals that the
    search reported here.
    """

    point: SearchPoint
    picks: tuple[Pick, ...]
    obstacle: Refusal | None
    examined_count: int | None = None
    refused: Mapping[int, Refusal] = {}


class SearchTrace(msgspec.Struct, frozen=True, eq=False):
    """The trace of a search: its ending, the furthest dead ends, and what the final path skipped.

    `refused` are the refusals that the search reported before each pick that stands at the end.
    """

    ending: SearchEnding
    furthest: tuple[DeadEndRecord, ...]
    skipped: dict[int, tuple[DeadEndRecord, ...]]
    undo_causes: dict[SearchPosition, dict[tuple[RequestAlternative, int], SearchPoint]]
    refused: dict[SearchPosition, Mapping[int, Refusal]] = {}


def trace_search(
    allocation_request: AllocationRequest,
    shape: NodeShape,
    max_steps: int,
    detailed_steps: int = DETAILED_STEPS,
) -> SearchTrace:
    """Trace the search for a request on a shape."""
    return run_to_end(
        trace_search_stepwise(allocation_request, shape, WorkBudget(max_steps=max_steps), detailed_steps)
    )


def trace_search_stepwise(
    allocation_request: AllocationRequest,
    shape: NodeShape,
    work_budget: WorkBudget,
    detailed_steps: int = DETAILED_STEPS,
) -> Steps[SearchTrace]:
    """Like `trace_search`, in small steps and with a limit in time.

    A search that was given up before is not repeated: only its first steps are traced.
    """
    given_up = work_budget.find_given_up(shape)
    if not detailed_steps and given_up is None:
        trace = yield from _run_traced(allocation_request, shape, work_budget, work_budget.max_steps)
        return trace
    trace = yield from _run_traced(
        allocation_request,
        shape,
        work_budget,
        min(detailed_steps or DETAILED_STEPS, work_budget.max_steps),
        prune=False,
    )
    if given_up is not None and isinstance(trace.ending, GaveUp | Solved):
        # Also where these steps happen to find devices: the search that was given up did not.
        most = max([given_up.found, *(len(dead_end.picks) for dead_end in trace.furthest)])
        return msgspec.structs.replace(trace, ending=msgspec.structs.replace(given_up, found=most))
    if not isinstance(trace.ending, GaveUp):
        return trace
    answer = yield from _run_traced(allocation_request, shape, work_budget, work_budget.max_steps)
    if not answer.furthest or (trace.furthest and _get_depth(trace) >= _get_depth(answer)):
        # The ending is that of the real search; the dead ends are those of the one without pruning.
        return msgspec.structs.replace(answer, furthest=trace.furthest)
    return answer


def _get_depth(trace: SearchTrace) -> SearchPosition:
    return max(_get_position(dead_end.point) for dead_end in trace.furthest)


def _run_traced(
    allocation_request: AllocationRequest,
    shape: NodeShape,
    work_budget: WorkBudget,
    max_steps: int,
    *,
    prune: bool = True,
) -> Steps[SearchTrace]:
    """Run a search and record its trace."""
    recorder = _TraceRecorder()
    events = recorder.record_events(iter(search(allocation_request, shape, max_steps, prune=prune)))
    ending = yield from work_budget.run_search(ResumableSearch(allocation_request, shape, events))
    return recorder.build_trace(ending)


def _get_position(point: SearchPoint) -> SearchPosition:
    return point.choice.index, point.device_index


class _DeadEndGroup:
    """The dead ends of one choice under the same picks: the furthest of each alternative."""

    def __init__(self, preceding_picks: tuple[Pick, ...]) -> None:
        self.preceding_picks = preceding_picks
        self.dead_ends: dict[RequestAlternative, DeadEndRecord] = {}


class _TraceRecorder:
    """Records the events of a search."""

    def __init__(self) -> None:
        self._picks: list[Pick] = []
        self._refused: list[Mapping[int, Refusal]] = []
        self._groups: dict[int, _DeadEndGroup] = {}
        self._furthest: _DeadEndGroup | None = None
        self._depth: SearchPosition = (-1, -1)
        self._latest_dead_end: SearchPoint | None = None
        self._undo_causes: dict[SearchPosition, dict[tuple[RequestAlternative, int], SearchPoint]] = {}

    def record_events(self, events: Iterator[TraceEvent]) -> Iterator[TraceEvent]:
        """Pass events on, and record each."""
        for event in events:
            self.record_event(event)
            yield event

    def record_event(self, event: TraceEvent) -> None:
        match event:
            case CandidateTaken():
                self._undo_picks(event.pick.point)
                self._picks.append(event.pick)
                self._refused.append(dict(event.refused))
            case DeadEnd():
                self._undo_picks(event.point)
                unseen = event.blocker is not None and event.blocker.reason is RefusalReason.TOO_MANY_DEVICES
                examined = 0 if unseen and not event.point.alternative.takes_all else None
                picks, refused = tuple(self._picks), dict(event.refused)
                self._record_dead_end(DeadEndRecord(event.point, picks, event.blocker, examined, refused))
            case Faulted():
                self._undo_picks(event.point)
                self._record_dead_end(
                    DeadEndRecord(event.point, tuple(self._picks), event.refusal, event.candidate + 1)
                )
            case _:
                pass  # other endings, and progress

    def _undo_picks(self, point: SearchPoint) -> None:
        """Remove the picks at a point and after it, with the cause for the one at the point."""
        here = _get_position(point)
        while self._picks and _get_position(self._picks[-1].point) >= here:
            undone = self._picks.pop()
            self._refused.pop()
            if self._latest_dead_end is not None and _get_position(undone.point) == here:
                self._undo_causes.setdefault(here, {})[undone.point.alternative, undone.candidate] = (
                    self._latest_dead_end
                )
        if self._undo_causes:
            # Later picks were tried after other picks than now.
            self._undo_causes = {at: cause for at, cause in self._undo_causes.items() if at <= here}

    def _record_dead_end(self, dead_end: DeadEndRecord) -> None:
        index = dead_end.point.choice.index
        before = tuple([pick for pick in dead_end.picks if pick.point.choice.index < index])
        group = self._groups.get(index)
        if group is None or group.preceding_picks != before:
            group = self._groups[index] = _DeadEndGroup(before)
        known = group.dead_ends.get(dead_end.point.alternative)
        if known is None or dead_end.point.device_index > known.point.device_index:
            group.dead_ends[dead_end.point.alternative] = dead_end
        if _get_position(dead_end.point) > self._depth:
            self._depth = _get_position(dead_end.point)
            self._furthest = group
        self._latest_dead_end = dead_end.point

    def build_trace(self, ending: SearchEnding) -> SearchTrace:
        furthest = tuple(self._furthest.dead_ends.values()) if self._furthest is not None else ()
        skipped = {
            index: tuple(group.dead_ends.values())
            for index, group in self._groups.items()
            if group.preceding_picks == tuple(pick for pick in self._picks if pick.point.choice.index < index)
        }
        positions = [_get_position(pick.point) for pick in self._picks]
        refused = dict(zip(positions, self._refused, strict=True))
        return SearchTrace(ending, furthest, skipped, self._undo_causes, refused)
