"""Process setup of services: the event loop, stop signals and the garbage collector.

Rules for this file: it imports no service, so that each process loads only what it runs.
"""

from __future__ import annotations

import asyncio
import gc
import os
import signal
from typing import Final

_REPEATED_SIGNAL_SECONDS: Final = 1.0
"""Signals within this time are one request to stop, forwarded by a parent process."""
GC_THRESHOLDS: Final = (10_000, 5, 200)
"""After how many new objects the collector runs on the youngest generation, and how often on older ones."""


def build_runner() -> asyncio.Runner:
    """Build a runner with the fastest event loop available."""
    try:
        import uvloop
    except ImportError:  # an optional speed-up
        return asyncio.Runner()
    return asyncio.Runner(loop_factory=uvloop.new_event_loop)


def count_processors() -> int:
    """Return how many processors this process may use."""
    # Not every system can restrict a process to some of its processors.
    usable = getattr(os, "sched_getaffinity", None)
    return len(usable(0)) if usable is not None else os.cpu_count() or 1


def install_stop_signals() -> asyncio.Event:
    """Return an event that SIGINT and SIGTERM set; a second, later signal ends the process at once."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    first: list[float] = []

    def handle_signal(number: int) -> None:
        stop.set()
        if first and loop.time() - first[0] >= _REPEATED_SIGNAL_SECONDS:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        first.append(loop.time())

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, handle_signal, number)
    return stop


def freeze_garbage_collector() -> None:
    """Exclude the objects that exist now from Python's garbage collection.

    To scan all of them blocks every request for some 80 milliseconds, and finds nothing. Later objects are
    scanned in larger portions: requests leave hardly any cycles behind.
    """
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
