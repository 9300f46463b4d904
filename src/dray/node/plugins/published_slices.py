"""The slices of this node's drivers on the server: whose there are, and how they go when a driver has gone.

A driver publishes its slices itself. Only when it has gone without a word are they the agent's business,
because nobody else would notice that what they promise is not there any more.
"""

from __future__ import annotations

from dray.api.resource import ResourceSlice
from dray.client.client import Client
from dray.client.object_refs import ObjectSelector


class PublishedSlices:
    """The slices of one node."""

    def __init__(self, client: Client, node: str) -> None:
        self._client = client
        self._node = node

    async def list_drivers(self) -> frozenset[str]:
        """The drivers that have slices here; `ClientError` when nobody tells."""
        found = await self._client.list(
            ResourceSlice, selector=ObjectSelector(fields=f"spec.nodeName={self._node}")
        )
        return frozenset(each.spec.driver for each in found.items)

    async def withdraw(self, driver: str) -> None:
        """Delete the slices of a driver; `ClientError` when that is not possible now."""
        chosen = ObjectSelector(fields=f"spec.driver={driver},spec.nodeName={self._node}")
        await self._client.delete_collection(ResourceSlice, selector=chosen)
