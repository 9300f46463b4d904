"""Working until the process is told to stop, and then ending it."""

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


def exit_process(code: int) -> NoReturn:
    """End the process, also when a method of the author does not end: its work counts as begun."""
    until = time.monotonic() + GRACE_SECONDS
    threads = [each for each in threading.enumerate() if each.name.startswith(THREAD_NAME_PREFIX)]
    for thread in threads:
        thread.join(max(0.0, until - time.monotonic()))
    if any(thread.is_alive() for thread in threads):
        print("warning: a method of the driver does not end; leaving without it", file=sys.stderr)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)
