"""Cases of `dray lint`: manifests as text, and every finding they must give, with its place.

A case is `files` (name and text), perhaps `gates` and `complete`, and `findings`: one line each, in order,
as `file:line:column severity rule path`. Below that line a finding may pin parts of its words (`says`,
`expected`, `hint`) and the whole of its `rewrite`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dray.cli.commands.manifests.lint_report import sort_findings
from dray.gates import GateSet
from dray.lint import LintFinding, crosscheck, inspect_document, resolve_deferred
from dray.manifests import ManifestSource, read_documents
from tests.tables import table

FOLDER = Path(__file__).parent / "lint"
CASES = [
    pytest.param(case, id=f"{path.stem}: {case['case']}")
    for path in sorted(FOLDER.glob("*.yaml"))
    for case in table(path)
]
PINNED = {"says": "message", "expected": "expected", "hint": "hint"}


def linted(case: dict[str, Any]) -> list[LintFinding]:
    sources = {name: ManifestSource.decode(name, text.encode()) for name, text in case["files"].items()}
    gates = GateSet.parse(case.get("gates", ""))
    inspected = [
        inspect_document(document, gates, now="2026-01-01T00:00:00Z")
        for source in sources.values()
        for document in read_documents(source)
    ]
    facts = [fact for each in inspected for fact in each.facts]
    charges = crosscheck(facts, complete=case.get("complete", False))
    findings = [finding for each in inspected for finding in each.findings]
    findings += resolve_deferred(charges, lambda name: read_documents(sources[name]))
    return sort_findings(findings, list(sources))


def line(finding: LintFinding) -> str:
    place = f"{finding.source}:{finding.line}:{finding.column}"
    return f"{place} {finding.severity} {finding.rule} {finding.path}".rstrip()


@pytest.mark.parametrize("case", CASES)
def test_case(case: dict[str, Any]) -> None:
    findings = linted(case)
    expected = [row if isinstance(row, str) else row["at"] for row in case["findings"]]
    assert [line(finding) for finding in findings] == expected
    for finding, row in zip(findings, case["findings"], strict=True):
        for key, attribute in PINNED.items() if isinstance(row, dict) else ():
            assert row.get(key, "") in getattr(finding, attribute), f"{key} of {line(finding)}"
        if isinstance(row, dict) and "rewrite" in row:
            assert finding.rewrite == row["rewrite"], f"rewrite of {line(finding)}"


@pytest.mark.parametrize("case", CASES)
def test_words_of_a_finding(case: dict[str, Any]) -> None:
    for finding in linted(case):
        assert finding.message
        assert finding.excerpt.strip()
        assert not finding.message.endswith(".")
        assert finding.expected or finding.rule in ("suspicious", "not-checked"), line(finding)
