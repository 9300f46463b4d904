"""The audit log of a running server: lines go to a thread that writes them in batches.

Theory of operation: `ahead` is awaited before a write is carried out and returns when its line is with the
operating system, so whatever happens to this process, no change is in the store without a line that says who
asked for it. `complete` is awaited before the answer goes out: what was acknowledged has its outcome in the
log. Both wait together with everybody else for one write of a batch; the event loop itself never waits for
the disk. The disk has the lines at the latest after `sync_seconds`.

When the log cannot be written (a full disk, a file system gone read-only), writes are refused with 503 before
anything is changed and reads go on; the server can be seen to be unready. Whoever prefers service to proof
chooses `WhenStuck.COUNT`: lines that find no room are dropped, and counted in a line of their own afterwards.

Rules for this file: the file is touched by the writer's thread alone, everything else by the event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

import msgspec

from dray.clock import Clock
from dray.server.audit.file import ChainFile
from dray.server.audit.record import DENIALS, Line, Outcome, Pending, complete, received, when
from dray.server.call import Request
from dray.server.failures import Failure, unavailable

BATCH = 1_000
RETRY_SECONDS = 0.5
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


@dataclass(frozen=True, slots=True)
class _Item:
    make: Callable[[], Line]
    waiting: asyncio.Future[None] | None
    ahead: bool = False
    """Written before something is done; when it cannot be written, nothing is done."""


class AuditLog:
    """The log, while the server runs."""

    def __init__(self, path: Path, clock: Clock, settings: AuditSettings = AuditSettings()) -> None:  # noqa: B008
        self.path, self._clock, self._settings = path, clock, settings
        self._queue: queue.SimpleQueue[_Item | None] = queue.SimpleQueue()
        self._pending = 0
        self._thread: threading.Thread | None = None
        self.trouble = ""
        """Why the log cannot be written at the moment; empty when it can."""
        self.written = self.dropped = 0
        self._told = 0
        self._stuck = ""  # as `trouble`, but what the writer's thread knows

    def open(self) -> None:
        """Open the file, repair what a crash left, and start to write; an `InputError` when that fails."""
        self._loop = asyncio.get_running_loop()
        settings = self._settings
        self._file = ChainFile(self.path, largest=settings.largest, keep=settings.keep)
        self._thread = threading.Thread(target=self._work, name="audit", daemon=True)
        self._thread.start()
        self._put(_Item(self._event("opened"), None))

    async def close(self) -> None:
        """Write what is left, and end."""
        if self._thread is None:
            return
        self._put(_Item(self._event("closed"), None))
        self._queue.put(None)
        await asyncio.to_thread(self._thread.join)
        self._thread = None

    @property
    def head(self) -> str:
        """The hash of the newest line; kept elsewhere, it proves later that nothing was cut off."""
        return self._file.head

    def begin(self, request: Request, source: str) -> Pending:
        """Remember who asked for what, and when; nothing is written yet."""
        return Pending(request, source, self._clock.now(), self._clock.monotonic())

    async def ahead(self, pending: Pending) -> None:
        """Await this before a write is carried out; a `Failure` when it would go unaudited."""
        if pending.write and self._room():
            waiting = self._loop.create_future()
            self._put(_Item(lambda: received(pending), waiting, ahead=True))
            await waiting

    async def complete(self, pending: Pending, outcome: Outcome) -> None:
        """Await this before a request is answered; writes and denials are noted."""
        write = pending.write
        if not write and (outcome.code not in DENIALS or not self._may_note()):
            return
        now, seconds = self._clock.now(), self._clock.monotonic() - pending.begun
        # Only an answer that tells of a change waits: a denial changes nothing.
        waiting = self._loop.create_future() if write and outcome.code < 400 else None
        self._put(_Item(lambda: complete(pending, outcome, now, seconds), waiting))
        if waiting is not None:
            await waiting

    def _room(self) -> bool:
        """Whether a line may be queued; a `Failure` when nothing may happen without one."""
        if not self.trouble and self._pending < self._settings.queued:
            return True
        if self._settings.when_stuck is WhenStuck.REFUSE:
            raise _stuck(self.trouble or f"{self._pending} lines are waiting")
        return self._may_note()

    def _may_note(self) -> bool:
        if self._pending < self._settings.queued:
            return True
        self.dropped += 1
        return False

    def _put(self, item: _Item) -> None:
        self._pending += 1
        self._queue.put(item)

    def _event(self, event: str) -> Callable[[], Line]:
        return lambda: Line(event, when(self._clock.now()))

    # --- what follows runs in the writer's thread ---

    def _work(self) -> None:
        left: list[_Item] = []
        unsynced, due, closing = False, 0.0, False
        while not closing:
            closing = self._gather(left, due - time.monotonic() if unsynced else None)
            if left or self._stuck:
                left = self._append(left)
                if not unsynced:
                    unsynced, due = True, time.monotonic() + self._settings.sync_seconds
            if unsynced and time.monotonic() >= due and not self._stuck:
                unsynced = not self._sync()
                due = time.monotonic() + RETRY_SECONDS
        self._file.close()

    def _gather(self, items: list[_Item], patience: float | None) -> bool:
        """Add what is queued to `items`, and wait for the first; whether this is the end."""
        if items or self._stuck:
            patience = RETRY_SECONDS  # the last attempt failed; nothing new is needed to try again
        try:
            item = self._queue.get(timeout=None if patience is None else max(patience, 0.001))
            while item is not None:
                items.append(item)
                if len(items) >= BATCH:
                    return False
                item = self._queue.get_nowait()
        except queue.Empty:
            return False
        return True

    def _append(self, items: list[_Item]) -> list[_Item]:
        """Write lines; those that must be tried again."""
        dropped = self.dropped
        try:
            self._file.append([_ENCODER.encode(item.make()) for item in items] + self._notes(dropped))
        except OSError as refused:
            return self._refused(items, refused.strerror or str(refused))
        self.written += len(items)
        self._stuck, self._told = "", dropped
        self._hand_back(items, "", len(items))
        return []

    def _notes(self, dropped: int) -> list[bytes]:
        """What the log has to say about itself."""
        now, lines = when(self._clock.now()), []
        if dropped > self._told:
            lines.append(Line("dropped", now, count=dropped - self._told, note="lines found no room"))
        if self._stuck:
            lines.append(Line("resumed", now, note=f"could not be written: {self._stuck}"))
        return [_ENCODER.encode(line) for line in lines]

    def _refused(self, items: list[_Item], trouble: str) -> list[_Item]:
        """Nobody waits for a disk that refuses: what was not begun is called off, the rest is kept."""
        refuse = self._settings.when_stuck is WhenStuck.REFUSE
        kept = [item for item in items if not (refuse and item.ahead)]
        self._hand_back(items, trouble, len(items) - len(kept))
        self._stuck = trouble
        return [_Item(item.make, None) for item in kept]

    def _sync(self) -> bool:
        try:
            self._file.sync()
        except OSError as refused:
            self._hand_back([], refused.strerror or str(refused), 0)
            return False
        return True

    def _hand_back(self, items: list[_Item], trouble: str, done: int) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed; nobody waits any more
            self._loop.call_soon_threadsafe(self._settle, items, trouble, done)

    def _settle(self, items: list[_Item], trouble: str, done: int) -> None:
        """In the event loop again: wake whoever waits."""
        self.trouble = trouble
        self._pending -= done
        for item in items:
            waiting = item.waiting
            if waiting is None or waiting.done():
                continue
            if trouble and item.ahead and self._settings.when_stuck is WhenStuck.REFUSE:
                waiting.set_exception(_stuck(trouble))
            else:
                waiting.set_result(None)


def _stuck(trouble: str) -> Failure:
    return unavailable(
        f"the audit log cannot be written ({trouble}), and nothing is changed unaudited; reads still work"
    )
