"""Findings about a selector that was evaluated on the published devices.

Theory of operation: one fault is one finding. A name that no device publishes or a type that does not fit
explains most of what follows from it, and that is not reported again. Then come devices on which the selector
fails, and then its results where it does not fail: nothing matches, or everything.

Rules for this file: every finding about a device names one, and every hint about a value shows a published
one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from dray.api.devices.device_cel import DeviceBinding, bind_device
from dray.api.devices.selector_analysis import SelectorAnalysis, SelectorCondition, analyze_selector
from dray.api.resource import Device
from dray.cel import ErrorReason
from dray.lint.findings import THESE_MANIFESTS, FieldFinding
from dray.lint.rules import Severity
from dray.lint.selectors.attribute_findings import describe_field, find_unknown_fields, find_wrong_types
from dray.lint.selectors.device_models import DeviceModel, DeviceModelIndex
from dray.lint.selectors.evaluation import (
    FaultOnModel,
    SelectorOutcome,
    compile_stored_selector,
    count_devices,
    evaluate_selector,
)
from dray.lint.selectors.guards import add_guards, find_missing_reference
from dray.lint.suggestions import TYPO_SIMILARITY, suggest_name
from dray.manifests.writer import to_yaml_block

_MAX_VALUES = 4
_MAX_CONDITION_LENGTH = 70
_TYPE_ERRORS = frozenset({ErrorReason.NO_SUCH_OVERLOAD, ErrorReason.NOT_BOOLEAN})


@dataclass(frozen=True, slots=True)
class EvaluatedSelector:
    """A selector, its outcome, and its context.

    `scope_text` says which devices it was evaluated on; `is_class_known` is false when the class is not among
    the manifests, so that it is unknown which devices reach the selector.
    """

    expression: str
    outcome: SelectorOutcome
    models: DeviceModelIndex
    scope_text: str
    is_class_selector: bool
    is_class_known: bool = True
    complete: bool = False
    place: str = THESE_MANIFESTS


def report_selector(evaluated: EvaluatedSelector) -> Iterator[FieldFinding]:
    """All findings about a selector."""
    analysis = analyze_selector(evaluated.expression)
    unknown = find_unknown_fields(evaluated.expression, analysis, evaluated.models)
    wrong = find_wrong_types(evaluated.expression, analysis, evaluated.outcome)
    absent = _report_absent_driver(evaluated, analysis)
    if absent is not None:  # its attributes are unknown, too
        yield absent
        return
    yield from unknown.values()
    yield from wrong.values()
    if evaluated.is_class_known:
        yield from _report_faults(evaluated, set(unknown), bool(wrong))
    if unknown or wrong or not evaluated.models.is_complete:
        return
    outcome = evaluated.outcome
    if outcome.rejected and not outcome.matching:
        yield _report_never_true(evaluated, analysis)
    elif (
        outcome.matching
        and not outcome.rejected
        and not outcome.faults
        and _is_always_true_reportable(evaluated, analysis)
    ):
        yield _report_always_true(evaluated)


# --- devices on which it fails ---


def _report_faults(
    evaluated: EvaluatedSelector, unknown: set[tuple[str, str, str]], wrong_type: bool
) -> Iterator[FieldFinding]:
    lacking: list[FaultOnModel] = []
    others: list[FaultOnModel] = []
    for model, fault in evaluated.outcome.faults:
        reference = find_missing_reference(evaluated.expression, model, fault)
        if reference is None:
            if not (wrong_type and fault.reason in _TYPE_ERRORS):
                others.append((model, fault))
        elif reference.key not in unknown:
            lacking.append((model, fault))
    if lacking:
        yield _report_unguarded(evaluated, lacking)
    if others:
        model, fault = others[0]
        yield FieldFinding(
            "selector-fails",
            "",
            f"fails on {_describe_failing_devices(evaluated, others)}: {fault.message}",
            expected="an expression that is true or false for every device",
            hint="a claim that meets such a device is not allocated on its node",
            text_offset=(evaluated.expression, fault.offset or 0),
        )


def _report_unguarded(evaluated: EvaluatedSelector, lacking: list[FaultOnModel]) -> FieldFinding:
    model, fault = lacking[0]
    reference = find_missing_reference(evaluated.expression, model, fault)
    assert reference is not None
    guarded = add_guards(evaluated.expression, tuple(model for model, _ in lacking), evaluated.models.drivers)
    tests = " && ".join(guarded.guards)
    return FieldFinding(
        "selector-unguarded",
        "",
        f"fails on {_describe_failing_devices(evaluated, lacking)}: it has no "
        f"{describe_field(reference.key)} in domain `{reference.domain}`",
        expected="a test before it that keeps such devices out",
        hint=f"write `{tests} && …`" if tests else "",
        rewrite=to_yaml_block({"expression": guarded.expression}) if guarded.expression else "",
        text_offset=(evaluated.expression, reference.name_offset),
    )


def _describe_failing_devices(evaluated: EvaluatedSelector, faults: list[FaultOnModel]) -> str:
    failing = count_devices(tuple(model for model, _ in faults))
    evaluated_count = count_devices(evaluated.outcome.evaluated)
    example = faults[0][0].description
    return example if evaluated_count == 1 else f"{failing} of {evaluated_count} devices, first on {example}"


# --- selectors that match nothing ---


def _report_never_true(evaluated: EvaluatedSelector, analysis: SelectorAnalysis) -> FieldFinding:
    tried = evaluated.outcome.evaluated
    tallies = list(_tally_conditions(analysis.conditions, tried))
    offset = max(tallies, key=lambda tally: tally.failing).condition.offset if tallies else 0
    return FieldFinding(
        "selector-never-true",
        "",
        f"matches none of the {count_devices(tried)} devices {evaluated.scope_text}"
        if count_devices(tried) > 1
        else f"does not match the only device {evaluated.scope_text}",
        expected="a device that matches",
        hint="; ".join(_build_hints(tallies, tried)),
        text_offset=(evaluated.expression, offset),
    )


def _report_absent_driver(evaluated: EvaluatedSelector, analysis: SelectorAnalysis) -> FieldFinding | None:
    absent = [pair for pair in analysis.required_drivers if pair[0] not in evaluated.models.drivers]
    if not absent or not evaluated.outcome.evaluated:
        return None
    driver, offset = absent[0]
    hint = suggest_name(driver, evaluated.models.drivers, TYPO_SIMILARITY)
    # A driver with another name than those in the manifests may well be in the cluster.
    severity = Severity.WARNING if hint or evaluated.complete else Severity.NOTE
    return FieldFinding(
        "selector-never-true",
        "",
        f"matches nothing here: no device of driver `{driver}` is {evaluated.place}",
        expected=f"slices of `{driver}`, or another driver",
        hint=hint,
        severity=severity,
        text_offset=(evaluated.expression, offset),
    )


@dataclass(frozen=True, slots=True)
class _ConditionTally:
    """One condition, the models on which it is not true, and how many devices these are."""

    condition: SelectorCondition
    models: frozenset[int]
    failing: int


def _tally_conditions(
    conditions: tuple[SelectorCondition, ...], tried: tuple[DeviceModel, ...]
) -> Iterator[_ConditionTally]:
    for condition in conditions:
        outcome = evaluate_selector(condition.text, tried)
        if outcome is not None:
            failing = (*outcome.rejected, *(model for model, _ in outcome.faults))
            yield _ConditionTally(condition, frozenset(map(id, failing)), count_devices(failing))


def _build_hints(tallies: list[_ConditionTally], tried: tuple[DeviceModel, ...]) -> Iterator[str]:
    """Which condition fails how often, and the nearest device."""
    evaluated_count = count_devices(tried)
    if len(tallies) > 1 and evaluated_count > 1:
        worst = sorted((t for t in tallies if t.failing), key=lambda tally: -tally.failing)[:_MAX_VALUES]
        shares = [
            f"`{_shorten_condition(tally.condition.text)}` fails for {tally.failing}" for tally in worst
        ]
        yield ", ".join([f"{shares[0]} of {evaluated_count}", *shares[1:]])
    near = list(_find_nearest(tallies, tried))
    if near:
        tally = near[0][1]
        alike = tuple(model for model, other in near if other is tally)
        published = _describe_published_values(tally.condition, alike)
        if len(tallies) > 1:
            more = f" and {count_devices(alike) - 1} more" if count_devices(alike) > 1 else ""
            yield (
                f"nearest is {alike[0].description}{more}, failing only "
                f"`{_shorten_condition(tally.condition.text)}`"
            )
        if published:
            yield published


def _find_nearest(
    tallies: list[_ConditionTally], tried: tuple[DeviceModel, ...]
) -> Iterator[tuple[DeviceModel, _ConditionTally]]:
    """Devices that fail only one condition, and the condition."""
    for model in tried:
        failing = [tally for tally in tallies if id(model) in tally.models]
        if len(failing) == 1:
            yield model, failing[0]


def _describe_published_values(condition: SelectorCondition, models: tuple[DeviceModel, ...]) -> str:
    """The published values of the attribute or capacity that a condition reads."""
    field_keys = {reference.key for reference in condition.references}
    if len(field_keys) != 1:
        return ""
    (field_key,) = field_keys
    values: Counter[str] = Counter()
    for model in models:
        if shown := model.format_value(field_key):
            values[shown] += model.count
    listed = [f"`{value}` on {count}" for value, count in values.most_common(_MAX_VALUES)]
    more = f" and {len(values) - _MAX_VALUES} other values" if len(values) > _MAX_VALUES else ""
    return f"{describe_field(field_key)} is {', '.join(listed)}{more}" if listed else ""


def _shorten_condition(text: str) -> str:
    """A condition with names in place of paths, short enough for a sentence."""
    text = " ".join(analyze_selector(text).short_text.split())
    return text if len(text) <= _MAX_CONDITION_LENGTH else f"{text[: _MAX_CONDITION_LENGTH - 1]}…"


# --- selectors that match everything ---


def _is_always_true_reportable(evaluated: EvaluatedSelector, analysis: SelectorAnalysis) -> bool:
    """Whether to report that a selector is always true.

    A class names its driver even where there is no other. And when there is only one device, every selector
    that matches is always true: then it must also be true of a device without attributes.
    """
    if not evaluated.is_class_known or (evaluated.is_class_selector and analysis.required_drivers):
        return False
    if count_devices(evaluated.outcome.matching) > 1:
        return True
    selector = compile_stored_selector(evaluated.expression)
    return selector is not None and selector.matches(_make_empty_binding()) is True


def _make_empty_binding() -> DeviceBinding:
    return bind_device("", Device())


def _report_always_true(evaluated: EvaluatedSelector) -> FieldFinding:
    count = count_devices(evaluated.outcome.matching)
    devices = f"all {count} devices" if count > 1 else "the only device"
    return FieldFinding(
        "selector-always-true",
        "",
        f"true for {devices} {evaluated.scope_text}: it keeps none out",
        expected="a condition that some devices do not meet, or no selector",
        text_offset=(evaluated.expression, 0),
    )
