"""A server in this process, the claim office of a node on it, and drivers in memory that fail when told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from dray.api.core import Node, Pod
from dray.api.meta import ObjectMeta
from dray.api.preparation import Preparation
from dray.api.resource import ResourceClaim
from dray.client.client import Client
from dray.client.errors import ServerUnreachableError
from dray.client.events import EventRecorder
from dray.client.object_refs import get_kind
from dray.client.patches import MergePatch
from dray.client.rest_client import ClientOptions
from dray.client.timing import TimeSource
from dray.client.transport import TransportRequest
from dray.cluster.local.transport import LocalTransport
from dray.cluster.services.api_server import ServerProcessOptions, open_server
from dray.node.claims.outcomes import ClaimsPending, ClaimsReady, ClaimsRefused
from dray.node.claims.preparer import PodClaimPreparer
from dray.node.claims.preparer_options import ClaimPreparerOptions
from dray.node.plugins.driver_interface import (
    ClaimRef,
    DriverCallFailure,
    DriverCallFault,
    PreparedDevice,
    PrepareOutcome,
    UnprepareOutcome,
)
from dray.server.http.requests import AUTHENTICATED, NODES
from tests.contract.controlled import World, by_name, claim, pod
from tests.contract.documents import node
from tests.contract.servers import Reach
from tests.contract.unruly import Unruly

NODE = "node-a"
GPU, NIC = "gpu.example.com", "nic.example.com"

Document = dict[str, Any]
POD = get_kind("Pod")


class MemoryDriver:
    """A driver that remembers what it was asked, and what it has in its hands."""

    def __init__(self, name: str = GPU, *, classic: bool = False) -> None:
        self.name = name
        self.classic = classic
        self.calls: list[tuple[str, tuple[str, ...]]] = []
        """Each call, with the names of its claims."""
        self.refs: list[ClaimRef] = []
        """What it was told in the last call."""
        self.hands: set[str] = set()
        """Names of the claims that are set up."""
        self.fails: dict[str, str] = {}
        """What to say instead of yes, by the name of the claim or the verb."""
        self.silent = False
        """Do the work, and let nobody know."""
        self.open = asyncio.Event()
        self.open.set()
        self.reached = asyncio.Event()
        """Set when a call has come."""

    async def prepare(self, claims: Sequence[ClaimRef]) -> dict[str, PrepareOutcome]:
        await self._come("prepare", claims)
        return {each.uid: self._prepared(each) for each in claims}

    async def unprepare(self, claims: Sequence[ClaimRef]) -> dict[str, UnprepareOutcome]:
        await self._come("unprepare", claims)
        return {each.uid: self._unprepared(each) for each in claims}

    def watch_health(self) -> None:
        return None

    async def _come(self, verb: str, claims: Sequence[ClaimRef]) -> None:
        self.calls.append((verb, tuple(each.name for each in claims)))
        self.refs = list(claims)
        self.reached.set()
        await self.open.wait()

    def _prepared(self, claim: ClaimRef) -> PrepareOutcome:
        said = self.fails.get("prepare") or self.fails.get(claim.name)
        if said:
            return DriverCallFailure(DriverCallFault.REFUSED, said)
        self.hands.add(claim.name)
        if self.silent:
            return DriverCallFailure(DriverCallFault.NO_ANSWER, "nobody answered")
        cdi = f"{self.name}/claim={claim.uid}"
        return (PreparedDevice(request_names=("gpu",), pool=NODE, device="gpu-0", cdi=(cdi,)),)

    def _unprepared(self, claim: ClaimRef) -> UnprepareOutcome:
        said = self.fails.get("unprepare")
        if said:
            return DriverCallFailure(DriverCallFault.REFUSED, said)
        self.hands.discard(claim.name)
        return DriverCallFailure(DriverCallFault.NO_ANSWER, "nobody answered") if self.silent else None


class Registered:
    """The drivers that are there now."""

    def __init__(self, *drivers: MemoryDriver) -> None:
        self.drivers = list(drivers)

    def find_driver(self, name: str, *, classic: bool | None = None) -> MemoryDriver | None:
        for driver in self.drivers:
            if driver.name == name and classic in (None, driver.classic):
                return driver
        return None


class Died(BaseException):
    """The agent was killed at a point."""


class Site(World):
    """A node with drivers, and the agents that come and go on it."""

    def __init__(self, reach: Reach, directory: Path) -> None:
        super().__init__(reach)
        self.checkpoint = directory / "claims.json"
        self.gpu, self.nic = MemoryDriver(GPU), MemoryDriver(NIC)
        self.registered = Registered(self.gpu, self.nic)
        self.boot = "boot-1"
        self.notes: dict[str, str] = {}
        """Annotations of the node."""
        self.minds_claims = True
        """Whether agents look after claims."""
        self.dies_at = ""
        self.points: list[str] = []
        """The points that agents have come to."""
        self.log: list[str] = []
        self.transport = Unruly(
            LocalTransport(reach.server.app, f"system:node:{NODE}", (NODES, AUTHENTICATED))
        )
        self.tempo = TimeSource()
        self.office: PodClaimPreparer

    def _node(self) -> Node:
        return Node(metadata=ObjectMeta(name=NODE, labels={"zone": "here"}, annotations=dict(self.notes)))

    def _crash(self, point: str) -> None:
        self.points.append(point)
        if point == self.dies_at:
            raise Died(point)

    @asynccontextmanager
    async def agent(self, *pods: Pod, running: bool = True) -> AsyncIterator[PodClaimPreparer]:
        """An agent while the block lasts; it awakens with these pods, and does its errands."""
        client = Client(self.transport, ClientOptions(max_attempts=1))
        recorder = EventRecorder(client, "dray-node", NODE)
        choices = ClaimPreparerOptions(
            self._node,
            self.checkpoint,
            self.registered,
            self.boot,
            self.tempo,
            prepare_claims=self.minds_claims,
            log=lambda what, **fields: self.log.append(f"{what} {fields}"),
            crash_point=self._crash,
        )
        office = self.office = PodClaimPreparer(client, recorder, choices)
        await office.recover(pods)
        tasks = [asyncio.create_task(office.run())] if running else []
        try:
            yield office
        finally:
            await office.close()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await recorder.write_due(everything=True)

    def cut(self, *parts: str, methods: str = "") -> None:
        """Let no request come through whose path has one of these parts; none given: all of them."""

        async def refuse(request: TransportRequest) -> None:
            if (not parts or any(part in request.path for part in parts)) and (
                not methods or request.method in methods
            ):
                raise ServerUnreachableError("the server is away", sent=False)

        self.transport.before = refuse

    def mend(self) -> None:
        async def pass_on(_request: TransportRequest) -> None:
            return None

        self.transport.before = pass_on

    async def claimed(self, name: str, *results: Document, **more: Any) -> ResourceClaim:
        """A claim that has devices on this node; one GPU of its own name when nothing else is said."""
        await self.make(claim(name))
        await self.allocated(name, *(results or (result(device=name),)), **more)
        return await self.claim(name)

    async def allocated(self, name: str, *results: Document, **more: Any) -> None:
        status = {"status": {"allocation": {"devices": {"results": list(results)}, **more}}}
        await self.client.patch(ResourceClaim, name, MergePatch(status), "default", subresource="status")

    async def reserve(self, name: str, *pods: str) -> None:
        uids = {each: (await self.pod(each)).metadata.uid for each in pods}
        consumers = [{"resource": "pods", "name": each, "uid": uid} for each, uid in uids.items()]
        change = MergePatch({"status": {"reservedFor": consumers}})
        await self.client.patch(ResourceClaim, name, change, "default", subresource="status")

    async def bound(self, name: str, *claims: str, reserved: bool = True, **spec: Any) -> Pod:
        """A pod that uses claims, reserved for it and bound to this node."""
        await self.make(pod(name, *(by_name(each, f"e{i}") for i, each in enumerate(claims)), **spec))
        for each in claims if reserved else ():
            others = [entry.name for entry in (await self.claim(each)).status.reserved_for]
            await self.reserve(each, *others, name)
        await self.bind(name, NODE)
        return await self.pod(name)

    async def standing(self) -> list[str]:
        """Names of the claims that the API says this node has."""
        return sorted(each.spec.claim.name for each in (await self.client.list(Preparation)).items)

    async def nothing_left(self) -> None:
        """Wait until nothing is held anywhere."""

        async def left() -> list[object]:
            return [*self.office.record.claims, *await self.standing(), *self.gpu.hands, *self.nic.hands]

        await self.until(left, lambda found: not found)

    async def ready(self, *pods: Pod) -> None:
        """Prepare pods, which must succeed."""
        for each in pods:
            answer = await self.office.prepare(each)
            assert answer == ClaimsReady(), answer

    async def released(self, *pods: Pod) -> None:
        """Release pods, which must succeed."""
        for each in pods:
            answer = await self.office.release(each.metadata.uid)
            assert answer is None, answer


def result(driver: str = GPU, device: str = "gpu-0", **more: Any) -> Document:
    """One device of an allocation."""
    return {"request": "gpu", "driver": driver, "pool": NODE, "device": device, **more}


def why(answer: ClaimsReady | ClaimsRefused | ClaimsPending | None) -> tuple[str, str]:
    """The word and the sentence of an answer that is no."""
    assert isinstance(answer, ClaimsRefused | ClaimsPending), answer
    return answer.reason.value, answer.message


@asynccontextmanager
async def site(directory: Path, *, ledger: bool = True) -> AsyncIterator[Site]:
    """A server with a node on it while the block lasts; without a ledger it lets others make mistakes."""
    async with open_server(
        ServerProcessOptions(directory / "server", "memory:", port=0, ledger=ledger)
    ) as server:
        reach = Reach("inside", server)
        here = Site(reach, directory)
        try:
            await here.make(node(NODE))
            yield here
        finally:
            await reach.close()
