"""A running shim as a process: found by the state file, signalled and awaited without races on its pid."""

from __future__ import annotations

import asyncio
import os
import signal
from datetime import datetime
from typing import Final, NamedTuple

from dray.node.containers.runtime.shim import processes

_POLL_SECONDS: Final = 0.1


class LiveShim(NamedTuple):
    """A running shim: its pid, when that process started, and when its container did."""

    pid: int
    start: int
    started_at: datetime


def send_signal(shim: LiveShim, number: int) -> bool:
    """Send a signal to a shim, and to no later process with its pid; False when it has ended."""
    try:
        descriptor = os.pidfd_open(shim.pid)
    except ProcessLookupError:
        return False
    except OSError:
        descriptor = -1
    try:
        if not _is_alive(shim):
            return False
        if descriptor < 0:
            os.kill(shim.pid, number)
        else:
            signal.pidfd_send_signal(descriptor, number)
    except ProcessLookupError:
        return False
    finally:
        if descriptor >= 0:
            os.close(descriptor)
    return True


async def wait_for_exit(shim: LiveShim) -> None:
    """Wait until a shim has ended."""
    try:
        descriptor = os.pidfd_open(shim.pid)
    except ProcessLookupError:
        return
    except OSError:
        # The kernel has no pidfd; poll instead.
        while _is_alive(shim):
            await asyncio.sleep(_POLL_SECONDS)
        return
    try:
        if _is_alive(shim):
            await _wait_readable(descriptor)
    finally:
        os.close(descriptor)


def _is_alive(shim: LiveShim) -> bool:
    found = processes.find_process(shim.pid)
    return found is not None and found[2] == shim.start


async def _wait_readable(descriptor: int) -> None:
    loop, event = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(descriptor, event.set)
    try:
        await event.wait()
    finally:
        loop.remove_reader(descriptor)


async def read_pipe(descriptor: int) -> bytes:
    """Read the first data or the end of a pipe, and close it."""
    try:
        await _wait_readable(descriptor)
        return os.read(descriptor, 64)
    finally:
        os.close(descriptor)
