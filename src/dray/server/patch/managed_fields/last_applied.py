"""The annotation in which `kubectl apply` without `--server-side` remembers what it applied.

Objects change hands: whoever applied from the client may go on applying on the server and back. So an apply
by `kubectl` may change what the annotation shows to be kubectl's own, and it keeps the annotation up to date
where there is one.
"""

from __future__ import annotations

from typing import Any, Final

from dray.api.json_text import MAX_DEPTH, read_json, write_json
from dray.errors import DecodeError
from dray.server.patch.limits import depth_of
from dray.server.patch.managed_fields.field_comparison import compare, fields_of
from dray.server.patch.managed_fields.field_set import Tree, cut, difference
from dray.server.patch.schema.kind_structures import Structure

Document = dict[str, Any]

KUBECTL: Final = "kubectl"
ANNOTATION: Final = "kubectl.kubernetes.io/last-applied-configuration"


def still_as_applied(structure: Structure, live: Document) -> Tree:
    """The fields of the annotation that are in the object as it says."""
    remembered = _remembered(live)
    if remembered is None:
        return {}
    changed, removed = compare(structure, remembered, live)
    return cut(difference(fields_of(structure, remembered), changed), removed)


def renewed(document: Document, configuration: Document, manager: str) -> Document:
    """The object with the annotation renewed, when kubectl applied and there is one."""
    if manager != KUBECTL or _text(document) is None or _text(configuration) is not None:
        return document
    metadata = document["metadata"]
    annotations = {**metadata["annotations"], ANNOTATION: write_json(configuration).decode() + "\n"}
    return {**document, "metadata": {**metadata, "annotations": annotations}}


def _text(document: Document) -> str | None:
    annotations = document.get("metadata", {}).get("annotations")
    text = annotations.get(ANNOTATION) if isinstance(annotations, dict) else None
    return text if isinstance(text, str) else None


def _remembered(document: Document) -> Document | None:
    text = _text(document)
    if text is None:
        return None
    try:
        remembered = read_json(text.encode())
    except DecodeError:
        return None
    return remembered if isinstance(remembered, dict) and depth_of(remembered) <= MAX_DEPTH else None
