"""The published pools as the ledger asks for them, kept in step with the slices in the cache.

Theory of operation: slices are filed by pool as they come and go. What a pool amounts to is worked out when
the ledger first asks and forgotten when one of its slices changes; decoded slices are kept for a while by
their revision, so that one changed slice of a large pool does not mean reading all of it again.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from dray.api.kinds import known_kind
from dray.claims.ledger.published_devices import (
    NOWHERE,
    Published,
    SeenSlice,
    Source,
    pool_of,
    published,
    read_slice,
)
from dray.server.objects.stored_object import Held
from dray.server.watch.cache import Cache

PoolId = tuple[str, str]

KEPT_POOLS: Final = 8_192
KEPT_SLICES: Final = 4_096
"""How many pools are remembered worked out, and how many slices decoded."""

_SLICES = known_kind("resource.k8s.io", "ResourceSlice")


class Catalogue:
    """What is published of each pool."""

    def __init__(self, cache: Cache) -> None:
        self._pools: dict[PoolId, dict[bytes, Held]] = {}
        self._known: OrderedDict[PoolId, Published] = OrderedDict()
        self._slices: OrderedDict[Source, SeenSlice] = OrderedDict()
        cache.listen(_SLICES, self._changed)

    def __call__(self, pool: PoolId) -> Published:
        """What is published of a pool now."""
        found = self._known.get(pool)
        if found is not None:
            self._known.move_to_end(pool)
            return found
        slices = self._pools.get(pool)
        if not slices:
            return NOWHERE
        found = published((self._source(held), self._decoded(held)) for held in slices.values())
        self._known[pool] = found
        if len(self._known) > KEPT_POOLS:
            self._known.popitem(last=False)
        return found

    @staticmethod
    def _source(held: Held) -> Source:
        return held.key, held.revision

    def _decoded(self, held: Held) -> SeenSlice:
        source = self._source(held)
        seen = self._slices.get(source)
        if seen is None:
            seen = self._slices[source] = read_slice(held.value)
            if len(self._slices) > KEPT_SLICES:
                self._slices.popitem(last=False)
        else:
            self._slices.move_to_end(source)
        return seen

    def _changed(self, old: Held | None, new: Held | None) -> None:
        if old is not None:
            pool = pool_of(old.value)
            self._known.pop(pool, None)
            self._slices.pop(self._source(old), None)
            slices = self._pools.get(pool, {})
            slices.pop(old.key, None)
            if not slices:
                self._pools.pop(pool, None)
        if new is not None:
            pool = pool_of(new.value)
            self._known.pop(pool, None)
            self._pools.setdefault(pool, {})[new.key] = new
