"""R-10: a server, and a scheduler and a controller beside it that are killed while pods come and go."""

from __future__ import annotations

import asyncio
import random
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

from dray.api.core import Pod
from dray.api.resource import ResourceClaim
from dray.client.client import Client
from dray.client.config.kubeconfig import load_client_config
from dray.client.transports.http import HttpTransport
from tests.faults.ledger.campaign import hosted
from tests.faults.restarts.churn import Churn
from tests.faults.restarts.order import OVER, disorder

SERVICES = ("scheduler", "controller")
GRACE = 60.0
"""Seconds after which everything is in order again."""


@dataclass
class Tally:
    """What a run came to."""

    seconds: float = 0.0
    made: int = 0
    killed: dict[str, int] = field(default_factory=lambda: dict.fromkeys(SERVICES, 0))
    bound: int = 0
    pending: int = 0
    settled: float = 0.0
    wrong: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    rows: int = 0
    agrees: bool = True

    def sound(self) -> bool:
        return not self.wrong and not self.left and not self.rows and self.agrees

    def __str__(self) -> str:
        killed = ", ".join(f"{name} {count} times" for name, count in self.killed.items())
        return (
            f"{self.seconds:.0f} s of churn, {self.made:,} pods; killed: {killed}; in order after "
            f"{self.settled:.1f} s: {self.bound} pods on nodes, {self.pending} waiting with a reason; "
            f"not in order: {len(self.wrong)}; left when all had gone: {len(self.left)} claims, "
            f"{self.rows} rows of the ledger; ledger and claims agree: {'yes' if self.agrees else 'NO'}"
            + "".join(f"\n  {each}" for each in (*self.wrong, *self.left)[:20])
        )


class Killed:
    """A service that is killed now and then, and started again."""

    def __init__(self, name: str, kubeconfig: str, log: Path, *options: str) -> None:
        self.name = name
        self._arguments = ["-m", "dray", name, "--kubeconfig", kubeconfig, "--no-leader-elect", *options]
        self._log = log
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        with self._log.open("ab") as lines:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable, *self._arguments, stdout=lines, stderr=lines
            )

    def tell(self, what: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(what)

    async def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        process, self._process = self._process, None
        if process is not None:
            assert process.returncode is None, (
                f"{self.name} ended by itself:\n{self._log.read_text()[-4000:]}"
            )
            process.send_signal(how)
            await process.wait()


class Campaign:
    """One run."""

    def __init__(self, folder: Path, seed: int) -> None:
        self._folder = folder
        self._rng = random.Random(seed)
        self.tally = Tally()

    async def run(self, seconds: float, pauses: tuple[float, float] = (3.0, 8.0)) -> Tally:
        async with AsyncExitStack() as stack:
            kubeconfig = await stack.enter_async_context(hosted(self._folder / "server"))
            client = Client(HttpTransport(load_client_config(kubeconfig)))
            stack.push_async_callback(client.close)
            services = [Killed(name, kubeconfig, self._folder / f"{name}.log") for name in SERVICES]
            churn = Churn(client, self._rng)
            await churn.furnish()
            for service in services:
                await service.start()
                stack.push_async_callback(service.stop)
            began = time.monotonic()
            killing = asyncio.create_task(self._kill(services, pauses))
            await churn.go_on(seconds)
            killing.cancel()
            await asyncio.wait([killing])
            if not killing.cancelled():
                killing.result()
            self.tally.seconds, self.tally.made = time.monotonic() - began, churn.made
            await self._judge(client)
            await churn.leave()
            await self._empty(client)
        return self.tally

    async def _kill(self, services: list[Killed], pauses: tuple[float, float]) -> None:
        while True:
            await asyncio.sleep(self._rng.uniform(*pauses))
            victim = self._rng.choice(services)
            # The one that was killed is started before anything else can be cancelled.
            await asyncio.shield(self._again(victim))

    async def _again(self, victim: Killed) -> None:
        await victim.stop(signal.SIGKILL)
        self.tally.killed[victim.name] += 1
        await victim.start()

    async def _judge(self, client: Client) -> None:
        """Wait until everything is in order."""
        began = time.monotonic()
        pods: Sequence[Pod] = ()
        while time.monotonic() < began + GRACE:
            pods = (await client.list(Pod, "default")).items
            self.tally.wrong = disorder(pods, (await client.list(ResourceClaim, "default")).items)
            if not self.tally.wrong:
                break
            await asyncio.sleep(0.25)
        self.tally.settled = time.monotonic() - began
        alive = [pod for pod in pods if pod.status.phase not in OVER]
        self.tally.bound = sum(bool(pod.spec.node_name) for pod in alive)
        self.tally.pending = len(alive) - self.tally.bound

    async def _empty(self, client: Client) -> None:
        """Wait until nothing is left."""
        end = time.monotonic() + GRACE
        claims: Sequence[ResourceClaim] = ()
        while time.monotonic() < end:
            claims = (await client.list(ResourceClaim, "default")).items
            if not claims:
                break
            await asyncio.sleep(0.25)
        self.tally.left = [f"claim {found.metadata.name} is left" for found in claims]
        report = await client.get_json("/dray/ledger")
        self.tally.rows, self.tally.agrees = report["rows"], report["agrees"]
