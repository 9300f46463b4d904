"""A server and the claim preparer of a node in this process, with in-memory drivers that can fail."""

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
from tests.contract.intercepted_transport import InterceptedTransport
from tests.contract.servers import Reach

NODE = "node-a"
GPU, NIC = "gpu.example.com", "nic.example.com"

Document = dict[str, Any]
POD = get_kind("Pod")


class MemoryDriver:
    """A driver that remembers its calls and the claims it has prepared."""

    def __init__(self, name: str = GPU, *, classic: bool = False) -> None:
        self.name = name
        self.classic = classic
        self.calls: list[tuple[str, tuple[str, ...]]] = []
        """Each call, with the names of its claims."""
        self.refs: list[ClaimRef] = []
        """What it was told in the last call."""
        self.prepared: set[str] = set()
        """Names of the claims that are set up."""
        self.fails: dict[str, str] = {}
        """Errors of replies, by the name of the claim or the verb."""
        self.silent = False
        """Do the work without a reply."""
        self.open = asyncio.Event()
        self.open.set()
        self.reached = asyncio.Event()
        """Set when a call has come."""

    async def prepare(self, claims: Sequence[ClaimRef]) -> dict[str, PrepareOutcome]:
        await self._receive("prepare", claims)
        return {each.uid: self._prepare(each) for each in claims}

    async def unprepare(self, claims: Sequence[ClaimRef]) -> dict[str, UnprepareOutcome]:
        await self._receive("unprepare", claims)
        return {each.uid: self._unprepare(each) for each in claims}

    def watch_health(self) -> None:
        return None

    async def _receive(self, verb: str, claims: Sequence[ClaimRef]) -> None:
        self.calls.append((verb, tuple(each.name for each in claims)))
        self.refs = list(claims)
        self.reached.set()
        await self.open.wait()

    def _prepare(self, claim: ClaimRef) -> PrepareOutcome:
        error = self.fails.get("prepare") or self.fails.get(claim.name)
        if error:
            return DriverCallFailure(DriverCallFault.REFUSED, error)
        self.prepared.add(claim.name)
        if self.silent:
            return DriverCallFailure(DriverCallFault.NO_ANSWER, "nobody answered")
        cdi = f"{self.name}/claim={claim.uid}"
        return (PreparedDevice(request_names=("gpu",), pool=NODE, device="gpu-0", cdi=(cdi,)),)

    def _unprepare(self, claim: ClaimRef) -> UnprepareOutcome:
        error = self.fails.get("unprepare")
        if error:
            return DriverCallFailure(DriverCallFault.REFUSED, error)
        self.prepared.discard(claim.name)
        return DriverCallFailure(DriverCallFault.NO_ANSWER, "nobody answered") if self.silent else None


class Registered:
    """The registered drivers."""

    def __init__(self, *drivers: MemoryDriver) -> None:
        self.drivers = list(drivers)

    def find_driver(self, name: str, *, classic: bool | None = None) -> MemoryDriver | None:
        for driver in self.drivers:
            if driver.name == name and classic in (None, driver.classic):
                return driver
        return None


class Died(BaseException):
    """The agent was killed at a crash point."""


class Site(World):
    """A node with drivers, and its consecutive agents."""

    def __init__(self, reach: Reach, directory: Path) -> None:
        super().__init__(reach)
        self.checkpoint = directory / "claims.json"
        self.gpu, self.nic = MemoryDriver(GPU), MemoryDriver(NIC)
        self.registered = Registered(self.gpu, self.nic)
        self.boot = "boot-1"
        self.notes: dict[str, str] = {}
        """Annotations of the node."""
        self.prepares_claims = True
        """Whether agents prepare claims."""
        self.crash_at = ""
        self.points: list[str] = []
        """The crash points that agents have passed."""
        self.log: list[str] = []
        self.transport = InterceptedTransport(
            LocalTransport(reach.server.app, f"system:node:{NODE}", (NODES, AUTHENTICATED))
        )
        self.time_source = TimeSource()
        self.preparer: PodClaimPreparer

    def _node(self) -> Node:
        return Node(metadata=ObjectMeta(name=NODE, labels={"zone": "here"}, annotations=dict(self.notes)))

    def _crash(self, point: str) -> None:
        self.points.append(point)
        if point == self.crash_at:
            raise Died(point)

    @asynccontextmanager
    async def agent(self, *pods: Pod, running: bool = True) -> AsyncIterator[PodClaimPreparer]:
        """An agent inside the block; it recovers with these pods, and releases claims in the background."""
        client = Client(self.transport, ClientOptions(max_attempts=1))
        recorder = EventRecorder(client, "dray-node", NODE)
        options = ClaimPreparerOptions(
            self._node,
            self.checkpoint,
            self.registered,
            self.boot,
            self.time_source,
            prepare_claims=self.prepares_claims,
            log=lambda what, **fields: self.log.append(f"{what} {fields}"),
            crash_point=self._crash,
        )
        preparer = self.preparer = PodClaimPreparer(client, recorder, options)
        await preparer.recover(pods)
        tasks = [asyncio.create_task(preparer.run())] if running else []
        try:
            yield preparer
        finally:
            await preparer.close()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await recorder.write_due(everything=True)

    def cut_connection(self, *parts: str, methods: str = "") -> None:
        """Fail requests whose path has one of these parts; without parts, all of them."""

        async def refuse(request: TransportRequest) -> None:
            if (not parts or any(part in request.path for part in parts)) and (
                not methods or request.method in methods
            ):
                raise ServerUnreachableError("the server is away", sent=False)

        self.transport.before = refuse

    def restore_connection(self) -> None:
        async def pass_on(_request: TransportRequest) -> None:
            return None

        self.transport.before = pass_on

    async def create_claim(self, name: str, *results: Document, **more: Any) -> ResourceClaim:
        """A claim that has devices on this node; one GPU of its own name when nothing else is said."""
        await self.make(claim(name))
        await self.set_allocation(name, *(results or (result(device=name),)), **more)
        return await self.claim(name)

    async def set_allocation(self, name: str, *results: Document, **more: Any) -> None:
        status = {"status": {"allocation": {"devices": {"results": list(results)}, **more}}}
        await self.client.patch(ResourceClaim, name, MergePatch(status), "default", subresource="status")

    async def reserve(self, name: str, *pods: str) -> None:
        uids = {each: (await self.pod(each)).metadata.uid for each in pods}
        consumers = [{"resource": "pods", "name": each, "uid": uid} for each, uid in uids.items()]
        change = MergePatch({"status": {"reservedFor": consumers}})
        await self.client.patch(ResourceClaim, name, change, "default", subresource="status")

    async def create_bound_pod(self, name: str, *claims: str, reserved: bool = True, **spec: Any) -> Pod:
        """A pod that uses claims, reserved for it and bound to this node."""
        await self.make(pod(name, *(by_name(each, f"e{i}") for i, each in enumerate(claims)), **spec))
        for each in claims if reserved else ():
            others = [entry.name for entry in (await self.claim(each)).status.reserved_for]
            await self.reserve(each, *others, name)
        await self.bind(name, NODE)
        return await self.pod(name)

    async def list_announced(self) -> list[str]:
        """Names of the claims with a Preparation of this node."""
        return sorted(each.spec.claim.name for each in (await self.client.list(Preparation)).items)

    async def wait_until_empty(self) -> None:
        """Wait until nothing is recorded, announced or prepared."""

        async def left() -> list[object]:
            return [
                *self.preparer.record.claims,
                *await self.list_announced(),
                *self.gpu.prepared,
                *self.nic.prepared,
            ]

        await self.until(left, lambda found: not found)

    async def prepare_all(self, *pods: Pod) -> None:
        """Prepare pods, which must succeed."""
        for each in pods:
            outcome = await self.preparer.prepare(each)
            assert outcome == ClaimsReady(), outcome

    async def release_all(self, *pods: Pod) -> None:
        """Release pods, which must succeed."""
        for each in pods:
            outcome = await self.preparer.release(each.metadata.uid)
            assert outcome is None, outcome


def result(driver: str = GPU, device: str = "gpu-0", **more: Any) -> Document:
    """One device of an allocation."""
    return {"request": "gpu", "driver": driver, "pool": NODE, "device": device, **more}


def why(outcome: ClaimsReady | ClaimsRefused | ClaimsPending | None) -> tuple[str, str]:
    """The reason and the message of an outcome that is not ready."""
    assert isinstance(outcome, ClaimsRefused | ClaimsPending), outcome
    return outcome.reason.value, outcome.message


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
