"""The one thread that writes: many waiting transactions, one commit.

Theory of operation: transactions wait in a queue. The writer takes all of them, passes their records to the
log (`records`), executes them one after the other (`group_commit`), each with its own revision, and commits
once: one fsync for all. Only then are the outcomes and the batches delivered to the event loop, in order. A
transaction whose compares fail writes nothing and is answered with the others. While the queue is empty the
writer runs background jobs (compaction) in small steps.

A failure fails the whole group, which then never happened: SQLite rolls it back. A full disk is reported, and
the next group may try again. After any other disk error, above all a failed fsync, the content of the disk is
unknown, so the writer stops for good and reports that. It never repeats an fsync: the kernel may have dropped
the pages and report success.

No other thread uses this connection; nothing here awaits.
"""

from __future__ import annotations

import contextlib
import os
import queue
import sqlite3
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from dray.store.errors import (
    CorruptStoreError,
    OutcomeUnknownError,
    StoreClosedError,
    StoreError,
    StoreWriteError,
)
from dray.store.sqlite.database_file import connect
from dray.store.sqlite.group_commit import (
    GroupWrites,
    RecentEntryCache,
    WriterJob,
    collect_keys,
    execute_jobs,
    read_key_states,
    record_jobs,
    write_group,
)
from dray.store.sqlite.rows import StoreHead, write_head

MAX_GROUP_JOBS = 512
"""How many waiting transactions share a commit; limits how long the first of them waits."""
CHECKPOINT_COMMITS = 500
CHECKPOINT_BYTES = 8 << 20
"""After so many commits, or so many bytes, the write-ahead log is checkpointed into the file."""
MAX_WAL_BYTES = 64 << 20
"""A log that grew beyond this, because readers kept it busy, is truncated as soon as they finish."""

# The disk refused the data, and nothing of it counts as written: the log ends before it.
NOT_WRITTEN_CODES = {sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_WRITE, sqlite3.SQLITE_IOERR_SHMSIZE}


class BackgroundTask(Protocol):
    """Work in small steps, each a commit of its own between those of the transactions."""

    def step(self, connection: sqlite3.Connection, head: StoreHead) -> StoreHead | None:
        """Do one step; returns the new head, or None when everything is done."""
        ...

    def run_after_commit(self, connection: sqlite3.Connection) -> None:
        """Do what is not possible inside a transaction."""
        ...


@dataclass(slots=True, eq=False)
class BackgroundJob(WriterJob):
    """A background task on its way through the writer."""

    task: BackgroundTask = field(kw_only=True)


DeliverJobs = Callable[[list[WriterJob]], None]


class SqliteWriter:
    """Owns the writing connection and its thread."""

    def __init__(
        self, path: Path, connection: sqlite3.Connection, head: StoreHead, deliver: DeliverJobs
    ) -> None:
        self._path = path
        self._connection = connection
        self._head = head
        self._deliver = deliver
        self._queue: queue.SimpleQueue[list[WriterJob] | None] = queue.SimpleQueue()
        self._background_jobs: list[BackgroundJob] = []
        self._recent_entries = RecentEntryCache()
        self._failure: StoreError | None = None
        self._commits = 0
        self._bytes = 0
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="dray-store-writer", daemon=True)
        self._thread.start()

    def submit(self, jobs: list[WriterJob]) -> None:
        """Queue transactions or background jobs; those that fit share one commit."""
        for start in range(0, len(jobs), MAX_GROUP_JOBS):
            self._queue.put(jobs[start : start + MAX_GROUP_JOBS])

    @property
    def stopped(self) -> bool:
        return not self._thread.is_alive()

    def stop(self) -> None:
        """Finish the queue, checkpoint, and end the thread; the connection is closed afterwards."""
        self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        while not self._stopping:
            jobs = self._take_jobs()
            if self._failure is not None:
                self._reject_jobs([*jobs, *self._background_jobs])
                self._background_jobs = []
                continue
            self._background_jobs += [job for job in jobs if isinstance(job, BackgroundJob)]
            self._commit([job for job in jobs if not isinstance(job, BackgroundJob)])
            self._step_background_job()
            self._checkpoint_if_due()
        self._finish()

    def _take_jobs(self) -> list[WriterJob]:
        """Take everything from the queue; waits for the first unless there is a background job."""
        jobs: list[WriterJob] = []
        try:
            while len(jobs) < MAX_GROUP_JOBS:
                more = self._queue.get(block=not jobs and not self._background_jobs)
                if more is None:
                    self._stopping = True
                    return jobs
                jobs += more
        except queue.Empty:
            pass
        return jobs

    def _commit(self, jobs: list[WriterJob]) -> None:
        if not jobs:
            return
        recorded = record_jobs(jobs)
        try:
            state, unknown = self._recent_entries.look_up(collect_keys(recorded))
            if unknown:
                state |= read_key_states(self._connection, unknown)
            work = execute_jobs(recorded, self._head, state)
            if work.rows:
                self._write_group(work)
            self._recent_entries.remember(state)
        except Exception as error:
            self._fail(recorded, error)
        self._deliver(jobs)

    def _write_group(self, writes: GroupWrites) -> None:
        connection = self._connection
        connection.execute("BEGIN IMMEDIATE")
        write_group(connection, writes)
        write_head(connection, writes.head)
        connection.execute("COMMIT")
        self._head = writes.head
        self._commits += 1
        self._bytes += sum(len(row[5] or b"") for row in writes.rows)

    def _step_background_job(self) -> None:
        """Run one step of the oldest background job, as one commit."""
        if not self._background_jobs or self._failure is not None:
            return
        job = self._background_jobs[0]
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            head = job.task.step(self._connection, self._head)
            if head is not None:
                write_head(self._connection, head)
            self._connection.execute("COMMIT")
            job.task.run_after_commit(self._connection)
            if head is not None:
                self._head = head
                return
        except Exception as error:
            self._fail([job], error)
        self._background_jobs.pop(0)
        self._checkpoint("PASSIVE")
        self._deliver([job])

    def _checkpoint_if_due(self) -> None:
        if self._commits >= CHECKPOINT_COMMITS or self._bytes >= CHECKPOINT_BYTES:
            self._commits = self._bytes = 0
            # Overwriting the log in place is cheaper than growing it anew, so it is truncated only when too
            # long.
            self._checkpoint("TRUNCATE" if self._read_wal_size() > MAX_WAL_BYTES else "PASSIVE")

    def _read_wal_size(self) -> int:
        with contextlib.suppress(OSError):
            return os.stat(f"{self._path}-wal").st_size
        return 0

    def _checkpoint(self, mode: str) -> None:
        if self._failure is not None:
            return
        try:
            self._connection.execute(f"PRAGMA wal_checkpoint({mode})").fetchone()
        except sqlite3.Error as error:
            self._fail([], error)

    def _fail(self, jobs: list[WriterJob], error: Exception) -> None:
        """Roll back the open transaction, if there is one, and decide whether the store can go on."""
        failure = self._translate_error(error)
        try:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
        except sqlite3.Error as worse:
            failure = self._translate_error(worse)
        reported: StoreError = failure
        if not isinstance(failure, StoreWriteError):
            self._failure = failure
            reported = OutcomeUnknownError(f"it is unknown whether the write happened: {failure}")
        for job in jobs:
            job.outcome, job.batches = reported, ()

    def _translate_error(self, error: Exception) -> StoreError:
        code = getattr(error, "sqlite_errorcode", None)
        if code == sqlite3.SQLITE_FULL:
            return StoreWriteError(f"no space left for `{self._path}`; free some and writes work again")
        if code in NOT_WRITTEN_CODES:
            return StoreWriteError(f"the disk refused to write to `{self._path}`: {error}")
        if isinstance(error, CorruptStoreError):
            return CorruptStoreError(f"`{self._path}` is damaged and the store has stopped: {error}")
        return StoreClosedError(
            f"the disk under `{self._path}` failed and the store has stopped: {error}; start it again"
        )

    def _reject_jobs(self, jobs: list[WriterJob]) -> None:
        for job in jobs:
            job.outcome = self._failure
        self._deliver(jobs)

    def _finish(self) -> None:
        for job in self._background_jobs:
            job.outcome = StoreClosedError("the store was closed before this was finished")
        self._deliver([*self._background_jobs])
        self._checkpoint("TRUNCATE")
        if self._failure is None:
            self._connection.close()
        else:
            self._close_without_checkpoint()

    def _close_without_checkpoint(self) -> None:
        """Close without a checkpoint: closing the last connection would repeat the fsync and drop the log."""
        last = connect(self._path, writer=False)
        try:
            with contextlib.suppress(sqlite3.Error):
                last.execute("SELECT 1 FROM head").fetchone()
            self._connection.close()
        finally:
            last.close()
