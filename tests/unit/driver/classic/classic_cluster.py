"""A cluster with a classic driver whose units are outside of the cluster, its controller and a server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from dray.api.classic import ClassicResourceClaim
from dray.api.classic.resource_claim import ALLOCATED
from dray.client.client import Client
from dray.client.rest_client import ClientOptions
from dray.client.timing import TimeSource
from dray.driver.classic.controller import (
    ClassicAllocation,
    ClassicClaimRequest,
    ClassicController,
    HeldClaim,
    NoAllocationAvailable,
)
from dray.driver.classic.controller_service import ClassicControllerOptions, ClassicControllerService
from dray.driver.classic.retries import ClassicRetryDelay
from tests.contract.api import MERGE
from tests.contract.classic import CLAIMS, CLASSES, DRIVER, admit_driver, classic_claim, classic_class
from tests.support.in_process_transport import InProcessTransport
from tests.unit.driver.driver_server import DriverServer, InterceptedTransport, serve_for_drivers, wait_until

FINALIZER = f"{DRIVER}/allocated"
QUICK = ClassicControllerOptions(retry_delay=ClassicRetryDelay(0.01, 0.05))


class Hardware:
    """Units on nodes outside of the cluster, which record the claims that have them."""

    def __init__(self, units: Mapping[str, int]) -> None:
        self.units = units
        self.given: dict[str, str] = {}
        self.faults: list[str] = []

    def give(self, uid: str, node: str) -> None:
        if uid in self.given:
            self.faults.append(f"{uid} has a unit on {self.given[uid]} and gets one on {node}")
        self.given[uid] = node
        if list(self.given.values()).count(node) > self.units.get(node, 0):
            self.faults.append(f"{node} has given more than it has")


class Limits(msgspec.Struct):
    """What users may write."""

    size: int = 1


class Units(ClassicController):
    """The controller of such units."""

    name = DRIVER
    parameters = Limits

    def __init__(self, hardware: Hardware) -> None:
        self.hardware = hardware
        self.broken: set[str] = set()

    def _full(self, node: str, held: Sequence[HeldClaim]) -> bool:
        return [each.node for each in held].count(node) >= self.hardware.units.get(node, 0)

    def unsuitable_nodes(
        self, need: ClassicClaimRequest, nodes: Sequence[str], held: Sequence[HeldClaim]
    ) -> list[str]:
        return [node for node in nodes if self._full(node, held)]

    async def allocate(
        self, need: ClassicClaimRequest, node: str | None, held: Sequence[HeldClaim]
    ) -> ClassicAllocation | NoAllocationAvailable:
        if need.name in self.broken:
            raise OSError("the cable is out")
        for each in [node] if node else sorted(self.hardware.units):
            if not self._full(each, held):
                self.hardware.give(need.uid, each)
                return ClassicAllocation(each)
        return NoAllocationAvailable("everything is taken")

    def deallocate(self, held: HeldClaim) -> None:
        self.hardware.given.pop(held.uid, None)


class ClassicCluster:
    """A server with a class, hardware, and a controller that can be restarted."""

    def __init__(self, cluster: DriverServer, units: Mapping[str, int]) -> None:
        self.api, self.admin = cluster.api, cluster.admin
        self.hardware = Hardware(units)
        self.units = Units(self.hardware)

    def connect(self) -> InterceptedTransport:
        groups = (f"dray:driver:{DRIVER}", "classic-drivers", "system:authenticated")
        return InterceptedTransport(InProcessTransport(self.api.app, "acme", groups))

    @asynccontextmanager
    async def run_controller(
        self, transport: InterceptedTransport | None = None, options: ClassicControllerOptions = QUICK
    ) -> AsyncIterator[ClassicControllerService]:
        # Waits are short; a controller that is killed loses its connection to the server.
        client_options = ClientOptions(time_source=TimeSource(sleep=_briefly))
        service = ClassicControllerService(
            Client(transport or self.connect(), client_options), self.units, options
        )
        task = asyncio.create_task(service.run())
        ready = asyncio.create_task(service.ready.wait())
        await asyncio.wait((task, ready), return_when=asyncio.FIRST_COMPLETED)
        try:
            yield service
        finally:
            broken = task.done()
            for each in (task, ready):
                each.cancel()
            await asyncio.wait((task, ready))
            if broken:
                task.result()

    async def claim(self, name: str) -> ClassicResourceClaim:
        return await self.admin.get(ClassicResourceClaim, name, "default")

    async def wait_until(
        self, name: str, is_so: Callable[[ClassicResourceClaim], bool]
    ) -> ClassicResourceClaim:
        return await wait_until(lambda: self.claim(name), is_so)

    async def create_claim(self, name: str, **parameters: Any) -> None:
        await self.api.create(classic_claim(name, **parameters), CLAIMS)

    async def select(self, name: str, node: str, *potential: str) -> None:
        scheduler = {"selectedNode": node, "potentialNodes": list(potential)}
        status = {"status": {"scheduling": {"scheduler": scheduler}}}
        await self.api.patch(f"{CLAIMS}/{name}/status", status, MERGE)

    async def names(self) -> list[str]:
        return await self.api.names(CLAIMS)


async def _briefly(seconds: float) -> None:
    await asyncio.sleep(min(seconds, 0.02))


TWO = {"node-a": 1, "node-b": 1}


def run(test: Callable[[ClassicCluster], Awaitable[None]], units: Mapping[str, int] = TWO) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(60), serve_for_drivers() as server:
            await admit_driver(server.api)
            await server.api.create(classic_class(), CLASSES)
            await test(ClassicCluster(server, units))

    asyncio.run(bounded())


def is_allocated(claim: ClassicResourceClaim) -> bool:
    return claim.status.phase == ALLOCATED
