"""Compares the pictures of two clusters field by field; rules explain the differences that were decided."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from tests.differential.scenario import Scenario

MISSING = "<missing>"


@dataclass(frozen=True)
class FieldDifference:
    """A field in which the clusters differ."""

    path: tuple[str, ...]
    left: Any
    right: Any

    @property
    def name(self) -> str:
        return self.path[-1]

    @property
    def parent(self) -> str:
        """The field that has this one; none for a step as a whole."""
        return self.path[-2] if len(self.path) > 1 else ""

    def __str__(self) -> str:
        return f"{'.'.join(self.path)}: {self.left!r} · {self.right!r}"


@dataclass(frozen=True)
class Rule:
    """A difference that is right, with its reason."""

    name: str
    reason: str
    applies: Callable[[Scenario, FieldDifference], bool]


@dataclass(frozen=True)
class Comparison:
    """The differences of one scenario: those that a rule explains, and the others."""

    scenario: str
    decided: tuple[tuple[str, FieldDifference], ...]
    wrong: tuple[FieldDifference, ...]


def _is_tie(scenario: Scenario, difference: FieldDifference) -> bool:
    return scenario.has_ties and all(
        side not in ("", MISSING) for side in (difference.left, difference.right)
    )


def _is_finalizer(scenario: Scenario, difference: FieldDifference) -> bool:
    return difference.name == "finalizers" and MISSING in (difference.left, difference.right)


def _is_untried(scenario: Scenario, difference: FieldDifference) -> bool:
    return difference.name == "scheduled" and [] in (difference.left, difference.right)


def _is_fault(scenario: Scenario, difference: FieldDifference) -> bool:
    return difference.parent == "scheduled" and {difference.left, difference.right} == {
        "False SchedulerError",
        "False Unschedulable",
    }


def _is_exact_amount(scenario: Scenario, difference: FieldDifference) -> bool:
    return difference.parent == "consumedCapacity"


def _is_timestamp(scenario: Scenario, difference: FieldDifference) -> bool:
    return difference.name == "allocationTimestamp" and MISSING in (difference.left, difference.right)


def _is_admin_field(scenario: Scenario, difference: FieldDifference) -> bool:
    return difference.parent == "fields" and all(
        str(side).endswith("adminAccess") for side in (difference.left, difference.right)
    )


def _is_empty(scenario: Scenario, difference: FieldDifference) -> bool:
    sides = [difference.left, difference.right]
    return MISSING in sides and not all(map(_has_content, sides))


def _has_content(value: Any) -> bool:
    if isinstance(value, dict):
        return any(map(_has_content, value.values()))
    return any(map(_has_content, value)) if isinstance(value, list) else value is not None


def _build_rule(name: str, reason: str) -> Rule:
    """Build a rule for the scenarios that name it: those that show just this difference."""
    return Rule(name, reason, lambda scenario, _: scenario.decided == name)


RULES = (
    Rule("tie", "kube-scheduler chooses at random among nodes that are equally good", _is_tie),
    Rule(
        "finalizer",
        "dray's controller keeps the finalizer of a claim from its creation to its deletion (decision 0016), "
        "that of Kubernetes while it is allocated",
        _is_finalizer,
    ),
    Rule(
        "untried",
        "dray says in a condition that a pod waits for a claim, kube-scheduler says nothing",
        _is_untried,
    ),
    Rule(
        "fault",
        "a claim that cannot be answered on a node is refused there with the reason; kube-scheduler ends the "
        "attempt for all nodes with SchedulerError",
        _is_fault,
    ),
    Rule(
        "exact-amounts",
        "amounts are exact; Kubernetes computes with whole numbers unless DRAFractionalCapacityRange is on",
        _is_exact_amount,
    ),
    Rule(
        "timestamp",
        "dray always sets `allocationTimestamp`; kube-scheduler only with DRADeviceBindingConditions, which "
        "is off before 1.36",
        _is_timestamp,
    ),
    Rule(
        "admin-field",
        "the field that asks for admin access is named by its full path; Kubernetes leaves parts of it out",
        _is_admin_field,
    ),
    _build_rule(
        "extended-resource",
        "dray has no extended resources that are devices (`extendedResourceName` of a class)",
    ),
    _build_rule("stricter", "objects that can only be mistakes are refused (decision 0006)"),
    _build_rule(
        "any-effect",
        "a toleration without effect tolerates `NoExecute`, as the API says; Kubernetes evicts the pod",
    ),
    _build_rule(
        "claim-twice",
        "a pod that names one claim twice runs; kube-scheduler allocates it and fails to reserve it twice",
    ),
    Rule("empty", "dray leaves out a field that has no content", _is_empty),
)


def compare(scenario: Scenario, left: list[Any], right: list[Any]) -> Comparison:
    """Compare what both clusters made of a scenario."""
    decided, wrong = [], []
    steps = zip_longest(left, right, fillvalue=MISSING)
    differences = (
        each
        for number, (one, other) in enumerate(steps)
        for each in find_differences((str(number),), one, other)
    )
    for difference in differences:
        rule = next((rule for rule in RULES if rule.applies(scenario, difference)), None)
        if rule is None:
            wrong.append(difference)
        else:
            decided.append((rule.name, difference))
    return Comparison(scenario.name, tuple(decided), tuple(wrong))


def find_differences(path: tuple[str, ...], left: Any, right: Any) -> Iterator[FieldDifference]:
    """Yield every field whose values differ."""
    if isinstance(left, dict) and isinstance(right, dict):
        for name in sorted({*left, *right}):
            yield from find_differences((*path, name), left.get(name, MISSING), right.get(name, MISSING))
    elif isinstance(left, list) and isinstance(right, list) and len(left) == len(right):
        for number, (one, other) in enumerate(zip(left, right, strict=True)):
            yield from find_differences((*path, str(number)), one, other)
    elif left != right:
        yield FieldDifference(path, left, right)
