"""The answer of the model to one question."""

from __future__ import annotations

from collections.abc import Iterable

from dray.allocator.inventory.device_profiles import Judge
from dray.simulation.vectors.answers import Answer, Kind
from dray.simulation.vectors.reference.departures import EVERY, Departure
from dray.simulation.vectors.reference.model_case import Abort, Case, TooLarge
from dray.simulation.vectors.reference.model_search import MOST, PlainSearch
from dray.simulation.vectors.reference.results import build_results
from dray.simulation.vectors.vector import Vector


def list_faulty(vector: Vector, judge: Judge) -> frozenset[str]:
    """The devices that the node reaches and on which a selector of some request fails."""
    search = PlainSearch(Case(vector, judge, EVERY))
    try:
        return frozenset(str(found) for found in search.view.candidates if search.is_faulty(found))
    except Abort:
        return frozenset()


def predict(
    vector: Vector, judge: Judge, departures: Iterable[Departure] = (), most: int = MOST
) -> Answer | None:
    """What Kubernetes answers, or dray where it departs; None when the question is too large for the model.

    The text of a fault is what its message must contain, one word or phrase a line.
    """
    case = Case(vector, judge, frozenset(departures))
    try:
        search = PlainSearch(case, most)
        picks = search.run()
        if picks is not None:
            return Answer(Kind.ALLOCATED, build_results(case, picks))
    except (TooLarge, RecursionError):
        return None
    except Abort as abort:
        return Answer(abort.kind, text="\n".join(abort.words), about=abort.about)
    return Answer(Kind.INVALID_POOLS if "invalid" in search.view.flaws else Kind.REFUSED)
