"""The pages for contributors name files and functions that exist."""

from __future__ import annotations

import ast
import re
from functools import cache

import pytest

from tests.outside import ROOT

INTERNALS = ROOT / "docs" / "internals"
CHANGES = (
    "kind",
    "field",
    "feature gate",
    "constraint",
    "CEL function",
    "scheduler plugin",
    "controller",
    "command",
)
NAMED_FILE = re.compile(r"`((?:src|docs|deploy|tests|examples)/[\w./-]+)`")
NAMED_FUNCTION = re.compile(r"`([\w/]+\.py):([\w.]+)`")


def test_the_page_on_changes_has_the_eight_changes():
    titles = re.findall(r"^## Add an? (.+)$", (INTERNALS / "how-to-change.md").read_text(), re.MULTILINE)
    assert tuple(titles) == CHANGES


@pytest.mark.parametrize(
    "name", sorted(set(NAMED_FILE.findall((INTERNALS / "how-to-change.md").read_text())))
)
def test_a_file_named_for_a_change_exists(name):
    assert (ROOT / name).exists()


@cache
def defined_names(path: str) -> frozenset[str]:
    """The functions, classes and methods of a module, by their qualified names."""
    found = set()

    def collect(node: ast.AST, prefix: str) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                found.add(f"{prefix}{child.name}")
                collect(child, f"{prefix}{child.name}.")

    collect(ast.parse((ROOT / "src" / "dray" / path).read_text()), "")
    return frozenset(found)


@pytest.mark.parametrize(
    ("path", "function"), sorted(set(NAMED_FUNCTION.findall((INTERNALS / "walk.md").read_text())))
)
def test_a_function_of_the_walk_exists(path, function):
    assert function in defined_names(path)


def test_the_walk_counts_every_write_once():
    page = (INTERNALS / "walk.md").read_text()
    cells = re.findall(r"^\| ([\d, ]+) \|", page, re.MULTILINE)
    numbers = [int(number) for cell in cells for number in cell.split(",")]
    total = re.search(r"(\d+) API writes", page)
    assert total is not None
    assert numbers == list(range(1, int(total[1]) + 1))
