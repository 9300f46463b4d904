"""Lines of a report: what was found, what was not, and what prevented it.

A line has a lead and pieces, so that the layout can break it between pieces. Devices outside the requested
class are not counted: a network card is not a GPU that failed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from dray.allocator.refusals import POOL_REASONS, RefusalReason
from dray.explain.diagnosis import DeviceOutcome, FailedAttempt, FoundDevice, NodeOutcome, NodeReport
from dray.explain.rendering.refusal_phrases import (
    format_claim_suffix,
    format_error_line,
    format_nearest,
    format_obstacle,
    format_pool_flaw,
    summarize_refusals,
)
from dray.explain.wording import describe_progress, pluralize, to_single_line

_MAX_LABELS = 3


class ReportLine(msgspec.Struct, frozen=True):
    """A lead and its pieces, joined by middle dots.

    `depth` is the indent of the line, `hang` the additional indent of its continuation lines.
    """

    lead: str
    pieces: tuple[str, ...] = ()
    depth: int = 0
    hang: int = 0

    def __str__(self) -> str:
        return " ".join(filter(None, (self.lead, " · ".join(self.pieces))))


def render_report_lines(report: NodeReport, *, with_names: bool, one_claim: bool) -> list[ReportLine]:
    """The lines about nodes that do not fit."""
    if report.outcome is NodeOutcome.FAULTED and report.fault is not None:
        return list(_render_fault_lines(report, report.fault, with_names))
    lines = []
    if report.outcome is NodeOutcome.GAVE_UP:
        lines.append(ReportLine(_describe_give_up(report)))
    lines += _render_progress(report, one_claim)
    several = len(report.attempts) > 1
    for attempt in report.attempts:
        attempt_lines = render_attempt_lines(attempt, with_names=with_names, flawed=bool(report.pools))
        lines += prefix_lines(attempt.subrequest, attempt_lines) if several else attempt_lines
    lines += [
        ReportLine(format_pool_flaw(flaw, with_names=with_names))
        for flaw in report.pools
        if _is_relevant_pool(flaw.driver, report)
    ]
    return lines or [ReportLine("no devices fit")]


def _describe_give_up(report: NodeReport) -> str:
    """How far a search got before it was given up, and what more time might do."""
    if not report.steps and not report.seconds:
        return "not searched, the time went into other nodes: it may fit, a longer --search-timeout may tell"
    progress = describe_progress(report.steps, report.seconds, report.most_found, report.wanted)
    return f"gave up {progress}: it may fit, a longer --search-timeout may tell"


def render_attempt_lines(
    attempt: FailedAttempt, *, with_names: bool, flawed: bool = False
) -> list[ReportLine]:
    """What prevented one alternative."""
    lines = []
    if attempt.obstacle is not None:
        text = format_obstacle(attempt.obstacle)
        lines += [ReportLine(text)] if text else []
        if attempt.obstacle.reason in _WHOLE_ATTEMPT_REASONS:
            return lines
    inside = [outcome for outcome in attempt.devices if not outcome.is_outside_class]
    if not attempt.devices:
        return lines if lines or flawed else [ReportLine("no driver publishes devices here")]
    if not inside:
        lead = f"no device is in class {attempt.device_class}"
        return lines + _render_no_match(attempt, lead, attempt.devices, with_names)
    if all(outcome.why is not None and outcome.why.reason is RefusalReason.UNSUITED for outcome in inside):
        only = {outcome.why.expression for outcome in inside if outcome.why is not None}
        if len(only) == 1:
            return lines + _render_no_match(attempt, "no device matches", inside, with_names)
    return [*lines, _render_tally_line(attempt, inside, with_names)]


_WHOLE_ATTEMPT_REASONS = POOL_REASONS | {RefusalReason.TOO_MANY_DEVICES}
"""Obstacles that rule out an alternative before any device is examined."""


def _render_tally_line(
    attempt: FailedAttempt, inside: Sequence[DeviceOutcome], with_names: bool
) -> ReportLine:
    drivers = {outcome.device.driver for outcome in inside}
    counting = [a for a in attempt.devices if not a.is_outside_class or a.device.driver in drivers]
    had = sum(outcome.why is None for outcome in counting)
    pieces = summarize_refusals(counting, with_names=with_names)
    if len(counting) == 1 and pieces:
        return ReportLine("the only device:", (pieces[0].partition(" ")[2],))
    if attempt.every:
        return ReportLine(f"all {pluralize(len(counting), 'device')} are asked for:", tuple(pieces))
    return ReportLine(
        f"of {pluralize(len(counting), 'device')}:", (*([f"{had} found"] if had else []), *pieces)
    )


def _render_no_match(
    attempt: FailedAttempt, lead: str, refused: Sequence[DeviceOutcome], with_names: bool
) -> list[ReportLine]:
    """Nothing matches: the selector that most devices fail, and the nearest device."""
    failed = [a.why.expression for a in refused if a.why is not None and a.why.expression]
    expression = max(dict.fromkeys(failed), key=failed.count)
    lines = [ReportLine(f"{lead}: {to_single_line(expression)}")]
    if attempt.nearest is not None and attempt.nearest.condition in expression:
        lines.append(ReportLine(format_nearest(attempt.nearest, expression, with_names=with_names)))
    return lines


def _is_relevant_pool(driver: str, report: NodeReport) -> bool:
    """Whether a flawed pool could have helped: its driver has devices of the class, or no driver has."""
    drivers = {
        a.device.driver for attempt in report.attempts for a in attempt.devices if not a.is_outside_class
    }
    return not drivers or driver in drivers or any(attempt.every for attempt in report.attempts)


def _render_fault_lines(report: NodeReport, fault: DeviceOutcome, with_names: bool) -> Iterator[ReportLine]:
    why = fault.why
    assert why is not None
    name = fault.device.device if with_names else "a device"
    if why.reason is RefusalReason.BROKEN_SELECTOR:
        yield ReportLine(f"a selector fails on {name}: {format_error_line(why.error)}")
        yield ReportLine(f"{why.owner}: {to_single_line(why.expression)}")
    else:
        yield ReportLine(
            f"the amount of `{why.name}` is beyond what a range can hold on {name}: {why.wanted}"
        )


def _render_progress(report: NodeReport, one_claim: bool) -> list[ReportLine]:
    """Which requests found devices, and which did not; nothing when there is only one device to find."""
    if not report.attempts:
        return []
    furthest = max(report.attempts, key=lambda attempt: attempt.found)
    several = len(report.attempts) > 1
    found = [(f.claim, f.request, f.label) for f in report.found]
    if not several and not furthest.every:
        own = range(furthest.found)
        found += [(furthest.claim, furthest.request, f"{furthest.request}[{nth}]") for nth in own]
    if not found and not report.untried and not several:
        return []
    request = furthest.request if furthest.every else furthest.label
    request = furthest.alternative_of if several else request
    failed = request + ("" if one_claim else format_claim_suffix(furthest.claim))
    tail = f": none of {len(report.attempts)} alternatives" if several else ""
    names = ", ".join(report.untried) if one_claim else pluralize(len(report.untried), "request")
    untried = f" ({names} not tried)" if report.untried else ""
    if not found:
        return [ReportLine(f"{failed} not found{tail}{untried}")]
    return [ReportLine(f"{_format_labels(found, one_claim)} found, {failed} not{tail}{untried}")]


def _format_labels(found: Sequence[tuple[str, str, str]], one_claim: bool) -> str:
    """Labels of devices that were found; many of one request become a range."""
    groups: dict[str, dict[str, list[str]]] = {}
    for claim, request, label in found:
        groups.setdefault(claim, {}).setdefault(request, []).append(label)
    labels_by_claim = []
    for claim, requests in groups.items():
        texts = [
            " ".join(labels) if len(labels) <= _MAX_LABELS else f"{request}[0..{len(labels) - 1}]"
            for request, labels in requests.items()
        ]
        labels_by_claim.append(" ".join(texts) + ("" if one_claim else format_claim_suffix(claim)))
    return " ".join(labels_by_claim)


def prefix_lines(alternative: str, lines: Sequence[ReportLine]) -> list[ReportLine]:
    """The lines of an alternative, after its name."""
    if not lines:
        return []
    first = ReportLine(f"{alternative}: {lines[0].lead}", lines[0].pieces, hang=1)
    return [first, *(ReportLine(line.lead, line.pieces, depth=1) for line in lines[1:])]


def format_found_devices(found: Sequence[FoundDevice], one_claim: bool) -> str:
    """Which requests got which devices, on one line."""
    return ", ".join(
        f"{f.label}{'' if one_claim else format_claim_suffix(f.claim)} {f.device.device}" for f in found
    )


def list_relevant_outcomes(found: FoundDevice) -> list[DeviceOutcome]:
    """The devices that were passed over, without those outside the class."""
    return [outcome for outcome in found.passed_over if not outcome.is_outside_class]
