"""R-08 at the ledger: a server, several writers that are killed at random, and a judge on the event log."""

from __future__ import annotations

import asyncio
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dray.api.json_text import read_json
from dray.client.errors import ClientError
from dray.client.transport import TransportRequest
from tests.faults.ledger.api import CLAIMS, MERGE, PREPARATIONS, SLICES, Api
from tests.faults.ledger.checker import Judge
from tests.faults.ledger.contested_devices import (
    Size,
    allocation,
    claim,
    devices_of,
    pool_name,
    preparation,
    slices,
)

AT_ONCE = 32
LONGEST = 1800


@dataclass
class Tally:
    """What a run came to."""

    writers: int
    judge: Judge
    seconds: float = 0.0
    killed: int = 0
    figures: Counter[str] = field(default_factory=Counter)
    leaked: int = 0
    agrees: bool = True
    left: int = 0

    def sound(self) -> bool:
        """Nothing was handed out twice, and nothing was left behind."""
        return not self.judge.violations and not self.leaked and self.agrees and not self.left

    def __str__(self) -> str:
        judge, attempts = self.judge, max(self.figures["attempts"], 1)
        return (
            f"M={self.writers}: {judge.allocations:,} allocations in {self.seconds:.1f} s "
            f"({judge.allocations / max(self.seconds, 0.001):.0f}/s), {self.killed} writers killed, "
            f"{100 * self.figures['conflicts'] / attempts:.1f} % of {attempts:,} attempts denied, "
            f"{judge.quarantined} quarantined; double holders {judge.double}, "
            f"capacity over-use {judge.overuse}, counters overdrawn {judge.overdrawn}, "
            f"leaked rows {self.leaked}, claims left {self.left}, "
            f"ledger and claims agree: {'yes' if self.agrees else 'NO'}"
        )


@asynccontextmanager
async def hosted(directory: Path, *, ledger: bool = True) -> AsyncIterator[str]:
    """The kubeconfig of a server in a process of its own."""
    arguments = ["-m", "tests.faults.ledger.host", str(directory), *([] if ledger else ["--no-ledger"])]
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(sys.executable, *arguments, stdin=pipe, stdout=pipe)
    try:
        assert process.stdout is not None
        kubeconfig = (await asyncio.wait_for(process.stdout.readline(), 60)).decode().strip()
        assert kubeconfig, "the server did not start"
        yield kubeconfig
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


async def _each(api: Api, path: str, documents: list[Any]) -> None:
    """Create objects, some at a time."""
    waiting = iter(documents)

    async def some() -> None:
        for document in waiting:
            code, answer = await api.send("POST", path, document)
            assert code == 201, answer

    async with asyncio.TaskGroup() as tasks:
        for _ in range(AT_ONCE):
            tasks.create_task(some())


class Log:
    """Every event of claims and preparations, with its revision."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._events: list[tuple[int, str, str, dict[str, Any]]] = []
        self._seen: dict[str, int] = {}
        self._gone: set[str] = set()

    async def follow(self, path: str, revision: int) -> None:
        """Take down every event under a path, for ever; a watch that ends is taken up again."""
        self._seen[path] = revision
        while True:
            query = {"watch": "true", "resourceVersion": str(self._seen[path]), "allowWatchBookmarks": "true"}
            rest = b""
            try:
                async with self._api.transport.stream(
                    TransportRequest("GET", path, query), idle_timeout=60
                ) as stream:
                    assert stream.code == 200, stream.code
                    async for chunk in stream.chunks:
                        *lines, rest = (rest + chunk).split(b"\n")
                        for line in lines:
                            self._take(path, read_json(line))
            except ClientError:
                await asyncio.sleep(0.05)

    def _take(self, path: str, event: dict[str, Any]) -> None:
        sort, document = event["type"], event["object"]
        assert sort != "ERROR", document
        revision = int(document["metadata"]["resourceVersion"])
        self._seen[path] = revision
        if sort != "BOOKMARK":
            self._events.append((revision, path, sort, document))
        if sort == "DELETED":
            self._gone.add(document["metadata"]["name"])

    async def saw_go(self, names: set[str], following: Sequence[asyncio.Task[None]]) -> None:
        """Wait until the end of these has been told; everything before has been told then, too."""
        while not names <= self._gone:
            await asyncio.sleep(0.02)
            for task in following:
                if task.done():
                    task.result()

    def judged(self) -> Judge:
        judge = Judge()
        for _, path, sort, document in sorted(self._events, key=lambda event: event[0]):
            (judge.claim if path == CLAIMS else judge.preparation)(sort, document)
        return judge


class Campaign:
    """One run with so many writers."""

    def __init__(self, directory: Path, writers: int, size: Size, seed: int, *, ledger: bool = True) -> None:
        self._directory = directory
        self._size = size
        self._ledger = ledger
        self._rng = random.Random(seed)
        self.tally = Tally(writers, Judge())

    async def run(self) -> Tally:
        self._directory.mkdir(parents=True, exist_ok=True)
        async with (
            asyncio.timeout(LONGEST),
            hosted(self._directory / "server", ledger=self._ledger) as kubeconfig,
        ):
            api = Api(kubeconfig)
            try:
                await self._furnish(api)
                log = Log(api)
                _, start = await api.send("GET", CLAIMS, limit="1")
                begin = int(start["metadata"]["resourceVersion"])
                following = [asyncio.create_task(log.follow(path, begin)) for path in (CLAIMS, PREPARATIONS)]
                begun = time.monotonic()
                await self._fight(kubeconfig)
                self.tally.seconds = time.monotonic() - begun
                await self._tidy(api)
                async with asyncio.timeout(60):
                    await log.saw_go(await self._farewell(api), following)
                for task in following:
                    task.cancel()
                await asyncio.gather(*following, return_exceptions=True)
                self.tally.judge = log.judged()
            finally:
                await api.close()
        return self.tally

    async def _furnish(self, api: Api) -> None:
        await _each(api, SLICES, list(slices(self._size)))
        await _each(api, CLAIMS, [claim(number) for number in range(self._size.claims)])

    async def _fight(self, kubeconfig: str) -> None:
        async with asyncio.TaskGroup() as tasks:
            for number in range(self.tally.writers):
                tasks.create_task(self._writer(kubeconfig, number))

    async def _writer(self, kubeconfig: str, number: int) -> None:
        """A writer, and after it was killed another one in its place."""
        journal = self._directory / f"journal-{number}"
        held = max(int(self._size.devices * self._size.held / self.tally.writers), 2)
        kills = self._size.kills // self.tally.writers + (number < self._size.kills % self.tally.writers)
        while True:
            seed = self._rng.randrange(2**32)
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                *("-m", "tests.faults.ledger.writer", kubeconfig, str(journal), str(seed)),
                *(str(self._size.pools), str(held), f"{number}/{self.tally.writers}"),
                stdout=asyncio.subprocess.PIPE,
            )
            if kills and await self._killed(process):
                kills -= 1
                self.tally.killed += 1
                continue
            assert process.stdout is not None
            told = (await process.stdout.read()).decode()
            assert await process.wait() == 0, f"writer {number} failed"
            for word in told.split():
                name, _, figure = word.partition("=")
                self.tally.figures[name] += int(figure)
            return

    async def _killed(self, process: asyncio.subprocess.Process) -> bool:
        """Whether the writer was still at work when its time came."""
        try:
            await asyncio.wait_for(process.wait(), 1.5 + self._rng.random() * 3)
        except TimeoutError:
            with suppress(ProcessLookupError):  # it ended by itself just now
                process.kill()
        return await process.wait() == -signal.SIGKILL

    async def _farewell(self, api: Api) -> set[str]:
        """Something that comes and goes after everything else, on both watches."""
        last = f"c{self._size.claims}"
        path, place = f"{CLAIMS}/{last}", (pool_name(0), devices_of("dedicated")[0])
        await _each(api, CLAIMS, [claim(self._size.claims)])
        _, given = await api.send("PATCH", f"{path}/status", allocation("", place, self._rng), MERGE)
        await _each(api, PREPARATIONS, [preparation(f"p-{last}", "n1", last, given["metadata"]["uid"])])
        for gone in (f"{PREPARATIONS}/p-{last}", path):
            assert (await api.send("DELETE", gone))[0] == 200
        return {last, f"p-{last}"}

    async def _tidy(self, api: Api) -> None:
        """What must be true when everybody has gone."""
        self.tally.left = len(await api.everything(CLAIMS)) + len(await api.everything(PREPARATIONS))
        code, report = await api.send("GET", "/dray/ledger", entries="true")
        assert code == 200, report
        self.tally.agrees = report["agrees"]
        self.tally.leaked = report["rows"]
