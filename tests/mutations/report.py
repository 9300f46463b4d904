"""The report of a comparison: a table by kind, and the differences grouped by what differs."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

from tests.mutations.comparison import Comparison, Difference

FEW = 6
"""Cases of a group that are shown without `--verbose`."""


def format_table(comparison: Comparison) -> Iterator[str]:
    """Yield one line per kind."""
    equal = Counter(case.base.kind for case in comparison.equal)
    decided = Counter(difference.case.base.kind for _, difference in comparison.decided)
    wrong = Counter(difference.case.base.kind for difference in comparison.wrong)
    yield f"{'kind':34} {'cases':>6} {'equal':>6} {'decided':>8} {'wrong':>6}"
    for kind in sorted(equal | decided | wrong):
        total = equal[kind] + decided[kind] + wrong[kind]
        yield f"{kind:34} {total:6} {equal[kind]:6} {decided[kind]:8} {wrong[kind]:6}"
    sums = (equal.total(), decided.total(), wrong.total())
    yield f"{'all':34} {sum(sums):6} {sums[0]:6} {sums[1]:8} {sums[2]:6}"


def format_rules(comparison: Comparison) -> Iterator[str]:
    """Yield how often each rule was used."""
    for rule, count in Counter(rule for rule, _ in comparison.decided).most_common():
        yield f"{count:6} {rule.name}: {rule.reason}"


def format_groups(differences: tuple[Difference, ...], verbose: bool) -> Iterator[str]:
    """Yield the differences, the most frequent group first."""
    groups: dict[str, list[Difference]] = defaultdict(list)
    for difference in differences:
        groups[difference.summary].append(difference)
    for summary, members in sorted(groups.items(), key=lambda item: -len(item[1])):
        yield f"== {len(members)} x {summary}"
        for difference in members if verbose else members[:FEW]:
            yield from format_difference(difference)
        if not verbose and len(members) > FEW:
            yield f"  … {len(members) - FEW} more"


def format_difference(difference: Difference) -> Iterator[str]:
    """Yield one case with both answers."""
    yield f"  {difference.case.id}"
    yield f"      kubernetes  {difference.upstream}"
    yield f"      dray        {difference.ours}"
    if difference.ours.message:
        yield f"                  {difference.ours.message[:300]}"
