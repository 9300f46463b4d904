"""Validation and defaults of webhook configurations."""

from __future__ import annotations

from typing import Any

import pytest

from dray.api import codec
from dray.api.strategies.defaults import apply_defaults
from dray.api.validation import collect_warnings, validate_create

RULE: dict[str, Any] = {
    "apiGroups": ["resource.k8s.io"],
    "apiVersions": ["v1"],
    "operations": ["CREATE"],
    "resources": ["resourceclaims"],
}
WEBHOOK: dict[str, Any] = {
    "name": "parameters.gpu.example.com",
    "clientConfig": {"url": "https://localhost:8443/validate"},
    "admissionReviewVersions": ["v1"],
    "sideEffects": "None",
    "rules": [RULE],
}
FILLED: dict[str, Any] = {
    **WEBHOOK,
    "rules": [{**RULE, "scope": "*"}],
    "failurePolicy": "Fail",
    "matchPolicy": "Equivalent",
    "timeoutSeconds": 10,
}


def made(*webhooks: dict[str, Any], kind: str = "Validating") -> Any:
    document = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": f"{kind}WebhookConfiguration",
        "metadata": {"name": "c"},
        "webhooks": list(webhooks),
    }
    return apply_defaults(codec.decode_document(document).object, now="2026-01-31T12:00:00Z")


def wrong(webhook: dict[str, Any], kind: str = "Validating") -> list[str]:
    return [str(error) for error in validate_create(made(webhook, kind=kind))]


def test_defaults_of_webhooks_are_those_of_kubernetes():
    assert codec.to_document(made(WEBHOOK))["webhooks"] == [FILLED]
    mutating = codec.to_document(made(WEBHOOK, kind="Mutating"))["webhooks"]
    assert mutating == [{**FILLED, "reinvocationPolicy": "Never"}]
    service = {"namespace": "a", "name": "b"}
    behind = codec.to_document(made({**WEBHOOK, "clientConfig": {"service": service}}))["webhooks"]
    assert behind[0]["clientConfig"] == {"service": {**service, "port": 443}}


@pytest.mark.parametrize("kind", ["Validating", "Mutating"])
def test_a_valid_webhook_is_accepted(kind):
    assert wrong(WEBHOOK, kind) == []
    assert wrong({**WEBHOOK, "clientConfig": {"service": {"namespace": "a", "name": "b"}}}, kind) == []
    selector = {"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]}
    assert wrong({**WEBHOOK, "namespaceSelector": selector, "objectSelector": selector}, kind) == []


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"name": ""}, "webhooks[0].name: Required value"),
        ({"name": "a.b"}, "at least three segments"),
        ({"name": "A.b.c"}, 'webhooks[0].name: Invalid value: "A.b.c"'),
        ({"clientConfig": {}}, "webhooks[0].clientConfig: Required value: exactly one of url or service"),
        (
            {"clientConfig": {"url": "https://a", "service": {"namespace": "a", "name": "b"}}},
            "exactly one of url or service",
        ),
        ({"clientConfig": {"url": "http://a/b"}}, "'https' is the only allowed URL scheme"),
        ({"clientConfig": {"url": "https:///b"}}, "host must be specified"),
        ({"clientConfig": {"url": "https://a:b/c"}}, "url must be a valid URL"),
        ({"clientConfig": {"url": "https://[a"}}, "url must be a valid URL"),
        ({"clientConfig": {"url": "https://me:pw@a/b"}}, "user information is not permitted"),
        ({"clientConfig": {"url": "https://a/b?c=d"}}, "query parameters are not permitted"),
        ({"clientConfig": {"url": "https://a/b#c"}}, "fragments are not permitted"),
        ({"clientConfig": {"url": "https://a", "caBundle": "%"}}, "webhooks[0].clientConfig.caBundle"),
        ({"clientConfig": {"service": {"name": "b"}}}, "clientConfig.service.namespace: Required value"),
        ({"clientConfig": {"service": {"namespace": "b"}}}, "clientConfig.service.name: Required value"),
        (
            {"clientConfig": {"service": {"namespace": "a", "name": "b", "port": 70000}}},
            "clientConfig.service.port: Invalid value: 70000",
        ),
        (
            {"clientConfig": {"service": {"namespace": "a", "name": "b", "path": "x"}}},
            "must start with a '/'",
        ),
        ({"failurePolicy": "Maybe"}, 'webhooks[0].failurePolicy: Unsupported value: "Maybe"'),
        ({"matchPolicy": "Maybe"}, 'webhooks[0].matchPolicy: Unsupported value: "Maybe"'),
        ({"sideEffects": None}, "webhooks[0].sideEffects: Required value"),
        ({"sideEffects": "Some"}, 'webhooks[0].sideEffects: Unsupported value: "Some"'),
        (
            {"timeoutSeconds": 0},
            "timeoutSeconds: Invalid value: 0: the timeout value must be between 1 and 30",
        ),
        ({"timeoutSeconds": 31}, "timeoutSeconds: Invalid value: 31"),
        ({"admissionReviewVersions": []}, "admissionReviewVersions: Required value"),
        ({"admissionReviewVersions": ["v1beta1"]}, "must include v1"),
        ({"admissionReviewVersions": ["v1", "v1"]}, "admissionReviewVersions[1]: Invalid value"),
        (
            {"namespaceSelector": {"matchLabels": {"a b": ""}}},
            "webhooks[0].namespaceSelector.matchLabels: Invalid value",
        ),
        (
            {"objectSelector": {"matchExpressions": [{"key": "a", "operator": "Near"}]}},
            "webhooks[0].objectSelector.matchExpressions[0].operator: Invalid value",
        ),
        ({"matchConditions": [{"expression": "true"}]}, "matchConditions[0].name: Required value"),
        ({"matchConditions": [{"name": "a"}]}, "matchConditions[0].expression: Required value"),
        ({"matchConditions": [{"name": "a", "expression": "1"}]}, "must evaluate to bool, not int"),
        ({"matchConditions": [{"name": "a", "expression": "object."}]}, "compilation failed"),
        (
            {"matchConditions": [{"name": "a", "expression": "authorizer.path('/').check('get').allowed()"}]},
            "undeclared reference to 'authorizer'",
        ),
        (
            {"matchConditions": [{"name": "a", "expression": "true"}] * 2},
            'matchConditions[1].name: Duplicate value: "a"',
        ),
        (
            {"matchConditions": [{"name": f"n{n}", "expression": "true"} for n in range(65)]},
            "matchConditions: Too many: 65",
        ),
    ],
)
def test_errors_of_a_webhook_have_their_path(change, text):
    assert any(text in told for told in wrong({**WEBHOOK, **change})), wrong({**WEBHOOK, **change})


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"operations": []}, "webhooks[0].rules[0].operations: Required value"),
        ({"operations": ["READ"]}, 'operations[0]: Unsupported value: "READ"'),
        ({"operations": ["*", "CREATE"]}, "if '*' is present, must not specify other values"),
        ({"apiGroups": []}, "apiGroups: Required value"),
        ({"apiGroups": ["*", ""]}, "if '*' is present"),
        ({"apiVersions": []}, "apiVersions: Required value"),
        ({"apiVersions": [""]}, "apiVersions[0]: Required value"),
        ({"resources": []}, "resources: Required value"),
        ({"resources": [""]}, "resources[0]: Required value"),
        ({"resources": ["*/*", "pods"]}, "if '*/*' is present"),
        ({"resources": ["*", "pods"]}, "if '*' is present"),
        ({"resources": ["pods/*", "pods/status"]}, "if 'pods/*' is present"),
        ({"resources": ["*/status", "pods/status"]}, "if '*/status' is present"),
        ({"scope": "World"}, 'scope: Unsupported value: "World"'),
    ],
)
def test_errors_of_a_rule_have_their_path(change, text):
    found = wrong({**WEBHOOK, "rules": [{**RULE, **change}]})
    assert any(text in told for told in found), found


@pytest.mark.parametrize("resources", [["*", "pods/status"], ["pods", "pods/*"], ["*/status", "pods/log"]])
def test_resources_that_do_not_repeat_each_other_are_accepted(resources):
    assert wrong({**WEBHOOK, "rules": [{**RULE, "resources": resources}]}) == []


def test_the_core_group_has_no_name():
    assert wrong({**WEBHOOK, "rules": [{**RULE, "apiGroups": [""]}]}) == []


def test_the_reinvocation_policy_is_one_of_two():
    found = wrong({**WEBHOOK, "reinvocationPolicy": "Often"}, "Mutating")
    assert found == [
        'webhooks[0].reinvocationPolicy: Unsupported value: "Often": supported values: "IfNeeded", "Never"'
    ]


def test_webhooks_have_distinct_names():
    errors = [str(error) for error in validate_create(made(WEBHOOK, WEBHOOK))]
    assert errors == ['webhooks[1].name: Duplicate value: "parameters.gpu.example.com"']


def test_a_secret_in_an_address_is_not_repeated():
    assert "hunter2" not in "".join(
        wrong({**WEBHOOK, "clientConfig": {"url": "http://me:hunter2@a/b?t=hunter2"}})
    )


def test_a_webhook_without_rules_gets_a_warning():
    cautions = [str(caution) for caution in collect_warnings(made({**WEBHOOK, "rules": []}))]
    assert cautions == ["webhooks[0].rules: the webhook has no rules, so it is never called"]
