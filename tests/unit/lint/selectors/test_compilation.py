"""What the compiler says about selectors, in words that help."""

from __future__ import annotations

from typing import get_args

import pytest

from dray.api.devices.device_cel import build_environment
from dray.api.fields import FieldError, FieldErrorType
from dray.api.limits import EXPRESSION_BYTES
from dray.api.strategies import create
from dray.cel import CompileFault
from dray.cel.issue_causes import IssueCause
from dray.cel.source import ExpressionIssue
from dray.gates import GateSet
from dray.lint.document_checks import inspect_document
from dray.lint.selectors.cel_messages import _EXPLANATIONS, report_issue
from dray.lint.selectors.compilation import find_compile_findings
from dray.manifests import ManifestSource, read_documents

GPU = 'device.attributes["gpu.example.com"]'
MEMORY = 'device.capacity["gpu.example.com"].memory'

# Expression, the part of it that is pointed at, and parts of what is finding, expected and hinted.
BROKEN = [
    ("device.attribute.x", "attribute", "`device` has no field `attribute`", "`attributes`", "`attributes`"),
    (
        'device.model == "x"',
        "model",
        "no field `model`",
        "one of `driver`",
        'device.attributes["its.domain"]',
    ),
    ("devices", "devices", "unknown name `devices`", "`device`", "did you mean `device`?"),
    ('attributes["x"].y', "attributes", "unknown name", "", "did you mean `device.attributes`?"),
    ("device.driver == gpu", "gpu", "unknown name `gpu`", "a value", 'quotes: `"gpu"`'),
    ("True", "True", "unknown name `True`", "", "did you mean `true`?"),
    (f"{GPU}.x.include(1) && len({GPU}.y) > 1", "len", "unknown function `len`", "", "`size`"),
    (f'{GPU}.x.contain("y")', "contain", "unknown function `contain`", "", "did you mean `contains`?"),
    (f"{GPU}.x.includ(1)", "includ", "unknown function `includ`", "", "did you mean `include`?"),
    (f"{GPU}.x.any(v, v)", "any", "unknown function", "", "did you mean `exists`?"),
    ('device.driver == "x" AND true', "AND", "`AND` does not belong here", "`&&`", "`&&`"),
    ('device.driver = "x"', "=", "`=` has no meaning", "", "did you mean `==`?"),
    ('device.driver === "x"', "= ", "`===` is no operator", "`==`", "did you mean `==`?"),
    ('device.driver == "x" & true', "& ", "`&` has no meaning", "", "did you mean `&&`?"),
    ("device.driver == 'x", "'x", "never closed", "`'`", ""),
    ("(true", "", "`)` is missing", "`)`", ""),
    ("true &&", "", "the expression ends too early", "a value", ""),
    ("true && && true", "&& true", "a value is missing before `&&`", "a value", ""),
    ("[true)", ")", "`)` does not belong here", "`]`", ""),
    ("if (true) true", "if", "`if` is a reserved word", "", "condition ? one : other"),
    (f"{MEMORY} > {MEMORY}", ">", "`>` does not take a quantity and a quantity", "order", ".compareTo("),
    (f'{MEMORY} == "1Gi"', "==", "`==` does not take a quantity and text", "", 'quantity("10Gi")'),
    (
        f"{MEMORY}.compareTo(1) == 0",
        "compareTo",
        "quantity and an int",
        "quantity.compareTo(quantity)",
        "quantity(",
    ),
    ('device.attributes["x/y"] == "z"', "==", "all attributes of a domain", "", '["its.domain"].name'),
    ('device.capacity.x == quantity("1")', "==", "all capacities of a domain", "", '["its.domain"].name'),
    (f"has({GPU})", "[", "`has` cannot test this", "behind a dot", '"name" in'),
    ("device.driver.x == 1", ".x", "text has no fields", "", ""),
    (f'{GPU}.x.matches("(")', '"("', "`matches` cannot read its argument", "RE2", ""),
    ('["a", 1] == []', "1", "this is an int among values that are texts", "text", ""),
    ("device.driver", "device.driver", "its value is text", "a condition", ""),
    ('semver("1") == semver("1.0.0")', "semver", '`semver("1")` fails', "three numbers", 'semver("1", true)'),
    ('ip("x") == ip("::1")', "ip", '`ip("x")` fails on every device', "an address", ""),
]


@pytest.mark.parametrize(
    ("expression", "at", "message", "expected", "hint"), BROKEN, ids=lambda value: value[:40]
)
def test_a_selector_that_cannot_be_used(
    expression: str, at: str, message: str, expected: str, hint: str
) -> None:
    first = find_compile_findings(expression, GateSet.from_defaults())[0]
    assert message in first.message
    assert expected in first.expected
    assert hint in first.hint if hint else not first.hint
    assert first.text_offset is not None
    text, offset = first.text_offset
    assert text == expression
    assert expression[offset:].startswith(at)
    assert at or offset == len(expression)


@pytest.mark.parametrize(
    "expression",
    [
        "",
        "x" * (EXPRESSION_BYTES + 1),
        "true",
        f'{GPU}.model == "x" && {MEMORY}.compareTo(quantity("1Gi")) > 0',
        f'{GPU}.version == semver("1.0", true)',
        f'"quantity(\\"1GB\\")" == {GPU}.text',
        f'isQuantity("1GB") || {GPU}.x',
    ],
    ids=lambda value: value[:40],
)
def test_a_selector_that_can_be_used(expression: str) -> None:
    assert not find_compile_findings(expression, GateSet.from_defaults())


@pytest.mark.parametrize("expression", [row[0] for row in BROKEN], ids=lambda value: value[:40])
def test_the_wording_does_not_depend_on_the_message_of_the_compiler(expression: str) -> None:
    env = build_environment(sharing=True, lists=True)
    compiled = env.compile(expression)
    for issue in compiled.issues if isinstance(compiled, CompileFault) else ():
        other = issue._replace(message="some other words")
        assert issue.cause is not None
        assert report_issue(expression, other, env) == report_issue(expression, issue, env)


def test_every_cause_has_a_wording() -> None:
    assert set(_EXPLANATIONS) == set(get_args(IssueCause))


def test_an_issue_without_a_cause_keeps_its_message() -> None:
    finding = report_issue(
        "true",
        ExpressionIssue(2, "the 'moon' is full\nand so on"),
        build_environment(sharing=True, lists=True),
    )
    assert (finding.message, finding.text_offset) == ("the `moon` is full", ("true", 2))


CLASS = """
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: gpu}
spec: {selectors: [{cel: {expression: device.drivers}}, {cel: {expression: "true"}}]}
"""


def test_a_broken_selector_is_not_reported_again_by_validation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    paths = [f"spec.selectors[{i}].cel.expression" for i in range(2)]
    errors = [FieldError(FieldErrorType.INVALID, path, "x", "compilation failed") for path in paths]
    monkeypatch.setattr(create, "validate_stored", lambda obj: errors)
    (document,) = read_documents(ManifestSource.decode("f.yaml", CLASS.encode()))
    found = inspect_document(document, GateSet.from_defaults(), now="2026-01-01T00:00:00Z")
    assert [(f.rule, f.path) for f in found.findings] == [
        ("selector-broken", paths[0]),
        ("invalid", paths[1]),  # lint found nothing wrong with this one, so it stays
    ]


def test_unusable_selectors_are_marked_for_the_checks_across_objects() -> None:
    (document,) = read_documents(ManifestSource.decode("f.yaml", CLASS.encode()))
    (facts,) = inspect_document(document, GateSet.from_defaults(), now="2026-01-01T00:00:00Z").facts
    (group,) = facts.selector_groups
    assert [use.usable for use in group.selectors] == [False, True]
