"""What many kinds have: metadata, and selectors of nodes."""

from __future__ import annotations

from types import MappingProxyType

from dray.server.patch.shape import MERGE, ONE, Structure, always, keyed, rows, set_of_values, struct

METADATA: Structure = always(
    struct(
        finalizers=set_of_values(MERGE),
        ownerReferences=keyed("uid", of=ONE),
    )
)

NODE_SELECTOR = Structure(fields=MappingProxyType({"nodeSelectorTerms": rows(ONE)}), atomic=True)


def kind(**parts: Structure) -> Structure:
    """A whole object: its own parts, and metadata."""
    return struct(metadata=METADATA, **parts)
