"""The JSON document of a diagnosis, with stable keys.

It contains everything of the page and more: every device with the first rule that refused it. Keys are only
ever added; empty values are left out, except at the top level, where every key is always present.
"""

from __future__ import annotations

from typing import Any

import msgspec

from dray.explain.diagnosis import Diagnosis, FailedAttempt, NodeReport
from dray.explain.rendering.refusal_phrases import summarize_refusals
from dray.explain.rendering.text import format_hint, render_headline, summarize

API_VERSION = "explain.dray/v1"
KIND = "Diagnosis"


def to_document(diagnosis: Diagnosis) -> dict[str, Any]:
    """The document as plain dicts, lists, strings and numbers."""
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "verdict": diagnosis.verdict.value,
        "headline": render_headline(diagnosis),
        "summary": summarize(diagnosis),
        "pod": diagnosis.pod,
        "claims": list(diagnosis.claims),
        "fault": _to_plain(diagnosis.fault),
        "nodeCount": diagnosis.node_count,
        "stories": [_render_report(report) for report in diagnosis.node_reports],
        "hints": [{**_to_plain(hint), "sentence": format_hint(hint)} for hint in diagnosis.hints],
    }


def _render_report(report: NodeReport) -> dict[str, Any]:
    document: dict[str, Any] = _to_plain(report)
    document["example"] = report.nodes[0]
    if report.attempts:
        document["attempts"] = [_render_attempt(attempt) for attempt in report.attempts]
    return document


def _render_attempt(attempt: FailedAttempt) -> dict[str, Any]:
    return {**_to_plain(attempt), "tally": summarize_refusals(attempt.devices, with_names=True)}


def _to_plain(value: Any) -> Any:
    """A value as JSON decodes it, with lists instead of tuples."""
    return msgspec.json.decode(msgspec.json.encode(value))
