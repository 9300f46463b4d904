"""The line writer: appends lines to the file of the audit log, from the event loop and from other threads.

Theory of operation: the chain has one order, so one thread appends at a time. The event loop writes what it
must know at once, the thread of the store what must be on record before a commit, and a thread of its own
writes batches while the disk is slow. Each waits for the others only as long as an append takes: passing a
few hundred bytes to the operating system takes microseconds.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence

from dray.clock import Clock
from dray.server.audit.log_file import AuditLogFile

SLOW_SECONDS = 0.05
SLOW_WRITES = 3
OFFLOAD_SECONDS = 10.0
"""When writes took longer, so many times within these seconds, a thread writes for so many more.

Once is no sign: on a busy machine a process may be suspended anywhere.
"""


class LineWriter:
    """Appends lines to an open file of the log."""

    def __init__(self, file: AuditLogFile, clock: Clock) -> None:
        self._file, self._clock = file, clock
        self._lock = threading.Lock()
        self._slow_times: deque[float] = deque(maxlen=SLOW_WRITES)
        self._offload_until = 0.0
        self._is_closed = False
        self.written = 0
        """How many lines were written."""

    @property
    def head(self) -> str:
        """The hash of the newest line."""
        return self._file.head

    @property
    def should_offload(self) -> bool:
        """Whether the event loop must not write by itself: the disk is slow, or the file is full."""
        # Asked several times for every request; most disks were never slow.
        is_slow = self._offload_until > 0.0 and self._clock.monotonic() < self._offload_until
        return is_slow or self._file.is_full

    def append(self, lines: Sequence[bytes]) -> str:
        """Write all lines or none; returns the error, if any."""
        with self._lock:
            if self._is_closed:
                return "it is closed"
            begun = self._clock.monotonic()
            try:
                self._file.append(lines)
                self.written += len(lines)
            except OSError as refused:
                return refused.strerror or str(refused)
            finally:
                self._note_duration(begun, self._clock.monotonic())
        return ""

    def duplicate_descriptor(self) -> int:
        """Return a duplicate of the descriptor of the file, which the caller closes."""
        with self._lock:
            return self._file.duplicate_descriptor()

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            self._file.close()

    def _note_duration(self, begun: float, now: float) -> None:
        if now - begun <= SLOW_SECONDS:
            return
        self._slow_times.append(now)
        if len(self._slow_times) == SLOW_WRITES and now - self._slow_times[0] < OFFLOAD_SECONDS:
            self._offload_until = now + OFFLOAD_SECONDS
