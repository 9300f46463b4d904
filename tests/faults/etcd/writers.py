"""Writers that go on whatever happens and record what was acknowledged, and the check of the record."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from itertools import pairwise

from dray.store import Committed, KeyAbsent, KeyUnchanged, Put, Store
from dray.store.errors import OutcomeUnknownError, StoreError
from tests.faults.etcd.field import Field

WRITERS = 3
DEVICE = b"device"
PATIENCE = 3.0


@dataclass
class Record:
    """What the store acknowledged to the writers."""

    acknowledged: dict[bytes, int] = field(default_factory=dict)
    """Key to the revision at which it was written."""
    moments: list[float] = field(default_factory=list)
    taken: dict[int, bytes] = field(default_factory=dict)
    """Revision to the value under the shared key."""
    unknown: int = 0
    failed: int = 0

    def silence(self, since: float, until: float) -> float:
        """The longest time without an acknowledgement."""
        inside = [moment for moment in self.moments if since <= moment <= until]
        return max(later - earlier for earlier, later in pairwise([since, *inside, until]))

    def count(self, since: float, until: float) -> int:
        return sum(since <= moment <= until for moment in self.moments)


class Writers:
    """Writes through every member, until stopped."""

    def __init__(self, place: Field, prefix: bytes, value: bytes) -> None:
        self._field = place
        self._prefix = prefix
        self._value = value
        self.record = Record()
        self._tasks: list[asyncio.Task[None]] = []

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[Record]:
        """Write while the block runs."""
        async with contextlib.AsyncExitStack() as stack:
            for number in range(WRITERS):
                store = await stack.enter_async_context(
                    await self._field.store(number, PATIENCE, self._prefix)
                )
                self._tasks.append(asyncio.create_task(self._write(store, number)))
            try:
                yield self.record
            finally:
                for task in self._tasks:
                    task.cancel()
                ends = await asyncio.gather(*self._tasks, return_exceptions=True)
            broken = [end for end in ends if not isinstance(end, asyncio.CancelledError)]
            assert not broken, broken

    async def _write(self, store: Store, writer: int) -> None:
        for number in range(10**9):
            try:
                await self._own(store, b"own/%d/%d" % (writer, number))
                await self._shared(store, writer)
            except OutcomeUnknownError:
                self.record.unknown += 1
            except StoreError:
                self.record.failed += 1
                await asyncio.sleep(0.05)

    async def _own(self, store: Store, key: bytes) -> None:
        outcome = await store.txn([KeyAbsent(key)], [Put(key, self._value)])
        assert isinstance(outcome, Committed), f"{key!r} was there before"
        self.record.acknowledged[key] = outcome.revision
        self.record.moments.append(time.monotonic())

    async def _shared(self, store: Store, writer: int) -> None:
        seen = await store.get(DEVICE)
        against = seen.mod_revision if seen else 0
        value = b"%d %d" % (writer, against)
        outcome = await store.txn([KeyUnchanged(DEVICE, against)], [Put(DEVICE, value)])
        if isinstance(outcome, Committed):
            self.record.taken[outcome.revision] = value


async def judge(store: Store, start: int, record: Record) -> list[str]:
    """Compare what was acknowledged with the history."""
    found: dict[bytes, list[int]] = {}
    taken: dict[int, bytes] = {}
    wrong: list[str] = []
    end = await store.get_revision()
    async with contextlib.aclosing(store.watch(b"", start, bookmarks=0.05)) as batches:
        async for batch in batches:
            for event in batch.events:
                found.setdefault(event.key, []).append(event.revision)
                if event.key == DEVICE and event.entry is not None:
                    taken[event.revision] = event.entry.value
                    before = event.previous.mod_revision if event.previous else 0
                    if int(event.entry.value.split()[1]) != before:
                        wrong.append(f"accepted against a past state: {event}")
            if batch.revision >= end:
                break
    wrong += [f"lost: {key!r}" for key, at in record.acknowledged.items() if found.get(key) != [at]]
    wrong += [f"lost: device at {at}" for at, value in record.taken.items() if taken.get(at) != value]
    return wrong
