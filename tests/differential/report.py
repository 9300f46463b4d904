"""The report of a comparison: for people, or as JSON."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tests.differential.comparison import RULES, Comparison, FieldDifference


@dataclass(frozen=True)
class Report:
    """What was compared, and what came of it."""

    sides: tuple[str, str]
    """Names and versions of the clusters."""
    results: tuple[Comparison, ...]
    seconds: float = 0.0

    @property
    def wrong(self) -> int:
        return sum(bool(result.wrong) for result in self.results)

    @property
    def decided(self) -> int:
        return sum(bool(result.decided) and not result.wrong for result in self.results)

    @property
    def equal(self) -> int:
        return len(self.results) - self.wrong - self.decided

    @property
    def exit_code(self) -> int:
        return 1 if self.wrong else 0

    def count_rules(self) -> Counter[str]:
        """In how many scenarios each rule explains a difference."""
        return Counter(rule for result in self.results for rule in {rule for rule, _ in result.decided})


def format_result(result: Comparison, verbose: bool) -> Iterator[str]:
    """Yield the lines of one scenario; an equal one has none."""
    if result.wrong:
        yield f"wrong: {result.scenario}"
        yield from (f"  {difference}" for difference in result.wrong)
    for name, difference in result.decided if verbose else ():
        yield f"decided by {name}: {result.scenario}"
        yield f"  {difference}"


def format_summary(report: Report) -> Iterator[str]:
    """Yield the lines at the end: counts, and every rule that was used with its reason."""
    yield f"{report.equal} equal · {report.decided} decided · {report.wrong} wrong"
    counts = report.count_rules()
    for rule in RULES:
        if counts[rule.name]:
            yield f"  {counts[rule.name]:4} {rule.name}: {rule.reason}"


def format_json(report: Report) -> str:
    """Everything, as one JSON document."""
    return json.dumps(
        {
            "a": report.sides[0],
            "b": report.sides[1],
            "seconds": round(report.seconds, 1),
            "equal": report.equal,
            "decided": report.decided,
            "wrong": report.wrong,
            "rules": dict(sorted(report.count_rules().items())),
            "scenarios": [_build_entry(result) for result in report.results],
        },
        indent=2,
    )


def _build_entry(result: Comparison) -> dict[str, Any]:
    return {
        "scenario": result.scenario,
        "result": "wrong" if result.wrong else "decided" if result.decided else "equal",
        "wrong": _build_differences([("", difference) for difference in result.wrong]),
        "decided": _build_differences(result.decided),
    }


def _build_differences(differences: Sequence[tuple[str, FieldDifference]]) -> list[dict[str, Any]]:
    return [
        {
            "field": ".".join(difference.path),
            "a": difference.left,
            "b": difference.right,
            **({"rule": name} if name else {}),
        }
        for name, difference in differences
    ]
