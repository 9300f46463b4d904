"""The same stock with something changed, to try out what would help.

Nothing here changes the stock that was given. What a node does not see is left out: an answer for one node
needs no more.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from dray.allocator.inventory.device_inventory import Stock
from dray.allocator.inventory.usage import PoolId, PoolUsage, Usage
from dray.api.core import Node
from dray.api.resource import ResourceSlice


def without_claim(usage: Usage, claim: str, pools: Iterable[PoolId]) -> Usage:
    """Usage without the devices of some pools that a claim alone holds; what it shares with others stays."""
    changed = dict(usage.pools)
    for pool in pools:
        use = usage.of_pool(pool)
        freed = {device for device, holders in use.holders.items() if set(holders) == {claim}}
        if freed:
            changed[pool] = PoolUsage(
                {device: holder for device, holder in use.whole.items() if device not in freed},
                {device: amounts for device, amounts in use.shares.items() if device not in freed},
                {device: holders for device, holders in use.holders.items() if device not in freed},
            )
    return Usage(changed)


def as_if_complete(stock: Stock, node: Node, pool: PoolId) -> Stock | None:
    """What a node would see were a pool complete with the slices it has; None when these have no devices."""
    prepared = stock._prepared
    seen = {page.pool for page in prepared.near(node) if page.seen_by(node)}
    own = prepared.pages_of(pool)
    newest = max((page.slice.spec.pool.generation for page in own), default=0)
    published = [page.slice for page in own if page.slice.spec.pool.generation == newest]
    judges = [content._judge for page in own for content in page.contents]
    if not judges:
        return None
    others = [page.slice for other in seen - {pool} for page in prepared.pages_of(other)]
    completed = [_counting(published_slice, len(published)) for published_slice in published]
    return Stock([*others, *completed], stock.classes.values(), stock.usage, judges[0])


def _counting(published: ResourceSlice, count: int) -> ResourceSlice:
    pool = msgspec.structs.replace(published.spec.pool, resource_slice_count=count)
    return msgspec.structs.replace(published, spec=msgspec.structs.replace(published.spec, pool=pool))
