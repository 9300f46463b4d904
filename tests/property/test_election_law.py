"""At most one candidate leads at any moment, whatever the clocks, random choices and network do.

Time is simulated: every candidate sleeps on one calendar, with its own clock that has an offset and runs up
to one percent fast or slow. Calls take time in both directions and get lost in either; candidates are killed,
or stop and release the lease. After every step at most one of them believes to be the leader.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from random import Random
from types import SimpleNamespace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from dray.client.errors import AlreadyExistsError, ConflictError, NotFoundError, ServerUnreachableError
from dray.client.leases import LeaderElector
from dray.client.timing import TimeSource
from tests.effort import effort

START = datetime(2026, 1, 1, tzinfo=UTC)


class World:
    """The calendar, and the one lease there is."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.now = 0.0
        self.lease: dict[str, Any] | None = None
        self.version = 0
        self._numbers = itertools.count()
        self._calendar: list[tuple[float, int, asyncio.Future[None]]] = []

    async def sleep(self, seconds: float) -> None:
        wake: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._calendar, (self.now + seconds, next(self._numbers), wake))
        await wake

    async def settle(self) -> None:
        for _ in range(8):
            await asyncio.sleep(0)

    async def step(self) -> bool:
        """Go to the next moment at which something happens."""
        await self.settle()
        while self._calendar:
            moment, _, wake = heapq.heappop(self._calendar)
            if not wake.done():
                self.now = moment
                wake.set_result(None)
                await self.settle()
                return True
        return False

    def write(self, spec: dict[str, Any]) -> dict[str, Any]:
        self.version += 1
        self.lease = {"metadata": {"resourceVersion": str(self.version)}, "spec": spec}
        return self.lease


class Wire:
    """A client whose calls take time and get lost."""

    def __init__(self, world: World, time_source: TimeSource, loss: float) -> None:
        self.world, self.loss = world, loss
        self.options = SimpleNamespace(time_source=time_source)
        self.cut = False

    async def _on_the_way(self, work: Callable[[], Any]) -> Any:
        random = self.world.random
        await self.world.sleep(random.choice((0.001, 0.1, 4.0, 12.0)))
        if self.cut or random.random() < self.loss:
            raise ServerUnreachableError("lost on the way there")
        answer = work()
        await self.world.sleep(random.choice((0.001, 0.1, 4.0, 12.0)))
        if random.random() < self.loss:
            raise ServerUnreachableError("lost on the way back")
        return answer

    async def get(self, *_: Any) -> Any:
        def work() -> Any:
            if self.world.lease is None:
                raise NotFoundError(404, {})
            return self.world.lease

        return await self._on_the_way(work)

    async def create(self, lease: dict[str, Any]) -> Any:
        def work() -> Any:
            if self.world.lease is not None:
                raise AlreadyExistsError(409, {})
            return self.world.write(lease["spec"])

        return await self._on_the_way(work)

    async def patch(self, _kind: Any, _name: str, change: Any, _namespace: str) -> Any:
        def work() -> Any:
            stored = self.world.lease
            assert stored is not None
            if change.document["metadata"]["resourceVersion"] != stored["metadata"]["resourceVersion"]:
                raise ConflictError(409, {})
            spec = stored["spec"] | change.document["spec"]
            return self.world.write({name: value for name, value in spec.items() if value is not None})

        return await self._on_the_way(work)


class DriftingClock:
    """A clock that started elsewhere and runs a little fast or slow."""

    def __init__(self, world: World, ahead: float, rate: float) -> None:
        self._world, self._ahead, self.rate = world, ahead, rate

    def monotonic(self) -> float:
        return self._ahead + self._world.now * self.rate

    def now(self) -> datetime:
        return START + timedelta(seconds=self.monotonic())


class Candidate:
    """A process that wants to lead again and again."""

    def __init__(self, world: World, name: str, loss: float) -> None:
        random = world.random
        self._clock = DriftingClock(world, random.uniform(0, 10_000), random.uniform(0.99, 1.01))
        self._world = world
        time_source = TimeSource(self._clock, self._sleep, random.random)
        self.wire = Wire(world, time_source, loss)
        self.election = LeaderElector(self.wire, "l", "n", name)  # type: ignore[arg-type]
        self.terms = 0
        self.task = asyncio.ensure_future(self._live())

    def _sleep(self, seconds: float) -> Awaitable[None]:
        return self._world.sleep(seconds / self._clock.rate)

    async def _live(self) -> None:
        async def lead() -> None:
            self.terms += 1
            await self._sleep(self._world.random.choice((5.0, 60.0, 10_000.0)))

        while True:
            with suppress(Exception):
                await self.election.run(lead)
            await self._sleep(1.0)

    def kill(self) -> None:
        """Gone without a word: nothing it sends arrives any more."""
        self.wire.cut = True
        self.task.cancel()


async def lived(seed: int, loss: float, kills: int) -> int:
    """Ten minutes of elections; how many terms there were."""
    world = World(Random(seed))
    candidates = [Candidate(world, f"c{number}", loss) for number in range(3)]
    ends = sorted(world.random.uniform(0, 500) for _ in range(kills))
    while world.now < 600 and await world.step():
        leading = [c.election.identity for c in candidates if not c.wire.cut and c.election.is_leader]
        assert len(leading) <= 1, f"at {world.now}: {leading}"
        if ends and world.now > ends[0]:
            ends.pop(0)
            victim = world.random.choice([c for c in candidates if not c.wire.cut])
            victim.kill()
            candidates.append(Candidate(world, f"c{len(candidates)}", loss))
    for candidate in candidates:
        candidate.wire.cut = True
        candidate.task.cancel()
    while any(not candidate.task.done() for candidate in candidates) and await world.step():
        pass
    return sum(candidate.terms for candidate in candidates)


@effort(0.15)
@given(st.integers(0, 2**32), st.sampled_from([0.0, 0.1, 0.4]), st.integers(0, 5))
def test_at_most_one_leads_at_any_moment(seed, loss, kills):
    assert asyncio.run(lived(seed, loss, kills)) > 0
