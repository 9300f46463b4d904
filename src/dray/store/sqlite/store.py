"""The SQLite store, as the event loop sees it.

Theory of operation: the writes of one iteration of the event loop go to the writer's thread together, and
come back in groups through one call into the loop, which publishes the batches and wakes the waiters, in that
order. So the broadcaster is at the newest acknowledged write, and `get_revision` reads its revision. Reads
run in a few threads with one read-only connection each; reads of single keys are also batched per iteration.
A read that starts after a write was acknowledged sees it, because it was committed. A read may also see a
commit before its writer is notified; then it waits for the broadcaster, or a later look at the broadcaster
would seem to go back in time.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import threading
from collections.abc import AsyncGenerator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Self, TypeVar

from dray.durable import FileLock
from dray.store.base import (
    MAX_BUFFERED_EVENTS,
    AsyncCloseMixin,
    Committed,
    Compare,
    EntryPage,
    EventBatch,
    SequenceCommitted,
    SequenceConflict,
    StoreEntry,
    TxnConflict,
    TxnStep,
    Write,
    check_read,
    check_sequence,
    check_txn,
)
from dray.store.errors import (
    CompactedError,
    CorruptStoreError,
    OutcomeUnknownError,
    StoreClosedError,
    StoreError,
    TxnTooLargeError,
)
from dray.store.records import CommitRecord
from dray.store.sqlite import queries
from dray.store.sqlite.backup import save_copy
from dray.store.sqlite.compaction import SqliteCompaction
from dray.store.sqlite.database_file import connect, lock_store, prepare_file
from dray.store.sqlite.group_commit import JobOutcome, SequenceJob, WriterJob
from dray.store.sqlite.rows import INDEX_BITS, StoreHead
from dray.store.sqlite.writer import BackgroundJob, SqliteWriter
from dray.store.watch_broadcaster import WatchBroadcaster, build_closed_error

READER_THREADS = 2
T = TypeVar("T")
PendingGet = tuple[queries.GetRequest, asyncio.Future[StoreEntry | None]]


class SqliteStore(AsyncCloseMixin):
    """A store in one file that survives `kill -9` and power loss; one process at a time."""

    def __init__(self, path: Path, lock: FileLock, head: StoreHead, buffered_events: int) -> None:
        self._path = path
        self._lock = lock
        self._loop = asyncio.get_running_loop()
        self._broadcaster = WatchBroadcaster(head.revision, buffered_events)
        self._stop_error: StoreError | None = None
        self._pending_jobs: list[WriterJob] = []
        self._pending_gets: list[PendingGet] = []
        self._get_tasks: set[asyncio.Task[None]] = set()
        self._writer = SqliteWriter(path, connect(path, writer=True), head, self._deliver_jobs)
        self._backup_lock = asyncio.Lock()
        self._thread_local = threading.local()
        self._connections: list[sqlite3.Connection] = []
        self._readers = ThreadPoolExecutor(READER_THREADS, "dray-store-reader")

    @classmethod
    async def open(cls, path: Path, *, buffered_events: int = MAX_BUFFERED_EVENTS) -> Self:
        """Open the file, or create it; raises `StoreOpenError` with what to do."""

        def lock_and_prepare() -> tuple[FileLock, StoreHead]:
            lock = lock_store(path)
            try:
                return lock, prepare_file(path)
            except BaseException:
                lock.release()
                raise

        lock, head = await asyncio.to_thread(lock_and_prepare)
        return cls(path, lock, head, buffered_events)

    async def get_revision(self) -> int:
        if self._stop_error is not None:
            raise self._stop_error
        return self._broadcaster.revision

    async def get(self, key: bytes, revision: int | None = None) -> StoreEntry | None:
        check_read(None, revision)
        if self._stop_error is not None:
            raise self._stop_error
        answer: asyncio.Future[StoreEntry | None] = self._loop.create_future()
        if not self._pending_gets:
            self._loop.call_soon(self._flush_gets)
        self._pending_gets.append(((key, revision), answer))
        return await answer

    async def range(
        self,
        prefix: bytes,
        *,
        start_after: bytes | None = None,
        limit: int | None = None,
        revision: int | None = None,
    ) -> EntryPage:
        check_read(limit, revision)
        page = await self._read(
            lambda connection: queries.read_page(connection, prefix, start_after, limit, revision)
        )
        await self._broadcaster.wait_for_revision(page.revision)
        return page

    async def txn(self, compares: Sequence[Compare], writes: Sequence[Write]) -> Committed | TxnConflict:
        return await self._submit_txn(compares, writes, None)

    async def txn_recorded(
        self, compares: Sequence[Compare], writes: Sequence[Write], record: CommitRecord
    ) -> Committed | TxnConflict:
        return await self._submit_txn(compares, writes, record)

    async def txn_sequence(self, steps: Sequence[TxnStep]) -> SequenceCommitted | SequenceConflict:
        return await self._submit_sequence(steps, None)

    async def txn_sequence_recorded(
        self, steps: Sequence[TxnStep], record: CommitRecord
    ) -> SequenceCommitted | SequenceConflict:
        return await self._submit_sequence(steps, record)

    def watch(
        self, prefix: bytes, after_revision: int, *, bookmarks: float | None = None
    ) -> AsyncGenerator[EventBatch, None]:
        return self._broadcaster.watch(self, prefix, after_revision, bookmarks)

    async def compact(self, revision: int) -> None:
        try:
            await self.check_readable(revision)
        except CompactedError:
            return
        await self._submit(BackgroundJob(self._loop.create_future(), task=SqliteCompaction(revision)))

    async def backup(self, target: Path) -> int:
        """Copy the current state into a file of its own while others write; returns its revision."""
        # One after the other: two that build the same file would remove it from each other.
        async with self._backup_lock:
            return await self._run_in_reader(lambda connection: save_copy(connection, target))

    async def close(self) -> None:
        if self._writer.stopped:
            return
        self._flush_jobs()
        self._stop_error = self._stop_error or build_closed_error()
        self._broadcaster.close(self._stop_error)
        await asyncio.to_thread(self._readers.shutdown)
        for connection in self._connections:
            connection.close()
        await asyncio.to_thread(self._writer.stop)
        self._lock.release()

    async def check_readable(self, revision: int) -> None:
        await self._read(lambda connection: queries.resolve_revision(connection, revision))

    async def read_events(self, prefix: bytes, after: int, up_to: int) -> Sequence[EventBatch]:
        return await self._read(lambda connection: queries.read_events(connection, prefix, after, up_to))

    async def _submit_txn(
        self, compares: Sequence[Compare], writes: Sequence[Write], record: CommitRecord | None
    ) -> Committed | TxnConflict:
        check_txn(compares, writes)
        if len(writes) >= 1 << INDEX_BITS:
            raise TxnTooLargeError(
                f"a transaction writes at most {(1 << INDEX_BITS) - 1} keys, not {len(writes)}"
            )
        outcome = await self._submit(WriterJob(self._loop.create_future(), compares, writes, record=record))
        assert isinstance(outcome, Committed | TxnConflict)
        return outcome

    async def _submit_sequence(
        self, steps: Sequence[TxnStep], record: CommitRecord | None
    ) -> SequenceCommitted | SequenceConflict:
        check_sequence(steps)
        outcome = await self._submit(SequenceJob(self._loop.create_future(), record=record, steps=steps))
        assert isinstance(outcome, SequenceCommitted | SequenceConflict)
        return outcome

    async def _submit(self, job: WriterJob) -> JobOutcome:
        if self._stop_error is not None:
            raise self._stop_error
        if not self._pending_jobs:
            self._loop.call_soon(self._flush_jobs)
        self._pending_jobs.append(job)
        assert isinstance(job.waiter, asyncio.Future)
        outcome: JobOutcome = await job.waiter
        return outcome

    def _flush_jobs(self) -> None:
        """Submit the jobs of this iteration of the loop; they share one commit."""
        jobs, self._pending_jobs = self._pending_jobs, []
        self._writer.submit(jobs)

    def _deliver_jobs(self, jobs: list[WriterJob]) -> None:
        """Deliver finished jobs to the loop; the writer's thread calls this."""
        # A closed loop has no waiters left.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._resolve_jobs, jobs)

    def _resolve_jobs(self, jobs: list[WriterJob]) -> None:
        self._broadcaster.publish(batch for job in jobs for batch in job.batches)
        for job in jobs:
            sender, outcome = job.waiter, job.outcome
            assert isinstance(sender, asyncio.Future)
            if isinstance(outcome, StoreError):
                self._record_failure(outcome)
                if not sender.done():
                    sender.set_exception(outcome)
            elif not sender.done():
                sender.set_result(outcome)

    def _flush_gets(self) -> None:
        pending, self._pending_gets = self._pending_gets, []
        reading = self._loop.create_task(self._resolve_gets(pending))
        self._get_tasks.add(reading)
        reading.add_done_callback(self._get_tasks.discard)

    async def _resolve_gets(self, pending: list[PendingGet]) -> None:
        wanted = [want for want, _ in pending]
        answers: Sequence[StoreEntry | Exception | None]
        try:
            seen, answers = await self._read(lambda connection: queries.get_entries(connection, wanted))
            await self._broadcaster.wait_for_revision(seen)
        except Exception as error:
            answers = [error] * len(pending)
        for (_, future), answer in zip(pending, answers, strict=True):
            if future.done():
                continue
            if isinstance(answer, Exception):
                future.set_exception(answer)
            else:
                future.set_result(answer)

    def _record_failure(self, outcome: object) -> None:
        """Stop the store: one that cannot trust its disk must serve nothing more."""
        if isinstance(outcome, OutcomeUnknownError | CorruptStoreError) and self._stop_error is None:
            self._stop_error = StoreClosedError(f"the store has stopped: {outcome}")
            self._broadcaster.close(self._stop_error)

    async def _read(self, query: Callable[[sqlite3.Connection], T]) -> T:
        return await self._run_in_reader(lambda connection: queries.run_in_snapshot(connection, query))

    async def _run_in_reader(self, work: Callable[[sqlite3.Connection], T]) -> T:
        if self._stop_error is not None:
            raise self._stop_error
        try:
            return await self._loop.run_in_executor(self._readers, lambda: work(self._get_connection()))
        except sqlite3.DatabaseError as error:
            raise CorruptStoreError(f"cannot read `{self._path}`: {error}") from error

    def _get_connection(self) -> sqlite3.Connection:
        """Return the connection of this reader thread."""
        connection: sqlite3.Connection | None = getattr(self._thread_local, "connection", None)
        if connection is None:
            connection = self._thread_local.connection = connect(self._path, writer=False)
            self._connections.append(connection)
        return connection
