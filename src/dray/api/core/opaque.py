"""Projections of opaque kinds: metadata only."""

from __future__ import annotations

from dray.api.meta import ObjectMeta, Projection


class OpaqueObject(Projection, frozen=True):
    """A namespaced object that dray stores whole and does not interpret."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()


class RbacObject(OpaqueObject, frozen=True):
    """A role or role binding in a namespace; the authorizer reads its document."""


class OpaqueClusterObject(Projection, frozen=True):
    """A cluster-scoped object that dray stores whole and does not interpret."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()


class RbacClusterObject(OpaqueClusterObject, frozen=True):
    """A role or role binding of the whole cluster."""


class PathNamedClusterObject(OpaqueClusterObject, frozen=True):
    """A cluster-scoped object whose name is a segment of a path, and no DNS name."""
