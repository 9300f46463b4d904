"""What every service does as a process: it ends when it is told to, and spares what lasts as long as itself.

Rules for this file: it imports no service, so that each process loads only what it runs.
"""

from __future__ import annotations

import asyncio
import gc
import os
import signal
from typing import Final

_REPEATED_SIGNAL_SECONDS: Final = 1.0
"""Two signals that come closer to each other are one wish, passed on by somebody in between."""
GC_THRESHOLDS: Final = (10_000, 20, 50)
"""After how many new objects garbage is looked for among the newest, and how often among older ones."""


def install_stop_signals() -> asyncio.Event:
    """Set when somebody interrupts or ends this process; who does so again does not want to wait for it."""
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
    """Tell Python's collector of garbage not to look through what stays for as long as the process.

    To look through all of it holds every request up for some 80 milliseconds, and finds nothing. What comes
    after is looked through in larger portions: requests leave hardly any cycles behind.
    """
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
