"""Comparison of vectors: equal, different by a decision, different by a missing feature, or wrong.

Theory of operation: an answer that violates a rule of the verifier is wrong, whatever Kubernetes answers. An
answer that differs from the record is explained or wrong. It is explained when the plain model of Kubernetes
(see reference) gives exactly the recorded answer, and the same model with the departures of dray gives
exactly ours. The departures that matter are found by leaving out one after the other: those that remain are
the decisions by which the two differ. So an explanation is never a name on a list, it holds for vectors that
are not recorded yet, and it does not excuse a third answer.

What the model cannot recompute is explained only where a decision covers it: Kubernetes ran out of time, or
derived attributes, which dray does not have, take part in a constraint.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from dray.allocator.feature_gates import AllocatorGateFilter
from dray.allocator.inventory.device_profiles import DeviceSelectorEvaluator
from dray.allocator.verify import VerificationInput, verify
from dray.errors import InputError, UnanswerableClaimError
from dray.simulation.vectors.answers import AllocatorAnswer, AnswerKind
from dray.simulation.vectors.reference.departure_conditions import find_possible_departures
from dray.simulation.vectors.reference.departures import DECISIONS, Departure
from dray.simulation.vectors.reference.prediction import list_faulty, predict
from dray.simulation.vectors.vector import Vector

TIMEOUTS = ("timeout", "deadline exceeded")
"""Errors on record that say that Kubernetes had no time to answer."""

_SMALL_STEP_LIMIT = 60_000
"""Steps of the model where it is asked often, or for queries that are mostly too large for it."""

_PLAUSIBLE_KINDS = (AnswerKind.ALLOCATED, AnswerKind.REFUSED, AnswerKind.INVALID_POOLS, AnswerKind.GAVE_UP)


class VectorStanding(StrEnum):
    """What a vector's two answers are to each other."""

    EQUAL = "equal"
    DECIDED = "decided"
    WRONG = "wrong"
    NOT_BUILT = "not built"


@dataclass(frozen=True, slots=True)
class VectorComparison:
    """A vector, our answer, and what it is worth; `departures` and `because` say why it is."""

    vector: Vector
    ours: AllocatorAnswer
    standing: VectorStanding
    because: str = ""
    departures: tuple[str, ...] = ()

    @property
    def is_good(self) -> bool:
        """Whether nobody has to look at it."""
        return self.standing is not VectorStanding.WRONG


def compare_answer(
    vector: Vector, ours: AllocatorAnswer, evaluator: DeviceSelectorEvaluator
) -> VectorComparison:
    """What our answer to a vector is worth."""
    violations = _find_violations(vector, ours, evaluator)
    if violations:
        return VectorComparison(vector, ours, VectorStanding.WRONG, f"breaks a rule: {'; '.join(violations)}")
    recorded = vector.recorded
    if ours.is_equal(recorded):
        return _compare_equal(vector, ours)
    if recorded.kind is AnswerKind.FAULT and any(words in recorded.text for words in TIMEOUTS):
        return _compare_timeout(vector, ours, evaluator)
    if ours.kind is AnswerKind.GAVE_UP:
        return VectorComparison(
            vector, ours, VectorStanding.WRONG, "the search gave up where Kubernetes answers"
        )
    if _needs_derived_attributes(vector):
        return _explain_by_departures(vector, ours, frozenset({Departure.DERIVED_ATTRIBUTES}))
    theirs = predict(vector, evaluator)
    if theirs is None:
        return VectorComparison(
            vector, ours, VectorStanding.WRONG, "nothing explains it: too large to be recomputed"
        )
    if not matches_record(theirs, recorded):
        return VectorComparison(
            vector,
            ours,
            VectorStanding.WRONG,
            f"no decision explains it; Kubernetes should have: {theirs.summary}",
        )
    return _compare_by_decisions(vector, ours, evaluator)


def _find_violations(vector: Vector, ours: AllocatorAnswer, evaluator: DeviceSelectorEvaluator) -> list[str]:
    """What the verifier says about a solution."""
    if ours.kind is not AnswerKind.ALLOCATED or _has_ambiguous_requests(vector):
        return []
    gate_filter = AllocatorGateFilter.from_overrides(vector.gate_overrides)
    given = VerificationInput(
        tuple(gate_filter.admit_slices(vector.slices)), vector.classes, vector.held, vector.node, evaluator
    )
    try:
        claims = gate_filter.admit_claims(vector.claims)
    except UnanswerableClaimError as fault:
        return [str(fault)]
    return [str(finding) for finding in verify(given, claims, ours.results)]


def _has_ambiguous_requests(vector: Vector) -> bool:
    """Whether two requests of a claim have one name: the verifier knows them by their names alone."""
    names = ([request.name for request in claim.spec.devices.requests] for claim in vector.claims)
    return any(len(set(each)) < len(each) for each in names)


def _compare_equal(vector: Vector, ours: AllocatorAnswer) -> VectorComparison:
    """Equal as far as we have fields for it."""
    unknown = vector.recorded.unknown
    if not unknown:
        return VectorComparison(vector, ours, VectorStanding.EQUAL)
    if unknown == {"skipNodeOperations"} and vector.extras.skipping:
        return _explain_by_departures(vector, ours, frozenset({Departure.NODE_OPERATIONS}))
    return VectorComparison(
        vector, ours, VectorStanding.WRONG, f"fields dray does not have: {', '.join(sorted(unknown))}"
    )


def _compare_timeout(
    vector: Vector, ours: AllocatorAnswer, evaluator: DeviceSelectorEvaluator
) -> VectorComparison:
    """Kubernetes has no answer; where the model has one, ours must be that."""
    mine = predict(vector, evaluator, find_possible_departures(vector), max_steps=_SMALL_STEP_LIMIT)
    if not _is_plausible(vector, ours, evaluator) if mine is None else not matches_ours(mine, ours):
        expected = "" if mine is None else f", but: {mine.summary}"
        return VectorComparison(
            vector, ours, VectorStanding.WRONG, f"not what our decisions lead to{expected}"
        )
    return _explain_by_departures(vector, ours, frozenset({Departure.TIME_LIMIT}))


def _needs_derived_attributes(vector: Vector) -> bool:
    """Whether derived attributes decide the answer of Kubernetes."""
    derived = vector.extras.derived
    if not derived:
        return False
    if vector.recorded.kind is AnswerKind.FAULT:
        return "derived attribute" in vector.recorded.text.lower()
    return any(
        (constraint.match_attribute or constraint.distinct_attribute) in derived
        for claim in vector.claims
        for constraint in claim.spec.devices.constraints
    )


def _compare_by_decisions(
    vector: Vector, ours: AllocatorAnswer, evaluator: DeviceSelectorEvaluator
) -> VectorComparison:
    """The departures that lead from the record to our answer, if there are any."""
    departures = find_possible_departures(vector)
    mine = predict(vector, evaluator, departures)
    if mine is not None and not matches_ours(mine, ours):
        return VectorComparison(
            vector, ours, VectorStanding.WRONG, f"not what our decisions lead to, but: {mine.summary}"
        )
    if mine is None and not _is_plausible(vector, ours, evaluator):
        return VectorComparison(
            vector, ours, VectorStanding.WRONG, "nothing explains it: too large to be recomputed"
        )
    if mine is None:
        return _explain_by_departures(vector, ours, _find_single_departures(vector, evaluator, departures))
    for departure in sorted(departures):
        found = predict(vector, evaluator, departures - {departure}, max_steps=_SMALL_STEP_LIMIT)
        if found is not None and matches_ours(found, ours):
            departures -= {departure}
    return _explain_by_departures(vector, ours, departures)


def _find_single_departures(
    vector: Vector, evaluator: DeviceSelectorEvaluator, departures: frozenset[Departure]
) -> frozenset[Departure]:
    """The departures that lead away from the record each alone: for queries too large to be answered."""
    found = frozenset(
        departure
        for departure in departures
        if not _is_same(predict(vector, evaluator, {departure}, max_steps=_SMALL_STEP_LIMIT), vector.recorded)
    )
    return found or departures


def _is_plausible(vector: Vector, ours: AllocatorAnswer, evaluator: DeviceSelectorEvaluator) -> bool:
    """Whether an answer that cannot be recomputed is possible; a fault must be about a faulty device."""
    if ours.kind is not AnswerKind.FAULT:
        return ours.kind in _PLAUSIBLE_KINDS
    return bool(ours.about) and ours.about in list_faulty(vector, evaluator)


def _is_same(theirs: AllocatorAnswer | None, recorded: AllocatorAnswer) -> bool:
    return theirs is not None and matches_record(theirs, recorded)


def _explain_by_departures(
    vector: Vector, ours: AllocatorAnswer, departures: frozenset[Departure]
) -> VectorComparison:
    decisions = [DECISIONS[departure] for departure in sorted(departures)]
    built = all(decision.built for decision in decisions)
    return VectorComparison(
        vector,
        ours,
        VectorStanding.DECIDED if built else VectorStanding.NOT_BUILT,
        "; ".join(dict.fromkeys(decision.text for decision in decisions)),
        tuple(departure.value for departure in sorted(departures)),
    )


def matches_record(theirs: AllocatorAnswer, recorded: AllocatorAnswer) -> bool:
    """Whether the model says what is on record; of a fault the message must say what the model knows."""
    words = (*theirs.text.splitlines(), theirs.about)
    return theirs.is_equal(recorded) and all(word in recorded.text for word in words if recorded.text)


def matches_ours(mine: AllocatorAnswer, ours: AllocatorAnswer) -> bool:
    """Whether the model with our departures says what we say; a fault must be about the same device."""
    return mine.is_equal(ours) and mine.about in ours.text


@dataclass(frozen=True, slots=True)
class KnownDifferences:
    """Further differences by name: our answer in a line, and the reason."""

    differences: Mapping[str, tuple[str, str]]

    @classmethod
    def parse(cls, document: Any) -> KnownDifferences:
        """From a document; raises `InputError` when it is no such list."""
        try:
            if set(document) - {"differences"}:
                raise KeyError(f"expected `differences` alone, got {', '.join(map(str, document))}")
            differences = {
                str(name): (str(ours), str(entry["because"]))
                for entry in document.get("differences") or ()
                for name, ours in entry["cases"].items()
            }
        except (AttributeError, KeyError, TypeError) as wrong:
            raise InputError(f"not a list of known differences: {type(wrong).__name__}: {wrong}") from None
        return cls(differences)

    def apply(self, comparison: VectorComparison) -> VectorComparison:
        """The rejection, unless the list names the vector with the very answer that nothing else explains."""
        words, because = self.differences.get(comparison.vector.name, ("", ""))
        if comparison.standing is not VectorStanding.WRONG or comparison.ours.summary != words:
            return comparison
        return VectorComparison(
            comparison.vector, comparison.ours, VectorStanding.DECIDED, because, ("listed",)
        )


NO_KNOWN_DIFFERENCES = KnownDifferences({})
