"""The page of runs against Kubernetes names evidence that exists, and every rule of the comparison."""

from __future__ import annotations

import ast
import importlib.util
import re
from pathlib import Path

import pytest

from tests.differential.__main__ import select_scenarios
from tests.differential.comparison import RULES
from tests.mutations.rules import RULES as MUTATION_RULES

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "kubernetes.md").read_text("utf-8")
TEST = re.compile(r"`(tests/[\w/.-]+?)(?:::(\w+))?`")
MODULE = re.compile(r"python -m (tests\.[\w.]+)")
NOT_RUN = "not run"


def list_evidence() -> list[str]:
    """The last cells of all rows in tables that have a column `evidence`."""
    rows: list[str] = []
    within = False
    for line in PAGE.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if not line.startswith("|"):
            within = False
        elif cells[-1] == "evidence":
            within = True
        elif within and set(line) - set("|- "):
            rows.append(cells[-1])
    return rows


@pytest.mark.parametrize(("file", "function"), sorted(set(TEST.findall(PAGE))))
def test_every_test_that_the_page_names_exists(file: str, function: str) -> None:
    path = ROOT / file
    assert path.exists()
    if function:
        tree = ast.parse(path.read_text("utf-8"))
        names = {
            node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        }
        assert function in names


@pytest.mark.parametrize("module", sorted(set(MODULE.findall(PAGE))))
def test_every_command_that_the_page_names_exists(module: str) -> None:
    assert importlib.util.find_spec(module) is not None


def test_every_row_has_evidence_or_was_not_run() -> None:
    rows = list_evidence()
    assert len(rows) > 20
    assert [row for row in rows if not (TEST.search(row) or MODULE.search(row) or row == NOT_RUN)] == []


def test_every_rule_of_the_comparison_is_explained() -> None:
    reasons = [(rule.name, rule.reason) for rule in RULES]
    reasons += [(rule.name, rule.reason) for rule in MUTATION_RULES]
    for name, reason in reasons:
        assert f"| `{name}` | {reason} |" in PAGE


def test_the_number_of_scenarios_is_right() -> None:
    assert f"It has {len(list(select_scenarios(['*'])))} scenarios" in PAGE.replace("\n", " ")
