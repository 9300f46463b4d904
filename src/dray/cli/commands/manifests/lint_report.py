"""The report of `dray lint`: findings as people and machines read them.

Rules for this file: colour only decorates; every word is there without it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import click

from dray.cli.output.text import format_count, sanitize_text
from dray.lint import LintFinding, Severity
from dray.manifests.source import render_excerpt

_COLORS = {Severity.ERROR: "red", Severity.WARNING: "yellow", Severity.NOTE: "cyan"}


@dataclass(frozen=True, slots=True)
class LintTally:
    """The files, objects and findings of a run."""

    files: int
    objects: int
    findings: tuple[LintFinding, ...]
    live_objects: int = 0
    """Objects of a running cluster, checked themselves when there are no files."""

    def count(self, severity: Severity) -> int:
        return sum(finding.severity is severity for finding in self.findings)

    @property
    def unchecked_kinds(self) -> dict[str, int]:
        """Kinds that were not checked, with how many of each."""
        kinds = (
            finding.object.partition(" ")[0] for finding in self.findings if finding.rule == "not-checked"
        )
        return dict(sorted(Counter(kinds).items()))


def sort_findings(findings: Iterable[LintFinding], sources: Sequence[str]) -> list[LintFinding]:
    """Sort findings by file, in the order given, and by position."""
    rank = {name: i for i, name in enumerate(sources)}
    return sorted(findings, key=lambda f: (rank.get(f.source, len(rank)), f.line, f.column, f.severity.rank))


def render_finding(finding: LintFinding) -> Iterator[str]:
    """Render one finding: the location line, the line of the file, and what would help."""
    severity = click.style(finding.severity.value, fg=_COLORS[finding.severity], bold=True)
    location = click.style(f"{sanitize_text(finding.source)}:{finding.line}:{finding.column}:", bold=True)
    path = f"{sanitize_text(finding.path)}: " if finding.path else ""
    yield (
        f"{location} {severity}: {path}{sanitize_text(finding.message)} "
        f"{click.style(f'[{finding.rule}]', dim=True)}"
    )
    if finding.excerpt.strip():
        shown, caret = render_excerpt(finding.excerpt, finding.column)
        gutter = f"{finding.line:>5} | "
        yield click.style(gutter, dim=True) + sanitize_text(shown).rstrip()
        yield click.style(" " * (len(gutter) - 2) + "| ", dim=True) + click.style(caret, fg="green")
    for label, text in (("in", finding.object), ("expected", finding.expected), ("hint", finding.hint)):
        if text:
            yield f"      {label}: {sanitize_text(text)}"
    if finding.rewrite:
        yield "      write instead:"
        yield from (f"        {sanitize_text(line)}" for line in finding.rewrite.rstrip("\n").split("\n"))


def render_summary(tally: LintTally) -> str:
    """Render the last line of a run."""
    counts = [
        format_count(tally.count(severity), severity.value)
        for severity in Severity
        if tally.count(severity) and severity is not Severity.NOTE
    ]
    notes = tally.count(Severity.NOTE) - sum(tally.unchecked_kinds.values())
    counts += [format_count(notes, "note")] if notes else []
    checked = f"checked {format_count(tally.objects, 'object')} {_describe_origin(tally)}"
    text = f"{checked}: {', '.join(counts) or 'nothing to complain about'}"
    if tally.unchecked_kinds:
        left = ", ".join(f"{count} {sanitize_text(kind)}" for kind, count in tally.unchecked_kinds.items())
        text += f"\nnot checked: {left}"
    return text


def _describe_origin(tally: LintTally) -> str:
    """Describe where objects were found, and what they were checked against."""
    live = format_count(tally.live_objects, "object")
    if not tally.files:
        return "of the cluster"
    files = f"in {format_count(tally.files, 'file')}"
    return f"{files} against {live} of the cluster" if tally.live_objects else files


_FINDING_KEYS = (
    "rule",
    "severity",
    "source",
    "line",
    "column",
    "object",
    "path",
    "message",
    "expected",
    "hint",
    "rewrite",
)
"""The keys of a finding in the document, in order."""


def build_lint_document(tally: LintTally, shown: Iterable[LintFinding]) -> dict[str, Any]:
    """Build the document of the findings for programs."""
    return {
        "findings": [{key: getattr(finding, key) for key in _FINDING_KEYS} for finding in shown],
        "summary": {
            "files": tally.files,
            "objects": tally.objects,
            **({"liveObjects": tally.live_objects} if tally.live_objects else {}),
            **{f"{severity.value}s": tally.count(severity) for severity in Severity},
            "notChecked": tally.unchecked_kinds,
        },
    }
