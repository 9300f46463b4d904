"""Whether pods can run here at all: what the agent knows of its disk, its record and its runtime.

Theory of operation: while an agent starts, it says nothing, so that a node that was only away for a moment
stays what it was, and nobody has to leave it. Only when that takes long, the node is not ready. From then on
the agent looks every few seconds. Trouble that is seen twice makes the node not ready; its end is told at
once.

Rules for this file: what keeps one pod from running is told on that pod. An agent that ends says nothing
either: its containers go on, and a sign of life that is missing says the rest.
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
"""After so long an agent that has not started yet says so."""
CHECK_SECONDS: Final = 5.0
FAILURE_THRESHOLD: Final = 2
"""How often trouble must be seen before it is told."""
MIN_FREE_BYTES: Final = 1 << 20
"""Bytes that the agent needs for what it writes down."""
STARTING_MESSAGE: Final = "the agent is still taking up what was here before it started"

Check = Callable[[], Awaitable[str]]
"""What keeps pods from running; nothing when nothing does."""


class NodeReadinessMonitor:
    """Looks whether pods can run, and has the node say so."""

    def __init__(self, registration: NodeRegistration, timing: TimeSource, log: StructuredLogger) -> None:
        self._registration, self._time_source, self._log = registration, timing, log
        self._checks: tuple[Check, ...] = ()
        self._started = asyncio.Event()
        self._failure_count = FAILURE_THRESHOLD
        """How often trouble was seen in a row. At the start nobody was told yet that there is none."""
        self._reported = ""

    async def start(self, *checks: Check) -> None:
        """The agent has started: say how things are."""
        self._checks = checks
        await self._check()
        self._started.set()

    async def run(self) -> None:
        """Keep looking, until cancelled."""
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
            except OSError as broken:
                why = str(broken)
            if why:
                return why
        return ""


async def find_disk_problem(root: Path) -> str:
    """Why nothing can be written into a directory, as far as its disk tells."""
    try:
        disk = os.statvfs(root)
    except OSError as broken:
        return f"`{root}` cannot be used: {broken.strerror}"
    if disk.f_flag & os.ST_RDONLY:
        return f"`{root}` is on a disk that cannot be written: it is mounted read-only"
    # What is kept back for the administrator is there for us only if we are one.
    blocks, files = (disk.f_bfree, disk.f_ffree) if os.geteuid() == 0 else (disk.f_bavail, disk.f_favail)
    if disk.f_blocks and blocks * disk.f_frsize < MIN_FREE_BYTES:
        return f"`{root}` is on a disk that is full"
    if disk.f_files and not files:
        return f"`{root}` is on a disk that takes no more files"
    return ""
