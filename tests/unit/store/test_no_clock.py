"""R-17 at the store: no wall clock is read, so that no clock jump can decide anything; revisions do."""

from __future__ import annotations

import ast
from pathlib import Path

import dray.store

CLOCKS = {"time", "datetime", "calendar"}


def imported(source: str) -> set[str]:
    """The top modules that a source imports."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {name.name.partition(".")[0] for name in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module.partition(".")[0])
    return found


def test_no_part_of_the_store_imports_a_clock():
    sources = list(Path(dray.store.__path__[0]).rglob("*.py"))
    assert len(sources) > 10
    assert {path.name: clocks for path in sources if (clocks := imported(path.read_text()) & CLOCKS)} == {}


def test_the_search_finds_a_clock():
    assert imported("def f():\n    from time import monotonic\n") & CLOCKS
