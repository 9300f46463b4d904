"""A watch on etcd that survives the loss of a member.

Theory of operation: one stream per watch. A reader task moves what arrives into a bounded buffer; the
consumer sees the same batches as with any other store. When the stream breaks, the task opens a new one, at
another member, right after the last revision that was put into the buffer: etcd promises that a watch from a
revision on misses nothing and repeats nothing. Before each opening the task checks that the history reaches
back to that revision, because etcd silently starts a watch at a revision whose deletes were just compacted
away.

Other users of the same etcd advance its revision without a change of ours, and a watch that waits for its
next bookmark would delay everyone who waits for that revision. So waiters announce the revision
(`request_progress`), and the watch requests a progress message.

Revisions come from events or progress messages only, because only those are ordered in the stream.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from typing import Any

import grpc
import grpc.aio

from dray.store.base import FIRST_REVISION, EventBatch, StoreEntry, StoreEvent
from dray.store.errors import CompactedError, StoreError, StoreUnreachableError
from dray.store.etcd.client import INITIAL_BACKOFF, MAX_BACKOFF, EtcdClient
from dray.store.etcd.messages import CLASSES
from dray.store.watch_buffer import WatchBuffer

DELETED = 1
RECONNECT_TIMEOUT = 60.0
"""How many seconds a watch looks for a member that answers before it gives up."""

PROGRESS_DELAY = 0.01
"""How many seconds a change may be on its way before a waiter makes the watch request progress."""

DecodeEntry = Callable[[Any], StoreEntry]
CheckReadable = Callable[[int], Awaitable[int]]
"""Raises when the history does not reach back to a revision; returns the current revision."""


class EtcdWatch:
    """One watch from a revision on, across as many streams as it takes."""

    def __init__(
        self, client: EtcdClient, buffer: WatchBuffer, create: Any, decode_entry: DecodeEntry
    ) -> None:
        self._client = client
        self._buffer = buffer
        self._create = create
        self._decode_entry = decode_entry
        self.cursor = 0
        self._store_revision = 0
        self._requested_revision = 0
        self._progress_requested = asyncio.Event()

    async def stream_batches(
        self, after: int, check_readable: CheckReadable, progress_interval: float | None
    ) -> AsyncGenerator[EventBatch, None]:
        """Yield everything after `after`; with `progress_interval`, request progress that often."""
        self.cursor = self._buffer.delivered_revision = max(after, FIRST_REVISION)
        await check_readable(self.cursor)
        reader = asyncio.create_task(self._run(check_readable, progress_interval), name="dray-etcd-watch")
        try:
            while True:
                batch = await self._buffer.get(None)
                if batch is not None:
                    yield batch
        finally:
            reader.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await reader

    def request_progress(self, revision: int) -> None:
        """Request progress, because somebody waits for `revision`."""
        if revision > max(self.cursor, self._requested_revision):
            self._requested_revision = revision
            self._progress_requested.set()

    async def _run(self, check_readable: CheckReadable, progress_interval: float | None) -> None:
        loop = asyncio.get_running_loop()
        pause, heard = INITIAL_BACKOFF, loop.time()
        try:
            while True:
                member, before = self._client.active_member, self.cursor
                try:
                    self._store_revision = await check_readable(self.cursor)
                    await self._consume_stream(progress_interval)
                except (grpc.aio.AioRpcError, StoreUnreachableError) as error:
                    if self.cursor > before:
                        pause, heard = INITIAL_BACKOFF, loop.time()
                    if loop.time() - heard > RECONNECT_TIMEOUT:
                        raise StoreUnreachableError(
                            f"the watch lost etcd for {RECONNECT_TIMEOUT:.0f} seconds: {error}"
                        ) from error
                self._client.switch_member(member)
                await asyncio.sleep(pause)
                pause = min(pause * 2, MAX_BACKOFF)
        except StoreError as error:
            self._buffer.fail(error)
        except Exception as error:
            self._buffer.fail(StoreUnreachableError(f"the watch on etcd broke: {error}"))

    async def _consume_stream(self, progress_interval: float | None) -> None:
        stream = self._client.open_stream("Watch")
        self._create.start_revision = self.cursor + 1
        polling: asyncio.Task[None] | None = None
        try:
            await stream.write(CLASSES["WatchRequest"](create_request=self._create))
            if progress_interval is not None:
                polling = asyncio.create_task(self._poll_progress(stream, progress_interval))
            while (response := await stream.read()) is not grpc.aio.EOF:
                catching_up = self.cursor < self._store_revision
                self._buffer_response(response, bounded=not catching_up)
                if catching_up:
                    # The past can wait in etcd; only a reader that cannot follow the present is cut off.
                    await self._buffer.wait_until_drained()
                if response.canceled:
                    return
        finally:
            if polling is not None:
                polling.cancel()
            stream.cancel()

    async def _poll_progress(self, stream: Any, period: float) -> None:
        request = CLASSES["WatchRequest"](progress_request=CLASSES["WatchProgressRequest"]())
        with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
            while True:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._progress_requested.wait(), period)
                    self._progress_requested.clear()
                    wanted = self._requested_revision
                    # A change that is on its way arrives by itself.
                    await asyncio.sleep(PROGRESS_DELAY)
                    if self.cursor >= wanted:
                        continue
                await stream.write(request)

    def _buffer_response(self, response: Any, *, bounded: bool) -> None:
        if response.compact_revision:
            raise CompactedError(self.cursor, response.compact_revision)
        if response.created or response.canceled:
            return
        for batch in self._decode_batches(response):
            if batch.revision > self.cursor:
                self._buffer.put(batch, bounded=bounded)
                self.cursor = batch.revision
        if not response.events:
            self.cursor = max(self.cursor, response.header.revision)
            self._buffer.put(EventBatch(self.cursor))

    def _decode_batches(self, response: Any) -> Iterator[EventBatch]:
        """Yield events in order, split where the revision changes; etcd never splits a revision over
        responses.
        """
        revision, events = 0, list[StoreEvent]()
        for event in response.events:
            if event.kv.mod_revision != revision:
                if events:
                    yield EventBatch(revision, tuple(events))
                revision, events = event.kv.mod_revision, []
            current = None if event.type == DELETED else self._decode_entry(event.kv)
            previous = self._decode_entry(event.prev_kv) if event.HasField("prev_kv") else None
            if previous is None and (current is None or current.version > 1):
                # etcd reads the previous value late, and silently omits it when it was compacted meanwhile.
                raise CompactedError(self.cursor)
            key = current.key if current else self._decode_entry(event.kv).key
            events.append(StoreEvent(key, revision, current, previous))
        if events:
            yield EventBatch(revision, tuple(events))
