"""Prediction: the answer of the model to one vector."""

from __future__ import annotations

from collections.abc import Iterable

from dray.allocator.inventory.device_profiles import DeviceSelectorEvaluator
from dray.simulation.vectors.answers import AllocatorAnswer, AnswerKind
from dray.simulation.vectors.reference.departures import ALL_DEPARTURES, Departure
from dray.simulation.vectors.reference.model_case import ModelAbortError, ModelCase, ModelTooLargeError
from dray.simulation.vectors.reference.model_search import MAX_STEPS, ModelSearch
from dray.simulation.vectors.reference.results import build_results
from dray.simulation.vectors.vector import Vector


def list_faulty(vector: Vector, evaluator: DeviceSelectorEvaluator) -> frozenset[str]:
    """The devices that the node reaches and on which a selector of some request fails."""
    search = ModelSearch(ModelCase(vector, evaluator, ALL_DEPARTURES))
    try:
        return frozenset(str(found) for found in search.view.candidates if search.is_faulty(found))
    except ModelAbortError:
        return frozenset()


def predict(
    vector: Vector,
    evaluator: DeviceSelectorEvaluator,
    departures: Iterable[Departure] = (),
    max_steps: int = MAX_STEPS,
) -> AllocatorAnswer | None:
    """What Kubernetes answers, or dray where it departs; None when the query is too large for the model.

    The text of a fault is what its message must contain, one word or phrase a line.
    """
    case = ModelCase(vector, evaluator, frozenset(departures))
    try:
        search = ModelSearch(case, max_steps)
        picks = search.run()
        if picks is not None:
            return AllocatorAnswer(AnswerKind.ALLOCATED, build_results(case, picks))
    except (ModelTooLargeError, RecursionError):
        return None
    except ModelAbortError as abort:
        return AllocatorAnswer(abort.kind, text="\n".join(abort.message_parts), about=abort.about)
    return AllocatorAnswer(AnswerKind.INVALID_POOLS if "invalid" in search.view.flaws else AnswerKind.REFUSED)
