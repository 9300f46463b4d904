"""The metadata that every object has."""

from __future__ import annotations

from dray.server.patch.shape import MERGE, ONE, Structure, always, keyed, set_of_values, struct

METADATA: Structure = always(
    struct(
        finalizers=set_of_values(MERGE),
        ownerReferences=keyed("uid", of=ONE),
    )
)


def kind(**parts: Structure) -> Structure:
    """A whole object: its own parts, and metadata."""
    return struct(metadata=METADATA, **parts)
