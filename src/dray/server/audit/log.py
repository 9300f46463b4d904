"""The audit log of a running server.

Theory of operation: the `received` line of a write (or a read of secrets) is passed to the operating system
before it is carried out, so whatever happens to this process, no change is in the store without a line that
names its user. `record_received` does that and is awaited. Where the store takes records, `defer_received`
returns one instead: the store passes the line to `append_before_commit` in its thread, together with those of
all requests that share the commit, before it commits. A request that commits nothing has it written with its
outcome.

`record_complete` is awaited before the response is sent: what was acknowledged has its outcome in the log.
Passing a few hundred bytes to the operating system takes microseconds, far less than waking a thread or
another task, so a line is written directly. When that was slow a few times (a busy disk), lines are queued
for a while and a thread writes them in batches, so that the event loop is not blocked. Lines are synced to
the disk at the latest after `sync_interval`.

When the log cannot be written (a full disk, a read-only file system), writes are refused with 503 before
anything is changed, and so are reads of secrets; other reads go on, and the server reports itself unready.
`AuditFailurePolicy.COUNT` prefers availability: lines that cannot be queued are dropped, and counted in a
line of their own afterwards.

One batch is written at a time (`line_writer`).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import NamedTuple

import msgspec

from dray.clock import Clock, format_micro_timestamp
from dray.server.admission.change import ObjectChange
from dray.server.audit.events import (
    DENIAL_CODES,
    AuditEvent,
    AuditOutcome,
    build_annotation_event,
    build_complete_event,
    build_internal_event,
    build_received_event,
    is_recorded,
)
from dray.server.audit.line_writer import LineWriter
from dray.server.audit.log_file import AuditLogFile
from dray.server.http.errors import ApiStatusError, new_service_unavailable
from dray.server.http.requests import ApiRequest
from dray.store import CommitRecord
from dray.store.errors import RecordNotWrittenError
from dray.telemetry.redaction import redact

RETRY_SECONDS = 0.5
MAX_DENIALS_PER_SECOND = 20
MAX_ALL_DENIALS_PER_SECOND = 200
"""Denials of one caller, and of all. Further ones are counted by caller and not written, or strangers could
rotate older lines out of the log.
"""
MAX_COUNTED_CALLERS = 1000
"""Denials of further callers are counted together."""
_DROPPED_NOTE = "lines did not fit into the queue"
_WITHHELD_NOTE = f"denials beyond {MAX_DENIALS_PER_SECOND} per second"
_ENCODER = msgspec.json.Encoder()


class AuditFailurePolicy(Enum):
    """What happens to writes while the log cannot be written."""

    REFUSE = "refuse"
    COUNT = "count"


@dataclass(frozen=True, slots=True)
class AuditOptions:
    """Limits of the log, and what happens when it cannot be written."""

    max_bytes: int = 64 << 20
    max_backups: int = 16
    max_queued: int = 20_000
    failure_policy: AuditFailurePolicy = AuditFailurePolicy.REFUSE
    sync_interval: float = 1.0


class _QueuedLine(NamedTuple):
    line: bytes
    waiter: asyncio.Future[None] | None
    before_write: bool = False
    """Written before something is done; when it cannot be written, nothing is done."""


class AuditLog:
    """The audit log of a running server."""

    def __init__(self, path: Path, clock: Clock, options: AuditOptions = AuditOptions()) -> None:  # noqa: B008
        self.path, self._clock, self._options = path, clock, options
        self._queue: list[_QueuedLine] = []
        self._deferred: list[bytes] = []
        self._busy = False
        self._sync_task: asyncio.Task[None] | None = None
        self.write_error = ""
        """Why the log cannot be written at the moment; empty when it can."""
        self.dropped = self.suppressed = 0
        self._reported_missing = (0, 0)
        self._withheld: Counter[str] = Counter()
        """Denials that were not written, by caller, since they were last noted."""
        self._current_second = 0
        self._denied_this_second: Counter[str] = Counter()

    def open(self) -> None:
        """Open the file, repair what a crash left, and start; raises `InputError`."""
        self._loop = asyncio.get_running_loop()
        file = AuditLogFile(
            self.path, max_bytes=self._options.max_bytes, max_backups=self._options.max_backups
        )
        self._writer = LineWriter(file, self._clock)
        self._sync_task = self._loop.create_task(self._sync_periodically())
        self._enqueue(_QueuedLine(self._encode_event("opened"), None))

    async def close(self) -> None:
        """Write what is queued, and close the file."""
        if self._sync_task is None:
            return
        self._sync_task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._sync_task
        self._sync_task = None
        waiting = self._loop.create_future()
        self._enqueue(_QueuedLine(self._encode_event("closed"), waiting))
        await waiting
        self._writer.close()

    @property
    def head(self) -> str:
        """The hash of the newest line; stored elsewhere, it proves later that nothing was cut off."""
        return self._writer.head

    @property
    def written(self) -> int:
        """How many lines were written since the start."""
        return self._writer.written

    async def record_received(self, request: ApiRequest) -> None:
        """Record a write, or a read of secrets, before it is carried out; raises an `ApiStatusError` when it
        would go unaudited.
        """
        if is_recorded(request.call) and self._check_queue():
            line = self._encode_received(request)
            if not self._try_write([line]):
                waiting = self._loop.create_future()
                self._enqueue(_QueuedLine(line, waiting, before_write=True))
                await waiting

    def defer_received(self, request: ApiRequest) -> CommitRecord | None:
        """Return the record of a write for its first commit; None when `record_received` must write it."""
        # Whoever prefers availability must not be refused by the store.
        refuses = self._options.failure_policy is AuditFailurePolicy.REFUSE
        if not (refuses and is_recorded(request.call) and self._can_write_now()):
            return None
        return CommitRecord(self, self._encode_received(request))

    def append_before_commit(self, lines: Sequence[bytes]) -> None:
        """Write `received` lines; raises `RecordNotWrittenError`. The thread of the store calls this."""
        write_error = self._writer.append(lines)
        if write_error:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._note_failure, write_error)
            raise RecordNotWrittenError(_describe_unavailable(write_error))

    async def record_complete(self, request: ApiRequest, outcome: AuditOutcome) -> None:
        """Record a request before it is answered; writes, reads of secrets and denials leave a line."""
        recorded, denied = is_recorded(request.call), outcome.code in DENIAL_CODES
        if not (recorded or denied):
            return
        lines = _take_pending_line(request)
        if denied and self._is_denial_flood(request.caller.name):
            if lines and not self._try_write(lines):
                self._enqueue_all(lines)
            return
        # A change that was carried out is recorded in any case; while the log is blocked no new one begins,
        # so their number is limited.
        certain = recorded and self._options.failure_policy is AuditFailurePolicy.REFUSE
        if not certain and not self._has_queue_capacity():
            return
        lines.append(_ENCODER.encode(build_complete_event(request, outcome, self._clock.now())))
        if request.has_unique_fields and self._can_write_now():
            # An internal caller reports nothing to clients before the end of this iteration of the event
            # loop.
            self._defer(lines)
            return
        if self._try_write(lines):
            return
        # Only the response to what was carried out waits: a denial changes nothing and answers nothing.
        waiting = self._loop.create_future() if recorded and outcome.code < 400 else None
        self._enqueue_all(lines, waiting)
        if waiting is not None:
            await waiting

    def record_internal(self, change: ObjectChange) -> None:
        """Record a change that the server makes by itself, such as garbage collection; never refused."""
        line = _ENCODER.encode(build_internal_event(change, self._clock.now()))
        if not self._try_write([line]) and self._has_queue_capacity():
            self._enqueue(_QueuedLine(line, None))

    def record_annotations(self, audit_id: str, annotations: Mapping[str, str]) -> None:
        """Record the audit annotations of webhooks for a request; never refused."""
        line = _ENCODER.encode(build_annotation_event(audit_id, annotations, self._clock.now()))
        if not self._try_write([line]) and self._has_queue_capacity():
            self._enqueue(_QueuedLine(line, None))

    def _is_denial_flood(self, caller: str) -> bool:
        """Return whether so many requests were denied this second that another line would only displace older
        ones.
        """
        second = int(self._clock.monotonic())
        if second != self._current_second:
            self._current_second = second
            self._denied_this_second.clear()
        if (
            self._denied_this_second[caller] < MAX_DENIALS_PER_SECOND
            and self._denied_this_second.total() < MAX_ALL_DENIALS_PER_SECOND
        ):
            self._denied_this_second[caller] += 1
            return False
        self.suppressed += 1
        is_counted = caller in self._withheld or len(self._withheld) < MAX_COUNTED_CALLERS
        self._withheld[caller if is_counted else ""] += 1
        return True

    def _check_queue(self) -> bool:
        """Return whether a line may be queued; raises an `ApiStatusError` when nothing may happen without
        one.
        """
        if not self.write_error and len(self._queue) < self._options.max_queued:
            return True
        if self._options.failure_policy is AuditFailurePolicy.REFUSE:
            raise _build_unavailable(self.write_error or f"{len(self._queue)} lines are waiting")
        return self._has_queue_capacity()

    def _has_queue_capacity(self) -> bool:
        if len(self._queue) < self._options.max_queued:
            return True
        self.dropped += 1
        return False

    def _encode_event(self, event: str) -> bytes:
        return _ENCODER.encode(AuditEvent(event, format_micro_timestamp(self._clock.now())))

    def _encode_received(self, request: ApiRequest) -> bytes:
        return _ENCODER.encode(build_received_event(request, self._clock.now()))

    def _try_write(self, lines: list[bytes]) -> bool:
        """Write lines at once, if possible; returns whether they were written."""
        if not self._can_write_now():
            return False
        deferred, self._deferred = self._deferred, []
        if self._writer.append([*deferred, *lines] if deferred else lines):
            self._queue = [_QueuedLine(each, None) for each in deferred]
            return False  # tried again, and reported, by the queue
        return True

    def _can_write_now(self) -> bool:
        """Return whether a line can be written at once."""
        if self._queue or self._busy or self.write_error or self._writer.should_offload:
            return False
        return (self.dropped, self.suppressed) == self._reported_missing

    def _defer(self, lines: list[bytes]) -> None:
        """Write lines with the next one, at the latest at the end of this iteration of the event loop."""
        if not self._deferred:
            self._loop.call_soon(self._flush)
        self._deferred += lines

    def _enqueue_all(self, lines: list[bytes], waiter: asyncio.Future[None] | None = None) -> None:
        """Queue the lines of one request; the waiter is woken with the last of them."""
        for line in lines[:-1]:
            self._enqueue(_QueuedLine(line, None))
        self._enqueue(_QueuedLine(lines[-1], waiter))

    def _enqueue(self, item: _QueuedLine) -> None:
        """Queue a line until the end of this iteration of the event loop."""
        self._queue.append(item)
        if len(self._queue) == 1 and not self.write_error:
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        if self._deferred and self._try_write([]):
            return
        if self._deferred:
            self._queue = [*(_QueuedLine(line, None) for line in self._deferred), *self._queue]
            self._deferred = []
        if self._busy or not (self._queue or self.write_error):
            return
        items, self._queue = self._queue, []
        withheld, self._withheld = self._withheld, Counter()
        counts = (self._missing_counts, withheld)
        lines = [*(item.line for item in items), *self._build_notes(withheld)]
        if self._writer.should_offload:
            self._busy = True
            work = self._loop.run_in_executor(None, self._writer.append, lines)
            work.add_done_callback(lambda done: self._complete_batch(items, counts, done.result()))
        else:
            self._complete_batch(items, counts, self._writer.append(lines))

    def _note_failure(self, write_error: str) -> None:
        """Note that the thread of the store could not write, and try again until the log can be written."""
        if not self.write_error and not self._busy and self._sync_task is not None:
            self.write_error = write_error
            self._loop.call_later(RETRY_SECONDS, self._flush)

    @property
    def _missing_counts(self) -> tuple[int, int]:
        """Return how many lines are missing: dropped ones, and denials beyond the limit."""
        return self.dropped, self.suppressed

    def _complete_batch(
        self, items: list[_QueuedLine], counts: tuple[tuple[int, int], Counter[str]], write_error: str
    ) -> None:
        """Wake the waiters; lines that could not be written are kept, unless their change has not begun."""
        self._busy, self.write_error = False, write_error
        refuse = bool(write_error) and self._options.failure_policy is AuditFailurePolicy.REFUSE
        for item in items:
            waiting = item.waiter
            if waiting is None or waiting.done():
                continue
            if refuse and item.before_write:
                waiting.set_exception(_build_unavailable(write_error))
            else:
                waiting.set_result(None)
        if not write_error:
            self._reported_missing = counts[0]
            if self._queue:
                self._loop.call_soon(self._flush)
            return
        self._withheld += counts[1]
        kept = [_QueuedLine(item.line, None) for item in items if not (refuse and item.before_write)]
        self._queue = kept + self._queue
        self._loop.call_later(RETRY_SECONDS, self._flush)

    def _build_notes(self, withheld: Mapping[str, int]) -> list[bytes]:
        """Build the lines of the log about itself."""
        now = format_micro_timestamp(self._clock.now())
        lines: list[AuditEvent] = []
        if self.dropped > self._reported_missing[0]:
            count = self.dropped - self._reported_missing[0]
            lines.append(AuditEvent("dropped", now, count=count, note=_DROPPED_NOTE))
        lines += [
            AuditEvent("withheld", now, user=redact(caller), count=count, note=_WITHHELD_NOTE)
            for caller, count in withheld.items()
        ]
        if self.write_error:
            note = f"could not be written: {self.write_error}"
            lines.append(AuditEvent("resumed", now, note=note))
        return [_ENCODER.encode(line) for line in lines]

    async def _sync_periodically(self) -> None:
        """Sync the file periodically."""
        synced = 0
        while True:
            await asyncio.sleep(self._options.sync_interval)
            if self.written != synced and not self._busy:
                synced = self.written
                await asyncio.to_thread(_sync_descriptor, self._writer.duplicate_descriptor())


def _sync_descriptor(file: int) -> None:
    """Sync a descriptor; if that fails, the next write meets the same error and reports it."""
    try:
        with contextlib.suppress(OSError):
            os.fdatasync(file)
    finally:
        os.close(file)


def _take_pending_line(request: ApiRequest) -> list[bytes]:
    """The `received` line of a request that committed nothing."""
    record = request.record
    if record is None or not record.is_pending:
        return []
    record.is_pending = False
    return [record.line]


def _build_unavailable(write_error: str) -> ApiStatusError:
    return new_service_unavailable(_describe_unavailable(write_error))


def _describe_unavailable(write_error: str) -> str:
    return (
        f"the audit log cannot be written ({write_error}), and nothing is changed and no secret is read "
        "unaudited; other reads still work"
    )
