"""The cache verifier: compares the watch cache with the store at regular intervals.

Theory of operation: all reads are served from the cache, which is fed by changes; a single missed change or a
memory error would be served forever. So the verifier compares everything in the cache with a range of the
store at the same revision, page by page, so that requests are not delayed. A difference is named in the log
and in `/readyz`, until a later comparison finds none. The digest over all entries is the same on all servers
of one store at the same revision.

Rules for this file: it only reads, and reports keys, never contents.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable
from dataclasses import dataclass

from dray.server.objects.stored_object import StoredObject
from dray.server.watch.cache import ROOT_PREFIX, WatchCache
from dray.store import Store, StoreEntry
from dray.store.errors import CompactedError, StoreError

PERIOD_SECONDS = 60.0
PAGE_SIZE = 250
MAX_NAMED_DIFFERENCES = 20


@dataclass(frozen=True, slots=True)
class CacheComparison:
    """The result of a comparison at one revision: number of entries, digest, and differences."""

    revision: int
    entries: int
    digest: str
    differences: tuple[str, ...]

    @property
    def equal(self) -> bool:
        return not self.differences


async def compare_with_store(cache: WatchCache, store: Store) -> CacheComparison:
    """Compare the cache with the store; raises `CompactedError` when the revision is compacted meanwhile."""
    revision, contents = cache.copy_contents()
    differences: list[str] = []
    digest, entries, last = hashlib.sha256(), 0, None
    while True:
        page = await store.range(ROOT_PREFIX, start_after=last, limit=PAGE_SIZE, revision=revision)
        for entry in page.entries:
            digest.update(b"%d %d %d\n" % (len(entry.key), len(entry.value), entry.mod_revision))
            digest.update(entry.key)
            digest.update(entry.value)
            difference = _describe_difference(entry, contents.pop(entry.key, None))
            if difference:
                differences.append(difference)
        entries += len(page.entries)
        if not page.more:
            break
        last = page.entries[-1].key
        await asyncio.sleep(0)
    differences += [f"{_format_key(key)}: in the cache, not in the store" for key in sorted(contents)]
    return CacheComparison(revision, entries, digest.hexdigest(), tuple(differences))


def _describe_difference(stored: StoreEntry, cached: StoredObject | StoreEntry | None) -> str:
    name = _format_key(stored.key)
    if cached is None:
        return f"{name}: in the store, not in the cache"
    revision = cached.revision if isinstance(cached, StoredObject) else cached.mod_revision
    if revision != stored.mod_revision:
        return f"{name}: at revision {revision} in the cache, at {stored.mod_revision} in the store"
    return "" if cached.value == stored.value else f"{name}: other bytes in the cache than in the store"


def _format_key(key: bytes) -> str:
    return key.decode("utf-8", "backslashreplace")


ComparisonCallback = Callable[[CacheComparison], None]


class CacheVerifier:
    """Compares the cache with the store periodically."""

    def __init__(
        self, cache: WatchCache, store: Store, on_compared: ComparisonCallback, period: float = PERIOD_SECONDS
    ) -> None:
        """`on_compared` is called with every comparison."""
        self._cache, self._store, self._on_compared, self._period = cache, store, on_compared, period
        self._problem: str | None = None

    def check(self) -> str | None:
        """The problem for `/readyz`; None when the last comparison found no difference."""
        return self._problem

    async def run(self) -> None:
        """Compare forever; the owner runs this as a task."""
        while True:
            await asyncio.sleep(self._period)
            try:
                self.record(await compare_with_store(self._cache, self._store))
            except CompactedError:
                continue  # the revision was compacted meanwhile; the next comparison follows soon
            except StoreError:
                continue  # requests and the cache report a store that does not answer

    def record(self, comparison: CacheComparison) -> None:
        """Report a comparison and keep its problem for `/readyz`."""
        self._on_compared(comparison)
        if comparison.equal:
            self._problem = None
            return
        named = "; ".join(comparison.differences[:MAX_NAMED_DIFFERENCES])
        more = len(comparison.differences) - MAX_NAMED_DIFFERENCES
        self._problem = (
            f"the cache differs from the store at revision {comparison.revision}: {named}"
            f"{f'; and {more} more' if more > 0 else ''}; restart the server to rebuild the cache"
        )
