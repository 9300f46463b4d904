"""Objects in the version a client speaks: from the form they are kept in, and back.

Rules for this file: documents go in and come out; nothing is judged.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dray.api import conversion
from dray.api.conversion import events
from dray.api.json_text import write_json
from dray.api.kinds import Kind
from dray.server.objects.stored_object import Held

Document = Mapping[str, Any]


def is_kept_form(kind: Kind, version: str) -> bool:
    """Whether objects go out just as they are kept."""
    return kind.kept_as is None and version == kind.version


def outward(kind: Kind, version: str, document: Document) -> dict[str, Any]:
    """A kept document as clients of this kind and version know it."""
    if kind.kept_as is not None:
        return events.from_core(document)
    return dict(document) if version == kind.version else conversion.down(kind, version, document)


def inward(kind: Kind, version: str, document: Document) -> dict[str, Any]:
    """A document of a client as it is kept."""
    if kind.kept_as is not None:
        return events.to_core(document)
    return dict(document) if version == kind.version else conversion.up(kind, version, document)


def shown(kind: Kind, version: str, held: Held) -> bytes:
    """An object as JSON in a version."""
    if is_kept_form(kind, version):
        return held.served
    return write_json(outward(kind, version, held.document))
