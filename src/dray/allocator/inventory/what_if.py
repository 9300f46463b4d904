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
    """Usage without the devices of some pools that a claim alone holds; what it shares with others stays."""
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
    """What a node would see were a pool complete with the slices it has; None when these have no devices."""
    prepared = inventory._cache
    seen = {page.pool for page in prepared.find_candidates(node) if page.find_reachable(node)}
    own = prepared.get_slices(pool)
    newest = max((page.slice.spec.pool.generation for page in own), default=0)
    published = [page.slice for page in own if page.slice.spec.pool.generation == newest]
    judges = [profile._evaluator for page in own for profile in page.profiles]
    if not judges:
        return None
    others = [page.slice for other in seen - {pool} for page in prepared.get_slices(other)]
    completed = [_replace_slice_count(published_slice, len(published)) for published_slice in published]
    return DeviceInventory([*others, *completed], inventory.classes.values(), inventory.usage, judges[0])


def _replace_slice_count(published: ResourceSlice, count: int) -> ResourceSlice:
    pool = msgspec.structs.replace(published.spec.pool, resource_slice_count=count)
    return msgspec.structs.replace(published, spec=msgspec.structs.replace(published.spec, pool=pool))
