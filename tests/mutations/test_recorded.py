"""Kubernetes' answers to mutated requests are on record, and dray gives the same, except by decision."""

from __future__ import annotations

import asyncio
from functools import cache

from tests.mutations.__main__ import compare_with_recording
from tests.mutations.answer import Answer, load_answers
from tests.mutations.case import Case, load_bases
from tests.mutations.catalogue import load_cases
from tests.mutations.comparison import Comparison, Rule, compare
from tests.mutations.report import format_difference
from tests.mutations.rules import RULES

MANY = 8000
SHOWN = 20


@cache
def compare_all() -> Comparison:
    return asyncio.run(compare_with_recording(load_cases()))


def test_every_case_is_on_record_as_it_is_sent() -> None:
    recorded = load_answers()
    changed = [case.id for case in load_cases() if recorded.get(case.id, ("", None))[0] != case.digest]
    assert not changed, "record again: docs/guides/compare-with-kubernetes.md"
    assert {case.id for case in load_cases()} == set(recorded)
    assert len(recorded) > MANY


def test_ids_are_unique() -> None:
    assert len({case.id for case in load_cases()}) == len(load_cases())


def test_dray_answers_as_kubernetes_does() -> None:
    wrong = compare_all().wrong
    shown = "\n".join(line for each in wrong[:SHOWN] for line in format_difference(each))
    assert not wrong, f"{len(wrong)} cases differ without a decision:\n{shown}"


def test_every_rule_is_used() -> None:
    used = {rule.name for rule, _ in compare_all().decided}
    assert {rule.name for rule in RULES} == used


def build_case() -> Case:
    base = load_bases()[0]
    return Case("made/up", base, "POST", base.collection, {})


def test_an_answer_survives_its_recording() -> None:
    answer = Answer(422, "Invalid", (("FieldValueInvalid", "spec"),), ("careful",))
    assert Answer.from_row(answer.to_row()) == answer
    assert Answer.from_row(Answer(200).to_row()) == Answer(200)


def test_a_difference_in_any_part_is_wrong_unless_a_rule_applies() -> None:
    upstream = Answer(422, "Invalid", (("FieldValueInvalid", "spec"),))
    others = (
        Answer(400, "Invalid", upstream.causes),
        Answer(422, "BadRequest", upstream.causes),
        Answer(422, "Invalid", (("FieldValueInvalid", "spec.count"),)),
        Answer(422, "Invalid", (("FieldValueRequired", "spec"),)),
        Answer(422, "Invalid", upstream.causes, ("careful",)),
    )
    answers = [(build_case(), upstream, other) for other in others]
    assert len(compare(answers, ()).wrong) == len(others)
    decided = compare(answers, (Rule("any", "everything is right", lambda difference: True),))
    assert len(decided.decided) == len(others)
    assert compare([(build_case(), upstream, upstream)], ()).equal
