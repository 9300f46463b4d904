"""Verdicts: each decision explains its difference, and nothing else does."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from dray.allocator.feature_gates import AllocatorGateFilter
from dray.api.resource import AllocationResult
from dray.simulation.vectors.answers import AllocatorAnswer, AnswerKind, list_differences
from dray.simulation.vectors.comparison import VectorStanding, compare_answer
from dray.simulation.vectors.reference.departure_conditions import (
    DEPARTURE_CONDITIONS,
    find_possible_departures,
)
from dray.simulation.vectors.reference.departures import ALL_DEPARTURES, DECISIONS, Departure
from dray.simulation.vectors.reference.prediction import predict
from dray.simulation.vectors.vector import Vector, answer_vector, read_vector
from tests.unit.simulation.vectors.vector_objects import (
    QUESTIONS,
    allocated,
    device,
    exactly,
    failed,
    got,
    page,
    question,
)

JUDGE = AllocatorGateFilter.from_overrides({}).build_selector_evaluator()

UNCHECKED = (Departure.DERIVED_ATTRIBUTES,)
"""What the model cannot recompute; that our answer is sound is all that is known."""

ASKED = [pytest.param(departure, id=departure.value) for departure in QUESTIONS]
RECOMPUTED = [case for case in ASKED if case.values[0] not in UNCHECKED]


@pytest.mark.parametrize("departure", ASKED)
def test_a_decision_explains_its_difference(departure: Departure) -> None:
    vector = read_vector(QUESTIONS[departure])
    verdict = compare_answer(vector, answer_vector(vector, JUDGE), JUDGE)
    assert verdict.departures == (departure,), verdict.because
    built = DECISIONS[departure].built
    assert verdict.standing is (VectorStanding.DECIDED if built else VectorStanding.NOT_BUILT)
    assert verdict.because == DECISIONS[departure].text
    assert list(list_differences(verdict.ours, vector.recorded))


@pytest.mark.parametrize("departure", RECOMPUTED)
def test_a_forged_answer_of_ours_is_wrong(departure: Departure) -> None:
    vector = read_vector(QUESTIONS[departure])
    ours = answer_vector(vector, JUDGE)
    forged = [other for other in _forgeries(vector, ours) if not other.is_equal(vector.recorded)]
    assert len(forged) >= 3
    for other in forged:
        verdict = compare_answer(vector, other, JUDGE)
        assert verdict.standing is VectorStanding.WRONG, other
        assert verdict.because


@pytest.mark.parametrize("departure", RECOMPUTED)
def test_a_forged_record_is_wrong(departure: Departure) -> None:
    vector = read_vector(QUESTIONS[departure])
    ours = answer_vector(vector, JUDGE)
    forged = [other for other in _forgeries(vector, vector.recorded) if not other.is_equal(ours)]
    assert forged
    for other in forged:
        changed = _with_record(vector, other)
        assert compare_answer(changed, ours, JUDGE).standing is VectorStanding.WRONG, other


def _with_record(vector: Vector, recorded: AllocatorAnswer) -> Vector:
    changed = copy.copy(vector)
    object.__setattr__(changed, "recorded", recorded)
    return changed


def _forgeries(vector: Vector, answer_: AllocatorAnswer) -> Iterator[AllocatorAnswer]:
    """Everything else that could be said to a question."""
    said = [
        AllocatorAnswer(AnswerKind.REFUSED),
        AllocatorAnswer(AnswerKind.INVALID_POOLS),
        AllocatorAnswer(AnswerKind.FAULT, text="BrokenSelector on somewhere/else"),
        AllocatorAnswer(AnswerKind.CRASH, text="panic: something else"),
        AllocatorAnswer(AnswerKind.GAVE_UP),
    ]
    yield from (other for other in said if other.kind is not answer_.kind)
    for document in _allocations(vector, answer_):
        other = AllocatorAnswer(AnswerKind.ALLOCATED, (document,))
        if not other.is_equal(answer_):
            yield other


def _allocations(vector: Vector, answer_: AllocatorAnswer) -> Iterator[AllocationResult]:
    """Allocations of one device, and those of an answer with one field changed."""
    changes: list[dict[str, Any]]
    for published in vector.slices:
        for item in published.spec.devices[:3]:
            result = got(item.name, pool=published.spec.pool.name)
            yield read_vector(question([], {}, allocated(result))).recorded.results[0]
    for given in answer_.results:
        first = given.devices.results[0]
        changes = [{"device": "nobody"}, {"share_id": None if first.share_id else "x"}, {"request": "q"}]
        for change in changes:
            replaced = (msgspec.structs.replace(first, **change), *given.devices.results[1:])
            devices = msgspec.structs.replace(given.devices, results=replaced)
            yield msgspec.structs.replace(given, devices=devices)
        yield msgspec.structs.replace(given, node_selector=None)


def test_every_departure_has_a_question_and_a_decision() -> None:
    assert QUESTIONS.keys() == set(Departure)
    assert DECISIONS.keys() == set(Departure)
    outside = {Departure.TIME_LIMIT, Departure.DERIVED_ATTRIBUTES}
    assert DEPARTURE_CONDITIONS.keys() == set(Departure) - outside


@pytest.mark.parametrize("departure", [pytest.param(d, id=d.value) for d in DEPARTURE_CONDITIONS])
def test_a_situation_is_seen_in_the_question_alone(departure: Departure) -> None:
    vector = read_vector(QUESTIONS[departure])
    assert departure in find_possible_departures(vector)
    plain = read_vector(question([page(device("a"))], exactly(), []))
    assert find_possible_departures(plain) == frozenset()
    # What cannot matter does not: all departures lead where the possible ones lead.
    possible, every = (
        predict(vector, JUDGE, chosen) for chosen in (find_possible_departures(vector), ALL_DEPARTURES)
    )
    assert possible is not None
    assert every is not None
    assert possible == every


def test_two_decisions_in_one_question_are_both_named() -> None:
    """A flawed pool aborts the attempt; without that the shares of a dedicated device would not count."""
    document = copy.deepcopy(QUESTIONS[Departure.ALL_POOL])
    document["slices"][1]["spec"]["devices"].append(device("e"))
    held = {"driver": "d.example.com", "pool": "q", "device": "b", "shareID": "x"}
    document["allocatedSharedDeviceIDs"] = [held]
    vector = read_vector(document)
    verdict = compare_answer(vector, answer_vector(vector, JUDGE), JUDGE)
    assert verdict.ours.summary == "r/s1=d.example.com/q/e"
    assert verdict.departures == (Departure.ALL_POOL, Departure.HELD_SHARES)


def test_an_answer_that_breaks_a_rule_is_wrong_even_when_it_is_on_record() -> None:
    held = [{"driver": "d.example.com", "pool": "p", "device": "a"}]
    vector = read_vector(question([page(device("a"))], exactly(), allocated(got("a")), allocatedDevices=held))
    verdict = compare_answer(vector, vector.recorded, JUDGE)
    assert verdict.standing is VectorStanding.WRONG
    assert "is in use already" in verdict.because


def test_giving_up_where_kubernetes_answers_is_wrong() -> None:
    vector = read_vector(question([page(device("a"))], exactly(), allocated(got("a"))))
    verdict = compare_answer(vector, AllocatorAnswer(AnswerKind.GAVE_UP), JUDGE)
    assert (verdict.standing, verdict.because) == (
        VectorStanding.WRONG,
        "the search gave up where Kubernetes answers",
    )


def test_a_question_too_large_to_recompute_is_not_excused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dray.simulation.vectors.comparison.predict", lambda *_, **__: None)
    vector = read_vector(QUESTIONS[Departure.HELD_SHARES])
    verdict = compare_answer(vector, answer_vector(vector, JUDGE), JUDGE)
    assert verdict.standing is VectorStanding.WRONG
    assert "too large" in verdict.because


def test_a_fault_too_large_to_recompute_must_be_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """The search is longer here than in Kubernetes: all that can be checked is the device of the fault."""

    def answers_of_kubernetes_alone(*asked: Any, **_: Any) -> AllocatorAnswer | None:
        return AllocatorAnswer(AnswerKind.REFUSED) if len(asked) == 2 else None

    monkeypatch.setattr("dray.simulation.vectors.comparison.predict", answers_of_kubernetes_alone)
    vector = _with_record(
        read_vector(QUESTIONS[Departure.ALL_UNREACHED]), AllocatorAnswer(AnswerKind.REFUSED)
    )
    for name, standing in (("b", VectorStanding.DECIDED), ("a", VectorStanding.WRONG)):
        about = f"d.example.com/p/{name}"
        ours = AllocatorAnswer(AnswerKind.FAULT, text=f"BrokenSelector on {about}", about=about)
        assert compare_answer(vector, ours, JUDGE).standing is standing


def test_a_field_of_the_record_that_dray_does_not_have_is_not_overlooked() -> None:
    result = got("a", skipNodeOperations=["*"])
    skipping = page(device("a"), skipNodeOperations=["*"])
    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "n"},
        "status": {"declaredFeatures": ["DRAOptionalNodeOperations"]},
    }
    for slices, standing in (
        ([skipping], VectorStanding.NOT_BUILT),
        ([page(device("a"))], VectorStanding.WRONG),
    ):
        vector = read_vector(question(slices, exactly(), allocated(result), node=node))
        verdict = compare_answer(vector, answer_vector(vector, JUDGE), JUDGE)
        assert verdict.standing is standing
        assert list(list_differences(verdict.ours, vector.recorded)) == [
            "fields dray does not have: skipNodeOperations"
        ]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"shareID": "x"}, "claim 0, device 0: shareID"),
        ({"consumedCapacity": {"bw": "1"}}, "claim 0, device 0: consumedCapacity"),
        ({"adminAccess": True}, "claim 0, device 0: adminAccess"),
        ({"tolerations": [{"operator": "Exists"}]}, "claim 0, device 0: tolerations"),
        ({"bindingConditions": ["x"]}, "claim 0, device 0: bindingConditions"),
        ({"device": "b", "pool": "q"}, "claim 0, device 0: pool, device"),
    ],
)
def test_every_part_that_differs_is_named_and_shown(change: dict[str, Any], expected: str) -> None:
    ours = read_vector(question([], {}, allocated(got("a")))).recorded
    theirs = read_vector(question([], {}, allocated({**got("a"), **change}))).recorded
    assert list(list_differences(ours, theirs)) == [expected]
    assert list(ours.render_lines()) != list(theirs.render_lines())


def test_numbers_of_devices_configuration_and_claims_are_compared() -> None:
    one = read_vector(question([], {}, allocated(got("a")))).recorded
    two = read_vector(question([], {}, allocated(got("a"), got("b")))).recorded
    assert list(list_differences(one, two)) == ["claim 0, device 1: only on record"]
    assert list(list_differences(two, one)) == ["claim 0, device 1: only here"]
    config = {"source": "FromClass", "opaque": {"driver": "d", "parameters": {"x": 1}}}
    results = allocated(got("a"))
    results[0]["devices"]["config"] = [config]
    configured = read_vector(question([], {}, results)).recorded
    assert list(list_differences(one, configured)) == ["claim 0, config"]
    assert any("config" in line for line in configured.render_lines())
    twice = read_vector(question([], {}, [*allocated(got("a")), *allocated(got("b"))])).recorded
    assert list(list_differences(one, twice)) == ["claims: 2 on record, 1 here"]


def test_the_model_ends_on_any_number_of_claims() -> None:
    document = question([page(device("a"))], exactly(), failed("timeout"))
    document["claimsToAllocate"] *= 2000
    for claim in document["claimsToAllocate"]:
        claim["spec"]["devices"]["requests"][0]["exactly"]["count"] = 0
    assert predict(read_vector(document), JUDGE) is None
