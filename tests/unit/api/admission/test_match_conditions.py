"""Match conditions, as a table."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from dray.api.admission import MatchCondition
from dray.api.admission.match_conditions import (
    MATCH_COST_LIMIT,
    ConditionBindings,
    bind_variables,
    evaluate_conditions,
)
from dray.api.admission.review import InvalidAdmissionResponse

OBJECT: dict[str, Any] = {
    "metadata": {"name": "a", "labels": {"team": "x"}},
    "spec": {"count": 3, "share": Decimal("0.5"), "huge": 2**70, "names": ["a", "b"], "none": None},
}
REQUEST: dict[str, Any] = {
    "operation": "CREATE",
    "resource": {"group": "resource.k8s.io", "version": "v1", "resource": "resourceclaims"},
    "userInfo": {"username": "ann", "groups": ["staff"]},
    "object": OBJECT,
    "oldObject": None,
}


def given() -> ConditionBindings:
    return bind_variables(REQUEST, OBJECT, None)


def asked(*expressions: str) -> bool | str:
    conditions = [MatchCondition(name=f"c{at}", expression=text) for at, text in enumerate(expressions)]
    answer = evaluate_conditions(conditions, given)
    return answer.reason if isinstance(answer, InvalidAdmissionResponse) else answer


@pytest.mark.parametrize(
    ("expression", "answer"),
    [
        ("true", True),
        ("false", False),
        ("request.operation == 'CREATE' && oldObject == null", True),
        ("!(request.resource.resource in ['leases', 'events'])", True),
        ("!('staff' in request.userInfo.groups)", False),
        ("request.userInfo.username.startsWith('system:node:')", False),
        ("object.metadata.labels.team == 'x'", True),
        ("object.metadata.labels['team'] == 'y'", False),
        ("has(object.metadata.annotations)", False),
        ("object.spec.count > 2 && object.spec.share < 1.0", True),
        ("object.spec.huge > 1.0", True),
        ("object.spec.names.exists(name, name == 'b')", True),
        ("object.spec.none == null", True),
        ("object.metadata.?annotations.orValue({}).size() == 0", True),
    ],
)
def test_a_condition_reads_request_and_objects(expression, answer):
    assert asked(expression) is answer


@pytest.mark.parametrize(
    ("expressions", "answer"),
    [
        ((), True),
        (("true", "true"), True),
        (("true", "false"), False),
        # one that does not hold settles it, also when another one fails
        (("object.nothing", "false"), False),
        (("false", "object.nothing"), False),
        (("true", "object.nothing"), "match condition `c1`: no such key: nothing"),
        (("object.metadata.name",), "match condition `c0` is neither true nor false"),
        (("object.nothing", "object.no"), "match condition `c0`: no such key: nothing"),
    ],
)
def test_all_conditions_must_be_true_and_a_failure_is_reported(expressions, answer):
    assert asked(*expressions) == answer


def test_the_request_variable_does_not_contain_the_objects():
    assert "no such key: object" in str(asked("request.object.metadata.name == 'a'"))


def test_an_evaluation_has_an_end():
    many = bind_variables({}, {"items": list(range(2000))}, None)
    condition = MatchCondition(name="c", expression="object.items.all(a, object.items.all(b, a + b >= 0))")
    answer = evaluate_conditions([condition], lambda: many)
    assert isinstance(answer, InvalidAdmissionResponse)
    assert "cost limit exceeded" in answer.reason
    assert MATCH_COST_LIMIT < 2000 * 2000


def test_conditions_share_a_cost_budget():
    many = bind_variables({}, {"items": list(range(3000))}, None)
    conditions = [MatchCondition(name=f"c{at}", expression="object.items.all(a, a >= 0)") for at in range(64)]
    assert evaluate_conditions(conditions[:1], lambda: many) is True
    answer = evaluate_conditions(conditions, lambda: many)
    assert isinstance(answer, InvalidAdmissionResponse)
    assert "cost limit exceeded" in answer.reason


def test_variables_are_bound_only_when_there_are_conditions():
    def never() -> ConditionBindings:
        raise AssertionError

    assert evaluate_conditions([], never) is True
