"""Which devices of this node's pools are published now; for the question whether one has vanished."""

from __future__ import annotations

from collections.abc import Iterable

from dray.api.resource import ResourceSlice
from dray.client.client import Client
from dray.client.object_refs import ObjectSelector
from dray.node.claims.record import RecordedDevice


class PublishedDevices:
    """The slices of one node."""

    def __init__(self, client: Client, node: str) -> None:
        self._client = client
        self._node = node

    async def find_missing(self, driver: str, wanted: Iterable[RecordedDevice]) -> tuple[RecordedDevice, ...]:
        """Devices that are not in their pools any more; only pools of this node that are complete count.

        A pool that is not there says nothing: it may belong to the network, or its driver may be starting.
        """
        own = ObjectSelector(fields=f"spec.nodeName={self._node}")
        slices = (await self._client.list(ResourceSlice, selector=own)).items
        pools: dict[str, list[ResourceSlice]] = {}
        for each in slices:
            if each.spec.driver == driver:
                pools.setdefault(each.spec.pool.name, []).append(each)
        known = {name: _list_devices(parts) for name, parts in pools.items()}
        return tuple(
            key
            for key in wanted
            if (devices := known.get(key.pool)) is not None and key.device not in devices
        )


def _list_devices(slices: list[ResourceSlice]) -> frozenset[str] | None:
    """The devices of a pool; None when not all of its newest slices are here."""
    newest = max(each.spec.pool.generation for each in slices)
    current = [each for each in slices if each.spec.pool.generation == newest]
    if len(current) != current[0].spec.pool.resource_slice_count:
        return None
    return frozenset(device.name for each in current for device in each.spec.devices)
