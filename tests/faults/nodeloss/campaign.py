"""R-13: pods are deleted by force, nodes are cut off, fail and come back; devices are attached to a network.

Theory of operation: there are more pods than devices, so whatever becomes free is taken at once by somebody
on another node. Three troubles take turns. Pods are deleted by force: their node lets go a moment later. A
node is cut off: it is found lost, its pods are deleted by force, and it goes on using what it has until it
comes back. A node fails and an administrator fences it: what it had is not given to anybody before, and is
used elsewhere after. The hall (see `machine`) knows who really uses what.
"""

from __future__ import annotations

import asyncio
import random
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path

from dray.api.core import Node, Pod
from dray.api.preparation import Preparation
from dray.api.resource import ResourceClaim
from dray.client.client import Client, Deletion
from dray.client.failures import NotFound
from dray.client.http import Http
from dray.client.kubeconfig import find_access
from dray.controllers.controllers import Choices, Controllers
from dray.placement.nodehealth import UNREACHABLE
from dray.scheduler.loop import Scheduler
from tests.contract.documents import device_class
from tests.contract.scheduled import asks, choices, devices_of, exactly
from tests.e2e.stage import pod, template
from tests.faults.ledger.api import Api
from tests.faults.ledger.campaign import hosted
from tests.faults.nodeloss.machine import POD, SPACE, Device, Hall, Machine, Way

POOL = "fabric"
PATIENCE = 90.0
LONGEST = 3600.0
SILENCE = 3.0
_BRIEFLY = [
    {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 1}
    for key in (UNREACHABLE, "node.kubernetes.io/not-ready")
]


@dataclass(frozen=True)
class Size:
    """How many of everything."""

    machines: int = 4
    devices: int = 6
    pods: int = 10
    """At a time."""
    rounds: int = 1
    """Of each trouble."""


@dataclass
class Tally:
    """What a run came to."""

    hall: Hall = field(default_factory=Hall)
    seconds: float = 0.0
    forced: int = 0
    lost: int = 0
    fenced: int = 0
    held_back: int = 0
    """Devices that a failed node had when it was fenced."""
    early: int = 0
    """Devices of those that somebody got before."""
    reused: int = 0
    """Devices of those that somebody used after."""
    left: int = 0
    rows: int = 0
    agrees: bool = True

    def sound(self) -> bool:
        well = not self.hall.violations and not self.early and self.reused == self.held_back
        return well and not self.left and not self.rows and self.agrees

    def __str__(self) -> str:
        return (
            f"{self.hall.begun:,} uses in {self.seconds:.1f} s; {self.forced} pods deleted by force, "
            f"{self.lost} nodes cut off, {self.fenced} nodes failed and fenced; devices used twice at a time "
            f"{len(self.hall.violations)}, given before the fence {self.early}, held back {self.held_back}, "
            f"used again after {self.reused}; leaked rows {self.rows}, pods left {self.left}, ledger and "
            f"claims agree: {'yes' if self.agrees else 'NO'}"
        )


class Campaign:
    """One run."""

    def __init__(self, folder: Path, size: Size, seed: int, *, ledger: bool = True) -> None:
        self._folder, self._size, self._ledger = folder, size, ledger
        self._chance = random.Random(seed)
        self._feeding = True
        self.tally = Tally()

    async def run(self) -> Tally:
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(asyncio.timeout(LONGEST))
            where = self._folder / "server"
            self._kubeconfig = await stack.enter_async_context(hosted(where, ledger=self._ledger))
            self._client = self._way(stack)
            await self._furnish()
            began = time.monotonic()
            await self._with_everybody(stack)
            self.tally.seconds = time.monotonic() - began
            api = Api(self._kubeconfig)
            stack.push_async_callback(api.close)
            _, report = await api.send("GET", "/dray/ledger")
            self.tally.rows, self.tally.agrees = report["rows"], report["agrees"]
        return self.tally

    def _way(self, stack: AsyncExitStack) -> Client:
        client = Client(Http(find_access(self._kubeconfig)))
        stack.push_async_callback(client.close)
        return client

    async def _furnish(self) -> None:
        names = [f"nic-{number}" for number in range(self._size.devices)]
        for document in (device_class(), devices_of(POOL, *names, allNodes=True), asks(exactly())):
            await self._client.create(document)

    async def _with_everybody(self, stack: AsyncExitStack) -> None:
        scheduler = Scheduler(self._way(stack), choices())
        keeping = Choices(upkeep=True, node_grace=1.0, node_silence=SILENCE)
        controllers = Controllers(self._way(stack), keeping)
        self._machines = [
            Machine(f"machine-{number}", self._way(stack), self.tally.hall, self._chance)
            for number in range(self._size.machines)
        ]
        async with asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(each.run()) for each in self._machines]
            running += (tasks.create_task(scheduler.run()), tasks.create_task(controllers.run()))
            feeding = tasks.create_task(self._feed())
            for _ in range(self._size.rounds):
                for trouble in (self._force, self._cut_off, self._fail):
                    await self._until(self._busy)
                    await trouble(self._chance.choice(self._machines))
            self._feeding = False
            await feeding
            await self._drain()
            for task in running:
                task.cancel()

    # --- pods come and go ---

    async def _feed(self) -> None:
        number = 0
        while self._feeding:
            pods = await self._clear()
            for _ in range(self._size.pods - len(pods)):
                document = pod(f"p{number}", template("t"), tolerations=_BRIEFLY)
                document["metadata"]["namespace"] = SPACE
                await self._client.create(document)
                number += 1
            await asyncio.sleep(0.1)

    async def _clear(self) -> list[Pod]:
        """Take pods away that have ended; the others."""
        pods = (await self._client.list(Pod, SPACE)).items
        over = [each for each in pods if each.status.phase in ("Succeeded", "Failed")]
        for each in over:
            await self._forced(each)
        return [each for each in pods if each not in over]

    async def _drain(self) -> None:
        """Nothing new comes: everything ends, and every device is given back."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            left = await self._clear()
            claims = (await self._client.list(ResourceClaim, SPACE)).items
            standing = (await self._client.list(Preparation)).items
            self.tally.left = len(left) + len(claims) + len(standing)
            if not self.tally.left:
                return
            await asyncio.sleep(0.2)

    async def _forced(self, each: Pod) -> None:
        with suppress(NotFound):
            await self._client.delete(POD, each.metadata.name, SPACE, Deletion(grace=0))

    async def _pods_on(self, machine: Machine) -> list[Pod]:
        pods = (await self._client.list(Pod, SPACE)).items
        return [each for each in pods if each.spec.node_name == machine.name]

    async def _force_all(self, machine: Machine) -> None:
        for each in await self._pods_on(machine):
            await self._forced(each)
            self.tally.forced += 1

    async def _busy(self) -> bool:
        """Whether every machine uses something, so that a trouble means something."""
        return all(self.tally.hall.on(machine.name) for machine in self._machines)

    async def _until(self, is_so: Callable[[], Awaitable[bool]]) -> bool:
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            if await is_so():
                return True
            await asyncio.sleep(0.02)
        return False

    # --- troubles ---

    async def _force(self, machine: Machine) -> None:
        await self._force_all(machine)
        await asyncio.sleep(1.0)

    async def _cut_off(self, machine: Machine) -> None:
        machine.way = Way.CUT

        async def found_lost() -> bool:
            node = await self._client.get(Node, machine.name)
            return any(taint.key == UNREACHABLE for taint in node.spec.taints)

        assert await self._until(found_lost), f"{machine.name} is silent, and nobody notices"
        self.tally.lost += 1
        await self._force_all(machine)
        await asyncio.sleep(1.5)  # time enough to give its devices away, if anybody did
        machine.way = Way.UP

        async def found_again() -> bool:
            return not await found_lost()

        assert await self._until(found_again), f"{machine.name} is back, and nobody notices"

    async def _fail(self, machine: Machine) -> None:
        had = {device: use[0] for device, use in self.tally.hall.uses.items() if use[1] == machine.name}
        machine.switch_off()
        if self._chance.random() < 0.5:
            await self._client.delete(Node, machine.name)
        await self._force_all(machine)
        await asyncio.sleep(1.5)
        self.tally.held_back += len(had)
        given = await self._given()
        self.tally.early += sum(1 for device, claim in had.items() if given.get(device, claim) != claim)
        await self._fence(machine)
        self.tally.reused += [await self._used_again(device) for device in had].count(True)
        machine.way = Way.UP

    async def _given(self) -> dict[Device, str]:
        """Devices, and the claims that have them."""
        found: dict[Device, str] = {}
        for claim in (await self._client.list(ResourceClaim, SPACE)).items:
            allocation = claim.status.allocation
            for result in allocation.devices.results if allocation is not None else ():
                found[result.pool, result.device] = claim.metadata.uid
        return found

    async def _used_again(self, device: Device) -> bool:
        async def in_use() -> bool:
            return device in self.tally.hall.uses

        return await self._until(in_use)

    async def _fence(self, machine: Machine) -> None:
        arguments = ("fence", "node", machine.name, "--kubeconfig", self._kubeconfig, "--yes")
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "dray.cli",
            *arguments,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        said, _ = await process.communicate()
        # A node whose pods had all ended has nothing in its hands, and may be unknown by now.
        assert process.returncode in (0, 1), said.decode()
        self.tally.fenced += process.returncode == 0
