"""The fields of a new object, all of which belong to the manager that creates it.

Theory of operation: which fields a spec has follows from the spec alone, and most new objects have a spec
that was seen before: pods and claims come from templates. Their trees are cached by the JSON text of the
spec. Trees are never changed, so objects share them.
"""

from __future__ import annotations

from typing import Any, Final

from dray.api.json_text import write_json
from dray.api.kinds import Kind
from dray.server.patch.managed_fields.field_comparison import collect_new_fields
from dray.server.patch.managed_fields.field_set import FieldTree
from dray.server.patch.schema.kind_structures import get_structure
from dray.values.cache_bounds import CacheBound

SPEC_FIELDS: Final = CacheBound("fields of new specs", 256, "the process")
MAX_CACHED_SPEC_BYTES: Final = 8 * 1024
"""The fields of larger specs are collected each time: a few of them would fill the memory."""

_spec_fields: dict[tuple[Kind, bytes], FieldTree] = {}


def collect_created_fields(kind: Kind, owned: dict[str, Any]) -> FieldTree:
    """Collect the fields of those parts of a new object that somebody may own; the tree is sorted."""
    if "spec" not in owned:
        return _collect_fields(kind, owned)
    tree = _collect_fields(kind, {name: part for name, part in owned.items() if name != "spec"})
    tree |= _collect_spec_fields(kind, owned["spec"])
    return {step: tree[step] for step in sorted(tree)}


def _collect_fields(kind: Kind, parts: dict[str, Any]) -> FieldTree:
    return collect_new_fields(get_structure(kind), parts)


def _collect_spec_fields(kind: Kind, spec: Any) -> FieldTree:
    text = write_json(spec)
    known = _spec_fields.get((kind, text))
    if known is None:
        known = _collect_fields(kind, {"spec": spec})
        if len(text) <= MAX_CACHED_SPEC_BYTES:
            SPEC_FIELDS.put(_spec_fields, (kind, text), known)
    return known
