"""Selectors and slices together: every selector is tried on the devices that would reach it.

Theory of operation: without devices there is nothing to say. A class is asked about all devices, a request
about those that its class accepts; when the class is not among the manifests, only what no class could change
is said. Rows that are alike (a hundred claims with one selector) are judged once and reported at each place.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from dray.lint.findings import DeferredFinding, FieldFinding
from dray.lint.object_facts import ObjectFacts, SelectorGroup, SelectorUse, SliceFacts
from dray.lint.selectors.analysis import analyze_selector
from dray.lint.selectors.device_models import MAX_MODELS, DeviceModelIndex
from dray.lint.selectors.evaluation import SelectorEvaluator, SelectorRow
from dray.lint.selectors.selector_findings import EvaluatedSelector, report_selector


@dataclass(frozen=True, slots=True)
class SelectorCheckInput:
    """What the manifests have to say about selectors."""

    slices: Sequence[SliceFacts]
    """The slices that count: those of the newest generation of their pool."""
    classes: Mapping[str, ObjectFacts]
    objects: Sequence[ObjectFacts]
    is_complete: bool


def check_selectors(check_input: SelectorCheckInput) -> Iterator[DeferredFinding]:
    """Everything that is wrong with selectors in view of the published devices."""
    if any(page.devices for page in check_input.slices):
        needs = frozenset(
            need
            for fact in check_input.objects
            for ask in fact.asks
            for use in ask.selectors
            if use.usable
            for need in analyze_selector(use.expression).field_keys
        )
        yield from _SelectorChecker(check_input, DeviceModelIndex(check_input.slices, needs)).check_all()


class _SelectorChecker:
    """One round over all selectors."""

    def __init__(self, check_input: SelectorCheckInput, models: DeviceModelIndex) -> None:
        self._input = check_input
        self._models = models
        self._evaluator = SelectorEvaluator(models)
        self._findings: dict[
            tuple[SelectorRow | None, SelectorRow, str], list[list[FieldFinding]] | None
        ] = {}
        self._skipped: list[tuple[ObjectFacts, SelectorUse]] = []

    def check_all(self) -> Iterator[DeferredFinding]:
        for fact in self._input.objects:
            for ask in fact.asks:
                row = tuple(_take_usable(ask.selectors))
                complaints = self._check_row(fact, ask, tuple(use.expression for use in row))
                if complaints is None:
                    self._skipped.append((fact, row[0]))
                    continue
                for use, said in zip(row, complaints, strict=True):
                    yield from (DeferredFinding(fact.location, replace(one, path=use.path)) for one in said)
        yield from self._report_skipped()

    def _check_row(
        self, fact: ObjectFacts, group: SelectorGroup, row: SelectorRow
    ) -> list[list[FieldFinding]] | None:
        of_class = fact.kind == "DeviceClass"
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
        said = []
        for i, (expression, outcome) in enumerate(zip(row, outcomes, strict=True)):
            reached = (
                "that class " + f"`{class_name}` accepts"
                if class_name and before is not None
                else "published here"
            )
            case = EvaluatedSelector(
                expression,
                outcome,
                self._models,
                "that the selectors before it accept" if i else reached,
                of_class,
                is_class_known=before is not None,
                complete=self._input.is_complete,
            )
            said.append(list(report_selector(case)))
        return said

    def _get_class_row(self, name: str) -> SelectorRow | None:
        """The selectors of a class; nothing when it is unknown or cannot be used."""
        fact = self._input.classes.get(name)
        if fact is None:
            return None
        uses = [use for ask in fact.asks for use in ask.selectors]
        return tuple(use.expression for use in uses) if all(use.usable for use in uses) else None

    def _report_skipped(self) -> Iterator[DeferredFinding]:
        if self._skipped:
            fact, use = self._skipped[0]
            many = f"this and {len(self._skipped) - 1} more are" if len(self._skipped) > 1 else "this one is"
            yield DeferredFinding(
                fact.location,
                _report_not_checked(use, f"{many} not tried on the devices published here: too many differ"),
            )
        elif not self._models.is_complete:
            uses = ((f, use) for f in self._input.objects for ask in f.asks for use in ask.selectors)
            for fact, use in uses:
                message = f"selectors are tried on {MAX_MODELS:,} different devices; there are more"
                yield DeferredFinding(fact.location, _report_not_checked(use, message))
                return


def _take_usable(uses: Iterable[SelectorUse]) -> Iterator[SelectorUse]:
    """The selectors before the first that cannot be used: nobody knows which devices reach the others."""
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
