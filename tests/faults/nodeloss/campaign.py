"""R-13: pods are deleted by force, nodes are cut off, fail and return; devices are attached to a network.

Theory of operation: there are more pods than devices, so a device that becomes free is allocated at once to a
pod on another node. Three faults alternate. Pods are deleted by force: their node releases the devices a
moment later. A node is cut off: it is found lost, its pods are deleted by force, and it keeps using its
devices until it is connected again. A node fails and an administrator fences it: its devices are allocated to
no one before that, and used elsewhere after; the node returns, runs nothing while it is fenced, and works
again when the fence is removed. Every second node that fails is deleted before it is fenced. `machine`
records the real use of devices.
"""

from __future__ import annotations

import asyncio
import io
import random
import time
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AsyncExitStack, redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass, field
from pathlib import Path

from dray.api.core import Node, Pod
from dray.api.preparation import Preparation
from dray.api.resource import ResourceClaim
from dray.claims.reservation import FINISHED_PHASES
from dray.cli.app import run as typed
from dray.client.client import Client, DeleteOptions
from dray.client.config.kubeconfig import load_client_config
from dray.client.errors import NotFoundError
from dray.client.transports.http import HttpTransport
from dray.controllers.runner import ControllerOptions, ControllerRunner
from dray.placement.node_health import UNREACHABLE
from dray.scheduler.scheduling_loop import Scheduler
from tests.contract.documents import device_class
from tests.contract.scheduled import DRIVER, asks, choices, devices_of, exactly
from tests.e2e.use_case_cluster import pod, template
from tests.faults.ledger.api import Api
from tests.faults.ledger.campaign import hosted
from tests.faults.nodeloss.machine import POD, SPACE, Device, Hall, Machine, Way

POOL = "fabric"
PATIENCE = 90.0
LONGEST = 3600.0
SILENCE = 3.0
A_WHILE = 1.2
"""Seconds in which a forbidden allocation or use of a device would happen, if there was one."""
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
    """Devices that failed nodes had."""
    early: int = 0
    """Devices of those that were allocated before the fence."""
    unsaid: int = 0
    """Devices of those of which the fence did not say that they are free."""
    reused: int = 0
    """Devices of those that were used elsewhere after it."""
    trespass: list[str] = field(default_factory=list)
    """Pods that did not end and were on a node, or used something there, while it was fenced."""
    returned: int = 0
    """Failed nodes that used something again once they were back."""
    left: int = 0
    rows: int = 0
    agrees: bool = True

    def sound(self) -> bool:
        wrong = (self.hall.violations, self.early, self.unsaid, self.trespass, self.left, self.rows)
        all_back = self.reused == self.held_back and self.returned == self.fenced
        return not any(wrong) and all_back and self.agrees

    def __str__(self) -> str:
        return (
            f"{self.hall.begun:,} uses in {self.seconds:.1f} s; {self.forced} pods deleted by force, "
            f"{self.lost} nodes cut off, {self.fenced} nodes failed and fenced; devices used twice at a time "
            f"{len(self.hall.violations)}, given before the fence {self.early}, held back {self.held_back}, "
            f"not said to be free {self.unsaid}, used elsewhere after {self.reused}; pods on fenced nodes "
            f"{len(self.trespass)}, nodes that work again {self.returned}; leaked rows {self.rows}, "
            f"objects left {self.left}, ledger and claims agree: {'yes' if self.agrees else 'NO'}"
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
        client = Client(HttpTransport(load_client_config(self._kubeconfig)))
        stack.push_async_callback(client.close)
        return client

    async def _furnish(self) -> None:
        names = [f"nic-{number}" for number in range(self._size.devices)]
        for document in (device_class(), devices_of(POOL, *names, allNodes=True), asks(exactly())):
            await self._client.create(document)

    async def _with_everybody(self, stack: AsyncExitStack) -> None:
        scheduler = Scheduler(self._way(stack), choices())
        keeping = ControllerOptions(upkeep=True, missing_node_grace=1.0, node_silence=SILENCE)
        controllers = ControllerRunner(self._way(stack), keeping)
        self._machines = [
            Machine(f"machine-{number}", self._way(stack), self.tally.hall, self._chance)
            for number in range(self._size.machines)
        ]
        async with asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(each.run()) for each in self._machines]
            running += (tasks.create_task(scheduler.run()), tasks.create_task(controllers.run()))
            feeding = tasks.create_task(self._feed())
            for number in range(self._size.rounds):
                await self._force(await self._somebody())
                await self._cut_off(await self._somebody())
                await self._fail(await self._somebody(), deleted=number % 2 == 1)
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
        """Create nothing new: everything ends, and every device is released."""
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
        with suppress(NotFoundError):
            await self._client.delete(POD, each.metadata.name, SPACE, DeleteOptions(grace_seconds=0))

    async def _pods_on(self, machine: Machine) -> list[Pod]:
        pods = (await self._client.list(Pod, SPACE)).items
        return [each for each in pods if each.spec.node_name == machine.name]

    async def _force_all(self, machine: Machine) -> None:
        for each in await self._pods_on(machine):
            await self._forced(each)
            self.tally.forced += 1

    async def _somebody(self) -> Machine:
        """A machine that uses something, so that a trouble means something."""

        async def busy() -> list[Machine]:
            return [machine for machine in self._machines if self.tally.hall.on(machine.name)]

        assert await self._until(busy), "nothing runs anywhere"
        return self._chance.choice(await busy())

    async def _until(self, is_so: Callable[[], Awaitable[object]]) -> bool:
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            if await is_so():
                return True
            await asyncio.sleep(0.02)
        return False

    # --- troubles ---

    async def _force(self, machine: Machine) -> None:
        await self._force_all(machine)
        await asyncio.sleep(A_WHILE)

    async def _cut_off(self, machine: Machine) -> None:
        machine.way = Way.CUT

        async def found_lost() -> bool:
            node = await self._client.get(Node, machine.name)
            return any(taint.key == UNREACHABLE for taint in node.spec.taints)

        assert await self._until(found_lost), f"{machine.name} is silent, and nobody notices"
        self.tally.lost += 1
        await self._force_all(machine)
        await asyncio.sleep(A_WHILE)
        machine.way = Way.UP

        async def found_again() -> bool:
            return not await found_lost()

        assert await self._until(found_again), f"{machine.name} is back, and nobody notices"

    async def _fail(self, machine: Machine, *, deleted: bool) -> None:
        tally, hall = self.tally, self.tally.hall
        had = {device: use[0] for device, use in hall.uses.items() if use[1] == machine.name}
        machine.switch_off()
        if deleted:
            await self._client.delete(Node, machine.name)
        if self._chance.random() < 0.5:
            await self._force_all(machine)
        await asyncio.sleep(A_WHILE)
        tally.held_back += len(had)
        given = await self._given()
        tally.early += sum(1 for device, claim in had.items() if given.get(device, claim) != claim)
        before = hall.begun
        said = await self._typed("fence", machine.name)
        tally.fenced += 1
        tally.unsaid += sum(f"{DRIVER}/{pool}/{device} is free" not in said for pool, device in had)
        tally.reused += await self._used_elsewhere(had, before, machine)
        await self._come_back(machine, fenced=not deleted)

    async def _used_elsewhere(self, devices: Iterable[Device], since: int, machine: Machine) -> int:
        """How many of these are used after a moment, and not on a machine."""
        wanted = {*devices}

        async def used() -> set[Device]:
            return {use.device for use in self.tally.hall.log[since:] if use.where != machine.name} & wanted

        async def all_used() -> bool:
            return await used() == wanted

        await self._until(all_used)
        return len(await used())

    async def _come_back(self, machine: Machine, *, fenced: bool) -> None:
        tally, hall = self.tally, self.tally.hall
        before = hall.begun

        async def begun() -> list[str]:
            return [use.where for use in hall.log[before:] if use.where == machine.name]

        machine.way = Way.UP
        if fenced:
            await asyncio.sleep(A_WHILE)
            # Pods that ended before are left to be read; whoever begins and ends is seen by the hall.
            there = [
                each for each in await self._pods_on(machine) if each.status.phase not in FINISHED_PHASES
            ]
            strays = [f"{each.metadata.name} {each.status}" for each in there]
            tally.trespass += [*await begun(), *strays]
            await self._typed("unfence", machine.name)
        tally.returned += await self._until(begun)

    async def _given(self) -> dict[Device, str]:
        """Devices, and the claims that have them."""
        found: dict[Device, str] = {}
        for claim in (await self._client.list(ResourceClaim, SPACE)).items:
            allocation = claim.status.allocation
            for result in allocation.devices.results if allocation is not None else ():
                found[result.pool, result.device] = claim.metadata.uid
        return found

    async def _typed(self, verb: str, name: str) -> str:
        """Return the output of `dray fence node` or `dray unfence node`, which must succeed."""
        more = ("--yes",) if verb == "fence" else ()
        arguments = (verb, "node", name, "--kubeconfig", self._kubeconfig, *more)
        said = io.StringIO()

        def type_it() -> int:
            with redirect_stdout(said), redirect_stderr(said):
                return typed(arguments)

        code = await asyncio.to_thread(type_it)
        assert code == 0 or not self._ledger, f"{arguments} ended with {code}: {said.getvalue()}"
        return said.getvalue()
