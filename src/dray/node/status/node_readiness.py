"""The readiness of a node: checks of its disk, its claims record and its container runtime.

Theory of operation: while an agent starts, it leaves the Ready condition as it is, so that a short restart
evicts no pod. Only when the start takes long, the node becomes not ready. From then on the agent runs the
checks every few seconds. Two failures in a row make the node not ready; the first success makes it ready.

Rules for this file: what keeps one pod from running is reported on that pod. An agent that ends changes
nothing either: its containers continue, and its missing heartbeat shows the rest.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from dray.client.timing import TimeSource
from dray.node.status.node_registration import NodeRegistration
from dray.telemetry.logs import StructuredLogger

START_SECONDS: Final = 10.0
"""How long a start may take before the node becomes not ready."""
CHECK_SECONDS: Final = 5.0
FAILURE_THRESHOLD: Final = 2
"""Failures in a row that make the node not ready."""
MIN_FREE_BYTES: Final = 1 << 20
"""Free disk space that the agent needs for its files."""
STARTING_MESSAGE: Final = "the agent is starting: it takes over the pods and claims of an earlier agent"

Check = Callable[[], Awaitable[str]]
"""Returns what keeps pods from running; empty when nothing does."""


class NodeReadinessMonitor:
    """Checks whether pods can run, and sets the Ready condition."""

    def __init__(self, registration: NodeRegistration, timing: TimeSource, log: StructuredLogger) -> None:
        self._registration, self._time_source, self._log = registration, timing, log
        self._checks: tuple[Check, ...] = ()
        self._started = asyncio.Event()
        self._failure_count = FAILURE_THRESHOLD
        """Failures in a row; at the threshold initially, so that the first failure counts at once."""
        self._reported = ""

    async def start(self, *checks: Check) -> None:
        """Run the checks for the first time, after the agent has started."""
        self._checks = checks
        await self._check()
        self._started.set()

    async def run(self) -> None:
        """Run the checks periodically, until cancelled."""
        try:
            async with asyncio.timeout(START_SECONDS):
                await self._started.wait()
        except TimeoutError:
            await self._registration.set_ready(False, STARTING_MESSAGE)
            await self._started.wait()
        while True:
            await self._time_source.sleep(CHECK_SECONDS)
            await self._check()

    async def _check(self) -> None:
        why = await self._find_problem()
        self._failure_count = self._failure_count + 1 if why else 0
        if why and self._failure_count < FAILURE_THRESHOLD:
            return
        if why != self._reported:
            if why:
                self._log.error("pods cannot run here", why=why)
            else:
                self._log.info("pods can run here again")
            self._reported = why
        await self._registration.set_ready(not why, why)

    async def _find_problem(self) -> str:
        for check in self._checks:
            try:
                why = await check()
            except OSError as error:
                why = str(error)
            if why:
                return why
        return ""


async def find_disk_problem(root: Path) -> str:
    """Return why the disk of a directory cannot be written; empty when it can."""
    try:
        disk = os.statvfs(root)
    except OSError as error:
        return f"`{root}` cannot be used: {error.strerror}"
    if disk.f_flag & os.ST_RDONLY:
        return f"`{root}` is on a disk that cannot be written: it is mounted read-only"
    # Blocks reserved for root are available only to root.
    blocks, files = (disk.f_bfree, disk.f_ffree) if os.geteuid() == 0 else (disk.f_bavail, disk.f_favail)
    if disk.f_blocks and blocks * disk.f_frsize < MIN_FREE_BYTES:
        return f"`{root}` is on a disk that is full"
    if disk.f_files and not files:
        return f"`{root}` is on a disk that takes no more files"
    return ""
