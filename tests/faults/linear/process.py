"""The connection to a process with a store, which is killed, paused and restarted."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec

from dray.store.errors import OutcomeUnknownError, StoreUnreachableError
from tests.faults.linear.host import Ask, Tell
from tests.outside import ROOT


class Hosted:
    """A store in a process of its own."""

    def __init__(self, path: Path, fault: str = "") -> None:
        self._path = path
        self._fault = fault
        self._open: dict[int, asyncio.Future[Tell]] = {}
        self._process: asyncio.subprocess.Process | None = None
        self._reading: asyncio.Task[None] | None = None
        self.kills = 0
        self.pauses = 0

    async def start(self) -> None:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
        command = [sys.executable, "-m", "tests.faults.linear.host", str(self._path), self._fault]
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            cwd=ROOT,
            env=environment,
            limit=1 << 20,
        )
        assert process.stdout is not None
        async with asyncio.timeout(30):
            assert await process.stdout.readline() == b"ready\n", "the store did not open"
        self._process = process
        self._reading = asyncio.create_task(self._read(process.stdout))

    async def ask(self, ask: Ask) -> Tell:
        if self._process is None or self._process.stdin is None:
            raise StoreUnreachableError("the store is being restarted")
        answer: asyncio.Future[Tell] = asyncio.get_running_loop().create_future()
        self._open[ask.number] = answer
        self._process.stdin.write(msgspec.json.encode(ask) + b"\n")
        return await answer

    async def kill(self) -> None:
        """Kill it like a power cut; pending requests never get an answer."""
        process, self._process = self._process, None
        if process is None or self._reading is None:
            return
        process.send_signal(signal.SIGKILL)
        await process.wait()
        await self._reading
        unanswered, self._open = self._open, {}
        for answer in unanswered.values():
            answer.set_exception(OutcomeUnknownError("the process was killed"))
        if process.stdin is not None:
            process.stdin.close()
            with contextlib.suppress(ConnectionError):
                await process.stdin.wait_closed()

    async def _read(self, stdout: asyncio.StreamReader) -> None:
        while line := await stdout.readline():
            if not line.endswith(b"\n"):
                return
            told = msgspec.json.decode(line, type=Tell)
            self._open.pop(told.number).set_result(told)

    async def disturb(self, rng: random.Random, pace: float, stop: asyncio.Event) -> None:
        """Kill and pause it again and again; it runs when this ends."""
        while not stop.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), rng.uniform(0.2, 1.0) * pace)
                return
            if rng.random() < 0.6:
                self.kills += 1
                await self.kill()
                await self.start()
            elif self._process is not None:
                self.pauses += 1
                self._process.send_signal(signal.SIGSTOP)
                await asyncio.sleep(rng.uniform(0.02, 0.2))
                self._process.send_signal(signal.SIGCONT)


@contextlib.asynccontextmanager
async def hosted(path: Path, fault: str = "") -> AsyncIterator[Hosted]:
    store = Hosted(path, fault)
    await store.start()
    try:
        yield store
    finally:
        await store.kill()
