"""Compares the answers of dray with those on record; rules explain the differences that were decided."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tests.mutations.answer import Answer
from tests.mutations.case import Case


@dataclass(frozen=True)
class Difference:
    """A case that the two servers answer differently."""

    case: Case
    upstream: Answer
    ours: Answer

    @property
    def summary(self) -> str:
        """What differs, without the fields: differences with one summary often have one cause."""
        if self.upstream.code != self.ours.code or self.upstream.reason != self.ours.reason:
            return f"{self.upstream.code} {self.upstream.reason} here {self.ours.code} {self.ours.reason}"
        if self.upstream.causes != self.ours.causes:
            absent = Counter(kind for kind, _ in set(self.upstream.causes) - set(self.ours.causes))
            added = Counter(kind for kind, _ in set(self.ours.causes) - set(self.upstream.causes))
            return (
                f"causes: absent {', '.join(sorted(absent)) or '-'}; added {', '.join(sorted(added)) or '-'}"
            )
        return "warnings"


@dataclass(frozen=True)
class Rule:
    """A difference that is right, with its reason."""

    name: str
    reason: str
    applies: Callable[[Difference], bool]


@dataclass(frozen=True)
class Comparison:
    """The outcome of all cases."""

    equal: tuple[Case, ...]
    decided: tuple[tuple[Rule, Difference], ...]
    wrong: tuple[Difference, ...]


def compare(answers: Sequence[tuple[Case, Answer, Answer]], rules: Sequence[Rule]) -> Comparison:
    """Compare answers on record with ours."""
    equal, decided, wrong = [], [], []
    for case, upstream, ours in answers:
        if upstream.is_like(ours):
            equal.append(case)
            continue
        difference = Difference(case, upstream, ours)
        rule = next((rule for rule in rules if rule.applies(difference)), None)
        if rule is None:
            wrong.append(difference)
        else:
            decided.append((rule, difference))
    return Comparison(tuple(equal), tuple(decided), tuple(wrong))
