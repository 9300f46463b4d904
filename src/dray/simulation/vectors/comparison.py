"""Verdicts on vectors: equal, different by a decision, different by something not built, or wrong.

Theory of operation: an answer that breaks a rule of the referee is wrong, whatever Kubernetes says. An answer
that differs from the record is explained or it is wrong. It is explained when the plain model of Kubernetes
(see reference) gives the very answer on record, and the same model with the departures of dray gives the very
answer of ours. Which departures it takes is found by leaving out one after the other: those that remain are
the decisions by which the two differ. So a rule is never a name on a list, it holds for questions nobody has
seen, and it does not excuse a third answer.

What the model cannot recompute is apply only where a decision speaks of it: Kubernetes ran out of time, or
derived attributes, which dray does not have, take part in a constraint.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from dray.allocator.feature_gates import Admission
from dray.allocator.inventory.device_profiles import Judge
from dray.allocator.verify import Given, verify
from dray.errors import AllocationFault, InputError
from dray.simulation.vectors.answers import Answer, Kind
from dray.simulation.vectors.reference.departure_conditions import possible_departures
from dray.simulation.vectors.reference.departures import DECISIONS, Departure
from dray.simulation.vectors.reference.prediction import list_faulty, predict
from dray.simulation.vectors.vector import Vector

TIMEOUTS = ("timeout", "deadline exceeded")
"""Errors on record that say that Kubernetes had no time to answer."""

_FEW = 60_000
"""Steps of the model where it is asked often, or for questions that are mostly too large for it."""

_SETTLED = (Kind.ALLOCATED, Kind.REFUSED, Kind.INVALID_POOLS, Kind.GAVE_UP)


class Standing(StrEnum):
    """What a vector's two answers are to each other."""

    EQUAL = "equal"
    DECIDED = "decided"
    WRONG = "wrong"
    NOT_BUILT = "not built"


@dataclass(frozen=True, slots=True)
class Verdict:
    """A vector, our answer, and what it is worth; `departures` and `because` say why it is."""

    vector: Vector
    ours: Answer
    standing: Standing
    because: str = ""
    departures: tuple[str, ...] = ()

    @property
    def good(self) -> bool:
        """Whether nobody has to look at it."""
        return self.standing is not Standing.WRONG


def judge_answer(vector: Vector, ours: Answer, judge: Judge) -> Verdict:
    """What our answer to a vector is worth."""
    violations = _find_violations(vector, ours, judge)
    if violations:
        return Verdict(vector, ours, Standing.WRONG, f"breaks a rule: {'; '.join(violations)}")
    recorded = vector.recorded
    if ours.equals(recorded):
        return _judge_equal(vector, ours)
    if recorded.kind is Kind.FAULT and any(words in recorded.text for words in TIMEOUTS):
        return _judge_timeout(vector, ours, judge)
    if ours.kind is Kind.GAVE_UP:
        return Verdict(vector, ours, Standing.WRONG, "the search gave up where Kubernetes answers")
    if _needs_derived_attributes(vector):
        return _explain(vector, ours, frozenset({Departure.DERIVED_ATTRIBUTES}))
    theirs = predict(vector, judge)
    if theirs is None:
        return Verdict(vector, ours, Standing.WRONG, "nothing explains it: too large to be recomputed")
    if not matches_record(theirs, recorded):
        return Verdict(
            vector,
            ours,
            Standing.WRONG,
            f"no decision explains it; Kubernetes should have: {theirs.words}",
        )
    return _judge_by_decisions(vector, ours, judge)


def _find_violations(vector: Vector, ours: Answer, judge: Judge) -> list[str]:
    """What the referee says about a solution."""
    if ours.kind is not Kind.ALLOCATED or _has_ambiguous_requests(vector):
        return []
    door = Admission.switched(vector.switches)
    given = Given(tuple(door.slices(vector.slices)), vector.classes, vector.held, vector.node, judge)
    try:
        claims = door.claims(vector.claims)
    except AllocationFault as fault:
        return [str(fault)]
    return [str(finding) for finding in verify(given, claims, ours.results)]


def _has_ambiguous_requests(vector: Vector) -> bool:
    """Whether two requests of a claim have one name: the referee knows them by their names alone."""
    names = ([request.name for request in claim.spec.devices.requests] for claim in vector.claims)
    return any(len(set(each)) < len(each) for each in names)


def _judge_equal(vector: Vector, ours: Answer) -> Verdict:
    """Equal as far as we have fields for it."""
    unknown = vector.recorded.unknown
    if not unknown:
        return Verdict(vector, ours, Standing.EQUAL)
    if unknown == {"skipNodeOperations"} and vector.extras.skipping:
        return _explain(vector, ours, frozenset({Departure.NODE_OPERATIONS}))
    return Verdict(vector, ours, Standing.WRONG, f"fields dray does not have: {', '.join(sorted(unknown))}")


def _judge_timeout(vector: Vector, ours: Answer, judge: Judge) -> Verdict:
    """Kubernetes has no answer; where the model has one, ours must be that."""
    mine = predict(vector, judge, possible_departures(vector), most=_FEW)
    if not _is_plausible(vector, ours, judge) if mine is None else not matches_ours(mine, ours):
        expected = "" if mine is None else f", but: {mine.words}"
        return Verdict(vector, ours, Standing.WRONG, f"not what our decisions lead to{expected}")
    return _explain(vector, ours, frozenset({Departure.TIME_LIMIT}))


def _needs_derived_attributes(vector: Vector) -> bool:
    """Whether derived attributes decide the answer of Kubernetes."""
    derived = vector.extras.derived
    if not derived:
        return False
    if vector.recorded.kind is Kind.FAULT:
        return "derived attribute" in vector.recorded.text.lower()
    return any(
        (constraint.match_attribute or constraint.distinct_attribute) in derived
        for claim in vector.claims
        for constraint in claim.spec.devices.constraints
    )


def _judge_by_decisions(vector: Vector, ours: Answer, judge: Judge) -> Verdict:
    """The departures that lead from the record to our answer, if there are any."""
    departures = possible_departures(vector)
    mine = predict(vector, judge, departures)
    if mine is not None and not matches_ours(mine, ours):
        return Verdict(vector, ours, Standing.WRONG, f"not what our decisions lead to, but: {mine.words}")
    if mine is None and not _is_plausible(vector, ours, judge):
        return Verdict(vector, ours, Standing.WRONG, "nothing explains it: too large to be recomputed")
    if mine is None:
        return _explain(vector, ours, _single_departures(vector, judge, departures))
    for departure in sorted(departures):
        found = predict(vector, judge, departures - {departure}, most=_FEW)
        if found is not None and matches_ours(found, ours):
            departures -= {departure}
    return _explain(vector, ours, departures)


def _single_departures(
    vector: Vector, judge: Judge, departures: frozenset[Departure]
) -> frozenset[Departure]:
    """The departures that lead away from the record each alone: for questions too large to be answered."""
    found = frozenset(
        departure
        for departure in departures
        if not _is_same(predict(vector, judge, {departure}, most=_FEW), vector.recorded)
    )
    return found or departures


def _is_plausible(vector: Vector, ours: Answer, judge: Judge) -> bool:
    """Whether an answer that cannot be recomputed is possible; a fault must be about a faulty device."""
    if ours.kind is not Kind.FAULT:
        return ours.kind in _SETTLED
    return bool(ours.about) and ours.about in list_faulty(vector, judge)


def _is_same(theirs: Answer | None, recorded: Answer) -> bool:
    return theirs is not None and matches_record(theirs, recorded)


def _explain(vector: Vector, ours: Answer, departures: frozenset[Departure]) -> Verdict:
    decisions = [DECISIONS[departure] for departure in sorted(departures)]
    built = all(decision.built for decision in decisions)
    return Verdict(
        vector,
        ours,
        Standing.DECIDED if built else Standing.NOT_BUILT,
        "; ".join(dict.fromkeys(decision.text for decision in decisions)),
        tuple(departure.value for departure in sorted(departures)),
    )


def matches_record(theirs: Answer, recorded: Answer) -> bool:
    """Whether the model says what is on record; of a fault the message must say what the model knows."""
    words = (*theirs.text.splitlines(), theirs.about)
    return theirs.equals(recorded) and all(word in recorded.text for word in words if recorded.text)


def matches_ours(mine: Answer, ours: Answer) -> bool:
    """Whether the model with our departures says what we say; a fault must be about the same device."""
    return mine.equals(ours) and mine.about in ours.text


@dataclass(frozen=True, slots=True)
class Known:
    """Further differences by name: our answer in a line, and the reason."""

    differences: Mapping[str, tuple[str, str]]

    @classmethod
    def read(cls, document: Any) -> Known:
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

    def apply(self, verdict: Verdict) -> Verdict:
        """The verdict, unless the list names the vector with the very answer that nothing else explains."""
        words, because = self.differences.get(verdict.vector.name, ("", ""))
        if verdict.standing is not Standing.WRONG or verdict.ours.words != words:
            return verdict
        return Verdict(verdict.vector, verdict.ours, Standing.DECIDED, because, ("listed",))


NONE_KNOWN = Known({})
