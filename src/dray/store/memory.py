"""A store in memory: the reference implementation of the protocol.

Theory of operation: each key has the list of its states, oldest first, and there is one log of batches. No
method awaits anything, so each is atomic in its event loop.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import AsyncGenerator, Sequence
from functools import partial

from dray.store.base import (
    FIRST_REVISION,
    MAX_BUFFERED_EVENTS,
    AsyncCloseMixin,
    Committed,
    Compare,
    Delete,
    EntryPage,
    EventBatch,
    SequenceCommitted,
    SequenceConflict,
    StoreEntry,
    StoreEvent,
    TxnConflict,
    TxnStep,
    Write,
    check_read,
    check_sequence,
    find_failed_compares,
    get_prefix_end,
    get_range_start,
    resolve_compares,
)
from dray.store.errors import CompactedError, FutureRevisionError
from dray.store.watch_broadcaster import WatchBroadcaster, build_closed_error, filter_batch

MAX_HISTORY_BATCHES = 1000

KeyHistory = list[tuple[int, StoreEntry | None]]


class MemoryStore(AsyncCloseMixin):
    """A store that ends with the process; for tests, and as the reference of the contract suite."""

    def __init__(self, buffered_events: int = MAX_BUFFERED_EVENTS) -> None:
        self._broadcaster = WatchBroadcaster(FIRST_REVISION, buffered_events)
        self._histories: dict[bytes, KeyHistory] = {}
        self._keys: list[bytes] = []
        self._log: list[EventBatch] = []
        self._compacted = 0
        self._open = True

    async def get_revision(self) -> int:
        self._check_open()
        return self._broadcaster.revision

    async def get(self, key: bytes, revision: int | None = None) -> StoreEntry | None:
        check_read(None, revision)
        return self._get_at(key, self._resolve_revision(revision))

    async def range(
        self,
        prefix: bytes,
        *,
        start_after: bytes | None = None,
        limit: int | None = None,
        revision: int | None = None,
    ) -> EntryPage:
        check_read(limit, revision)
        at = self._resolve_revision(revision)
        end = get_prefix_end(prefix)
        first = bisect_left(self._keys, get_range_start(prefix, start_after))
        last = len(self._keys) if end is None else bisect_left(self._keys, end)
        found: list[StoreEntry] = []
        for key in self._keys[first:last]:
            entry = self._get_at(key, at)
            if entry is None:
                continue
            if len(found) == limit:
                return EntryPage(tuple(found), at, more=True)
            found.append(entry)
        return EntryPage(tuple(found), at)

    async def txn(self, compares: Sequence[Compare], writes: Sequence[Write]) -> Committed | TxnConflict:
        outcome = await self.txn_sequence([TxnStep(tuple(compares), tuple(writes))])
        if isinstance(outcome, SequenceConflict):
            return TxnConflict(outcome.revision, outcome.failed)
        return Committed(outcome.revisions[0])

    async def txn_sequence(self, steps: Sequence[TxnStep]) -> SequenceCommitted | SequenceConflict:
        check_sequence(steps)
        begin = now = self._resolve_revision(None)
        revisions: list[int] = []
        batches: list[EventBatch] = []
        for number, step in enumerate(steps):
            compares = resolve_compares(step.compares, revisions)
            if failed := find_failed_compares(compares, partial(self._get_at, revision=now)):
                self._undo_writes(batches)
                return SequenceConflict(begin, number, failed)
            events = tuple(event for write in step.writes if (event := self._apply_write(write, now + 1)))
            if events:
                now += 1
                batches.append(EventBatch(now, events))
            revisions.append(now)
        self._log += batches
        self._broadcaster.publish(batches)
        return SequenceCommitted(tuple(revisions))

    def _undo_writes(self, batches: Sequence[EventBatch]) -> None:
        """Remove the states that the first steps of a sequence added before a later one failed."""
        for batch in batches:
            for event in batch.events:
                states = self._histories[event.key]
                states.pop()
                if not states:
                    del self._histories[event.key]
                    del self._keys[bisect_left(self._keys, event.key)]

    def watch(
        self, prefix: bytes, after_revision: int, *, bookmarks: float | None = None
    ) -> AsyncGenerator[EventBatch, None]:
        return self._broadcaster.watch(self, prefix, after_revision, bookmarks)

    async def compact(self, revision: int) -> None:
        self._check_open()
        if revision > self._broadcaster.revision:
            raise FutureRevisionError(revision, self._broadcaster.revision)
        if revision <= self._compacted:
            return
        self._compacted = revision
        del self._log[: bisect_right(self._log, revision, key=lambda batch: batch.revision)]
        for key, states in list(self._histories.items()):
            oldest = bisect_right(states, revision, key=lambda state: state[0]) - 1
            if oldest >= 0:
                del states[: oldest + (states[oldest][1] is None)]
            if not states:
                del self._histories[key]
                del self._keys[bisect_left(self._keys, key)]

    async def close(self) -> None:
        self._open = False
        self._broadcaster.close(build_closed_error())

    def _apply_write(self, write: Write, revision: int) -> StoreEvent | None:
        before = self._get_at(write.key, revision)
        if isinstance(write, Delete):
            if before is None:
                return None
            after = None
        else:
            created, version = (before.create_revision, before.version + 1) if before else (revision, 1)
            after = StoreEntry(write.key, write.value, created, revision, version)
        if write.key not in self._histories:
            insort(self._keys, write.key)
        self._histories.setdefault(write.key, []).append((revision, after))
        return StoreEvent(write.key, revision, after, before)

    def _get_at(self, key: bytes, revision: int) -> StoreEntry | None:
        states = self._histories.get(key, [])
        found = bisect_right(states, revision, key=lambda state: state[0])
        return states[found - 1][1] if found else None

    async def check_readable(self, revision: int) -> None:
        self._resolve_revision(revision)

    async def read_events(self, prefix: bytes, after: int, up_to: int) -> Sequence[EventBatch]:
        self._resolve_revision(after)
        first = bisect_right(self._log, after, key=lambda batch: batch.revision)
        batches = [filter_batch(batch, prefix) for batch in self._log[first : first + MAX_HISTORY_BATCHES]]
        return batches or [EventBatch(up_to)]

    def _resolve_revision(self, revision: int | None) -> int:
        self._check_open()
        if revision is None:
            return self._broadcaster.revision
        if revision < self._compacted:
            raise CompactedError(revision, self._compacted)
        if revision > self._broadcaster.revision:
            raise FutureRevisionError(revision, self._broadcaster.revision)
        return revision

    def _check_open(self) -> None:
        if not self._open:
            raise build_closed_error()
