"""R-14: restarts, updates and failures of drivers in random order, with their slices on a real server.

Theory of operation: one driver goes through scenarios while a second one is not disturbed. All the time
claims are prepared and unprepared through both, as for pods. While a scenario requires replies, no call may
fail and the driver must be registered. A driver's slices may be withdrawn only when it was away for the grace
period; their uids show that they are the same. The second driver must not be affected. The grace period
passes on a manual clock, so that the test neither waits for it nor depends on the load of the machine.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from dray.api.resource import ResourceSlice
from dray.client.client import Client
from dray.node.plugins.driver_interface import ClaimRef, DriverCallFailure
from dray.node.plugins.published_slices import PublishedSlices
from tests.contract.documents import node, resource_slice
from tests.contract.servers import reaching
from tests.e2e.plain_driver import PlainDriver
from tests.e2e.processes import Process
from tests.unit.node.registry_harness import GRACE, NAME, RegistryHarness, open_registry_harness, until

NODE = "node-a"
NEIGHBOUR = "neighbour.example.com"
KILLED = "killed.example.com"
TIMEOUT = 1.0
"""Seconds, real ones, after which a call to a driver that hangs is given up."""


@dataclass
class Tally:
    """What happened, and what should not have."""

    scenarios: Counter[str] = field(default_factory=Counter)
    calls: int = 0
    unanswered: int = 0
    withdrawals: int = 0
    kept: int = 0
    breaches: list[str] = field(default_factory=list)

    def sound(self) -> bool:
        return not self.breaches and self.calls > 0 and self.withdrawals > 0 and self.kept > 0

    def __str__(self) -> str:
        scenarios = ", ".join(f"{name} {count}" for name, count in sorted(self.scenarios.items()))
        return (
            f"scenarios: {scenarios}; {self.calls} calls, {self.unanswered} unanswered while nobody had to; "
            f"slices withdrawn {self.withdrawals} times, kept {self.kept} times; "
            f"breaches: {'; '.join(self.breaches[:5]) or 'none'}"
        )


class Campaign:
    """A place with two drivers and a server."""

    def __init__(self, here: RegistryHarness, client: Client, seed: int) -> None:
        self._here = here
        self._client = client
        self._random = random.Random(seed)
        self._numbers = itertools.count(1)
        self._must_answer = True
        self._excuses = 0
        self._driver: PlainDriver
        self.tally = Tally()

    async def run(self, rounds: int, kills: int) -> Tally:
        self._driver = await self._start(NAME)
        await self._start(NEIGHBOUR)
        neighbours = await self._slices(NEIGHBOUR)
        calling = [asyncio.create_task(self._call(name)) for name in (NAME, NEIGHBOUR)]
        scenarios = (self.unregister, self.restart, self.roll, self.roll_back, self.hang, self.wrong_version)
        plan = [scenarios[number % len(scenarios)] for number in range(rounds)] + [self.kill] * kills
        self._random.shuffle(plan)
        for scenario in plan:
            await scenario()
            self.tally.scenarios[scenario.__name__.replace("_", " ")] += 1
            self._judge(await self._slices(NEIGHBOUR) == neighbours, "the neighbour lost its slices")
        for task in calling:
            task.cancel()
        ended = await asyncio.gather(*calling, return_exceptions=True)
        self.tally.breaches += [repr(each) for each in ended if not isinstance(each, asyncio.CancelledError)]
        return self.tally

    def _judge(self, good: bool, what: str) -> None:
        if not good:
            self.tally.breaches.append(what)

    async def _start(self, name: str, **ways: str) -> PlainDriver:
        """Start a driver, as it would be: it publishes its slice and registers."""
        came = len(self._here.came)
        driver = await self._here.driver(name, instance=f"-{next(self._numbers)}", **ways)
        await self._publish(name)
        await self._here.until(lambda: len(self._here.came) > came)
        return driver

    async def _publish(self, name: str) -> None:
        if not await self._slices(name):
            document = resource_slice(f"{NODE}-{name}", NODE)
            document["spec"] |= {"driver": name, "pool": document["spec"]["pool"] | {"name": name}}
            await self._client.create(document)

    async def _slices(self, name: str) -> set[str]:
        """The uids of a driver's slices."""
        found = (await self._client.list(ResourceSlice)).items
        return {each.metadata.uid for each in found if each.spec.driver == name}

    def _excuse(self, excused: bool) -> None:
        """Set whether calls may fail from now on; a call in progress may also fail afterwards."""
        self._must_answer = not excused
        self._excuses += excused

    async def _call(self, name: str) -> None:
        """Prepare and unprepare claims one after the other, as for pods."""
        for number in itertools.count():
            claim = ClaimRef("default", f"c-{number}", f"{name}-{number}")
            for what in ("prepare", "unprepare"):
                before, must = self._excuses, self._must_answer
                line = self._here.registry.find_driver(name)
                if line is None:
                    self._judge(not must, f"there was no line to {name}")
                    continue
                outcome = (await getattr(line, what)([claim]))[claim.uid]
                self.tally.calls += 1
                if isinstance(outcome, DriverCallFailure):
                    self.tally.unanswered += 1
                    excused = name != NEIGHBOUR and (not must or self._excuses > before)
                    self._judge(excused, f"{what}: {outcome}")
            await asyncio.sleep(0.005)

    async def _gone(self) -> None:
        await self._here.until(lambda: self._here.registry.find_driver(NAME) is None)

    async def _kept(self, before: set[str], name: str = NAME) -> None:
        self._judge(await self._slices(name) == before, f"{name} lost its slices, and was not away for long")
        self.tally.kept += 1

    async def _withdrawn(self, name: str) -> None:
        """Let the rest of the grace time pass, and see the slices go."""
        self._here.pass_time(GRACE)
        withdrawals = self._here.went.count(name)
        async with asyncio.timeout(30):
            while await self._slices(name):
                await asyncio.sleep(0.01)
        self._judge(withdrawals > 0, f"nobody was told that {name} has gone")
        self.tally.withdrawals += 1

    # --- scenarios ---

    async def unregister(self) -> None:
        """A driver leaves and does not come back in time."""
        before = await self._slices(NAME)
        self._excuse(True)
        await self._driver.stop()
        await self._gone()
        self._here.pass_time(self._random.uniform(0, GRACE * 0.9))
        await self._kept(before)
        await self._withdrawn(NAME)
        self._driver = await self._start(NAME)
        self._excuse(False)

    async def restart(self) -> None:
        """A driver is away for less than the grace time."""
        before = await self._slices(NAME)
        self._excuse(True)
        await self._driver.stop()
        await self._gone()
        self._here.pass_time(self._random.uniform(0, GRACE * 0.9))
        await self._here.started(self._driver)
        await self._here.registered()
        self._excuse(False)
        self._here.pass_time(GRACE * 2)
        await self._kept(before)

    async def roll(self) -> None:
        """Start a new instance before the old one ends: no call fails."""
        before, old = await self._slices(NAME), self._driver
        self._driver = await self._start(NAME)
        await until(lambda: bool(self._driver.calls))
        self._here.pass_time(self._random.uniform(0, GRACE * 2))
        calls = len(old.calls)
        await old.stop(grace=10)
        self._judge(len(old.calls) <= calls + 1, "an instance was called after a newer one had come")
        await self._alone()
        self._here.pass_time(GRACE * 2)
        await self._kept(before)

    async def roll_back(self) -> None:
        """A new instance comes, answers, and leaves again: the old one goes on."""
        before, old = await self._slices(NAME), self._driver
        new = await self._start(NAME)
        await until(lambda: bool(new.calls))
        calls = len(old.calls)
        self._excuse(True)
        await new.stop()
        await self._alone()
        self._excuse(False)
        await until(lambda: len(old.calls) > calls)
        self._here.pass_time(GRACE * 2)
        await self._kept(before)

    async def _alone(self) -> None:
        await self._here.until(
            lambda: (
                [each.registration.name for each in self._here.registry._list_instances()].count(NAME) == 1
            )
        )

    async def hang(self) -> None:
        """A driver does not answer calls any more; it is still there, and so are its slices."""
        before = await self._slices(NAME)
        self._excuse(True)
        missed = self.tally.unanswered
        self._driver.hangs |= {"NodePrepareResources", "NodeUnprepareResources"}
        await until(lambda: self.tally.unanswered > missed + 1)
        self._here.pass_time(GRACE * 2)
        self._judge(self._here.registry.find_driver(NAME) is not None, "a driver that hangs was dropped")
        self._driver.hangs.clear()
        calls = len(self._driver.calls)
        await until(lambda: len(self._driver.calls) > calls + 2)
        self._excuse(False)
        await self._kept(before)

    async def wrong_version(self) -> None:
        """Start a second instance without a supported service: it is refused, and the first one continues."""
        before, here = await self._slices(NAME), self._here
        lost = await here.driver(NAME, instance=f"-{next(self._numbers)}", versions=("v9.DRAPlugin",))
        await here.until(lambda: bool(lost.statuses))
        registered, why = lost.statuses[0]
        self._judge(not registered and "offers `v9.DRAPlugin`" in why, f"it was told: {registered} {why}")
        here.pass_time(GRACE * 2)
        calls = len(self._driver.calls)
        await until(lambda: len(self._driver.calls) > calls)
        self._judge(not lost.calls, "an instance that was refused was called")
        await lost.stop()
        await self._kept(before)

    async def kill(self) -> None:
        """A process is killed and leaves its sockets: gone after the grace time, unless it is back."""
        here = self._here
        folder = here.plugins / "killed"
        places = ["--registry", here.registrations, "--plugins", folder]
        program = [sys.executable, "-m", "tests.e2e.plain_driver", "--name", KILLED, *map(str, places)]
        process = Process(program, here.cdi / "killed.log", f"{KILLED} is ready")
        try:
            await self._published(process)
            before = await self._slices(KILLED)
            await self._killed(process)
            if self._random.random() < 0.5:
                await self._published(process)
                here.pass_time(GRACE * 2)
                await self._kept(before, KILLED)
                await self._killed(process)
            await self._withdrawn(KILLED)
            self._judge(here.registry.find_driver(KILLED) is None, "a driver that was killed is still there")
        finally:
            await asyncio.to_thread(process.stop, signal.SIGKILL)

    async def _published(self, process: Process) -> None:
        came = len(self._here.came)
        await asyncio.to_thread(process.start)
        await self._publish(KILLED)
        await self._here.until(lambda: len(self._here.came) > came)

    async def _killed(self, process: Process) -> None:
        """Kill it, and let less than the grace time pass."""
        before = await self._slices(KILLED)
        await asyncio.to_thread(process.stop, signal.SIGKILL)
        await self._here.until(
            lambda: any(
                each.registration.name == KILLED and each.unreachable_since is not None
                for each in self._here.registry._list_instances()
            )
        )
        self._here.pass_time(self._random.uniform(0, GRACE * 0.9))
        await self._kept(before, KILLED)


@asynccontextmanager
async def campaign(folder: Path, seed: int) -> AsyncIterator[Campaign]:
    """A campaign on a server of its own."""
    async with reaching("inside", folder) as reach:
        client = reach.client()
        await client.create(node(NODE))
        async with open_registry_harness(TIMEOUT, PublishedSlices(client, NODE).withdraw) as here:
            yield Campaign(here, client, seed)
