"""A whole cluster in one process: store, server, scheduler and controllers.

Theory of operation: scheduler and controllers are the same as when they run alone. They reach the server
through the transport inside the process, each as a user of its own with the rights of its role, so nothing
here may do what would be refused over the network. On the way down they stop first, while the server still
answers, so that their last writes and their leases are settled.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

from dray.client.caller import Habits
from dray.client.client import Client
from dray.cluster import fleet
from dray.cluster.attendant import Attendant
from dray.cluster.components import Component, controllers, scheduler
from dray.cluster.control import ServerOptions, Started, serving, spare_the_lasting, stopped_by_signals
from dray.cluster.inside import Inside
from dray.cluster.kept import Kept
from dray.server.asgi import App
from dray.server.call import AUTHENTICATED, MASTERS

SCHEDULER: Final = "dray:scheduler"
CONTROLLER: Final = "dray:controller"
BUILDER: Final = "dray:up"
"""Who makes the simulated nodes and stands in for their agents."""
LONGEST_START: Final = 10.0
"""Seconds after which a service that is not ready is no reason to keep everybody waiting."""


@dataclass(frozen=True)
class UpOptions:
    """What somebody who starts a cluster chooses."""

    server: ServerOptions
    scheduler: Component
    controller: Component
    nodes: int = 3


@dataclass(frozen=True)
class Up:
    """What runs, and where."""

    server: Started
    nodes: int
    made: int
    """How many of the nodes were made just now."""
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
    log = options.server.log
    async with serving(options.server) as started:
        builder = _client(started.app, BUILDER, MASTERS)
        made = await fleet.settle(builder, options.nodes, log, stop)
        app = started.app
        services = (
            Kept("scheduler", lambda: scheduler(_client(app, SCHEDULER), options.scheduler), log),
            Kept("controllers", lambda: controllers(_client(app, CONTROLLER), options.controller), log),
            Kept("attendant", lambda: Attendant(builder), log),
        )
        for service in services:
            started.metrics.registry.register(service)
        async with asyncio.TaskGroup() as tasks:
            work = [tasks.create_task(service.run(), name=service.name) for service in services]
            try:
                yield Up(started, options.nodes, made, services)
            finally:
                for task in work:
                    task.cancel()


async def up(options: UpOptions, told: Callable[[Up], None]) -> None:
    """Run a cluster until somebody interrupts."""
    stop = stopped_by_signals()
    async with running(options, stop) as cluster:
        if await _ready(cluster, stop):
            spare_the_lasting()
            told(cluster)
        await stop.wait()


async def _ready(cluster: Up, stop: asyncio.Event) -> bool:
    """Wait until everything works, but neither for ever nor longer than anybody wants it."""
    waiting = [asyncio.create_task(cluster.ready()), asyncio.create_task(stop.wait())]
    await asyncio.wait(waiting, timeout=LONGEST_START, return_when=asyncio.FIRST_COMPLETED)
    for task in waiting:
        task.cancel()
    return not stop.is_set()


def _client(app: App, user: str, *groups: str) -> Client:
    return Client(Inside(app, user, (*groups, AUTHENTICATED)), Habits(manager=user.replace(":", "-")))
