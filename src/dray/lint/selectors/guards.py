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
from dray.cel.syntax.grammar import RESERVED_WORDS
from dray.lint.selectors.analysis import FieldKey, FieldReference, analyze_selector
from dray.lint.selectors.attribute_findings import format_field_path
from dray.lint.selectors.device_models import DeviceModel
from dray.lint.selectors.evaluation import evaluate_selector

_MAX_GUARDS = 8
_DRIVER_TEST = "device.driver =="
_UNUSABLE_NAMES = RESERVED_WORDS | {"in", "true", "false", "null"}


@dataclass(frozen=True, slots=True)
class GuardedSelector:
    """The tests to put before a selector, and the selector with them; empty when they would not be enough."""

    guards: tuple[str, ...]
    expression: str


def find_missing_reference(expression: str, model: DeviceModel, fault: EvalFault) -> FieldReference | None:
    """The attribute or capacity for want of which a selector failed on a device."""
    if not fault.message.startswith("no such key"):
        return None
    pointed = (
        r
        for r in analyze_selector(expression).references
        if r.offset == fault.offset and not r.is_presence_test
    )
    return next((reference for reference in pointed if not model.has_field(reference.key)), None)


def add_guards(expression: str, models: tuple[DeviceModel, ...], drivers: set[str]) -> GuardedSelector:
    """A selector that fails on none of these devices for want of an attribute."""
    guards: dict[str, int] = {}
    text = expression
    for _ in range(_MAX_GUARDS):
        outcome = evaluate_selector(text, models)
        if outcome is None:
            break
        if not outcome.faults:
            return _drop_driver_guards(guards, expression, models)
        model, fault = outcome.faults[0]
        lacking = find_missing_reference(text, model, fault)
        guard = _build_guard(lacking.key, model, drivers) if lacking is not None else ""
        if lacking is None or guard in guards:
            break
        guards[guard] = _find_first_use(expression, lacking.key)
        text = _insert_guards(guards, expression)
    return GuardedSelector(tuple(guards), "")


def _build_guard(field_key: FieldKey, model: DeviceModel, drivers: set[str]) -> str:
    kind, domain, name = field_key
    if domain != model.driver and domain in drivers:
        return f'{_DRIVER_TEST} "{domain}"'
    if name.isidentifier() and name not in _UNUSABLE_NAMES:
        return f"has({format_field_path(field_key)})"
    return f'"{name}" in device.{kind}["{domain}"]'


def _drop_driver_guards(
    guards: dict[str, int], expression: str, models: tuple[DeviceModel, ...]
) -> GuardedSelector:
    """Guards that are enough; the name of a driver is often not needed beside them.

    A test for an attribute may not be needed either, because `&&` takes an error on one side for nothing when
    the other side is false. But nobody should have to know that to read a selector.
    """
    for guard in [guard for guard in guards if guard.startswith(_DRIVER_TEST)]:
        fewer = {other: place for other, place in guards.items() if other != guard}
        outcome = evaluate_selector(_insert_guards(fewer, expression), models)
        if outcome is not None and not outcome.faults:
            guards = fewer
    return GuardedSelector(tuple(guards), _insert_guards(guards, expression))


def _find_first_use(expression: str, field_key: FieldKey) -> int:
    """Where the condition starts that reads an attribute first."""
    for term in analyze_selector(expression).conditions:
        if any(
            reference.key == field_key and not reference.is_presence_test for reference in term.references
        ):
            return term.offset
    return 0


def _insert_guards(guards: Mapping[str, int], expression: str) -> str:
    """An expression with each guard before the condition that needs it."""
    text = expression
    for place in sorted(set(guards.values()), reverse=True):
        tests = " && ".join(guard for guard, where in guards.items() if where == place)
        text = f"{text[:place]}{tests} && {text[place:]}"
    # What `||` or `?` holds together must stay together.
    if guards and len(analyze_selector(text).conditions) < len(analyze_selector(expression).conditions) + len(
        guards
    ):
        return f"{' && '.join(guards)} && ({expression})"
    return text
