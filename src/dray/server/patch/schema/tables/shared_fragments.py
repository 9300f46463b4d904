"""Structures that many kinds share: metadata, and node selectors."""

from __future__ import annotations

from dray.server.patch.schema.field_structure import (
    ATOMIC_MAP,
    MERGE,
    Structure,
    define_atomic_list,
    define_keyed_list,
    define_set,
    define_struct,
    make_always_present,
    make_atomic,
)

METADATA: Structure = make_always_present(
    define_struct(
        finalizers=define_set(MERGE),
        ownerReferences=define_keyed_list("uid", of=ATOMIC_MAP),
    )
)

NODE_SELECTOR = make_atomic(define_struct(nodeSelectorTerms=define_atomic_list(ATOMIC_MAP)))


def define_kind(**parts: Structure) -> Structure:
    """Define a whole object: its own parts, and metadata."""
    return define_struct(metadata=METADATA, **parts)
