"""What many kinds have: metadata, and selectors of nodes."""

from __future__ import annotations

from dray.server.patch.schema.field_structure import (
    MERGE,
    ONE,
    Structure,
    always,
    keyed,
    one,
    rows,
    set_of_values,
    struct,
)

METADATA: Structure = always(
    struct(
        finalizers=set_of_values(MERGE),
        ownerReferences=keyed("uid", of=ONE),
    )
)

NODE_SELECTOR = one(struct(nodeSelectorTerms=rows(ONE)))


def kind(**parts: Structure) -> Structure:
    """A whole object: its own parts, and metadata."""
    return struct(metadata=METADATA, **parts)
