"""A transaction of object writes: objects created, changed, deleted and bound together, all of them or none.

Theory of operation: a transaction collects writes in order; a later one sees the results of the earlier ones,
so a claim can be created first and recorded then. `TransactionSupport.commit` sends it. A write is as strict
as it would be alone: what must not have changed is named by version or uid. A second write of one object in
the same transaction cannot know the version that the first one makes; it names the uid only.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import msgspec

from dray.api.kinds import Kind
from dray.client.patches import ObjectPatch
from dray.client.write_requests import DEFAULT_DELETE_OPTIONS, DeleteOptions, ObjectWrite, WriteRequests

_WriteBuilder = Callable[[WriteRequests], Awaitable[ObjectWrite]]
Self = TypeVar("Self", bound="ObjectTransaction")


class ObjectTransaction:
    """Writes that are committed together, in the order in which they were added."""

    def __init__(self) -> None:
        self._builders: list[_WriteBuilder] = []

    def __len__(self) -> int:
        return len(self._builders)

    def create(self: Self, obj: Any) -> Self:
        """Create an object in the namespace it names."""
        return self._add(lambda requests: requests.create(obj))

    def update(self: Self, obj: msgspec.Struct, *, subresource: str = "") -> Self:
        """Replace an object of a closed kind as a whole, in the version that was read."""
        return self._add(lambda requests: requests.update(obj, subresource=subresource))

    def update_status(self: Self, obj: msgspec.Struct) -> Self:
        """Replace the status of an object of a closed kind."""
        return self.update(obj, subresource="status")

    def patch(
        self: Self,
        kind: Kind | type[msgspec.Struct],
        name: str,
        patch: ObjectPatch,
        namespace: str = "",
        *,
        subresource: str = "",
    ) -> Self:
        """Apply a patch; a server-side apply is no part of a transaction."""
        return self._add(
            lambda requests: requests.patch(kind, name, patch, namespace, subresource=subresource)
        )

    def delete(
        self: Self,
        kind: Kind | type[msgspec.Struct],
        name: str,
        namespace: str = "",
        options: DeleteOptions = DEFAULT_DELETE_OPTIONS,
    ) -> Self:
        """Delete an object."""
        return self._add(lambda requests: requests.delete(kind, name, namespace, options))

    def bind(self: Self, pod: str, namespace: str, node: str, *, uid: str = "") -> Self:
        """Bind a pod to a node."""
        return self._add(lambda requests: requests.bind(pod, namespace, node, uid=uid))

    async def build_writes(self, requests: WriteRequests) -> list[ObjectWrite]:
        """Build the requests of all writes."""
        return [await build(requests) for build in self._builders]

    def _add(self: Self, builder: _WriteBuilder) -> Self:
        self._builders.append(builder)
        return self
