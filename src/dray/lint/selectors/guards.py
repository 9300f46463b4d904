"""Guards for selectors that fail on published devices.

Theory of operation: a selector that fails on a device without an attribute gets a presence test before the
condition, and is evaluated again, until it fails on no device; the result is what the finding proposes. The
guard for an attribute of another driver is a test of the driver name, because that is what was meant.

Rules for this file: every proposed expression has been evaluated on the devices.
"""

from __future__ import annotations

from dataclasses import dataclass

from dray.api.devices.selector_analysis import analyze_selector
from dray.api.devices.selector_guards import build_presence_test, find_first_use, insert_guards
from dray.api.devices.selector_references import FieldKey, FieldReference
from dray.cel import ErrorReason, EvalFault
from dray.lint.selectors.device_models import DeviceModel
from dray.lint.selectors.evaluation import evaluate_selector

_MAX_GUARDS = 8
_DRIVER_TEST = "device.driver =="


@dataclass(frozen=True, slots=True)
class GuardedSelector:
    """The guards of a selector, and the selector with them; empty when they are not enough."""

    guards: tuple[str, ...]
    expression: str


def find_missing_reference(expression: str, model: DeviceModel, fault: EvalFault) -> FieldReference | None:
    """The attribute or capacity that a device lacks and a selector failed on."""
    if fault.reason is not ErrorReason.NO_SUCH_KEY:
        return None
    pointed = (
        r
        for r in analyze_selector(expression).references
        if r.offset == fault.offset and not r.is_presence_test
    )
    return next((reference for reference in pointed if not model.has_field(reference.key)), None)


def add_guards(expression: str, models: tuple[DeviceModel, ...], drivers: set[str]) -> GuardedSelector:
    """A selector that does not fail on these devices for lack of an attribute."""
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
        guards[guard] = find_first_use(expression, lacking.key)
        text = insert_guards(guards, expression)
    return GuardedSelector(tuple(guards), "")


def _build_guard(field_key: FieldKey, model: DeviceModel, drivers: set[str]) -> str:
    domain = field_key[1]
    if domain != model.driver and domain in drivers:
        return f'{_DRIVER_TEST} "{domain}"'
    return build_presence_test(field_key)


def _drop_driver_guards(
    guards: dict[str, int], expression: str, models: tuple[DeviceModel, ...]
) -> GuardedSelector:
    """The guards that are enough; a test of the driver is often not needed beside the others.

    A presence test may not be needed either, because `&&` ignores an error on one side when the other side is
    false. But a reader of a selector should not need to know that.
    """
    for guard in [guard for guard in guards if guard.startswith(_DRIVER_TEST)]:
        fewer = {other: place for other, place in guards.items() if other != guard}
        outcome = evaluate_selector(insert_guards(fewer, expression), models)
        if outcome is not None and not outcome.faults:
            guards = fewer
    return GuardedSelector(tuple(guards), insert_guards(guards, expression))
