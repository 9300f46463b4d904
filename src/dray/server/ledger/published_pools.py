"""The published pools as the ledger asks for them, kept in step with the slices in the cache.

Theory of operation: slices are filed by pool as they come and go. What a pool amounts to is worked out when
the ledger first asks and forgotten when one of its slices changes; decoded slices are kept for a while by
their revision, so that one changed slice of a large pool does not mean reading all of it again.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from dray.api.kinds import get_kind
from dray.claims.ledger.published_devices import (
    EMPTY_POOL,
    PublishedPool,
    Source,
    StoredSlice,
    build_published_pool,
    read_pool_id,
    read_slice,
)
from dray.server.objects.stored_object import StoredObject
from dray.server.watch.cache import WatchCache

PoolId = tuple[str, str]

MAX_CACHED_POOLS: Final = 8_192
MAX_CACHED_SLICES: Final = 4_096
"""How many pools are remembered worked out, and how many slices decoded."""

_SLICES = get_kind("resource.k8s.io", "ResourceSlice")


class PublishedPools:
    """What is published of each pool."""

    def __init__(self, cache: WatchCache) -> None:
        self._slices_by_pool: dict[PoolId, dict[bytes, StoredObject]] = {}
        self._cached_pools: OrderedDict[PoolId, PublishedPool] = OrderedDict()
        self._decoded_slices: OrderedDict[Source, StoredSlice] = OrderedDict()
        cache.add_listener(_SLICES, self._on_slice_change)

    def __call__(self, pool: PoolId) -> PublishedPool:
        """What is published of a pool now."""
        found = self._cached_pools.get(pool)
        if found is not None:
            self._cached_pools.move_to_end(pool)
            return found
        slices = self._slices_by_pool.get(pool)
        if not slices:
            return EMPTY_POOL
        found = build_published_pool(
            (self._get_source(held), self._decode_slice(held)) for held in slices.values()
        )
        self._cached_pools[pool] = found
        if len(self._cached_pools) > MAX_CACHED_POOLS:
            self._cached_pools.popitem(last=False)
        return found

    @staticmethod
    def _get_source(stored: StoredObject) -> Source:
        return stored.key, stored.revision

    def _decode_slice(self, stored: StoredObject) -> StoredSlice:
        source = self._get_source(stored)
        seen = self._decoded_slices.get(source)
        if seen is None:
            seen = self._decoded_slices[source] = read_slice(stored.value)
            if len(self._decoded_slices) > MAX_CACHED_SLICES:
                self._decoded_slices.popitem(last=False)
        else:
            self._decoded_slices.move_to_end(source)
        return seen

    def _on_slice_change(self, old: StoredObject | None, new: StoredObject | None) -> None:
        if old is not None:
            pool = read_pool_id(old.value)
            self._cached_pools.pop(pool, None)
            self._decoded_slices.pop(self._get_source(old), None)
            slices = self._slices_by_pool.get(pool, {})
            slices.pop(old.key, None)
            if not slices:
                self._slices_by_pool.pop(pool, None)
        if new is not None:
            pool = read_pool_id(new.value)
            self._cached_pools.pop(pool, None)
            self._slices_by_pool.setdefault(pool, {})[new.key] = new
