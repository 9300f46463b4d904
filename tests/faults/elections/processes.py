"""R-18 with real processes: three schedulers stand by each other; the leader is killed or stopped.

Pods come all the time. Who bound one is in the event of it, and in which order is in the pods' own revisions:
a scheduler that was stopped and continues may not bind anything after another has begun.
"""

from __future__ import annotations

import asyncio
import itertools
import signal
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dray.client.client import Client
from dray.client.http import Http
from dray.client.kubeconfig import find_access
from dray.client.leases import LEASE
from dray.client.places import kind_called
from tests.e2e.stage import node, pod
from tests.faults.ledger.campaign import hosted
from tests.faults.restarts.campaign import Killed

POD = kind_called("Pod")
EVENT = kind_called("Event")
FAULTS = (signal.SIGKILL, signal.SIGSTOP)
NAMES = ("s0", "s1", "s2")
LONGEST = 90.0


@dataclass
class Tally:
    """What a run came to."""

    times: dict[str, list[float]] = field(default_factory=lambda: {fault.name: [] for fault in FAULTS})
    pods: int = 0
    order: list[str] = field(default_factory=list)
    """Who bound pods, in the order of bindings, neighbours that are equal told once."""

    @property
    def returned(self) -> int:
        """Terms that came back after another had begun; every process has a name of its own."""
        return len(self.order) - len(set(self.order))

    def sound(self) -> bool:
        return self.returned == 0

    def __str__(self) -> str:
        times = "; ".join(
            f"{name}: {len(each)} times, until another bound a pod {', '.join(f'{s:.1f}' for s in each)} s"
            for name, each in self.times.items()
        )
        order = " ".join(self.order)
        return f"real processes: {self.pods} pods bound by {order}; {times}; out of turn: {self.returned}"


class Campaign:
    """Some fail-overs of real schedulers."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._numbers = itertools.count(1)
        self._services: dict[str, Killed] = {}
        self.tally = Tally()

    async def run(self, fail_overs: int) -> Tally:
        async with AsyncExitStack() as stack:
            kubeconfig = await stack.enter_async_context(hosted(self._folder / "server"))
            client = Client(Http(find_access(kubeconfig)))
            stack.push_async_callback(client.close)
            await client.create(
                node("n") | {"status": {"allocatable": {"cpu": "9", "memory": "9Gi", "pods": "9999"}}}
            )
            for _ in NAMES:
                await self._join(stack, kubeconfig)
            making = asyncio.create_task(self._make(client))
            await self._bound_by_another(client, "")
            for number in range(fail_overs):
                await self._one(client, FAULTS[number % len(FAULTS)])
                await self._join(stack, kubeconfig)
            await asyncio.sleep(3)
            making.cancel()
            await asyncio.wait([making])
            await self._read(client)
        return self.tally

    async def _join(self, stack: AsyncExitStack, kubeconfig: str) -> None:
        name = f"s{next(self._numbers)}"
        log = self._folder / f"{name}.log"
        service = Killed("scheduler", kubeconfig, log, "--leader-elect", "--identity", name)
        await service.start()
        self._services[name] = service
        stack.push_async_callback(self._ended, name)

    async def _ended(self, name: str) -> None:
        service = self._services.pop(name, None)
        if service is not None:
            await service.stop(signal.SIGKILL)

    async def _make(self, client: Client) -> None:
        for number in itertools.count():
            document = pod(f"p{number}")
            document["metadata"]["namespace"] = "default"
            await client.create(document)
            await asyncio.sleep(0.1)

    async def _leader(self, client: Client) -> str:
        lease = await client.get(LEASE, "dray-scheduler", "kube-system")
        return str(lease["spec"].get("holderIdentity", ""))

    async def _one(self, client: Client, fault: signal.Signals) -> None:
        leader = await self._leader(client)
        service, began = self._services[leader], time.monotonic()
        if fault is signal.SIGKILL:
            await self._ended(leader)
        else:
            service.tell(fault)
        await self._bound_by_another(client, leader)
        self.tally.times[fault.name].append(time.monotonic() - began)
        if fault is not signal.SIGKILL:
            service.tell(signal.SIGCONT)
            await asyncio.sleep(2)
            await self._ended(leader)

    async def _bound_by_another(self, client: Client, than: str) -> None:
        """Wait until somebody else leads and binds."""
        end = time.monotonic() + LONGEST
        while time.monotonic() < end:
            binders = await self._binders(client)
            if binders and set(binders.values()) - {than, *self.tally.order}:
                leader = await self._leader(client)
                if leader != than:
                    self.tally.order.append(leader)
                    return
            await asyncio.sleep(0.1)
        raise AssertionError(f"nobody took over from `{than}`")

    async def _binders(self, client: Client) -> dict[str, str]:
        events = (await client.list(EVENT, "default")).items
        return {
            event["involvedObject"]["name"]: event["reportingInstance"]
            for event in events
            if event["reason"] == "Scheduled"
        }

    async def _read(self, client: Client) -> None:
        """Who bound what, by the pods' own revisions."""
        binders = await self._binders(client)
        pods: list[Any] = [
            each for each in (await client.list(POD, "default")).items if each["spec"].get("nodeName")
        ]
        pods.sort(key=lambda each: int(each["metadata"]["resourceVersion"]))
        order = [binders[each["metadata"]["name"]] for each in pods if each["metadata"]["name"] in binders]
        self.tally.pods = len(order)
        self.tally.order = [name for name, _ in itertools.groupby(order)]
