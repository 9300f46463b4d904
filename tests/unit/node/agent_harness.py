"""A harness for the node agent: a real server and the agent in this process, with drivers as objects."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from dray.api.core import Pod
from dray.client.client import Client, DeleteOptions
from dray.client.errors import NotFoundError
from dray.client.object_refs import get_kind
from dray.client.patches import MergePatch
from dray.cluster.local.transport import LocalTransport
from dray.cluster.services.api_server import RunningServer, ServerProcessOptions, open_server
from dray.node.agent import FixedDrivers, NodeAgent, NodeAgentOptions
from dray.node.containers.runtime.base import ContainerRuntime
from dray.node.containers.runtime.process import ProcessRuntime
from dray.node.plugins.driver_interface import (
    ClaimRef,
    DeviceHealth,
    DriverCallFailure,
    DriverCallFault,
    PreparedDevice,
    PrepareOutcome,
    UnprepareOutcome,
)
from dray.node.pods.restart_policy import RestartBackoff
from dray.node.status.node_registration import NodeDescription
from dray.server.http.requests import AUTHENTICATED, MASTERS, NODES

NODE = "node-a"
DRIVER = "gpu.example.com"
TIMEOUT_SECONDS = 40.0
POD, CLAIM, EVENT = (get_kind(name) for name in ("Pod", "ResourceClaim.resource.k8s.io", "Event"))

Document = dict[str, Any]


@dataclass
class ToyDriver:
    """A driver that records its calls; `says` is the error of its replies."""

    name: str = DRIVER
    classic: bool = False
    says: str = ""
    asked: list[str] = field(default_factory=list)
    held: set[str] = field(default_factory=set)
    hold: asyncio.Event | None = None
    cdi: tuple[str, ...] = ()
    states: asyncio.Queue[Sequence[DeviceHealth]] | None = None
    """The health that it streams; no stream when None."""
    before_unprepare: Callable[[], Awaitable[None]] | None = None

    async def prepare(self, claims: Sequence[ClaimRef]) -> Mapping[str, PrepareOutcome]:
        self.asked += [f"prepare {claim}" for claim in claims]
        if self.hold is not None:
            await self.hold.wait()
        if self.says:
            return {claim.uid: DriverCallFailure(DriverCallFault.REFUSED, self.says) for claim in claims}
        self.held |= {claim.uid for claim in claims}
        ready = PreparedDevice(request_names=("gpu",), pool=NODE, device="gpu-0", cdi=self.cdi)
        return {claim.uid: (ready,) for claim in claims}

    async def unprepare(self, claims: Sequence[ClaimRef]) -> Mapping[str, UnprepareOutcome]:
        if self.before_unprepare is not None:
            await self.before_unprepare()
        self.asked += [f"unprepare {claim}" for claim in claims]
        if self.says:
            return {claim.uid: DriverCallFailure(DriverCallFault.REFUSED, self.says) for claim in claims}
        self.held -= {claim.uid for claim in claims}
        return {claim.uid: None for claim in claims}

    def watch_health(self) -> AsyncIterator[Sequence[DeviceHealth]] | None:
        return None if self.states is None else _streamed(self.states)


async def _streamed(states: asyncio.Queue[Sequence[DeviceHealth]]) -> AsyncIterator[Sequence[DeviceHealth]]:
    while True:
        yield await states.get()


def container(name: str = "c", *command: str, **more: Any) -> Document:
    words = list(command or ("sleep", "600"))
    return {"name": name, "image": "none:1", "command": words, **more}


def pod(name: str, *containers: Document, claim: str = "", **spec: Any) -> Document:
    """A pod that is bound already; `claim` is the name of a claim that its containers use."""
    given = list(containers) or [container()]
    if claim:
        spec["resourceClaims"] = [{"name": "gpu", "resourceClaimName": claim}]
        given = [{**one, "resources": {"claims": [{"name": "gpu"}]}} for one in given]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"containers": given, "nodeName": NODE, "terminationGracePeriodSeconds": 5, **spec},
    }


class AgentHarness:
    """A server, its administrator, and consecutive agents of one node."""

    def __init__(self, server: RunningServer, root: Path, driver: ToyDriver) -> None:
        self.server = server
        self.root = root
        self.driver = driver
        self.admin = Client(LocalTransport(server.app, "admin", (MASTERS, AUTHENTICATED)))
        self.own = Client(LocalTransport(server.app, f"system:node:{NODE}", (NODES, AUTHENTICATED)))

    def choices(self, runtime: ContainerRuntime | None = None) -> NodeAgentOptions:
        return NodeAgentOptions(
            NodeDescription(NODE),
            self.root,
            runtime or ProcessRuntime(self.root / "containers"),
            drivers=FixedDrivers(self.driver),
            cdi_directories=(self.root / "cdi",),
            restart_backoff=RestartBackoff(first=0.2, longest=0.4),
        )

    @asynccontextmanager
    async def agent(self, **changes: Any) -> AsyncIterator[NodeAgent]:
        """An agent inside the block."""
        agent = NodeAgent(self.own, replace(self.choices(), **changes))
        work = asyncio.create_task(agent.run())
        waiting = asyncio.create_task(agent.ready.wait())
        await asyncio.wait((work, waiting), return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if work.done():
            work.result()
        try:
            yield agent
        finally:
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)

    async def create(self, *documents: Document) -> None:
        for document in documents:
            await self.admin.create(document)

    async def claim(
        self, name: str, *pods: str, device: str = "gpu-0", driver: str = "", **metadata: Any
    ) -> None:
        """A claim that has a device of this node and is reserved for pods."""
        request = {"name": "gpu", "exactly": {"deviceClassName": "gpu"}}
        await self.create(
            {
                "apiVersion": "resource.k8s.io/v1",
                "kind": "ResourceClaim",
                "metadata": {"name": name, "namespace": "default", **metadata},
                "spec": {"devices": {"requests": [request]}},
            }
        )
        result = {"request": "gpu", "driver": driver or self.driver.name, "pool": NODE, "device": device}
        status: Document = {"allocation": {"devices": {"results": [result]}}}
        await self.admin.patch(CLAIM, name, MergePatch({"status": status}), "default", subresource="status")
        await self.reserve(name, *pods)

    async def reserve(self, name: str, *pods: str) -> None:
        """Reserve a claim for pods that are there."""
        users = []
        for each in pods:
            uid = (await self.admin.get(Pod, each, "default")).metadata.uid
            users.append({"resource": "pods", "name": each, "uid": uid})
        patch = MergePatch({"status": {"reservedFor": users}})
        await self.admin.patch(CLAIM, name, patch, "default", subresource="status")

    async def delete(self, name: str, grace: int | None = None) -> None:
        await self.admin.delete(POD, name, "default", DeleteOptions(grace_seconds=grace))

    async def pod(self, name: str) -> Document:
        found: Document = await self.admin.get(POD, name, "default")
        return found

    async def until(self, name: str, is_so: Callable[[Document], bool]) -> Document:
        """A pod, as soon as something is so."""
        seen: list[Document] = []

        async def looked() -> bool:
            seen[:] = [await self.pod(name)]
            return is_so(seen[0])

        await until(looked, lambda: seen)
        return seen[0]

    async def phase(self, name: str, phase: str) -> Document:
        return await self.until(name, lambda seen: seen["status"]["phase"] == phase)

    async def phase_of_any(self, name: str, phase: str) -> Document:
        """A pod in a phase, which may not even be there yet."""

        async def is_there() -> bool:
            return any(one["metadata"]["name"] == name for one in (await self.admin.list(POD)).items)

        await until(is_there)
        return await self.phase(name, phase)

    async def gone(self, name: str) -> None:
        async def is_gone() -> bool:
            try:
                await self.pod(name)
            except NotFoundError:
                return True
            return False

        await until(is_gone)

    async def has_event(self, reason: str) -> bool:
        return reason in await self.events()

    async def events(self) -> list[str]:
        return [str(event["reason"]) for event in (await self.admin.list(EVENT)).items]


async def until(is_so: Callable[[], Awaitable[bool]], told: Callable[[], object] = lambda: "") -> None:
    """Wait until something is so."""
    try:
        async with asyncio.timeout(TIMEOUT_SECONDS / 2):
            while not await is_so():
                await asyncio.sleep(0.02)
    except TimeoutError:
        raise AssertionError(told()) from None


def run_on_node(
    folder: Path, work: Callable[[AgentHarness], Awaitable[None]], driver: ToyDriver | None = None
) -> None:
    """Run a test with a server and a node."""

    async def main() -> None:
        async with (
            asyncio.timeout(TIMEOUT_SECONDS),
            open_server(ServerProcessOptions(folder / "server", "memory:", port=0)) as up,
        ):
            harness = AgentHarness(up, folder / "node", driver or ToyDriver())
            try:
                await work(harness)
            finally:
                await _remove_containers(harness)

    asyncio.run(main())


async def _remove_containers(harness: AgentHarness) -> None:
    """Remove every container, so that none outlives the test."""
    runtime = ProcessRuntime(harness.root / "containers")
    for found in await runtime.list_containers():
        await runtime.remove(found.id)
    await runtime.close()
