"""What is read of kinds that are merely kept: their metadata."""

from __future__ import annotations

from dray.api.meta import ObjectMeta, View


class Bystander(View, frozen=True):
    """An object in a namespace that dray keeps whole and does not look into."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()


class Grant(Bystander, frozen=True):
    """A role or a binding in a namespace; authorisation reads their documents."""


class ClusterBystander(View, frozen=True):
    """The same, outside all namespaces."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()


class ClusterGrant(ClusterBystander, frozen=True):
    """A role or a binding for the whole cluster."""
