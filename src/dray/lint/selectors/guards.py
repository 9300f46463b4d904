"""Guards: what to write before a condition, so that it is not asked of devices that lack what it reads.

Theory of operation: a selector that fails on a device for want of an attribute gets a test before it, and is
tried again, until it fails on none; then the new text is what to write. The test for an attribute of another
driver is the name of that driver, because that is what was meant.

Rules for this file: nothing is proposed that was not tried.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dray.cel import EvalFault
from dray.cel.syntax.grammar import RESERVED
from dray.lint.selectors.analysis import Need, Reference, read
from dray.lint.selectors.attribute_findings import path_of
from dray.lint.selectors.device_models import Model
from dray.lint.selectors.evaluation import tried_on

_ENOUGH = 8
_BY_DRIVER = "device.driver =="
_NO_NAMES = RESERVED | {"in", "true", "false", "null"}


@dataclass(frozen=True, slots=True)
class Guarded:
    """The tests to put before a selector, and the selector with them; empty when they would not be enough."""

    guards: tuple[str, ...]
    expression: str


def missing(expression: str, model: Model, fault: EvalFault) -> Reference | None:
    """The attribute or capacity for want of which a selector failed on a device."""
    if not fault.message.startswith("no such key"):
        return None
    pointed = (r for r in read(expression).references if r.offset == fault.offset and not r.tested)
    return next((reference for reference in pointed if not model.has(reference.need)), None)


def guarded(expression: str, models: tuple[Model, ...], drivers: set[str]) -> Guarded:
    """A selector that fails on none of these devices for want of an attribute."""
    guards: dict[str, int] = {}
    text = expression
    for _ in range(_ENOUGH):
        outcome = tried_on(text, models)
        if outcome is None:
            break
        if not outcome.faults:
            return _without_drivers(guards, expression, models)
        model, fault = outcome.faults[0]
        lacking = missing(text, model, fault)
        guard = _guard(lacking.need, model, drivers) if lacking is not None else ""
        if lacking is None or guard in guards:
            break
        guards[guard] = _first_use(expression, lacking.need)
        text = _inserted(guards, expression)
    return Guarded(tuple(guards), "")


def _guard(need: Need, model: Model, drivers: set[str]) -> str:
    kind, domain, name = need
    if domain != model.driver and domain in drivers:
        return f'{_BY_DRIVER} "{domain}"'
    if name.isidentifier() and name not in _NO_NAMES:
        return f"has({path_of(need)})"
    return f'"{name}" in device.{kind}["{domain}"]'


def _without_drivers(guards: dict[str, int], expression: str, models: tuple[Model, ...]) -> Guarded:
    """Guards that are enough; the name of a driver is often not needed beside them.

    A test for an attribute may not be needed either, because `&&` takes an error on one side for nothing when
    the other side is false. But nobody should have to know that to read a selector.
    """
    for guard in [guard for guard in guards if guard.startswith(_BY_DRIVER)]:
        fewer = {other: place for other, place in guards.items() if other != guard}
        outcome = tried_on(_inserted(fewer, expression), models)
        if outcome is not None and not outcome.faults:
            guards = fewer
    return Guarded(tuple(guards), _inserted(guards, expression))


def _first_use(expression: str, need: Need) -> int:
    """Where the condition starts that reads an attribute first."""
    for term in read(expression).terms:
        if any(reference.need == need and not reference.tested for reference in term.references):
            return term.offset
    return 0


def _inserted(guards: Mapping[str, int], expression: str) -> str:
    """An expression with each guard before the condition that needs it."""
    text = expression
    for place in sorted(set(guards.values()), reverse=True):
        tests = " && ".join(guard for guard, where in guards.items() if where == place)
        text = f"{text[:place]}{tests} && {text[place:]}"
    # What `||` or `?` holds together must stay together.
    if guards and len(read(text).terms) < len(read(expression).terms) + len(guards):
        return f"{' && '.join(guards)} && ({expression})"
    return text
