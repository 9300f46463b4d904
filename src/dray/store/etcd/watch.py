"""A watch on etcd that goes on when a member goes away.

Theory of operation: one stream per watch. A reader task moves what arrives into a bounded buffer; whoever
drains it sees the same batches as with any other store. When the stream breaks, the task opens a new one, at
another member, right after the last revision that was put into the buffer: etcd promises that a watch from a
revision on misses nothing and repeats nothing. Before each opening the history is asked for that revision,
because etcd starts a watch at a revision whose deletes were just compacted away without a word.

An etcd that others use too moves on without a change of ours, and a watch that waits for its next bookmark
would hold up whoever must have come that far. So it is told what somebody waits for (`hurry`), and asks.

Rules for this file: revisions come from events or progress messages, never from elsewhere: only those stand
in the order of the stream.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from typing import Any

import grpc
import grpc.aio

from dray.store.base import FIRST_REVISION, Batch, Entry, Event
from dray.store.errors import Compacted, StoreError, Unreachable
from dray.store.etcd.client import FIRST_PAUSE, LONGEST_PAUSE, Line
from dray.store.etcd.messages import CLASSES
from dray.store.watch_broadcaster import Buffer

DELETED = 1
PATIENCE = 60.0
"""How many seconds a watch looks for a member that answers before it gives up."""

GRACE = 0.01
"""How many seconds a change may be on its way before somebody who waits has us ask for it."""

ToEntry = Callable[[Any], Entry]
Check = Callable[[int], Awaitable[int]]
"""Raises when the history does not reach back to a revision; returns where the store stands."""


class EtcdWatch:
    """One watch: from a revision on, across as many streams as it takes."""

    def __init__(self, line: Line, buffer: Buffer, create: Any, to_entry: ToEntry) -> None:
        self._line = line
        self._buffer = buffer
        self._create = create
        self._to_entry = to_entry
        self.cursor = 0
        self._present = 0
        self._wanted = 0
        self._hurry = asyncio.Event()

    async def batches(
        self, after: int, check: Check, ask_progress: float | None
    ) -> AsyncGenerator[Batch, None]:
        """Everything after `after`; with `ask_progress`, the server is asked so often how far it is."""
        self.cursor = self._buffer.handed_out = max(after, FIRST_REVISION)
        await check(self.cursor)
        reader = asyncio.create_task(self._read(check, ask_progress), name="dray-etcd-watch")
        try:
            while True:
                batch = await self._buffer.get(None)
                if batch is not None:
                    yield batch
        finally:
            reader.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await reader

    def hurry(self, revision: int) -> None:
        """Somebody waits until the watch has come to `revision`."""
        if revision > max(self.cursor, self._wanted):
            self._wanted = revision
            self._hurry.set()

    async def _read(self, check: Check, ask_progress: float | None) -> None:
        loop = asyncio.get_running_loop()
        pause, heard = FIRST_PAUSE, loop.time()
        try:
            while True:
                member, before = self._line.using, self.cursor
                try:
                    self._present = await check(self.cursor)
                    await self._one_stream(ask_progress)
                except (grpc.aio.AioRpcError, Unreachable) as error:
                    if self.cursor > before:
                        pause, heard = FIRST_PAUSE, loop.time()
                    if loop.time() - heard > PATIENCE:
                        raise Unreachable(
                            f"the watch lost etcd for {PATIENCE:.0f} seconds: {error}"
                        ) from error
                self._line.move_on(member)
                await asyncio.sleep(pause)
                pause = min(pause * 2, LONGEST_PAUSE)
        except StoreError as error:
            self._buffer.fail(error)
        except Exception as error:
            self._buffer.fail(Unreachable(f"the watch on etcd broke: {error}"))

    async def _one_stream(self, ask_progress: float | None) -> None:
        stream = self._line.stream("Watch")
        self._create.start_revision = self.cursor + 1
        asking: asyncio.Task[None] | None = None
        try:
            await stream.write(CLASSES["WatchRequest"](create_request=self._create))
            if ask_progress is not None:
                asking = asyncio.create_task(self._ask_progress(stream, ask_progress))
            while (response := await stream.read()) is not grpc.aio.EOF:
                catching_up = self.cursor < self._present
                self._take(response, bounded=not catching_up)
                if catching_up:
                    # The past can wait in etcd; only who cannot follow the present is cut off.
                    await self._buffer.drained()
                if response.canceled:
                    return
        finally:
            if asking is not None:
                asking.cancel()
            stream.cancel()

    async def _ask_progress(self, stream: Any, period: float) -> None:
        request = CLASSES["WatchRequest"](progress_request=CLASSES["WatchProgressRequest"]())
        with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
            while True:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._hurry.wait(), period)
                    self._hurry.clear()
                    wanted = self._wanted
                    # What is on its way comes by itself.
                    await asyncio.sleep(GRACE)
                    if self.cursor >= wanted:
                        continue
                await stream.write(request)

    def _take(self, response: Any, *, bounded: bool) -> None:
        if response.compact_revision:
            raise Compacted(self.cursor, response.compact_revision)
        if response.created or response.canceled:
            return
        for batch in self._batches_in(response):
            if batch.revision > self.cursor:
                self._buffer.put(batch, bounded=bounded)
                self.cursor = batch.revision
        if not response.events:
            self.cursor = max(self.cursor, response.header.revision)
            self._buffer.put(Batch(self.cursor))

    def _batches_in(self, response: Any) -> Iterator[Batch]:
        """Events in order, cut where the revision changes; etcd never splits a revision over responses."""
        revision, events = 0, list[Event]()
        for event in response.events:
            if event.kv.mod_revision != revision:
                if events:
                    yield Batch(revision, tuple(events))
                revision, events = event.kv.mod_revision, []
            current = None if event.type == DELETED else self._to_entry(event.kv)
            previous = self._to_entry(event.prev_kv) if event.HasField("prev_kv") else None
            if previous is None and (current is None or current.version > 1):
                # etcd looks it up late, and leaves it out without a word when it was compacted meanwhile.
                raise Compacted(self.cursor)
            key = current.key if current else self._to_entry(event.kv).key
            events.append(Event(key, revision, current, previous))
        if events:
            yield Batch(revision, tuple(events))
