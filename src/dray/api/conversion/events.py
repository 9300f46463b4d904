"""Events of `events.k8s.io` and of the core group: the same objects under two names.

They are kept in the core form, which everybody who shows events reads. What one form has and the other does
not keeps its own name.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

Document = Mapping[str, Any]

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
"""The name in `events.k8s.io`, and in the core group."""

_EVENTS_NAMES = {core: event for event, core in _CORE_NAMES.items()}


def convert_to_core(document: Document) -> dict[str, Any]:
    """An event of `events.k8s.io` as the core group writes it."""
    return _rename_fields(document, _CORE_NAMES) | {"apiVersion": "v1"}


def convert_from_core(document: Document) -> dict[str, Any]:
    """A core event as `events.k8s.io` writes it."""
    return _rename_fields(document, _EVENTS_NAMES) | {"apiVersion": "events.k8s.io/v1"}


def _rename_fields(document: Document, names: Mapping[str, str]) -> dict[str, Any]:
    return {names.get(field, field): value for field, value in document.items()}
