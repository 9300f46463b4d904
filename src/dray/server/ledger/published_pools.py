"""Published pools of the server: the index of the ledger, fed from the slices in the cache."""

from __future__ import annotations

from collections.abc import Iterable

from dray.api.kinds import get_kind
from dray.claims.ledger.published_devices import (
    PublishedPool,
    Source,
    build_published_pool,
    read_pool_id,
    read_slice,
)
from dray.claims.ledger.published_pools import PoolId, PublishedPoolIndex
from dray.server.objects.stored_object import StoredObject
from dray.server.watch.cache import WatchCache

_SLICES = get_kind("resource.k8s.io", "ResourceSlice")


def build_pool(slices: Iterable[StoredObject]) -> PublishedPool:
    """Build a pool from its stored slices."""
    return build_published_pool((_get_source(stored), read_slice(stored.value)) for stored in slices)


def _get_source(stored: StoredObject) -> Source:
    return stored.key, stored.revision


class PublishedPools:
    """The published pools as the cache has them."""

    def __init__(self, cache: WatchCache) -> None:
        self._index: PublishedPoolIndex[StoredObject] = PublishedPoolIndex(
            lambda stored: read_slice(stored.value)
        )
        cache.add_listener(_SLICES, self._on_slice_change)

    def __call__(self, pool: PoolId) -> PublishedPool:
        """The pool as it is published now; empty when it has no slices."""
        return self._index(pool)

    def _on_slice_change(self, old: StoredObject | None, new: StoredObject | None) -> None:
        if old is not None:
            self._index.remove(read_pool_id(old.value), _get_source(old))
        if new is not None:
            self._index.put(read_pool_id(new.value), _get_source(new), new)
