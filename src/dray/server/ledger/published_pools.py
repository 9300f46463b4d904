"""Published pools: the devices of each pool for the ledger, built from the slices in the cache.

Theory of operation: slices are indexed by pool. A pool is built when the ledger first reads it, and dropped
when one of its slices changes; decoded slices are cached by revision, so that one changed slice of a large
pool does not decode all of them again.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
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
"""The bounds of the caches of built pools and decoded slices."""

_SLICES = get_kind("resource.k8s.io", "ResourceSlice")


def build_pool(
    slices: Iterable[StoredObject], decode: Callable[[StoredObject], StoredSlice] | None = None
) -> PublishedPool:
    """Build a pool from its stored slices; `decode` may come from a cache."""
    return build_published_pool(
        (_get_source(stored), read_slice(stored.value) if decode is None else decode(stored))
        for stored in slices
    )


def _get_source(stored: StoredObject) -> Source:
    return stored.key, stored.revision


class PublishedPools:
    """The published pools as the cache has them."""

    def __init__(self, cache: WatchCache) -> None:
        self._slices_by_pool: dict[PoolId, dict[bytes, StoredObject]] = {}
        self._cached_pools: OrderedDict[PoolId, PublishedPool] = OrderedDict()
        self._decoded_slices: OrderedDict[Source, StoredSlice] = OrderedDict()
        cache.add_listener(_SLICES, self._on_slice_change)

    def __call__(self, pool: PoolId) -> PublishedPool:
        """The pool as it is published now; empty when it has no slices."""
        cached = self._cached_pools.get(pool)
        if cached is not None:
            self._cached_pools.move_to_end(pool)
            return cached
        slices = self._slices_by_pool.get(pool)
        if not slices:
            return EMPTY_POOL
        built = self._cached_pools[pool] = build_pool(slices.values(), self._decode_slice)
        if len(self._cached_pools) > MAX_CACHED_POOLS:
            self._cached_pools.popitem(last=False)
        return built

    def _decode_slice(self, stored: StoredObject) -> StoredSlice:
        source = _get_source(stored)
        decoded = self._decoded_slices.get(source)
        if decoded is None:
            decoded = self._decoded_slices[source] = read_slice(stored.value)
            if len(self._decoded_slices) > MAX_CACHED_SLICES:
                self._decoded_slices.popitem(last=False)
        else:
            self._decoded_slices.move_to_end(source)
        return decoded

    def _on_slice_change(self, old: StoredObject | None, new: StoredObject | None) -> None:
        if old is not None:
            pool = read_pool_id(old.value)
            self._cached_pools.pop(pool, None)
            self._decoded_slices.pop(_get_source(old), None)
            slices = self._slices_by_pool.get(pool, {})
            slices.pop(old.key, None)
            if not slices:
                self._slices_by_pool.pop(pool, None)
        if new is not None:
            pool = read_pool_id(new.value)
            self._cached_pools.pop(pool, None)
            self._slices_by_pool.setdefault(pool, {})[new.key] = new
