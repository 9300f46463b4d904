"""Working until the process is told to stop."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine
from typing import Any


async def until_signal(work: Coroutine[Any, Any, None]) -> int:
    """Do something until it ends or the process is told to stop; the exit code."""
    loop, task = asyncio.get_running_loop(), asyncio.create_task(work)
    stopped: list[signal.Signals] = []

    def stop(which: signal.Signals) -> None:
        stopped.append(which)
        task.cancel()

    for which in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(which, stop, which)
    try:
        await task
    except asyncio.CancelledError:
        if not stopped:
            raise
    return 130 if signal.SIGINT in stopped else 0
