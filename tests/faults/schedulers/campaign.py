"""R-08 with real schedulers: `dray scheduler` several times, without election, on one server.

Theory of operation: every scheduler has pods of its own (its name is in them) and sees the same devices. All
look for the first one that is free, so they meet all the time; the ledger of the server decides. Schedulers
are killed at random. Pods stay for a moment and go with their claims. The judge of the ledger's own campaign
reads the events of all claims afterwards.
"""

from __future__ import annotations

import asyncio
import random
import signal
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dray.api.core import Pod
from dray.client.client import Client, DeleteOptions
from dray.client.config.kubeconfig import load_client_config
from dray.client.object_refs import get_kind
from dray.client.transports.http import HttpTransport
from tests.e2e.use_case_cluster import named, node, pod
from tests.faults.ledger.api import CLAIMS, PREPARATIONS, Api
from tests.faults.ledger.campaign import Log, hosted
from tests.faults.ledger.checker import Judge
from tests.faults.ledger.contested_devices import AMOUNTS, Size, claim, slices, sort_of
from tests.faults.restarts.campaign import Killed

POD = get_kind("Pod")
CLAIM = get_kind("ResourceClaim.resource.k8s.io")
SORTS = ("dedicated", "shared", "partition")
LONGEST = 1800.0

Document = dict[str, Any]


@dataclass
class Tally:
    """What a run came to."""

    schedulers: int
    judge: Judge = field(default_factory=Judge)
    pods: int = 0
    seconds: float = 0.0
    killed: int = 0
    denied: int = 0
    left: int = 0
    rows: int = 0
    agrees: bool = True

    def sound(self) -> bool:
        return not self.judge.violations and not self.left and not self.rows and self.agrees

    def __str__(self) -> str:
        judge = self.judge
        return (
            f"M={self.schedulers}: {self.pods:,} pods, {judge.allocations:,} allocations in "
            f"{self.seconds:.1f} s ({self.pods / max(self.seconds, 0.001):.0f} pods/s), {self.killed} "
            f"schedulers killed, {self.denied} placements denied; double holders {judge.double}, capacity "
            f"over-use {judge.overuse}, counters overdrawn {judge.overdrawn}, leaked rows {self.rows}, "
            f"claims left {self.left}, ledger and claims agree: {'yes' if self.agrees else 'NO'}"
        )


def _furniture(pools: int) -> Iterator[Document]:
    for sort in SORTS:
        expression = f'device.attributes["gpu.example.com"].sort == "{sort}"'
        yield {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "DeviceClass",
            "metadata": {"name": sort},
            "spec": {"selectors": [{"cel": {"expression": expression}}]},
        }
    for number in range(4):
        resources = {"cpu": "64", "memory": "64Gi", "pods": "10000"}
        yield node(f"n{number}") | {"status": {"capacity": resources, "allocatable": resources}}
    for published in slices(Size(pools=pools, claims=0, kills=0)):
        for device in published["spec"].get("devices", ()):
            device["attributes"] = {"sort": {"string": device["name"].partition("-")[0]}}
        yield published


class Campaign:
    """One run with so many schedulers."""

    def __init__(self, folder: Path, schedulers: int, seed: int, *, ledger: bool = True) -> None:
        self._folder, self._ledger = folder, ledger
        self._chance = random.Random(seed)
        self.tally = Tally(schedulers)

    async def run(self, pods: int, pools: int, kills: int) -> Tally:
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(asyncio.timeout(LONGEST))
            where = self._folder / "server"
            kubeconfig = await stack.enter_async_context(hosted(where, ledger=self._ledger))
            client, api = Client(HttpTransport(load_client_config(kubeconfig))), Api(kubeconfig)
            stack.push_async_callback(client.close)
            stack.push_async_callback(api.close)
            for document in _furniture(pools):
                await client.create(document)
            services = await self._started(stack, kubeconfig)
            log = Log(api)
            following = [asyncio.create_task(log.follow(path, 1)) for path in (CLAIMS, PREPARATIONS)]
            began = time.monotonic()
            killing = asyncio.create_task(self._kill(services, kills))
            await self._place(client, pods, most=pools * 12)
            await killing
            self.tally.seconds = time.monotonic() - began
            await self._judged(api, log, following)
        texts = [file.read_text() for file in self._folder.glob("scheduler-*.log")]
        self.tally.denied = sum(text.count("binding failed") for text in texts)
        return self.tally

    async def _started(self, stack: AsyncExitStack, kubeconfig: str) -> list[Killed]:
        services = [
            Killed(
                "scheduler",
                kubeconfig,
                self._folder / f"scheduler-{number}.log",
                "--scheduler-name",
                f"s{number}",
            )
            for number in range(self.tally.schedulers)
        ]
        for service in (*services, Killed("controller", kubeconfig, self._folder / "controller.log")):
            await service.start()
            stack.push_async_callback(service.stop)
        return services

    async def _kill(self, services: list[Killed], kills: int) -> None:
        for _ in range(kills):
            await asyncio.sleep(self._chance.uniform(2, 5))
            victim = self._chance.choice(services)
            await victim.stop(signal.SIGKILL)
            await victim.start()
            self.tally.killed += 1

    async def _place(self, client: Client, count: int, most: int) -> None:
        """Make pods, at most so many at a time; those that have a node go after a moment."""
        made, there = 0, 0
        while made < count or there:
            fresh = min(most - there, count - made, 16)
            await asyncio.gather(*(self._made(client, made + number) for number in range(fresh)))
            made += fresh
            placed = [found for found in (await client.list(Pod, "default")).items if found.spec.node_name]
            going = [found.metadata.name for found in placed if self._chance.random() < 0.5]
            await asyncio.gather(*(self._gone(client, name) for name in going))
            self.tally.pods += len(going)
            there += fresh - len(going)
            await asyncio.sleep(0.1)

    async def _made(self, client: Client, number: int) -> None:
        asked = claim(number)
        if sort_of(number) == "shared":
            amount = {"memory": f"{self._chance.choice(AMOUNTS)}Gi"}
            asked["spec"]["devices"]["requests"][0]["exactly"]["capacity"] = {"requests": amount}
        await client.create(asked)
        name = asked["metadata"]["name"]
        whose = f"s{self._chance.randrange(self.tally.schedulers)}"
        document = pod(name, named(name), schedulerName=whose)
        document["metadata"]["namespace"] = "default"
        await client.create(document)

    async def _gone(self, client: Client, name: str) -> None:
        await client.delete(POD, name, "default", DeleteOptions(grace_seconds=0))
        await client.delete(CLAIM, name, "default")

    async def _judged(self, api: Api, log: Log, following: list[asyncio.Task[None]]) -> None:
        """Wait until nothing is left, and read what happened."""
        end = time.monotonic() + 60
        while time.monotonic() < end and await api.everything(CLAIMS):
            await asyncio.sleep(0.2)
        self.tally.left = len(await api.everything(CLAIMS))
        _, report = await api.send("GET", "/dray/ledger")
        self.tally.rows, self.tally.agrees = report["rows"], report["agrees"]
        await asyncio.sleep(1.0)  # the last events are on their way
        for task in following:
            assert not task.done(), task
            task.cancel()
        await asyncio.wait(following)
        self.tally.judge = log.judged()
