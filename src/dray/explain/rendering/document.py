"""A diagnosis for machines: one JSON document with stable keys.

Everything the page says is here, and what it leaves out: every device with its first failing rule. Keys are
only ever added; what is empty is left out, except at the top, where every key is always there.
"""

from __future__ import annotations

from typing import Any

import msgspec

from dray.explain.diagnosis import Attempt, Diagnosis, NodeStory
from dray.explain.rendering.refusal_phrases import tally
from dray.explain.rendering.text import headline, hint_text, summary

API_VERSION = "explain.dray/v1"
KIND = "Diagnosis"


def to_document(diagnosis: Diagnosis) -> dict[str, Any]:
    """The document, made of dicts, lists, texts and numbers."""
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "verdict": diagnosis.verdict.value,
        "headline": headline(diagnosis),
        "summary": summary(diagnosis),
        "pod": diagnosis.pod,
        "claims": list(diagnosis.claims),
        "fault": _plain(diagnosis.fault),
        "nodeCount": diagnosis.node_count,
        "stories": [_story(story) for story in diagnosis.stories],
        "hints": [{**_plain(hint), "sentence": hint_text(hint)} for hint in diagnosis.hints],
    }


def _story(story: NodeStory) -> dict[str, Any]:
    told: dict[str, Any] = _plain(story)
    told["example"] = story.nodes[0]
    if story.attempts:
        told["attempts"] = [_attempt(attempt) for attempt in story.attempts]
    return told


def _attempt(attempt: Attempt) -> dict[str, Any]:
    return {**_plain(attempt), "tally": tally(attempt.devices, named=True)}


def _plain(value: Any) -> Any:
    """A value as it comes back from JSON, so that tuples are lists for everybody."""
    return msgspec.json.decode(msgspec.json.encode(value))
