"""Waiting for processes: until something is so, and until one has ended."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable

SOON = 60.0
"""Seconds in which whatever is waited for happens, also on a busy machine."""
ENDS_IN = 20.0


def until(
    is_so: Callable[[], bool], told: Callable[[], object] = lambda: "", *, seconds: float = SOON
) -> None:
    """Wait until something is so."""
    end = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < end, told()
        time.sleep(0.1)


def ended(process: subprocess.Popen[bytes], how: signal.Signals = signal.SIGTERM) -> None:
    """End a process; one that does not listen is killed."""
    process.send_signal(how)
    try:
        process.wait(ENDS_IN)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
