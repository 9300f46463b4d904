"""The store in one file, as the event loop sees it.

Theory of operation: the writes of one turn of the event loop go to the writer's thread together, and come
back in groups through one call into the loop, which publishes the batches and wakes whoever waits, in that
order. Hence the hub stands at the newest acknowledged write, and `revision` asks nobody else. Reads run in a
few threads with one read-only connection each, single keys again one turn of the loop at a time. A read that
starts after a write was acknowledged sees it: it was committed. A read may also see a commit before its
writer hears of it; then it waits for the hub, or a later look at the hub would seem to go back in time.
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

from dray.store.base import (
    BUFFERED_EVENTS,
    Batch,
    Closing,
    Committed,
    Compare,
    Conflict,
    Entry,
    Page,
    Write,
    check_read,
    check_txn,
)
from dray.store.errors import Closed, Compacted, Damaged, OutcomeUnknown, StoreError, TooLarge
from dray.store.sqlite import queries
from dray.store.sqlite.backup import save
from dray.store.sqlite.compaction import Compaction
from dray.store.sqlite.database_file import Lock, connect, prepare
from dray.store.sqlite.group_commit import Job
from dray.store.sqlite.rows import PLACES, Head
from dray.store.sqlite.writer import Task, Writer
from dray.store.watch_broadcaster import Hub, closed

READERS = 2
T = TypeVar("T")
Asked = tuple[queries.Wanted, asyncio.Future[Entry | None]]


class SqliteStore(Closing):
    """Everything in one file that survives `kill -9` and power loss; one process at a time."""

    def __init__(self, path: Path, lock: Lock, head: Head, buffered_events: int) -> None:
        self._path = path
        self._lock = lock
        self._loop = asyncio.get_running_loop()
        self._hub = Hub(head.revision, buffered_events)
        self._stopped: StoreError | None = None
        self._jobs: list[Job] = []
        self._gets: list[Asked] = []
        self._reading: set[asyncio.Task[None]] = set()
        self._writer = Writer(path, connect(path, writer=True), head, self._delivered)
        self._saving = asyncio.Lock()
        self._own = threading.local()
        self._connections: list[sqlite3.Connection] = []
        self._readers = ThreadPoolExecutor(READERS, "dray-store-reader")

    @classmethod
    async def open(cls, path: Path, *, buffered_events: int = BUFFERED_EVENTS) -> Self:
        """Open the file, or create it; raises `OpenError` with what to do."""

        def checked() -> tuple[Lock, Head]:
            lock = Lock(path)
            try:
                return lock, prepare(path)
            except BaseException:
                lock.release()
                raise

        lock, head = await asyncio.to_thread(checked)
        return cls(path, lock, head, buffered_events)

    async def revision(self) -> int:
        if self._stopped is not None:
            raise self._stopped
        return self._hub.revision

    async def get(self, key: bytes, revision: int | None = None) -> Entry | None:
        check_read(None, revision)
        if self._stopped is not None:
            raise self._stopped
        answer: asyncio.Future[Entry | None] = self._loop.create_future()
        if not self._gets:
            self._loop.call_soon(self._send_gets)
        self._gets.append(((key, revision), answer))
        return await answer

    async def range(
        self,
        prefix: bytes,
        *,
        start_after: bytes | None = None,
        limit: int | None = None,
        revision: int | None = None,
    ) -> Page:
        check_read(limit, revision)
        page = await self._read(
            lambda connection: queries.page(connection, prefix, start_after, limit, revision)
        )
        await self._hub.reached(page.revision)
        return page

    async def txn(self, compares: Sequence[Compare], writes: Sequence[Write]) -> Committed | Conflict:
        check_txn(compares, writes)
        if len(writes) >= 1 << PLACES:
            raise TooLarge(f"a transaction writes at most {(1 << PLACES) - 1} keys, not {len(writes)}")
        outcome = await self._submit(Job(self._loop.create_future(), compares, writes))
        assert outcome is not None
        return outcome

    def watch(
        self, prefix: bytes, after_revision: int, *, bookmarks: float | None = None
    ) -> AsyncGenerator[Batch, None]:
        return self._hub.watch(self, prefix, after_revision, bookmarks)

    async def compact(self, revision: int) -> None:
        try:
            await self.check_readable(revision)
        except Compacted:
            return
        await self._submit(Task(self._loop.create_future(), chore=Compaction(revision)))

    async def backup(self, target: Path) -> int:
        """Copy the present state into a file of its own while others go on; returns its revision."""
        # One after the other: two that build the same file would take it from each other.
        async with self._saving:
            return await self._in_reader(lambda connection: save(connection, target))

    async def close(self) -> None:
        if self._writer.stopped:
            return
        self._send_jobs()
        self._stopped = self._stopped or closed()
        self._hub.close(self._stopped)
        await asyncio.to_thread(self._readers.shutdown)
        for connection in self._connections:
            connection.close()
        await asyncio.to_thread(self._writer.stop)
        self._lock.release()

    async def check_readable(self, revision: int) -> None:
        await self._read(lambda connection: queries.readable(connection, revision))

    async def past(self, prefix: bytes, after: int, up_to: int) -> Sequence[Batch]:
        return await self._read(lambda connection: queries.past(connection, prefix, after, up_to))

    async def _submit(self, job: Job) -> Committed | Conflict | None:
        if self._stopped is not None:
            raise self._stopped
        if not self._jobs:
            self._loop.call_soon(self._send_jobs)
        self._jobs.append(job)
        assert isinstance(job.sender, asyncio.Future)
        outcome: Committed | Conflict | None = await job.sender
        return outcome

    def _send_jobs(self) -> None:
        """Hand over what was submitted in this turn of the loop; it shares one commit."""
        jobs, self._jobs = self._jobs, []
        self._writer.submit(jobs)

    def _delivered(self, jobs: list[Job]) -> None:
        """Called by the writer's thread."""
        # A loop that is gone has nobody left who waits.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._answer, jobs)

    def _answer(self, jobs: list[Job]) -> None:
        self._hub.publish(job.batch for job in jobs if job.batch is not None)
        for job in jobs:
            sender, outcome = job.sender, job.outcome
            assert isinstance(sender, asyncio.Future)
            if isinstance(outcome, StoreError):
                self._note_failure(outcome)
                if not sender.done():
                    sender.set_exception(outcome)
            elif not sender.done():
                sender.set_result(outcome)

    def _send_gets(self) -> None:
        asked, self._gets = self._gets, []
        reading = self._loop.create_task(self._answer_gets(asked))
        self._reading.add(reading)
        reading.add_done_callback(self._reading.discard)

    async def _answer_gets(self, asked: list[Asked]) -> None:
        wanted = [want for want, _ in asked]
        answers: Sequence[Entry | Exception | None]
        try:
            seen, answers = await self._read(lambda connection: queries.gets(connection, wanted))
            await self._hub.reached(seen)
        except Exception as error:
            answers = [error] * len(asked)
        for (_, future), answer in zip(asked, answers, strict=True):
            if future.done():
                continue
            if isinstance(answer, Exception):
                future.set_exception(answer)
            else:
                future.set_result(answer)

    def _note_failure(self, outcome: object) -> None:
        """A store that cannot trust its disk serves nothing more, or it would serve what is not there."""
        if isinstance(outcome, OutcomeUnknown | Damaged) and self._stopped is None:
            self._stopped = Closed(f"the store has stopped: {outcome}")
            self._hub.close(self._stopped)

    async def _read(self, question: Callable[[sqlite3.Connection], T]) -> T:
        return await self._in_reader(lambda connection: queries.in_snapshot(connection, question))

    async def _in_reader(self, work: Callable[[sqlite3.Connection], T]) -> T:
        if self._stopped is not None:
            raise self._stopped
        try:
            return await self._loop.run_in_executor(self._readers, lambda: work(self._connection()))
        except sqlite3.DatabaseError as error:
            raise Damaged(f"cannot read `{self._path}`: {error}") from error

    def _connection(self) -> sqlite3.Connection:
        """The connection of this reader thread."""
        connection: sqlite3.Connection | None = getattr(self._own, "connection", None)
        if connection is None:
            connection = self._own.connection = connect(self._path, writer=False)
            self._connections.append(connection)
        return connection
