"""The text of a diagnosis: a page for people, and one line for events.

Theory of operation: nodes whose reports read the same become one entry, whatever their shapes. An entry for
several nodes names no single device or claim, because each node has its own. Text is plain; the caller may
pass a `paint` that decorates roles and changes no word.

Rules for this file: layout only. `refusal_phrases` has the phrases of reasons, `report_lines` the lines of
reports.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from textwrap import wrap

import msgspec

from dray.explain.diagnosis import Diagnosis, DiagnosisVerdict, FoundDevice, Hint, NodeOutcome, NodeReport
from dray.explain.rendering.refusal_phrases import list_refusals
from dray.explain.rendering.report_lines import (
    ReportLine,
    format_found_devices,
    list_relevant_outcomes,
    prefix_lines,
    render_attempt_lines,
    render_report_lines,
)
from dray.explain.wording import format_count, join_names, pluralize, to_single_line

WIDTH = 100
MIN_WIDTH = 40
"""Narrower pages are not rendered; the terminal wraps longer lines."""

MAX_ENTRIES = 12
"""Entries on one page; the rest is counted."""

MAX_SUMMARY_LENGTH = 256
"""Characters of the line for events."""

_INDENT = "  "
_GAP = "   "
_MAX_LABEL_WIDTH = 24
_CLOSEST_MARK = "closest"
_DOT = "\u00a0·"
"""A dot that stays with the word before it when lines are wrapped."""


class PageRole(StrEnum):
    """The role of a piece of the page, for `paint`."""

    HEADLINE = "headline"
    NODE = "node"
    MARK = "mark"
    HINT = "hint"


Paint = Callable[[PageRole, str], str]


def _paint_nothing(role: PageRole, text: str) -> str:
    return text


class PageEntry(msgspec.Struct, frozen=True):
    """Nodes whose reports read the same, and the lines."""

    nodes: tuple[str, ...]
    lines: tuple[ReportLine, ...]


def render_text(diagnosis: Diagnosis, width: int = WIDTH, *, paint: Paint = _paint_nothing) -> str:
    """The page, without a final line break."""
    width = max(width, MIN_WIDTH)
    page = [paint(PageRole.HEADLINE, line) for line in wrap_text(render_headline(diagnosis), width, "")]
    body = list(_render_body(diagnosis, width, paint))
    hints = [line for hint in diagnosis.hints for line in _render_hint(hint, width, paint)]
    for block in (body, hints):
        page += ["", *block] if block else []
    return "\n".join(page)


def summarize(diagnosis: Diagnosis) -> str:
    """One line for an event: the headline without its subject, a hint, and as many nodes as fit."""
    verdict = diagnosis.verdict
    if verdict is DiagnosisVerdict.FITS:
        report = diagnosis.node_reports[0]
        found = format_found_devices(report.found, len(diagnosis.claims) < 2)
        parts = [f"fits {report.nodes[0]}" + (f": {found}" if found else "")]
    elif diagnosis.fault is not None:
        fault = diagnosis.fault
        parts = [": ".join(filter(None, (f"claim {fault.claim}", fault.field, fault.text)))]
    else:
        parts = [_describe_refusal(diagnosis)]
        for entry in group_reports(diagnosis):
            nodes = join_names(entry.nodes, 2)
            parts.append(f"{nodes}: {', '.join(str(line) for line in entry.lines)}")
    hints = [f"; hint: {format_hint(hint)}" for hint in diagnosis.hints[:1]]
    # A hint is worth more than a second group of nodes; without the first it cannot be understood.
    closest = parts if len(parts) < 3 else [*parts[:2], "…"]
    for hint in hints:
        for shown in (parts, closest):
            if len("; ".join(shown)) + len(hint) <= MAX_SUMMARY_LENGTH:
                return "; ".join(shown) + hint
    return _truncate_parts(parts, MAX_SUMMARY_LENGTH)


def _truncate_parts(parts: Sequence[str], max_length: int) -> str:
    """As many parts as fit; the first is cut when even that is too long."""
    text = parts[0]
    for i, part in enumerate(parts[1:], start=1):
        ending = "; …" if i + 1 < len(parts) else ""
        if len(text) + len(part) + 2 + len(ending) > max_length:
            return to_single_line(f"{text}; {part}", max_length) if i == 1 else f"{text}; …"
        text = f"{text}; {part}"
    return to_single_line(text, max_length)


# --- headline ---


def render_headline(diagnosis: Diagnosis) -> str:
    """The answer in one sentence."""
    one = bool(diagnosis.pod) or len(diagnosis.claims) == 1
    subject = f"{'Claim' if one else 'Claims'} {join_names(diagnosis.claims, 4)}"
    subject = f"Pod {diagnosis.pod}" if diagnosis.pod else subject
    match diagnosis.verdict:
        case DiagnosisVerdict.FITS:
            return f"{subject} {'fits' if one else 'fit'} {diagnosis.node_reports[0].nodes[0]}"
        case DiagnosisVerdict.FAULTY:
            verb = "run" if diagnosis.pod else "be allocated"
            return f"{subject} can never {verb} as {'it is' if one else 'they are'}"
        case DiagnosisVerdict.UNKNOWN:
            return f"{subject} may or may not fit: {_describe_refusal(diagnosis)}"
        case DiagnosisVerdict.REFUSED:
            if diagnosis.pod:
                return f"{subject} cannot run yet: {_describe_refusal(diagnosis)}"
            alone = len(diagnosis.claims) == 1 and diagnosis.node_reports
            why = "no node has what it asks for" if alone else _describe_refusal(diagnosis)
            return f"{subject} cannot be allocated yet: {why}"


def _describe_refusal(diagnosis: Diagnosis) -> str:
    """Which claims cannot be satisfied, or where the search gave up."""
    if not diagnosis.node_reports:
        return "there are no nodes"
    if diagnosis.verdict is DiagnosisVerdict.UNKNOWN:
        reports = diagnosis.node_reports
        lost = sum(len(report.nodes) for report in reports if report.outcome is NodeOutcome.GAVE_UP)
        if lost == diagnosis.node_count:
            return f"the search gave up on {'every node' if lost > 1 else reports[0].nodes[0]}"
        total = pluralize(diagnosis.node_count, "node")
        return f"the search gave up on {format_count(lost)} of {total}, the others do not fit"
    blamed = {a.claim for report in diagnosis.node_reports for a in report.attempts}
    claims = [name for name in diagnosis.claims if name in blamed] or list(diagnosis.claims)
    noun = "claim" if len(claims) == 1 else "claims"
    return f"no node can satisfy {noun} {join_names(claims, 4)}"


# --- body ---


def _render_body(diagnosis: Diagnosis, width: int, paint: Paint) -> Iterator[str]:
    if diagnosis.fault is not None:
        fault = diagnosis.fault
        subject = (
            f"claim {fault.claim}: " if fault.claim and (diagnosis.pod or len(diagnosis.claims) > 1) else ""
        )
        field = f"{fault.field}: " if fault.field else ""
        yield from wrap_text(f"{subject}{field}{fault.text}", width, _INDENT)
    elif diagnosis.verdict is DiagnosisVerdict.FITS:
        yield from _render_success(diagnosis, width)
    else:
        yield from _render_refusals(diagnosis, width, paint)


def group_reports(diagnosis: Diagnosis) -> list[PageEntry]:
    """Reports grouped by their lines, the closest first."""
    one_claim = len(diagnosis.claims) < 2
    alike: dict[tuple[ReportLine, ...], list[NodeReport]] = {}
    for report in diagnosis.node_reports:
        if report.outcome is not NodeOutcome.FITS:
            lines = tuple(render_report_lines(report, with_names=False, one_claim=one_claim))
            alike.setdefault(lines, []).append(report)
    found = []
    for lines, reports in alike.items():
        nodes = tuple(name for report in reports for name in report.nodes)
        named = (
            render_report_lines(reports[0], with_names=True, one_claim=one_claim)
            if len(nodes) == 1
            else lines
        )
        found.append(PageEntry(nodes, tuple(named)))
    return found


def _render_refusals(diagnosis: Diagnosis, width: int, paint: Paint) -> Iterator[str]:
    entries = group_reports(diagnosis)
    labels = [join_names(entry.nodes, 3) for entry in entries]
    column = max((len(label) for label in labels[:MAX_ENTRIES] if len(label) <= _MAX_LABEL_WIDTH), default=0)
    indent = _INDENT + " " * column + _GAP if column else _INDENT * 3
    for i, (label, entry) in enumerate(zip(labels[:MAX_ENTRIES], entries, strict=False)):
        marked = i == 0 and len(entries) > 1
        narrower = len(_CLOSEST_MARK) + 2 if marked else 0
        lines = lay_out_line(entry.lines[0], width - narrower, indent)
        lines += [text for line in entry.lines[1:] for text in lay_out_line(line, width, indent)]
        if marked:
            gap = min(width - len(lines[0]) - len(_CLOSEST_MARK), 6)
            lines[0] += " " * max(gap, 2) + paint(PageRole.MARK, _CLOSEST_MARK)
        name = paint(PageRole.NODE, label)
        if len(label) > column:
            yield _INDENT + name
            yield from lines
        else:
            yield _INDENT + name + " " * (len(indent) - len(_INDENT) - len(label)) + lines[0].lstrip()
            yield from lines[1:]
    if len(entries) > MAX_ENTRIES:
        rest = sum(len(entry.nodes) for entry in entries[MAX_ENTRIES:])
        yield f"{_INDENT}… and {pluralize(rest, 'more node')} with other reasons"


def _render_hint(hint: Hint, width: int, paint: Paint) -> list[str]:
    first, *rest = wrap_text(f"hint: {format_hint(hint)}", width, "", _INDENT * 3)
    return [paint(PageRole.HINT, "hint:") + first.removeprefix("hint:"), *rest]


def format_hint(hint: Hint) -> str:
    """What would help, and which nodes."""
    return f"{hint.text} would make {join_names(hint.nodes, 2)} fit"


# --- success ---


def _render_success(diagnosis: Diagnosis, width: int) -> Iterator[str]:
    report = diagnosis.node_reports[0]
    several = len(diagnosis.claims) > 1
    rows = [(*([f.claim] if several else []), f.label, str(f.device)) for f in report.found]
    if not rows:
        yield f"{_INDENT}no devices are asked for"
    heads = (*(["claim"] if several else []), "request", "device")
    widths = [max(len(row[i]) for row in (heads, *rows)) for i in range(len(heads))]
    indent = _INDENT + " " * (sum(widths) + len(_GAP) * len(widths))
    if rows:
        yield _INDENT + _GAP.join(h.ljust(w) for h, w in zip((*heads, "why"), (*widths, 3), strict=True))
    for row, found in zip(rows, report.found, strict=True):
        cells = _INDENT + "".join(cell.ljust(w) + _GAP for cell, w in zip(row, widths, strict=True))
        first, *rest = lay_out_line(ReportLine("", tuple(list_reasons(found))), width, indent)
        yield cells + first.lstrip()
        yield from rest
    if report.attempts:
        yield ""
    for attempt in report.attempts:
        for line in prefix_lines(
            f"{attempt.request} could not be had", render_attempt_lines(attempt, with_names=True)
        ):
            yield from lay_out_line(line, width, _INDENT)
    others = [name for s in diagnosis.node_reports if s.outcome is NodeOutcome.FITS for name in s.nodes][1:]
    if others:
        yield ""
        yield f"{_INDENT}also fits {join_names(others, 3)}"


def list_reasons(found: FoundDevice) -> list[str]:
    """Why this device was chosen."""
    reasons = (
        ["all matching devices are asked for"]
        if found.every
        else list_refusals(list_relevant_outcomes(found))
    )
    if not reasons:
        reasons = (
            ["first that matches"]
            if not found.label.endswith("]") or found.label.endswith("[0]")
            else ["next that matches"]
        )
    if found.admin:
        reasons.append("admin access, even if in use")
    reasons += [f"takes {amount} of `{name}`" for name, amount in found.consumed.items()]
    return reasons


# --- layout ---


def lay_out_line(line: ReportLine, width: int, indent: str) -> list[str]:
    """Break a line between its pieces, and within a piece only when it must be."""
    indent += _INDENT * line.depth
    hanging = indent + _INDENT * line.hang
    rows = [line.lead] if line.lead else []
    for i, piece in enumerate(line.pieces):
        last = i + 1 == len(line.pieces)
        text = piece if last else f"{piece}{_DOT}"
        if rows and (i == 0 or len(hanging) + len(rows[-1]) + 1 + len(text) <= width):
            rows[-1] = f"{rows[-1]} {text}"
        else:
            rows.append(text)
    return [
        out for i, row in enumerate(rows) for out in wrap_text(row, width, hanging if i else indent, hanging)
    ]


def wrap_text(text: str, width: int, indent: str, hanging: str | None = None) -> list[str]:
    """Wrap words into lines; words that are too long stay whole."""
    lines = wrap(
        text,
        max(width, len(indent) + MIN_WIDTH),
        initial_indent=indent,
        subsequent_indent=indent if hanging is None else hanging,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [line.replace(_DOT, " ·") for line in lines] or [indent]
