"""Processes of the machine: who descends from whom, and how to end them.

A process is told by its pid and when it started, because a pid alone may have been given to somebody else
since.
"""

from __future__ import annotations

import os
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from typing import Final
else:
    # The public face of this module makes enums of its numbers; that alone is a megabyte per keeper.
    import _signal as signal

KILL_TIMEOUT: Final = 30.0
"""Seconds in which killed processes are gone; one that hangs in the kernel is not waited for any longer."""


class PollBackoff:
    """Waits that grow, up to a time in all; no end without a time."""

    def __init__(self, seconds: float | None) -> None:
        self._until = None if seconds is None else time.monotonic() + seconds
        self._length = 0.0

    def wait(self) -> bool:
        """Wait a little, the first time not at all; False when the time is over."""
        if self._until is not None and time.monotonic() > self._until:
            return False
        time.sleep(self._length)
        self._length = min(self._length * 1.5 + 0.001, 0.1)
        return True


def find_process(pid: int) -> tuple[int, int, int] | None:
    """Parent, session and time of start (in the kernel's ticks) of a process that has not ended."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    return None if fields[0] in (b"Z", b"X") else (int(fields[1]), int(fields[3]), int(fields[19]))


def list_processes() -> dict[int, tuple[int, int, int]]:
    """All processes of the machine."""
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    return {pid: found for pid in pids if (found := find_process(pid)) is not None}


def find_descendants(roots: set[int], among: dict[int, tuple[int, int, int]]) -> set[int]:
    """The processes that descend from some, without these."""
    found: set[int] = set()
    latest = roots
    while latest:
        latest = {pid for pid, (parent, _, _) in among.items() if parent in latest} - found - roots
        found |= latest
    return found


def find_container_processes(main: int, start: int, mark: bytes) -> set[int]:
    """What runs of a container: its session, what has its mark in the environment, and what these started.

    A session is named after its first process. While that lives, its start tells whether it is the one; when
    it is gone, the number may have been given to another session since, and the mark has to decide.
    """
    among = list_processes()
    leader = among.get(main)
    by_session = leader[2] == start if leader else main > 0 and not mark
    found = {
        pid
        for pid, (_, session, began) in among.items()
        if (by_session and main in (pid, session) and began >= start) or _has_mark(pid, mark)
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
    """Send a signal to a process that may be gone."""
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        return


def kill_container_processes(main: int, start: int, mark: bytes) -> None:
    """End what runs of a container."""
    pause = PollBackoff(KILL_TIMEOUT)
    while pause.wait() and (left := find_container_processes(main, start, mark)):
        for pid in left:
            send_signal(pid, signal.SIGKILL)
