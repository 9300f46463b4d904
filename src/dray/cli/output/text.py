"""Findings as people and machines read them.

Rules for this file: colour only decorates; every word is there without it. Text from files is cleaned of
control characters before it reaches a terminal.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any

import click

from dray.lint import Finding, Severity
from dray.manifests.source import excerpt

_COLORS = {Severity.ERROR: "red", Severity.WARNING: "yellow", Severity.NOTE: "cyan"}
_CONTROL = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


@dataclass(frozen=True, slots=True)
class Tally:
    """What a run looked at and found."""

    files: int
    objects: int
    findings: tuple[Finding, ...]

    def count(self, severity: Severity) -> int:
        return sum(finding.severity is severity for finding in self.findings)

    @property
    def not_checked(self) -> dict[str, int]:
        """Kinds that were left alone, with how many of each."""
        kinds = (
            finding.object.partition(" ")[0] for finding in self.findings if finding.rule == "not-checked"
        )
        return dict(sorted(Counter(kinds).items()))


def in_order(findings: Iterable[Finding], sources: Sequence[str]) -> list[Finding]:
    """Findings by file, as the files were given, and by place."""
    rank = {name: i for i, name in enumerate(sources)}
    return sorted(findings, key=lambda f: (rank.get(f.source, len(rank)), f.line, f.column, f.severity.rank))


def lines(finding: Finding) -> Iterator[str]:
    """One finding: the line tools understand, the line of the file, and what would help."""
    severity = click.style(finding.severity.value, fg=_COLORS[finding.severity], bold=True)
    place = click.style(f"{clean(finding.source)}:{finding.line}:{finding.column}:", bold=True)
    path = f"{clean(finding.path)}: " if finding.path else ""
    yield f"{place} {severity}: {path}{clean(finding.message)} {click.style(f'[{finding.rule}]', dim=True)}"
    if finding.excerpt.strip():
        shown, caret = excerpt(finding.excerpt, finding.column)
        gutter = f"{finding.line:>5} | "
        yield click.style(gutter, dim=True) + clean(shown).rstrip()
        yield click.style(" " * (len(gutter) - 2) + "| ", dim=True) + click.style(caret, fg="green")
    for label, text in (("in", finding.object), ("expected", finding.expected), ("hint", finding.hint)):
        if text:
            yield f"      {label}: {clean(text)}"
    if finding.rewrite:
        yield "      write instead:"
        yield from (f"        {clean(line)}" for line in finding.rewrite.rstrip("\n").split("\n"))


def clean(text: str) -> str:
    """Text without characters that could steer a terminal."""
    return _CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def flat(text: str) -> str:
    """The same on one line: what somebody wrote into an object must not look like a line of ours."""
    return clean(text).replace("\n", "\\n")


def summary(tally: Tally) -> str:
    """The last line of a run."""
    counts = [
        _plural(tally.count(severity), severity.value)
        for severity in Severity
        if tally.count(severity) and severity is not Severity.NOTE
    ]
    notes = tally.count(Severity.NOTE) - sum(tally.not_checked.values())
    counts += [_plural(notes, "note")] if notes else []
    looked = f"checked {_plural(tally.objects, 'object')} in {_plural(tally.files, 'file')}"
    text = f"{looked}: {', '.join(counts) or 'nothing to complain about'}"
    if tally.not_checked:
        left = ", ".join(f"{count} {clean(kind)}" for kind, count in tally.not_checked.items())
        text += f"\nnot checked: {left}"
    return text


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def as_document(tally: Tally, shown: Iterable[Finding]) -> dict[str, Any]:
    """The same for machines."""
    names = [field.name for field in fields(Finding) if field.name != "excerpt"]
    return {
        "findings": [{name: getattr(finding, name) for name in names} for finding in shown],
        "summary": {
            "files": tally.files,
            "objects": tally.objects,
            **{f"{severity.value}s": tally.count(severity) for severity in Severity},
            "notChecked": tally.not_checked,
        },
    }
