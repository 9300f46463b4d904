"""Conversion of events between `events.k8s.io` and the core group: the same objects under two names.

They are stored in the core form, which is what tools that show events read. A field that only one form has
keeps its name.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from dray.api.json_text import Document

_CORE_NAMES: Mapping[str, str] = MappingProxyType(
    {
        "regarding": "involvedObject",
        "note": "message",
        "reportingController": "reportingComponent",
        "deprecatedSource": "source",
        "deprecatedFirstTimestamp": "firstTimestamp",
        "deprecatedLastTimestamp": "lastTimestamp",
        "deprecatedCount": "count",
    }
)
"""Field names in `events.k8s.io`, and in the core group."""

_EVENTS_NAMES = {core: event for event, core in _CORE_NAMES.items()}


def convert_to_core(document: Document) -> dict[str, Any]:
    """Convert an event of `events.k8s.io` to the core group."""
    return _rename_fields(document, _CORE_NAMES) | {"apiVersion": "v1"}


def convert_from_core(document: Document) -> dict[str, Any]:
    """Convert a core event to `events.k8s.io`."""
    return _rename_fields(document, _EVENTS_NAMES) | {"apiVersion": "events.k8s.io/v1"}


def _rename_fields(document: Document, names: Mapping[str, str]) -> dict[str, Any]:
    return {names.get(field, field): value for field, value in document.items()}
