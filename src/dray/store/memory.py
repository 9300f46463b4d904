"""A store in memory: the meaning of the protocol in its plainest form.

Theory of operation: each key has the list of what it was, oldest first, and there is one log of batches.
Nothing awaits, so every method is atomic in its event loop.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import AsyncGenerator, Sequence

from dray.store.base import (
    BUFFERED_EVENTS,
    FIRST_REVISION,
    Batch,
    Closing,
    Committed,
    Compare,
    Conflict,
    Delete,
    Entry,
    Event,
    Mismatch,
    Page,
    Write,
    check_read,
    check_txn,
    holds,
    prefix_end,
    range_start,
)
from dray.store.errors import Compacted, FutureRevision
from dray.store.watch_broadcaster import Hub, closed, only

PAST_BATCHES = 1000

Lives = list[tuple[int, Entry | None]]


class MemoryStore(Closing):
    """Everything is gone when the process ends; for tests, and as the reference of the contract."""

    def __init__(self, buffered_events: int = BUFFERED_EVENTS) -> None:
        self._hub = Hub(FIRST_REVISION, buffered_events)
        self._lives: dict[bytes, Lives] = {}
        self._keys: list[bytes] = []
        self._log: list[Batch] = []
        self._compacted = 0
        self._open = True

    async def revision(self) -> int:
        self._check_open()
        return self._hub.revision

    async def get(self, key: bytes, revision: int | None = None) -> Entry | None:
        check_read(None, revision)
        return self._at(key, self._readable(revision))

    async def range(
        self,
        prefix: bytes,
        *,
        start_after: bytes | None = None,
        limit: int | None = None,
        revision: int | None = None,
    ) -> Page:
        check_read(limit, revision)
        at = self._readable(revision)
        end = prefix_end(prefix)
        first = bisect_left(self._keys, range_start(prefix, start_after))
        last = len(self._keys) if end is None else bisect_left(self._keys, end)
        found: list[Entry] = []
        for key in self._keys[first:last]:
            entry = self._at(key, at)
            if entry is None:
                continue
            if len(found) == limit:
                return Page(tuple(found), at, more=True)
            found.append(entry)
        return Page(tuple(found), at)

    async def txn(self, compares: Sequence[Compare], writes: Sequence[Write]) -> Committed | Conflict:
        check_txn(compares, writes)
        now = self._readable(None)
        judged = [(compare, self._at(compare.key, now)) for compare in compares]
        failed = tuple(Mismatch(compare, found) for compare, found in judged if not holds(compare, found))
        if failed:
            return Conflict(now, failed)
        events = tuple(event for write in writes if (event := self._applied(write, now + 1)))
        if events:
            batch = Batch(now + 1, events)
            self._log.append(batch)
            self._hub.publish([batch])
        return Committed(self._hub.revision)

    def watch(
        self, prefix: bytes, after_revision: int, *, bookmarks: float | None = None
    ) -> AsyncGenerator[Batch, None]:
        return self._hub.watch(self, prefix, after_revision, bookmarks)

    async def compact(self, revision: int) -> None:
        self._check_open()
        if revision > self._hub.revision:
            raise FutureRevision(revision, self._hub.revision)
        if revision <= self._compacted:
            return
        self._compacted = revision
        del self._log[: bisect_right(self._log, revision, key=lambda batch: batch.revision)]
        for key, lives in list(self._lives.items()):
            kept = bisect_right(lives, revision, key=lambda life: life[0]) - 1
            if kept >= 0:
                del lives[: kept + (lives[kept][1] is None)]
            if not lives:
                del self._lives[key]
                del self._keys[bisect_left(self._keys, key)]

    async def close(self) -> None:
        self._open = False
        self._hub.close(closed())

    def _applied(self, write: Write, revision: int) -> Event | None:
        before = self._at(write.key, revision)
        if isinstance(write, Delete):
            if before is None:
                return None
            after = None
        else:
            created, version = (before.create_revision, before.version + 1) if before else (revision, 1)
            after = Entry(write.key, write.value, created, revision, version)
        if write.key not in self._lives:
            insort(self._keys, write.key)
        self._lives.setdefault(write.key, []).append((revision, after))
        return Event(write.key, revision, after, before)

    def _at(self, key: bytes, revision: int) -> Entry | None:
        lives = self._lives.get(key, [])
        found = bisect_right(lives, revision, key=lambda life: life[0])
        return lives[found - 1][1] if found else None

    async def check_readable(self, revision: int) -> None:
        self._readable(revision)

    async def past(self, prefix: bytes, after: int, up_to: int) -> Sequence[Batch]:
        self._readable(after)
        first = bisect_right(self._log, after, key=lambda batch: batch.revision)
        batches = [only(batch, prefix) for batch in self._log[first : first + PAST_BATCHES]]
        return batches or [Batch(up_to)]

    def _readable(self, revision: int | None) -> int:
        self._check_open()
        if revision is None:
            return self._hub.revision
        if revision < self._compacted:
            raise Compacted(revision, self._compacted)
        if revision > self._hub.revision:
            raise FutureRevision(revision, self._hub.revision)
        return revision

    def _check_open(self) -> None:
        if not self._open:
            raise closed()
