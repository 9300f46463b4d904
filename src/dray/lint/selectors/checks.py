"""Checks of selectors against slices: every selector is evaluated on the devices that would reach it.

Theory of operation: without devices there are no findings. A class selector is evaluated on all devices, a
request selector on those that its class accepts; when the class is not among the manifests, only findings
that hold for any class are reported. Equal rows (a hundred claims with one selector) are evaluated once and
reported at each place.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from dray.api.devices.selector_analysis import analyze_selector
from dray.lint.findings import THESE_MANIFESTS, DeferredFinding, FieldFinding
from dray.lint.object_facts import ObjectFacts, SelectorGroup, SelectorUse, SliceFacts
from dray.lint.selectors.device_models import MAX_MODELS, DeviceModelIndex
from dray.lint.selectors.evaluation import SelectorEvaluator, SelectorRow
from dray.lint.selectors.selector_findings import EvaluatedSelector, report_selector


@dataclass(frozen=True, slots=True)
class SelectorCheckInput:
    """The parts of the manifests that selector checks need."""

    slices: Sequence[SliceFacts]
    """The slices of the newest generation of each pool."""
    classes: Mapping[str, ObjectFacts]
    objects: Sequence[ObjectFacts]
    is_complete: bool
    place: str = THESE_MANIFESTS
    """What was searched, for messages."""


def check_selectors(check_input: SelectorCheckInput) -> Iterator[DeferredFinding]:
    """All findings about selectors and the published devices."""
    if any(one.devices for one in check_input.slices):
        field_keys = frozenset(
            field_key
            for facts in check_input.objects
            for group in facts.selector_groups
            for use in group.selectors
            if use.usable
            for field_key in analyze_selector(use.expression).field_keys
        )
        yield from _SelectorChecker(check_input, DeviceModelIndex(check_input.slices, field_keys)).check_all()


class _SelectorChecker:
    """Checks all selectors once."""

    def __init__(self, check_input: SelectorCheckInput, models: DeviceModelIndex) -> None:
        self._input = check_input
        self._models = models
        self._evaluator = SelectorEvaluator(models)
        self._findings: dict[
            tuple[SelectorRow | None, SelectorRow, str], list[list[FieldFinding]] | None
        ] = {}
        self._skipped: list[tuple[ObjectFacts, SelectorUse]] = []

    def check_all(self) -> Iterator[DeferredFinding]:
        for facts in self._input.objects:
            for group in facts.selector_groups:
                row = tuple(_take_usable(group.selectors))
                findings = self._check_row(facts, group, tuple(use.expression for use in row))
                if findings is None:
                    self._skipped.append((facts, row[0]))
                    continue
                for use, found in zip(row, findings, strict=True):
                    yield from (DeferredFinding(facts.location, replace(one, path=use.path)) for one in found)
        yield from self._report_skipped()

    def _check_row(
        self, facts: ObjectFacts, group: SelectorGroup, row: SelectorRow
    ) -> list[list[FieldFinding]] | None:
        of_class = facts.kind == "DeviceClass"
        before = () if of_class else self._get_class_row(group.class_name)
        key = (before, row, "" if of_class else group.class_name)
        if key not in self._findings:
            self._findings[key] = self._evaluate_row(key, of_class)
        return self._findings[key]

    def _evaluate_row(
        self, key: tuple[SelectorRow | None, SelectorRow, str], of_class: bool
    ) -> list[list[FieldFinding]] | None:
        before, row, class_name = key
        outcomes = self._evaluator.evaluate_row(before or (), row)
        if outcomes is None:
            return None
        findings = []
        for i, (expression, outcome) in enumerate(zip(row, outcomes, strict=True)):
            reached = (
                f"that class `{class_name}` accepts"
                if class_name and before is not None
                else "published here"
            )
            evaluated = EvaluatedSelector(
                expression,
                outcome,
                self._models,
                "that the selectors before it accept" if i else reached,
                of_class,
                is_class_known=before is not None,
                complete=self._input.is_complete,
                place=self._input.place,
            )
            findings.append(list(report_selector(evaluated)))
        return findings

    def _get_class_row(self, name: str) -> SelectorRow | None:
        """The selectors of a class; None when it is unknown or one of them does not compile."""
        facts = self._input.classes.get(name)
        if facts is None:
            return None
        uses = [use for group in facts.selector_groups for use in group.selectors]
        return tuple(use.expression for use in uses) if all(use.usable for use in uses) else None

    def _report_skipped(self) -> Iterator[DeferredFinding]:
        if self._skipped:
            facts, use = self._skipped[0]
            many = f"this and {len(self._skipped) - 1} more are" if len(self._skipped) > 1 else "this one is"
            yield DeferredFinding(
                facts.location,
                _report_not_checked(use, f"{many} not tried on the devices published here: too many differ"),
            )
        elif not self._models.is_complete:
            uses = ((f, use) for f in self._input.objects for g in f.selector_groups for use in g.selectors)
            for facts, use in uses:
                message = f"selectors are tried on {MAX_MODELS:,} different devices; there are more"
                yield DeferredFinding(facts.location, _report_not_checked(use, message))
                return


def _take_usable(uses: Iterable[SelectorUse]) -> Iterator[SelectorUse]:
    """The selectors before the first that does not compile: it is unknown which devices reach the others."""
    for use in uses:
        if not use.usable:
            return
        yield use


def _report_not_checked(use: SelectorUse, message: str) -> FieldFinding:
    return FieldFinding(
        "selector-not-checked",
        use.path,
        message,
        expected="fewer different devices, or fewer selectors at a time",
        hint="`dray cel` tries one selector on all of them",
        text_offset=(use.expression, 0),
    )
