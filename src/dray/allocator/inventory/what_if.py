"""What-if variants of an inventory, to try which change would make a claim fit.

Nothing here changes the given inventory. What a node does not see is left out: an answer for one node needs
no more.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from dray.allocator.inventory.device_inventory import DeviceInventory
from dray.allocator.inventory.usage import DeviceUsage, PoolId, PoolUsage
from dray.api.core import Node
from dray.api.resource import ResourceSlice


def remove_claim_usage(usage: DeviceUsage, claim: str, pools: Iterable[PoolId]) -> DeviceUsage:
    """Usage without the devices of some pools that only one claim has; shared ones stay."""
    changed = dict(usage.pools)
    for pool in pools:
        use = usage.get_pool(pool)
        freed = {device for device, holders in use.holders.items() if set(holders) == {claim}}
        if freed:
            changed[pool] = PoolUsage(
                {device: holder for device, holder in use.whole.items() if device not in freed},
                {device: amounts for device, amounts in use.shares.items() if device not in freed},
                {device: holders for device, holders in use.holders.items() if device not in freed},
            )
    return DeviceUsage(changed)


def assume_complete_pool(inventory: DeviceInventory, node: Node, pool: PoolId) -> DeviceInventory | None:
    """The inventory as if a pool were complete with its slices; None when these have no devices."""
    own = inventory.list_slices(pool)
    if not any(each.spec.devices for each in own):
        return None
    newest = max(each.spec.pool.generation for each in own)
    published = [each for each in own if each.spec.pool.generation == newest]
    visible = inventory.list_visible_pools(node) - {pool}
    others = [each for other in visible for each in inventory.list_slices(other)]
    completed = [_replace_slice_count(each, len(published)) for each in published]
    return DeviceInventory(
        [*others, *completed], inventory.classes.values(), inventory.usage, inventory.evaluator
    )


def _replace_slice_count(published: ResourceSlice, count: int) -> ResourceSlice:
    pool = msgspec.structs.replace(published.spec.pool, resource_slice_count=count)
    return msgspec.structs.replace(published, spec=msgspec.structs.replace(published.spec, pool=pool))
