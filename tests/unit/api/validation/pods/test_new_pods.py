"""New pods: every rule gives the causes that Kubernetes gives."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from dray.api.kinds import get_kind
from dray.api.validation import validate_create, validate_new_document
from tests.unit.api.validation.building import found, made
from tests.unit.api.validation.pods.pod_cases import NewPodCase, build_pod, load_new_pods

POD = get_kind("", "Pod")
CASES = load_new_pods()


def judged(pod):
    return found([*validate_create(made(pod)), *validate_new_document(POD, pod)])


@pytest.mark.parametrize("case", CASES, ids=[case.id for case in CASES])
def test_a_new_pod_is_refused_for_the_causes_of_kubernetes(case: NewPodCase):
    before = copy.deepcopy(case.pod)
    assert judged(case.pod) == case.causes
    assert case.pod == before


def test_every_message_says_what_was_expected():
    errors = [error for case in CASES for error in validate_new_document(POD, case.pod)]
    silent = {error.type.value for error in errors if not error.detail}
    assert silent <= {"FieldValueRequired", "FieldValueDuplicate"}


PARTS: list[Any] = [None, 7, "text", [], [7], [[]], {}, {"a": 7}, True]


def mutate(value):
    """The same document with one part of it replaced, for every part."""
    if isinstance(value, dict):
        for key, part in value.items():
            yield from ({**value, key: other} for other in (*PARTS, *mutate(part)))
    elif isinstance(value, list):
        for position, part in enumerate(value):
            for other in (*PARTS, *mutate(part)):
                yield [*value[:position], other, *value[position + 1 :]]


def test_no_document_makes_validation_fail():
    """Values of other types are for decoding to refuse: they are skipped here."""
    for case in CASES:
        for spec in mutate(case.pod["spec"]):
            for error in validate_new_document(POD, {**case.pod, "spec": spec}):
                assert str(error)


def test_a_pod_without_defaults_is_valid():
    """Files have none, and a server fills them in before: absent is never wrong."""
    assert judged(build_pod()) == []


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ({"emptyDir": {}}, []),
        ({}, ["Required spec.volumes[0]"]),
        ({"somethingNew": {}}, ["Required spec.volumes[0]"]),
    ],
)
def test_a_volume_has_a_source(source, expected):
    assert judged(build_pod(spec={"volumes": [{"name": "v", **source}]})) == expected
