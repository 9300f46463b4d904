"""Processes of the machine: their parents and sessions, and how to kill those of a container.

A process is identified by its pid and its start time, because the kernel reuses pids.
"""

from __future__ import annotations

import os
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from typing import Final
else:
    # The public module turns its numbers into enums; that alone is a megabyte per shim.
    import _signal as signal

KILL_TIMEOUT: Final = 30.0
"""How long to wait for killed processes to end; one may hang in the kernel."""


class PollBackoff:
    """Growing delays up to a total time; without limit when that is None."""

    def __init__(self, seconds: float | None) -> None:
        self._until = None if seconds is None else time.monotonic() + seconds
        self._length = 0.0

    def wait(self) -> bool:
        """Sleep for the next delay, the first of which is zero; False when the time is over."""
        if self._until is not None and time.monotonic() > self._until:
            return False
        time.sleep(self._length)
        self._length = min(self._length * 1.5 + 0.001, 0.1)
        return True


def find_process(pid: int) -> tuple[int, int, int] | None:
    """Return parent, session and start time (in clock ticks) of a process that has not ended."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    return None if fields[0] in (b"Z", b"X") else (int(fields[1]), int(fields[3]), int(fields[19]))


def list_processes() -> dict[int, tuple[int, int, int]]:
    """Return all processes of the machine."""
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    return {pid: found for pid in pids if (found := find_process(pid)) is not None}


def find_descendants(roots: set[int], among: dict[int, tuple[int, int, int]]) -> set[int]:
    """Return the descendants of processes, without these."""
    found: set[int] = set()
    latest = roots
    while latest:
        latest = {pid for pid, (parent, _, _) in among.items() if parent in latest} - found - roots
        found |= latest
    return found


def find_container_processes(main: int, start: int, mark: bytes) -> set[int]:
    """Return a container's processes: its session, those with its mark in the environment, and descendants.

    A session has the pid of its first process. While that runs, its start time identifies the session; after
    that the pid may belong to another session, and only the mark decides.
    """
    among = list_processes()
    leader = among.get(main)
    by_session = leader[2] == start if leader else main > 0 and not mark
    found = {
        pid
        for pid, (_, session, started) in among.items()
        if (by_session and main in (pid, session) and started >= start) or _has_mark(pid, mark)
    }
    return found | find_descendants(found, among)


def _has_mark(pid: int, mark: bytes) -> bool:
    if not mark or pid == os.getpid():
        return False
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return mark in file.read().split(b"\0")
    except OSError:
        return False


def send_signal(pid: int, number: int) -> None:
    """Send a signal to a process that may have ended."""
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        return


def kill_container_processes(main: int, start: int, mark: bytes) -> None:
    """Kill the processes of a container until none is left or the time is over."""
    backoff = PollBackoff(KILL_TIMEOUT)
    while backoff.wait() and (left := find_container_processes(main, start, mark)):
        for pid in left:
            send_signal(pid, signal.SIGKILL)
