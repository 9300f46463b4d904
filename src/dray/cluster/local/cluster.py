"""A whole cluster in one process: store, server, scheduler, controllers, and nodes with drivers.

Theory of operation: scheduler, controllers, agents and drivers are the same as when they run alone. They
reach the server through the transport inside the process, each as a user of its own with the rights of its
role, so nothing here may do what would be refused over the network. On the way down they stop first, while
the server still answers, so that their last writes and their leases are settled; containers stop with their
agents, pods stay, and both run again after the next start.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from dray.api.core import Node
from dray.client.client import Client
from dray.client.patches import MergePatch
from dray.cluster.local import example_nodes
from dray.cluster.local.activity_log import Narrator
from dray.cluster.local.nodes import Ground, machine, simulated
from dray.cluster.local.simulated_kubelet import Attendant
from dray.cluster.local.transport import client_inside
from dray.cluster.services.api_server import ServerOptions, Started, serving
from dray.cluster.services.components import Component, controllers, scheduler
from dray.cluster.services.process_setup import spare_the_lasting, stopped_by_signals
from dray.cluster.services.supervisor import ByNode, Kept
from dray.gates import GateSet
from dray.server.http.requests import MASTERS

SCHEDULER: Final = "dray:scheduler"
CONTROLLER: Final = "dray:controller"
BUILDER: Final = "dray:up"
"""Who makes classes and simulated nodes, and tells what becomes of pods."""
LONGEST_START: Final = 10.0
"""Seconds after which a service that is not ready is no reason to keep everybody waiting."""


@dataclass(frozen=True)
class UpOptions:
    """What somebody who starts a cluster chooses."""

    server: ServerOptions
    scheduler: Component
    controller: Component
    nodes: int = 3
    """Nodes with an agent and example drivers."""
    simulated: int = 0
    """Nodes whose containers and devices are only pretended."""
    runtime: str = "process"
    """What runs the containers of nodes."""
    rootfs: Path | None = None
    """What containers of the `oci` runtime see as their files."""
    gates: GateSet = field(default_factory=GateSet.default)
    """Those of nodes; the others have their own."""


@dataclass(frozen=True)
class Up:
    """What runs, and where."""

    server: Started
    options: UpOptions
    services: tuple[Kept, ...]

    async def ready(self) -> None:
        """Wait until every service works."""
        for service in self.services:
            await service.ready.wait()

    @property
    def late(self) -> tuple[str, ...]:
        """Services that do not work yet."""
        return tuple(service.name for service in self.services if not service.ready.is_set())


@asynccontextmanager
async def running(options: UpOptions, stop: asyncio.Event | None = None) -> AsyncIterator[Up]:
    """A cluster that works while the block lasts; what takes long at its start ends early with `stop`."""
    async with serving(options.server) as started:
        builder = client_inside(started.app, BUILDER, MASTERS)
        await _prepared(builder, options, stop)
        services = _services(started, builder, options)
        for service in services:
            if not service.node:
                started.metrics.registry.register(service)
        started.metrics.registry.register(ByNode([service for service in services if service.node]))
        async with asyncio.TaskGroup() as tasks:
            work = [tasks.create_task(service.run(), name=service.name) for service in services]
            try:
                yield Up(started, options, services)
            finally:
                for task in work:
                    task.cancel()


def _services(started: Started, builder: Client, options: UpOptions) -> tuple[Kept, ...]:
    app, log = started.app, options.server.log
    chosen = (options.runtime, options.rootfs, options.gates)
    ground = Ground(app, options.server.directory, started.authority, log, *chosen)
    services = [
        Kept("scheduler", lambda: scheduler(client_inside(app, SCHEDULER), options.scheduler), log),
        Kept("controllers", lambda: controllers(client_inside(app, CONTROLLER), options.controller), log),
        Kept("attendant", lambda: Attendant(builder), log),
    ]
    for number in range(options.nodes):
        services += machine(ground, number)
    services += (simulated(ground, number) for number in range(options.simulated))
    return tuple(services)


async def _prepared(client: Client, options: UpOptions, stop: asyncio.Event | None) -> None:
    """Make what the nodes of this cluster need, and take over nodes that nobody ran pods on so far."""
    log = options.server.log
    if options.nodes:
        await example_nodes.classify(client, log)
    await example_nodes.settle(client, options.simulated, log, stop, example_nodes.SIMULATED_NAME)
    names = {example_nodes.name(number) for number in range(options.nodes)}
    for node in (await client.list(Node)).items:
        if node.metadata.name in names and example_nodes.SIMULATED in node.metadata.labels:
            patch = MergePatch({"metadata": {"labels": {example_nodes.SIMULATED: None}}})
            await client.patch(Node, node.metadata.name, patch)


async def up(options: UpOptions, told: Callable[[Up], None], narrate: Callable[[str], None]) -> None:
    """Run a cluster until somebody interrupts; `narrate` is told what becomes of pods."""
    stop = stopped_by_signals()
    async with running(options, stop) as cluster:
        if await _ready(cluster, stop):
            spare_the_lasting()
            told(cluster)
        client = client_inside(cluster.server.app, BUILDER, MASTERS)
        narration = Kept("narrator", lambda: Narrator(client, narrate), options.server.log)
        async with asyncio.TaskGroup() as tasks:
            telling = tasks.create_task(narration.run())
            await stop.wait()
            telling.cancel()


async def _ready(cluster: Up, stop: asyncio.Event) -> bool:
    """Wait until everything works, but neither for ever nor longer than anybody wants it."""
    waiting = [asyncio.create_task(cluster.ready()), asyncio.create_task(stop.wait())]
    await asyncio.wait(waiting, timeout=LONGEST_START, return_when=asyncio.FIRST_COMPLETED)
    for task in waiting:
        task.cancel()
    return not stop.is_set()
