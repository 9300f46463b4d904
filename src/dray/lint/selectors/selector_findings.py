"""What to say about a selector that was tried on the published devices.

Theory of operation: one fault is one complaint. A name that nobody publishes or a type that does not fit
explains most of what follows from it, so what it explains is not said again. Then come devices on which the
selector fails, and then what it does where it does not fail: nothing matches, or everything.

Rules for this file: a device is named wherever one is meant, and every hint about a value shows one that was
published.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from dray.api.devices.device_cel import DeviceBinding, prepare
from dray.api.resource import Device
from dray.lint.findings import Complaint
from dray.lint.rules import Severity
from dray.lint.selectors.analysis import Reading, Term, read
from dray.lint.selectors.attribute_findings import noun, unknown_names, wrong_types
from dray.lint.selectors.device_models import Catalogue, Model
from dray.lint.selectors.evaluation import Fault, Outcome, counted, selector_of, tried_on
from dray.lint.selectors.guards import guarded, missing
from dray.lint.suggestions import TYPO, did_you_mean
from dray.manifests.writer import yaml_block

_FEW = 4
_SHORT = 70
_WAY = re.compile(r"device\.(?:attributes|capacity)\[\s*(?:\"[^\"]*\"|'[^']*')\s*\]\.")


@dataclass(frozen=True, slots=True)
class Case:
    """A selector, what it did, and where it stands.

    `reached` says which devices it was asked about; `known` is false when the class is not among the
    manifests, so that nobody can say whether a device would come this far.
    """

    expression: str
    outcome: Outcome
    catalogue: Catalogue
    reached: str
    of_class: bool
    known: bool = True
    complete: bool = False


def judged(case: Case) -> Iterator[Complaint]:
    """Everything there is to say about a selector."""
    reading = read(case.expression)
    unknown = unknown_names(case.expression, reading, case.catalogue)
    wrong = wrong_types(case.expression, reading, case.outcome)
    absent = _absent(case, reading)
    if absent is not None:  # what it publishes is unknown, too
        yield absent
        return
    yield from unknown.values()
    yield from wrong.values()
    if case.known:
        yield from _faults(case, set(unknown), bool(wrong))
    if unknown or wrong or not case.catalogue.whole:
        return
    outcome = case.outcome
    if outcome.others and not outcome.matching:
        yield _never(case, reading)
    elif outcome.matching and not outcome.others and not outcome.faults and _says_little(case, reading):
        yield _always(case)


# --- where it fails ---


def _faults(case: Case, unknown: set[tuple[str, str, str]], wrong_type: bool) -> Iterator[Complaint]:
    lacking: list[Fault] = []
    others: list[Fault] = []
    for model, fault in case.outcome.faults:
        reference = missing(case.expression, model, fault)
        if reference is None:
            if not (wrong_type and fault.message.startswith(("no such overload", "CEL result"))):
                others.append((model, fault))
        elif reference.need not in unknown:
            lacking.append((model, fault))
    if lacking:
        yield _unguarded(case, lacking)
    if others:
        model, fault = others[0]
        yield Complaint(
            "selector-fails",
            "",
            f"fails on {_some(case, others)}: {fault.message}",
            expected="an expression that is true or false for every device",
            hint="a claim that meets such a device is not allocated on its node",
            inside=(case.expression, fault.offset or 0),
        )


def _unguarded(case: Case, lacking: list[Fault]) -> Complaint:
    model, fault = lacking[0]
    reference = missing(case.expression, model, fault)
    assert reference is not None
    made = guarded(case.expression, tuple(model for model, _ in lacking), case.catalogue.drivers)
    tests = " && ".join(made.guards)
    return Complaint(
        "selector-unguarded",
        "",
        f"fails on {_some(case, lacking)}: it has no {noun(reference.need)} in domain `{reference.domain}`",
        expected="a test before it that keeps such devices out",
        hint=f"write `{tests} && …`" if tests else "",
        rewrite=yaml_block({"expression": made.expression}) if made.expression else "",
        inside=(case.expression, reference.at),
    )


def _some(case: Case, faults: list[Fault]) -> str:
    failing = counted(tuple(model for model, _ in faults))
    asked = counted(case.outcome.tried)
    called = faults[0][0].called
    return called if asked == 1 else f"{failing} of {asked} devices, first on {called}"


# --- where nothing matches ---


def _never(case: Case, reading: Reading) -> Complaint:
    tried = case.outcome.tried
    tallies = list(_tallies(reading.terms, tried))
    offset = max(tallies, key=lambda tally: tally.failing).term.offset if tallies else 0
    return Complaint(
        "selector-never-true",
        "",
        f"matches none of the {counted(tried)} devices {case.reached}"
        if counted(tried) > 1
        else f"does not match the only device {case.reached}",
        expected="a device that matches",
        hint="; ".join(_clues(tallies, tried)),
        inside=(case.expression, offset),
    )


def _absent(case: Case, reading: Reading) -> Complaint | None:
    absent = [pair for pair in reading.drivers if pair[0] not in case.catalogue.drivers]
    if not absent or not case.outcome.tried:
        return None
    driver, offset = absent[0]
    hint = did_you_mean(driver, case.catalogue.drivers, TYPO)
    # A driver that is nowhere near those that are here may well be in the cluster.
    severity = Severity.WARNING if hint or case.complete else Severity.NOTE
    return Complaint(
        "selector-never-true",
        "",
        f"matches nothing here: no device of driver `{driver}` is among these manifests",
        expected=f"slices of `{driver}`, or another driver",
        hint=hint,
        severity=severity,
        inside=(case.expression, offset),
    )


@dataclass(frozen=True, slots=True)
class _Tally:
    """One condition, on which models it is not true, and how many devices these are."""

    term: Term
    models: frozenset[int]
    failing: int


def _tallies(terms: tuple[Term, ...], tried: tuple[Model, ...]) -> Iterator[_Tally]:
    for term in terms:
        outcome = tried_on(term.text, tried)
        if outcome is not None:
            failing = (*outcome.others, *(model for model, _ in outcome.faults))
            yield _Tally(term, frozenset(map(id, failing)), counted(failing))


def _clues(tallies: list[_Tally], tried: tuple[Model, ...]) -> Iterator[str]:
    """Which condition fails how often, and the device that comes nearest."""
    asked = counted(tried)
    if len(tallies) > 1 and asked > 1:
        worst = sorted((t for t in tallies if t.failing), key=lambda tally: -tally.failing)[:_FEW]
        shares = [f"`{_short(tally.term.text)}` fails for {tally.failing}" for tally in worst]
        yield ", ".join([f"{shares[0]} of {asked}", *shares[1:]])
    near = list(_near(tallies, tried))
    if near:
        tally = near[0][1]
        alike = tuple(model for model, other in near if other is tally)
        published = _published(tally.term, alike)
        if len(tallies) > 1:
            more = f" and {counted(alike) - 1} more" if counted(alike) > 1 else ""
            yield f"nearest is {alike[0].called}{more}, failing only `{_short(tally.term.text)}`"
        if published:
            yield published


def _near(tallies: list[_Tally], tried: tuple[Model, ...]) -> Iterator[tuple[Model, _Tally]]:
    """Devices that fail one condition only, and which."""
    for model in tried:
        failing = [tally for tally in tallies if id(model) in tally.models]
        if len(failing) == 1:
            yield model, failing[0]


def _published(term: Term, models: tuple[Model, ...]) -> str:
    """The values that devices have where a condition looks for another one."""
    needs = {reference.need for reference in term.references}
    if len(needs) != 1:
        return ""
    (need,) = needs
    values: Counter[str] = Counter()
    for model in models:
        if shown := model.shown(need):
            values[shown] += model.count
    listed = [f"`{value}` on {count}" for value, count in values.most_common(_FEW)]
    more = f" and {len(values) - _FEW} other values" if len(values) > _FEW else ""
    return f"{noun(need)} is {', '.join(listed)}{more}" if listed else ""


def _short(text: str) -> str:
    """A condition as people say it: `size == "large"`, without the way to the attribute."""
    text = _WAY.sub("", " ".join(text.split()))
    return text if len(text) <= _SHORT else f"{text[: _SHORT - 1]}…"


# --- where everything matches ---


def _says_little(case: Case, reading: Reading) -> bool:
    """Whether it is worth saying that a selector is always true.

    A class says which driver it means even where there is no other. And when there is one device only, every
    selector that matches is always true: then it must be true of a device that has nothing, too.
    """
    if not case.known or (case.of_class and reading.drivers):
        return False
    if counted(case.outcome.matching) > 1:
        return True
    selector = selector_of(case.expression)
    return selector is not None and selector.matches(_nothing()) is True


def _nothing() -> DeviceBinding:
    return prepare("", Device())


def _always(case: Case) -> Complaint:
    count = counted(case.outcome.matching)
    whom = f"all {count} devices" if count > 1 else "the only device"
    return Complaint(
        "selector-always-true",
        "",
        f"true for {whom} {case.reached}: it keeps none out",
        expected="a condition that some devices do not meet, or no selector",
        inside=(case.expression, 0),
    )
