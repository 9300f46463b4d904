"""What is read of kinds that are merely kept: their metadata."""

from __future__ import annotations

from dray.api.meta import ObjectMeta, Projection


class OpaqueObject(Projection, frozen=True):
    """An object in a namespace that dray keeps whole and does not look into."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()


class RbacObject(OpaqueObject, frozen=True):
    """A role or a binding in a namespace; authorisation reads their documents."""


class OpaqueClusterObject(Projection, frozen=True):
    """The same, outside all namespaces."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()


class RbacClusterObject(OpaqueClusterObject, frozen=True):
    """A role or a binding for the whole cluster."""
