"""A diagnosis for machines: one JSON document with stable keys.

Everything the page says is here, and what it leaves out: every device with its first failing rule. Keys are
only ever added; what is empty is left out, except at the top, where every key is always there.
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
    """The document, made of dicts, lists, texts and numbers."""
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
        "stories": [_render_report(story) for story in diagnosis.node_reports],
        "hints": [{**_to_plain(hint), "sentence": format_hint(hint)} for hint in diagnosis.hints],
    }


def _render_report(report: NodeReport) -> dict[str, Any]:
    told: dict[str, Any] = _to_plain(report)
    told["example"] = report.nodes[0]
    if report.attempts:
        told["attempts"] = [_render_attempt(attempt) for attempt in report.attempts]
    return told


def _render_attempt(attempt: FailedAttempt) -> dict[str, Any]:
    return {**_to_plain(attempt), "tally": summarize_refusals(attempt.devices, with_names=True)}


def _to_plain(value: Any) -> Any:
    """A value as it comes back from JSON, so that tuples are lists for everybody."""
    return msgspec.json.decode(msgspec.json.encode(value))
