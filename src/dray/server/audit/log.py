"""The audit log of a running server.

Theory of operation: `ahead` is awaited before a write is carried out and returns when its line is with the
operating system, so whatever happens to this process, no change is in the store without a line that says who
asked for it. `complete` is awaited before the answer goes out: what was acknowledged has its outcome in the
log. To hand a few hundred bytes to the operating system takes microseconds, far less than to wake a thread or
only another task, so a line is simply written. When that took long a few times (a disk that is choked by
others), lines are queued and a thread writes them in batches for a while, and the event loop goes on. The
disk itself has the lines at the latest after `sync_seconds`.

When the log cannot be written (a full disk, a file system gone read-only), writes are refused with 503 before
anything is changed and reads go on; the server can be seen to be unready. Whoever prefers service to proof
chooses `WhenStuck.COUNT`: lines that find no room are dropped, and counted in a line of their own afterwards.

Rules for this file: one batch is on its way at a time, in the event loop or in a thread, never in both.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import NamedTuple

import msgspec

from dray.clock import Clock
from dray.server.admission.change import Change
from dray.server.audit.events import (
    DENIALS,
    Line,
    Outcome,
    annotated,
    by_itself,
    complete,
    is_write,
    received,
    when,
)
from dray.server.audit.log_file import ChainFile
from dray.server.http.errors import Failure, unavailable
from dray.server.http.requests import Request

RETRY_SECONDS = 0.5
SLOW_SECONDS = 0.05
SLOW_TIMES = 3
CAREFUL_SECONDS = 10.0
"""When writes took longer, so many times within these seconds, a thread writes for so many more.

Once is no sign: on a busy machine a process is set aside for a while at any place.
"""
DENIALS_PER_SECOND = 20
"""More denials than these are counted and not written, or strangers could push the past out of the log."""
_MISSING = ("dropped", "withheld")
_WHY_MISSING = ("lines found no room", f"denials beyond {DENIALS_PER_SECOND} per second")
_ENCODER = msgspec.json.Encoder()


class WhenStuck(Enum):
    """What becomes of writes while the log cannot be written."""

    REFUSE = "refuse"
    COUNT = "count"


@dataclass(frozen=True, slots=True)
class AuditSettings:
    """How much the log may take, and what happens when it cannot be written."""

    largest: int = 64 << 20
    keep: int = 16
    queued: int = 20_000
    when_stuck: WhenStuck = WhenStuck.REFUSE
    sync_seconds: float = 1.0


class _Item(NamedTuple):
    line: bytes
    waiting: asyncio.Future[None] | None
    ahead: bool = False
    """Written before something is done; when it cannot be written, nothing is done."""


class AuditLog:
    """The log, while the server runs."""

    def __init__(self, path: Path, clock: Clock, settings: AuditSettings = AuditSettings()) -> None:  # noqa: B008
        self.path, self._clock, self._settings = path, clock, settings
        self._items: list[_Item] = []
        self._later: list[bytes] = []
        self._busy = False
        self._careful_until = 0.0
        self._slow: deque[float] = deque(maxlen=SLOW_TIMES)
        self._syncing: asyncio.Task[None] | None = None
        self.trouble = ""
        """Why the log cannot be written at the moment; empty when it can."""
        self.written = self.dropped = self.withheld = 0
        self._told = (0, 0)
        self._second = self._denied = 0

    def open(self) -> None:
        """Open the file, repair what a crash left, and begin; an `InputError` when that fails."""
        self._loop = asyncio.get_running_loop()
        self._file = ChainFile(self.path, largest=self._settings.largest, keep=self._settings.keep)
        self._syncing = self._loop.create_task(self._sync())
        self._put(_Item(self._event("opened"), None))

    async def close(self) -> None:
        """Write what is left, and end."""
        if self._syncing is None:
            return
        self._syncing.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._syncing
        self._syncing = None
        waiting = self._loop.create_future()
        self._put(_Item(self._event("closed"), waiting))
        await waiting
        self._file.close()

    @property
    def head(self) -> str:
        """The hash of the newest line; kept elsewhere, it proves later that nothing was cut off."""
        return self._file.head

    async def ahead(self, request: Request) -> None:
        """Await this before a write is carried out; a `Failure` when it would go unaudited."""
        if is_write(request.call) and self._room():
            line = _ENCODER.encode(received(request, self._clock.now()))
            if not self._wrote(line):
                waiting = self._loop.create_future()
                self._put(_Item(line, waiting, ahead=True))
                await waiting

    async def complete(self, request: Request, outcome: Outcome) -> None:
        """Await this before a request is answered; writes and denials are noted."""
        write, denied = is_write(request.call), outcome.code in DENIALS
        if not (write or denied) or (denied and self._is_flood()):
            return
        # What was carried out is noted in any case; while stuck nothing new is begun, so that is bounded.
        certain = write and self._settings.when_stuck is WhenStuck.REFUSE
        if not certain and not self._may_note():
            return
        line = _ENCODER.encode(complete(request, outcome, self._clock.now()))
        if request.tidy and self._is_clear():
            # Whoever asks inside tells nobody outside before the end of this turn of the event loop.
            self._put_off(line)
            return
        if self._wrote(line):
            return
        # Only an answer that tells of a change waits: a denial changes nothing.
        waiting = self._loop.create_future() if write and outcome.code < 400 else None
        self._put(_Item(line, waiting))
        if waiting is not None:
            await waiting

    def inside(self, change: Change) -> None:
        """Note a change that the server makes by itself, for example what it collects; never refused."""
        line = _ENCODER.encode(by_itself(change, self._clock.now()))
        if not self._wrote(line) and self._may_note():
            self._put(_Item(line, None))

    def annotated(self, audit_id: str, annotations: Mapping[str, str]) -> None:
        """Note what webhooks want to have on record about a request; never refused."""
        line = _ENCODER.encode(annotated(audit_id, annotations, self._clock.now()))
        if not self._wrote(line) and self._may_note():
            self._put(_Item(line, None))

    def _is_flood(self) -> bool:
        """Whether so many were denied this second that another line would only push older ones out."""
        second = int(self._clock.monotonic())
        if second != self._second:
            self._second, self._denied = second, 0
        self._denied += 1
        if self._denied <= DENIALS_PER_SECOND:
            return False
        self.withheld += 1
        return True

    def _room(self) -> bool:
        """Whether a line may be queued; a `Failure` when nothing may happen without one."""
        if not self.trouble and len(self._items) < self._settings.queued:
            return True
        if self._settings.when_stuck is WhenStuck.REFUSE:
            raise _stuck(self.trouble or f"{len(self._items)} lines are waiting")
        return self._may_note()

    def _may_note(self) -> bool:
        if len(self._items) < self._settings.queued:
            return True
        self.dropped += 1
        return False

    def _event(self, event: str) -> bytes:
        return _ENCODER.encode(Line(event, when(self._clock.now())))

    def _wrote(self, line: bytes) -> bool:
        """Write a line at once, when nothing stands in its way; whether it was written."""
        if not self._is_clear():
            return False
        if not self._later:
            if self._append([line]):
                return False  # tried again, and told, on the longer way
            self.written += 1
            return True
        lines, self._later = [*self._later, line], []
        if self._append(lines):
            self._items = [_Item(each, None) for each in lines[:-1]]
            return False
        self.written += len(lines)
        return True

    def _is_clear(self) -> bool:
        """Whether nothing stands in the way of a line."""
        waits = self._items or self._busy or self.trouble or self._missing != self._told
        return not waits and not self._is_careful()

    def _is_careful(self) -> bool:
        return self._clock.monotonic() < self._careful_until or self._file.full

    def _put_off(self, line: bytes) -> None:
        """Write a line with the next one, at the latest at the end of this turn of the event loop."""
        self._later.append(line)
        if len(self._later) == 1:
            self._loop.call_soon(self._flush)

    def _put(self, item: _Item) -> None:
        """Queue a line until the end of this turn of the event loop."""
        self._items.append(item)
        if len(self._items) == 1 and not self.trouble:
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        if self._later:
            self._items = [*(_Item(line, None) for line in self._later), *self._items]
            self._later = []
        if self._busy or not (self._items or self.trouble):
            return
        items, self._items = self._items, []
        lines, told = [*(item.line for item in items), *self._notes()], self._missing
        if self._is_careful():
            self._busy = True
            work = self._loop.run_in_executor(None, self._append, lines)
            work.add_done_callback(lambda done: self._settle(items, told, done.result()))
        else:
            self._settle(items, told, self._append(lines))

    def _append(self, lines: list[bytes]) -> str:
        """Write lines; why that did not work, if it did not. Runs in the event loop or in a thread."""
        begun = self._clock.monotonic()
        try:
            self._file.append(lines)
        except OSError as refused:
            return refused.strerror or str(refused)
        finally:
            now = self._clock.monotonic()
            if now - begun > SLOW_SECONDS:
                self._slow.append(now)
                if len(self._slow) == SLOW_TIMES and now - self._slow[0] < CAREFUL_SECONDS:
                    self._careful_until = now + CAREFUL_SECONDS
        return ""

    @property
    def _missing(self) -> tuple[int, int]:
        """How many lines are not there, and why: no room, too many denials."""
        return self.dropped, self.withheld

    def _settle(self, items: list[_Item], told: tuple[int, int], trouble: str) -> None:
        """Wake whoever waits; what could not be written is kept, unless nothing was done yet."""
        self._busy, self.trouble = False, trouble
        refuse = bool(trouble) and self._settings.when_stuck is WhenStuck.REFUSE
        for item in items:
            waiting = item.waiting
            if waiting is None or waiting.done():
                continue
            if refuse and item.ahead:
                waiting.set_exception(_stuck(trouble))
            else:
                waiting.set_result(None)
        if not trouble:
            self.written += len(items)
            self._told = told
            if self._items:
                self._loop.call_soon(self._flush)
            return
        kept = [_Item(item.line, None) for item in items if not (refuse and item.ahead)]
        self._items = kept + self._items
        self._loop.call_later(RETRY_SECONDS, self._flush)

    def _notes(self) -> list[bytes]:
        """What the log has to say about itself."""
        lines: list[Line] = []
        for event, before, now, note in zip(_MISSING, self._told, self._missing, _WHY_MISSING, strict=True):
            if now > before:
                lines.append(Line(event, when(self._clock.now()), count=now - before, note=note))
        if self.trouble:
            note = f"could not be written: {self.trouble}"
            lines.append(Line("resumed", when(self._clock.now()), note=note))
        return [_ENCODER.encode(line) for line in lines]

    async def _sync(self) -> None:
        """Bring what was written to the disk, every now and then."""
        synced = 0
        while True:
            await asyncio.sleep(self._settings.sync_seconds)
            if self.written != synced and not self._busy:
                synced = self.written
                await asyncio.to_thread(_brought_to_disk, self._file.duplicate())


def _brought_to_disk(file: int) -> None:
    """Wait for the disk; should it refuse, the next write will meet the same trouble and tell."""
    try:
        with contextlib.suppress(OSError):
            os.fdatasync(file)
    finally:
        os.close(file)


def _stuck(trouble: str) -> Failure:
    return unavailable(
        f"the audit log cannot be written ({trouble}), and nothing is changed unaudited; reads still work"
    )
