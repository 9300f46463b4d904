"""Shutdown of a driver's process: runs work until a signal arrives, and then ends the process."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
import time
from collections.abc import Coroutine
from typing import Any, Final, NoReturn

from dray.driver.async_driver import THREAD_NAME_PREFIX

GRACE_SECONDS: Final = 1.0
"""How long a method of the author may still take when everything else has ended."""


async def run_until_signal(work: Coroutine[Any, Any, None]) -> int:
    """Run a coroutine until it ends or SIGTERM or SIGINT arrives, and return the exit code."""
    loop, task = asyncio.get_running_loop(), asyncio.create_task(work)
    received: list[signal.Signals] = []

    def stop(number: signal.Signals) -> None:
        received.append(number)
        task.cancel()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop, number)
    try:
        await task
    except asyncio.CancelledError:
        if not received:
            raise
    return 130 if signal.SIGINT in received else 0


def exit_process(code: int) -> NoReturn:
    """End the process, also when a method of the author is still running: its claim counts as begun."""
    deadline = time.monotonic() + GRACE_SECONDS
    threads = [each for each in threading.enumerate() if each.name.startswith(THREAD_NAME_PREFIX)]
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    if any(thread.is_alive() for thread in threads):
        print("warning: a method of the driver does not end; leaving without it", file=sys.stderr)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)
