"""Selectors and slices together: every selector is tried on the devices that would reach it.

Theory of operation: without devices there is nothing to say. A class is asked about all devices, a request
about those that its class accepts; when the class is not among the manifests, only what no class could change
is said. Rows that are alike (a hundred claims with one selector) are judged once and reported at each place.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from dray.lint.findings import Charge, Complaint
from dray.lint.object_facts import Ask, Facts, Page, SelectorUse
from dray.lint.selectors.analysis import read
from dray.lint.selectors.device_models import MOST, Catalogue
from dray.lint.selectors.evaluation import Row, Trials
from dray.lint.selectors.selector_findings import Case, judged


@dataclass(frozen=True, slots=True)
class Given:
    """What the manifests have to say about selectors."""

    pages: Sequence[Page]
    """The slices that count: those of the newest generation of their pool."""
    classes: Mapping[str, Facts]
    asking: Sequence[Facts]
    complete: bool


def check_selectors(given: Given) -> Iterator[Charge]:
    """Everything that is wrong with selectors in view of the published devices."""
    if any(page.devices for page in given.pages):
        needs = frozenset(
            need
            for fact in given.asking
            for ask in fact.asks
            for use in ask.selectors
            if use.usable
            for need in read(use.expression).needs
        )
        yield from _Round(given, Catalogue(given.pages, needs)).charges()


class _Round:
    """One round over all selectors."""

    def __init__(self, given: Given, catalogue: Catalogue) -> None:
        self._given = given
        self._catalogue = catalogue
        self._trials = Trials(catalogue)
        self._judged: dict[tuple[Row | None, Row, str], list[list[Complaint]] | None] = {}
        self._skipped: list[tuple[Facts, SelectorUse]] = []

    def charges(self) -> Iterator[Charge]:
        for fact in self._given.asking:
            for ask in fact.asks:
                row = tuple(_until_broken(ask.selectors))
                complaints = self._row(fact, ask, tuple(use.expression for use in row))
                if complaints is None:
                    self._skipped.append((fact, row[0]))
                    continue
                for use, said in zip(row, complaints, strict=True):
                    yield from (Charge(fact.where, replace(one, path=use.path)) for one in said)
        yield from self._left_out()

    def _row(self, fact: Facts, ask: Ask, row: Row) -> list[list[Complaint]] | None:
        of_class = fact.kind == "DeviceClass"
        before = () if of_class else self._class_row(ask.class_name)
        key = (before, row, "" if of_class else ask.class_name)
        if key not in self._judged:
            self._judged[key] = self._judge(key, of_class)
        return self._judged[key]

    def _judge(self, key: tuple[Row | None, Row, str], of_class: bool) -> list[list[Complaint]] | None:
        before, row, class_name = key
        outcomes = self._trials.outcomes(before or (), row)
        if outcomes is None:
            return None
        said = []
        for i, (expression, outcome) in enumerate(zip(row, outcomes, strict=True)):
            reached = (
                "that class " + f"`{class_name}` accepts"
                if class_name and before is not None
                else "published here"
            )
            case = Case(
                expression,
                outcome,
                self._catalogue,
                "that the selectors before it accept" if i else reached,
                of_class,
                known=before is not None,
                complete=self._given.complete,
            )
            said.append(list(judged(case)))
        return said

    def _class_row(self, name: str) -> Row | None:
        """The selectors of a class; nothing when it is unknown or cannot be used."""
        fact = self._given.classes.get(name)
        if fact is None:
            return None
        uses = [use for ask in fact.asks for use in ask.selectors]
        return tuple(use.expression for use in uses) if all(use.usable for use in uses) else None

    def _left_out(self) -> Iterator[Charge]:
        if self._skipped:
            fact, use = self._skipped[0]
            many = f"this and {len(self._skipped) - 1} more are" if len(self._skipped) > 1 else "this one is"
            yield Charge(
                fact.where,
                _not_checked(use, f"{many} not tried on the devices published here: too many differ"),
            )
        elif not self._catalogue.whole:
            uses = ((f, use) for f in self._given.asking for ask in f.asks for use in ask.selectors)
            for fact, use in uses:
                message = f"selectors are tried on {MOST:,} different devices; there are more"
                yield Charge(fact.where, _not_checked(use, message))
                return


def _until_broken(uses: Iterable[SelectorUse]) -> Iterator[SelectorUse]:
    """The selectors before the first that cannot be used: nobody knows which devices reach the others."""
    for use in uses:
        if not use.usable:
            return
        yield use


def _not_checked(use: SelectorUse, message: str) -> Complaint:
    return Complaint(
        "selector-not-checked",
        use.path,
        message,
        expected="fewer different devices, or fewer selectors at a time",
        hint="`dray cel` tries one selector on all of them",
        inside=(use.expression, 0),
    )
