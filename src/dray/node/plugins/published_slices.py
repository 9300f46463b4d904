"""The ResourceSlices of this node on the server: which drivers and devices they name, and their withdrawal.

A driver publishes its own slices. The agent deletes them only when the driver has gone without doing so,
because no one else would notice that their devices are not there any more.
"""

from __future__ import annotations

from collections.abc import Mapping

from dray.api.resource import ResourceSlice
from dray.client.client import Client
from dray.client.object_refs import ObjectSelector


class PublishedSlices:
    """The slices of one node."""

    def __init__(self, client: Client, node: str) -> None:
        self._client = client
        self._node = node

    async def list_drivers(self) -> frozenset[str]:
        """List the drivers that have slices here; raises `ClientError` when the server cannot be read."""
        return frozenset(each.spec.driver for each in await self._list_slices())

    async def list_devices(self, driver: str) -> Mapping[str, frozenset[str]]:
        """List the devices of a driver by pool; only complete pools of this node are included.

        A pool that is not included proves nothing: it may belong to the network, or its driver may be
        starting.
        """
        pools: dict[str, list[ResourceSlice]] = {}
        for each in await self._list_slices():
            if each.spec.driver == driver:
                pools.setdefault(each.spec.pool.name, []).append(each)
        return {
            name: devices
            for name, slices in pools.items()
            if (devices := _collect_devices(slices)) is not None
        }

    async def withdraw(self, driver: str) -> None:
        """Delete the slices of a driver; raises `ClientError` when that is not possible now."""
        chosen = ObjectSelector(fields=f"spec.driver={driver},spec.nodeName={self._node}")
        await self._client.delete_collection(ResourceSlice, selector=chosen)

    async def _list_slices(self) -> tuple[ResourceSlice, ...]:
        own = ObjectSelector(fields=f"spec.nodeName={self._node}")
        return tuple((await self._client.list(ResourceSlice, selector=own)).items)


def _collect_devices(slices: list[ResourceSlice]) -> frozenset[str] | None:
    """Collect the devices of a pool; None unless all slices of its newest generation are present."""
    newest = max(each.spec.pool.generation for each in slices)
    current = [each for each in slices if each.spec.pool.generation == newest]
    if len(current) != current[0].spec.pool.resource_slice_count:
        return None
    return frozenset(device.name for each in current for device in each.spec.devices)
