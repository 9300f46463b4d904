"""The annotation in which `kubectl apply` without `--server-side` stores what it applied.

Users switch between client-side and server-side apply. So a server-side apply by `kubectl` may change the
fields that the annotation shows to be kubectl's own, and it keeps the annotation up to date where there is
one.
"""

from __future__ import annotations

from typing import Any, Final

from dray.api.json_text import MAX_DEPTH, read_json, write_json
from dray.errors import DecodeError
from dray.server.patch.limits import measure_depth
from dray.server.patch.managed_fields.field_comparison import collect_fields, compare_documents
from dray.server.patch.managed_fields.field_set import FieldTree, remove_subtrees, subtract_tree
from dray.server.patch.schema.kind_structures import Structure

Document = dict[str, Any]

KUBECTL: Final = "kubectl"
ANNOTATION: Final = "kubectl.kubernetes.io/last-applied-configuration"


def find_unchanged_fields(structure: Structure, live: Document) -> FieldTree:
    """Return the fields of the annotation that the object has unchanged."""
    remembered = _read_last_applied(live)
    if remembered is None:
        return {}
    changed, removed = compare_documents(structure, remembered, live)
    return remove_subtrees(subtract_tree(collect_fields(structure, remembered), changed), removed)


def update_annotation(document: Document, configuration: Document, manager: str) -> Document:
    """Renew the annotation of an object that has one, when kubectl applied."""
    if (
        manager != KUBECTL
        or _read_annotation(document) is None
        or _read_annotation(configuration) is not None
    ):
        return document
    metadata = document["metadata"]
    annotations = {**metadata["annotations"], ANNOTATION: write_json(configuration).decode() + "\n"}
    return {**document, "metadata": {**metadata, "annotations": annotations}}


def _read_annotation(document: Document) -> str | None:
    annotations = document.get("metadata", {}).get("annotations")
    text = annotations.get(ANNOTATION) if isinstance(annotations, dict) else None
    return text if isinstance(text, str) else None


def _read_last_applied(document: Document) -> Document | None:
    text = _read_annotation(document)
    if text is None:
        return None
    try:
        remembered = read_json(text.encode())
    except DecodeError:
        return None
    return remembered if isinstance(remembered, dict) and measure_depth(remembered) <= MAX_DEPTH else None
