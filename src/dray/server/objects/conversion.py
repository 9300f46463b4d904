"""Conversion of objects between the storage version and the version that a client uses.

Rules for this file: it converts documents and validates nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dray.api import conversion
from dray.api.conversion import events
from dray.api.json_text import write_json
from dray.api.kinds import Kind
from dray.server.objects.stored_object import StoredObject

Document = Mapping[str, Any]


def is_storage_version(kind: Kind, version: str) -> bool:
    """Whether objects of this kind are served in this version as they are stored."""
    return kind.stored_as is None and version == kind.version


def convert_from_storage(kind: Kind, version: str, document: Document) -> dict[str, Any]:
    """Convert a stored document to the version of a client."""
    if kind.stored_as is not None:
        return events.convert_from_core(document)
    return (
        dict(document)
        if version == kind.version
        else conversion.convert_from_internal(kind, version, document)
    )


def convert_to_storage(kind: Kind, version: str, document: Document) -> dict[str, Any]:
    """Convert a client's document to the storage version."""
    if kind.stored_as is not None:
        return events.convert_to_core(document)
    return (
        dict(document) if version == kind.version else conversion.convert_to_internal(kind, version, document)
    )


def encode_object(kind: Kind, version: str, stored: StoredObject) -> bytes:
    """Encode an object as JSON in a version."""
    if is_storage_version(kind, version):
        return stored.served_json
    return write_json(convert_from_storage(kind, version, stored.document))
