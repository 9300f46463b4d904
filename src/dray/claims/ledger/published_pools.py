"""Published pools: the devices of each pool for the ledger, built from its slices when they are first read.

Theory of operation: slices are indexed by pool. A pool is built when the ledger first reads it, and dropped
when one of its slices changes. The decoded slices of a pool with several are cached by revision, so that one
changed slice of a large pool does not decode all of them again.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Final, Generic, TypeVar

from dray.claims.ledger.published_devices import (
    EMPTY_POOL,
    PublishedPool,
    Source,
    StoredSlice,
    build_published_pool,
)

PoolId = tuple[str, str]
"""Driver and name of a pool."""

MAX_CACHED_POOLS: Final = 8_192
MAX_CACHED_SLICES: Final = 4_096
"""The bounds of the caches of built pools and decoded slices."""

S = TypeVar("S")


class PublishedPoolIndex(Generic[S]):
    """Slices by pool, in any form that `decode` understands, and the pools built from them."""

    def __init__(self, decode: Callable[[S], StoredSlice]) -> None:
        self._decode = decode
        self._slices_by_pool: dict[PoolId, dict[bytes, tuple[Source, S]]] = {}
        self._cached_pools: OrderedDict[PoolId, PublishedPool] = OrderedDict()
        self._decoded_slices: OrderedDict[Source, StoredSlice] = OrderedDict()

    def __call__(self, pool: PoolId) -> PublishedPool:
        """The pool as it is published now; empty when it has no slices."""
        cached = self._cached_pools.get(pool)
        if cached is not None:
            self._cached_pools.move_to_end(pool)
            return cached
        slices = self._slices_by_pool.get(pool)
        if not slices:
            return EMPTY_POOL
        decode = self._decode_slice if len(slices) > 1 else self._decode_only_slice
        built = self._cached_pools[pool] = build_published_pool(
            (source, decode(source, written)) for source, written in slices.values()
        )
        if len(self._cached_pools) > MAX_CACHED_POOLS:
            self._cached_pools.popitem(last=False)
        return built

    def put(self, pool: PoolId, source: Source, written: S) -> None:
        """Add a slice of a pool; one that it replaces has to be removed first."""
        self._cached_pools.pop(pool, None)
        self._slices_by_pool.setdefault(pool, {})[source[0]] = (source, written)

    def remove(self, pool: PoolId, source: Source) -> None:
        """Remove a slice of a pool."""
        self._cached_pools.pop(pool, None)
        self._decoded_slices.pop(source, None)
        slices = self._slices_by_pool.get(pool, {})
        slices.pop(source[0], None)
        if not slices:
            self._slices_by_pool.pop(pool, None)

    def _decode_only_slice(self, _source: Source, written: S) -> StoredSlice:
        return self._decode(written)

    def _decode_slice(self, source: Source, written: S) -> StoredSlice:
        decoded = self._decoded_slices.get(source)
        if decoded is None:
            decoded = self._decoded_slices[source] = self._decode(written)
            if len(self._decoded_slices) > MAX_CACHED_SLICES:
                self._decoded_slices.popitem(last=False)
        else:
            self._decoded_slices.move_to_end(source)
        return decoded
