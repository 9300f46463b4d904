"""The table of rules."""

from __future__ import annotations

import re

import pytest

from dray.api.fields import FieldErrorType
from dray.lint import RULES, LintRule, Severity
from dray.lint.rules import RULE_BY_FAULT
from tests.outside import ROOT

CASES = "\n".join(path.read_text("utf-8") for path in sorted((ROOT / "tests/cases/lint").glob("*.yaml")))
SHOWN_ELSEWHERE = {"unreadable", "syntax", "selector-not-checked"}
"""Rules about files, tested in tests/unit/cli, and about too many devices, in selectors/test_checks."""


@pytest.mark.parametrize("rule", RULES.values(), ids=lambda rule: rule.id)
def test_a_rule_has_a_one_line_description_and_an_example(rule: LintRule) -> None:
    assert re.fullmatch(r"[a-z]+(-[a-z]+)*", rule.id)
    assert rule.about
    assert not rule.about.endswith(".")
    assert "\n" not in rule.about
    assert rule.example.strip()


@pytest.mark.parametrize("name", sorted(RULES.keys() - SHOWN_ELSEWHERE))
def test_every_rule_has_a_case(name: str) -> None:
    assert re.search(rf":\d+:\d+ \w+ {name}( |$)", CASES, re.MULTILINE)


def test_every_fault_of_validation_has_a_rule() -> None:
    assert set(RULE_BY_FAULT) == set(FieldErrorType)
    assert set(RULE_BY_FAULT.values()) <= RULES.keys()


def test_rules_named_in_the_code_exist() -> None:
    named = {
        found[1]
        for path in (ROOT / "src/dray/lint").rglob("*.py")
        for found in re.finditer(r'FieldFinding\(\s*"([^"]+)"', path.read_text("utf-8"))
    }
    assert named
    assert named <= RULES.keys()


def test_severities_are_ordered() -> None:
    assert sorted(Severity, key=lambda severity: severity.rank) == [
        Severity.ERROR,
        Severity.WARNING,
        Severity.NOTE,
    ]
