"""R-18: candidates for one lease on a real server, in made time, and whatever can happen to a leader.

Theory of operation: whoever leads writes its term into one object as fast as it can. The server's own watch
tells in which order these writes came to be. Terms may follow each other, but a term that was over may not
come back: then there would have been a time in which the writes of two leaders succeeded. A leader is killed;
frozen, with answers to its calls under way, and thawed when another leads; cut off from the server; or it
retires. How long it takes until another one writes is the time of the fail-over.

What is not shown: a process that is stopped between its last look at the clock and the system call that sends
a write. No lease helps against that; what a scheduler writes is checked by the server again.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass, field

from dray.client.client import Client
from dray.client.errors import NotLeaderError, ServerUnreachableError
from dray.client.leases import LeaderElector, LeadershipLostError, LeaseTiming
from dray.client.object_refs import get_kind
from dray.client.patches import MergePatch
from dray.client.rest_client import ClientOptions
from dray.client.timing import TimeSource
from dray.client.transport import (
    DEFAULT_TIMEOUT_SECONDS,
    TransportRequest,
    TransportResponse,
    TransportStream,
)
from tests.contract.api import Api, Watch, path, serving
from tests.contract.documents import config
from tests.faults.elections.timeless import LoopClock
from tests.support.in_process_transport import InProcessTransport

BOARD = get_kind("ConfigMap")
CANDIDATES = 4
FAULTS = ("kill", "freeze", "cut off", "retire")
LONGEST = 300.0
"""Seconds (made ones) after which a lease that nobody takes is a fault."""
SLOWEST_WAY = 1.5
"""Seconds a call takes to the server, and as long back, at most."""


class Judge:
    """Reads the terms in the order in which the server wrote them."""

    def __init__(self) -> None:
        self.writes = 0
        self.terms: list[str] = []
        self.returned: list[str] = []
        self.news = asyncio.Event()

    def saw(self, term: str) -> None:
        self.writes += 1
        if not self.terms or self.terms[-1] != term:
            if term in self.terms:
                self.returned.append(f"term {term} wrote again after {self.terms[-1]} had begun")
            self.terms.append(term)
        self.news.set()
        self.news.clear()

    @property
    def last(self) -> str:
        return self.terms[-1] if self.terms else ""


class Way:
    """The way of one process to the server, and its being awake or not."""

    def __init__(self, api: Api, chance: random.Random) -> None:
        self._inner = InProcessTransport(api.app, "admin", ("system:masters", "system:authenticated"))
        self._chance = chance
        self._under_way: set[asyncio.Task[TransportResponse]] = set()
        self.cut = False
        self.awake = asyncio.Event()
        self.awake.set()

    @property
    def address(self) -> str:
        return "the server"

    async def request(
        self, request: TransportRequest, *, timeout: float = DEFAULT_TIMEOUT_SECONDS
    ) -> TransportResponse:
        # What was sent arrives, whether or not anybody still waits for the answer.
        delivery = asyncio.create_task(self._delivered(request))
        self._under_way.add(delivery)
        delivery.add_done_callback(self._arrived)
        reply = await asyncio.shield(delivery)
        await self.awake.wait()
        return reply

    async def _delivered(self, request: TransportRequest) -> TransportResponse:
        await self._along()
        reply = await self._inner.request(request)
        await self._along()
        return reply

    def _arrived(self, delivery: asyncio.Task[TransportResponse]) -> None:
        self._under_way.discard(delivery)
        if not delivery.cancelled():
            delivery.exception()  # whoever sent it was told, if still there

    async def _along(self) -> None:
        await asyncio.sleep(self._chance.choice((0.001, 0.01, 0.2, SLOWEST_WAY)))
        if self.cut:
            raise ServerUnreachableError("the line is cut")

    def stream(
        self, request: TransportRequest, *, idle_timeout: float
    ) -> AbstractAsyncContextManager[TransportStream]:
        raise ServerUnreachableError("nobody watches here")

    async def close(self) -> None:
        return None


class Candidate:
    """A process that wants to lead, and writes its term while it does."""

    def __init__(self, api: Api, name: str, chance: random.Random, *, fenced: bool = True) -> None:
        self.name, self._chance = name, chance
        self.way = Way(api, chance)
        clock = LoopClock(asyncio.get_running_loop())
        tempo = TimeSource(clock, self._sleep, chance.random)
        client = Client(self.way, ClientOptions(time_source=tempo, max_attempts=1))
        self._election = LeaderElector(client, "leader", "kube-system", name, LeaseTiming())
        self._client = client.guard_writes(lambda: self._election.is_leader) if fenced else client
        self._numbers = itertools.count(1)
        self._task = asyncio.create_task(self._live())

    async def _sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        await self.way.awake.wait()

    async def _live(self) -> None:
        while True:
            with suppress(LeadershipLostError):
                await self._election.run(self._lead)

    async def _lead(self) -> None:
        term = f"{self.name}.{next(self._numbers)}"
        for number in itertools.count():
            change = MergePatch({"data": {"term": term, "number": str(number)}})
            with suppress(ServerUnreachableError, NotLeaderError):
                await self._client.patch(BOARD, "board", change, "default")
            if self._chance.random() < 0.5:
                await self._sleep(self._chance.uniform(0.05, 0.5))
            # Otherwise at once: whoever wakes up has something to write before anything else happens.

    async def retire(self) -> None:
        """End as a process does that was asked to."""
        self._task.cancel()
        await asyncio.wait([self._task])

    async def kill(self) -> None:
        """Gone without a word."""
        self.way.cut = True
        await self.retire()


@dataclass
class Tally:
    """What a run came to."""

    faults: dict[str, list[float]] = field(default_factory=lambda: {fault: [] for fault in FAULTS})
    writes: int = 0
    terms: int = 0
    returned: list[str] = field(default_factory=list)
    stuck: int = 0

    @property
    def fail_overs(self) -> int:
        return sum(map(len, self.faults.values()))

    def sound(self) -> bool:
        return not self.returned and not self.stuck

    def __str__(self) -> str:
        lines = [
            f"{self.fail_overs:,} fail-overs, {self.terms:,} terms, {self.writes:,} writes; "
            f"two leaders wrote at once: {len(self.returned)}, nobody took over: {self.stuck}"
        ]
        for fault, times in self.faults.items():
            if times:
                ordered = sorted(times)
                p50, p99 = (ordered[min(int(len(ordered) * part), len(ordered) - 1)] for part in (0.5, 0.99))
                lines.append(
                    f"  {fault}: {len(times)} times, until another wrote p50 {p50:.1f} s, p99 {p99:.1f} s, "
                    f"longest {ordered[-1]:.1f} s"
                )
        return "\n".join([*lines, *(f"  {each}" for each in self.returned[:5])])


class Campaign:
    """Fail-over after fail-over."""

    def __init__(self, api: Api, seed: int, *, fenced: bool = True) -> None:
        self._api = api
        self._chance = random.Random(seed)
        self._fenced = fenced
        self._numbers = itertools.count(1)
        self._judge = Judge()
        self._candidates: dict[str, Candidate] = {}
        self._later: set[asyncio.Task[None]] = set()
        self.tally = Tally()

    async def run(self, fail_overs: int) -> Tally:
        await self._api.create(config("board"))
        watching = asyncio.create_task(self._watch())
        for _ in range(CANDIDATES):
            self._join()
        try:
            await self._another("")
            for _ in range(fail_overs):
                await self._one()
                if self.tally.stuck:
                    break
            await asyncio.sleep(60)
        finally:
            for task in self._later:
                task.cancel()
            for candidate in self._candidates.values():
                await candidate.kill()
            watching.cancel()
            await asyncio.wait([watching])
        tally, judge = self.tally, self._judge
        tally.writes, tally.terms, tally.returned = judge.writes, len(judge.terms), judge.returned
        return tally

    def _join(self) -> None:
        name = f"c{next(self._numbers)}"
        self._candidates[name] = Candidate(self._api, name, self._chance, fenced=self._fenced)

    async def _watch(self) -> None:
        query = {"watch": "true", "resourceVersion": "0", "timeoutSeconds": str(10**8)}
        transport = InProcessTransport(self._api.app, "admin", ("system:masters", "system:authenticated"))
        async with transport.stream(
            TransportRequest("GET", path("configmaps"), query), idle_timeout=1e9
        ) as stream:
            events = Watch(stream)
            while True:
                document = (await events.event())["object"]
                term = document.get("data", {}).get("term")
                if term is not None:
                    self._judge.saw(str(term))

    async def _one(self) -> None:
        """Something happens to the leader; another one must take over."""
        await asyncio.sleep(self._chance.uniform(0, 12))
        term = self._judge.last
        leader = self._candidates.get(term.partition(".")[0])
        if leader is None:
            return  # a late write of somebody who is gone; the judge has seen it
        fault = self._chance.choice(FAULTS)
        began = asyncio.get_running_loop().time()
        await self._befall(leader, fault)
        if await self._another(leader.name):
            self.tally.faults[fault].append(asyncio.get_running_loop().time() - began)
        if leader.name in self._candidates:
            task = asyncio.create_task(_recover(leader, self._chance.uniform(0, 8)))
            self._later.add(task)
            task.add_done_callback(self._later.discard)

    async def _befall(self, leader: Candidate, fault: str) -> None:
        if fault in ("kill", "retire"):
            await (leader.kill() if fault == "kill" else leader.retire())
            del self._candidates[leader.name]
            self._join()
        elif fault == "freeze":
            leader.way.awake.clear()
        else:
            leader.way.cut = True

    async def _another(self, than: str) -> bool:
        """Wait until somebody else writes."""
        try:
            async with asyncio.timeout(LONGEST):
                while self._judge.last.partition(".")[0] in ("", than):
                    await self._judge.news.wait()
        except TimeoutError:
            self.tally.stuck += 1
            return False
        return True


async def _recover(leader: Candidate, seconds: float) -> None:
    """It wakes, or finds the way again, when another one leads."""
    await asyncio.sleep(seconds)
    leader.way.awake.set()
    leader.way.cut = False


async def campaign(fail_overs: int, seed: int, *, fenced: bool = True) -> Tally:
    """So many fail-overs."""
    async with serving() as api:
        return await Campaign(api, seed, fenced=fenced).run(fail_overs)
