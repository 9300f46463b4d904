"""R-18 with real processes: three schedulers stand by each other; the leader is killed or stopped.

Pods come all the time. Every scheduler is a user of its own, so the audit log tells who wrote what, and in
which order: one that was stopped and continues may not write anything after another has begun.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import signal
import sys
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dray.client.client import Client
from dray.client.config.kubeconfig import load_client_config
from dray.client.leases import LEASE_KIND
from dray.client.transports.http import HttpTransport
from tests.e2e.use_case_cluster import node, pod
from tests.faults.ledger.campaign import hosted
from tests.faults.restarts.campaign import Killed

FAULTS = (signal.SIGKILL, signal.SIGSTOP)
NAMES = ("s0", "s1", "s2")
LONGEST = 90.0


@dataclass
class Tally:
    """What a run came to."""

    times: dict[str, list[float]] = field(default_factory=lambda: {fault.name: [] for fault in FAULTS})
    pods: int = 0
    writes: int = 0
    order: list[str] = field(default_factory=list)
    """Whose writes succeeded, in the order of the server; neighbours that are equal are told once."""

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
        return (
            f"real processes: {self.pods} pods bound, {self.writes} writes by {order}; {times}; "
            f"out of turn: {self.returned}"
        )


class Campaign:
    """Some fail-overs of real schedulers."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._numbers = itertools.count(1)
        self._services: dict[str, Killed] = {}
        self._names: set[str] = set()
        self._done: set[str] = set()
        self.tally = Tally()

    async def run(self, fail_overs: int) -> Tally:
        async with AsyncExitStack() as stack:
            kubeconfig = await stack.enter_async_context(hosted(self._folder / "server"))
            client = Client(HttpTransport(load_client_config(kubeconfig)))
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
            self._read()
        return self.tally

    async def _join(self, stack: AsyncExitStack, kubeconfig: str) -> None:
        name = f"s{next(self._numbers)}"
        mine, log = self._folder / f"{name}.kubeconfig", self._folder / f"{name}.log"
        mine.write_text(await _credentials(name, Path(kubeconfig).parent))
        service = Killed("scheduler", str(mine), log, "--leader-elect", "--identity", name)
        await service.start()
        self._services[name] = service
        self._names.add(name)
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
        lease = await client.get(LEASE_KIND, "dray-scheduler", "kube-system")
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
            if any(user != than and user not in self._done for user, _ in self._bindings()):
                self._done.add(than)
                return
            await asyncio.sleep(0.2)
        raise AssertionError(f"nobody took over from `{than}`")

    def _written(self) -> list[dict[str, Any]]:
        """What schedulers wrote with success, in the order of the server; leases are for everybody."""
        lines = (self._folder / "server" / "audit.log").read_text().splitlines()
        found = [json.loads(line) for line in lines if '"event":"complete"' in line]
        return [
            line
            for line in found
            if line["user"] in self._names
            and line["verb"] in ("create", "update", "patch", "delete")
            and line["code"] < 300
            and line["resource"] not in ("leases", "selfsubjectaccessreviews")
        ]

    def _bindings(self) -> list[tuple[str, str]]:
        return [(str(each["user"]), str(each["name"])) for each in self._written() if _is_binding(each)]

    def _read(self) -> None:
        """Who wrote when."""
        written = self._written()
        self.tally.writes, self.tally.pods = len(written), len(self._bindings())
        self.tally.order = [str(name) for name, _ in itertools.groupby(each["user"] for each in written)]


def _is_binding(line: dict[str, Any]) -> bool:
    return line.get("subresource") == "binding"


async def _credentials(user: str, directory: Path) -> str:
    arguments = ("-m", "dray", "server", "credentials", user, "--group", "system:masters")
    process = await asyncio.create_subprocess_exec(
        sys.executable, *arguments, "--data-dir", str(directory), stdout=asyncio.subprocess.PIPE
    )
    told, _ = await process.communicate()
    return told.decode()
