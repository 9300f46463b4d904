"""Trace events of a search.

A search yields events while it runs and ends with exactly one of the last four. `allocate` keeps the last
one, `explain` reads all of them.
"""

from __future__ import annotations

import msgspec

from dray.allocator.refusals import Refusal
from dray.allocator.requests import RequestAlternative, RequestChoice


class SearchPoint(msgspec.Struct, frozen=True, gc=False):
    """A position in the search: a choice, the alternative that is tried, and which of its devices."""

    choice: RequestChoice
    alternative: RequestAlternative
    device_index: int


class Pick(msgspec.Struct, frozen=True, gc=False):
    """A candidate taken at a point; `consumed` is set for a share."""

    point: SearchPoint
    candidate: int
    consumed: dict[str, int] | None = None


class CandidateTaken(msgspec.Struct, frozen=True, gc=False):
    """A candidate passed every check and is part of the partial solution."""

    pick: Pick
    refused: tuple[tuple[int, Refusal], ...] = ()


class DeadEnd(msgspec.Struct, frozen=True, gc=False):
    """No candidate is left at a point, or what was taken leaves too little for the rest.

    `refused` are the candidates that a dynamic rule refused here; the candidate set has the others. `blocker`
    is what is missing when pruning ended the branch.
    """

    point: SearchPoint
    refused: tuple[tuple[int, Refusal], ...] = ()
    blocker: Refusal | None = None


class SearchProgress(msgspec.Struct, frozen=True, gc=False):
    """The search made progress without another event: the caller may stop it here."""

    steps: int


class Solved(msgspec.Struct, frozen=True, gc=False):
    """Every choice has its devices."""

    picks: tuple[Pick, ...]
    steps: int


class Exhausted(msgspec.Struct, frozen=True, gc=False):
    """Everything was tried: there is no solution."""

    steps: int


class GaveUp(msgspec.Struct, frozen=True, gc=False):
    """The time or the steps of a search ran out: whether there is a solution is unknown.

    The rest says how far it came: seconds of work, the most devices found at once of how many, and the point
    where no further one was found. All of them are empty for a search that was not begun.
    """

    steps: int
    seconds: float = 0.0
    found: int = 0
    wanted: int = 0
    stuck_at: SearchPoint | None = None


class Faulted(msgspec.Struct, frozen=True, gc=False):
    """A candidate could not be evaluated: its selector fails or an amount cannot be represented."""

    point: SearchPoint
    candidate: int
    refusal: Refusal
    steps: int


SearchEnding = Solved | Exhausted | GaveUp | Faulted
TraceEvent = CandidateTaken | DeadEnd | SearchProgress | SearchEnding
