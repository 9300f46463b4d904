"""Checks of the dead ends in the trace of a search.

Theory of operation: the trace events contain the whole search, so the picks in force at any dead end can be
read off them: they are the picks at earlier points. With them, it can be asked whether a dead end says enough
(`accounted`), and whether it is one (`truly_dead`).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from dray.allocator.inventory.node_shapes import NodeView
from dray.allocator.requests import AllocationRequest
from dray.allocator.search.candidates import get_candidate_set
from dray.allocator.search.trace import CandidateTaken, DeadEnd, Pick, SearchPoint, TraceEvent
from tests.brute.problem import Problem
from tests.brute.reference_search import DeviceFault, PlainSearch

MOST_SOLUTIONS = 300
"""With more solutions than this a problem says little about dead ends, and takes long."""


def _position(point: SearchPoint) -> tuple[int, int]:
    return (point.choice.index, point.device_index)


def dead_ends(events: list[TraceEvent]) -> Iterator[tuple[DeadEnd, list[Pick], set[int]]]:
    """Every dead end with the picks in force there and the candidates that were tried there before."""
    path: list[Pick] = []
    tried: dict[tuple[int, str, int], set[int]] = {}
    for event in events:
        if not isinstance(event, CandidateTaken | DeadEnd):
            continue
        point = event.pick.point if isinstance(event, CandidateTaken) else event.point
        here = (point.choice.index, point.alternative.name, point.device_index)
        path = [pick for pick in path if _position(pick.point) < _position(point)]
        if isinstance(event, CandidateTaken):
            # What lies behind this point is entered anew.
            tried = {key: done for key, done in tried.items() if (key[0], key[2]) <= (here[0], here[2])}
            tried.setdefault(here, set()).add(event.pick.candidate)
            path.append(event.pick)
        else:
            yield event, path, tried.pop(here, set())


def accounted(ask: AllocationRequest, view: NodeView, events: list[TraceEvent]) -> Iterator[str]:
    """Whether each dead end has a reason for each candidate, or says what is lacking altogether."""
    shape = view.shape
    for event, path, tried in dead_ends(events):
        point = event.point
        candidate_set = get_candidate_set(shape, point.alternative)
        refused = {candidate for candidate, _ in event.refused}
        if event.blocker is not None:
            continue
        if point.alternative.takes_all:
            if not refused and not tried:
                yield f"no reason at {point.alternative.name} #{point.device_index}, which wants all"
            continue
        for candidate in range(len(shape.profiles)):
            if candidate in refused or candidate in tried or candidate in candidate_set.refusals:
                continue
            if _is_blocked(view, point, path, candidate) or _is_behind(point, path, candidate):
                continue
            yield f"no reason for candidate {candidate} at {point.alternative.name} #{point.device_index}"


def _is_blocked(view: NodeView, point: SearchPoint, path: list[Pick], candidate: int) -> bool:
    """Whether somebody has a candidate: another claim for long, or a pick in force."""
    if view.shape.profiles[candidate].shareable:
        return bool(not point.alternative.admin and view.shape.taken >> candidate & 1)
    here = [pick for pick in path if pick.candidate == candidate]
    if point.alternative.admin:
        return any(pick.point.choice.claim_index == point.choice.claim_index for pick in here)
    return bool(here) or bool(view.shape.taken >> candidate & 1)


def _is_behind(point: SearchPoint, path: list[Pick], candidate: int) -> bool:
    """Whether a candidate stands before one taken for the same want: such combinations were tried already."""
    return any(pick.candidate >= candidate for pick in path if pick.point.choice.index == point.choice.index)


def truly_dead(problem: Problem, view: NodeView, events: list[TraceEvent]) -> Iterator[str]:
    """Whether no solution of the plain search goes through a dead end.

    A dead end after some candidates were tried is one for the others; those had dead ends of their own.
    """
    try:
        solutions = list(islice(PlainSearch(problem).solutions(), MOST_SOLUTIONS))
    except DeviceFault:
        return
    if len(solutions) == MOST_SOLUTIONS:
        return
    known = [[(pick.want.claim, pick.want.name, pick.thing.place) for pick in picks] for picks in solutions]
    for event, path, _tried in dead_ends(events):
        taken = []
        for pick in path:
            pool_view, position = view.locate_device(pick.candidate)
            place = (*pool_view.pool, pool_view.names[position])
            taken.append((pick.point.choice.claim_index, pick.point.alternative.name, place))
        for solution in known:
            there = len(solution) > len(taken) and solution[len(taken)][:2]
            here = (event.point.choice.claim_index, event.point.alternative.name)
            if solution[: len(taken)] == taken and there == here:
                yield f"a solution goes through the dead end at {here} after {taken}"
