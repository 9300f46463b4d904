"""A simulated cluster: the real servers, schedulers, controllers and agents, each in a simulated process.

Theory of operation: a process is started from a function that builds its work, and can be crashed, paused and
started again at any step. Clients reach the servers through the simulated network, each as the user with the
permissions of its role. The objects that every cluster has are created once per interpreter and copied into
each new store.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from random import Random
from typing import Any, Final
from unittest import mock

from dray.allocator.feature_gates import AllocatorGateFilter
from dray.api.strategies.gated_fields import FeatureGateFilter
from dray.client.client import Client
from dray.client.rest_client import ClientOptions
from dray.client.timing import TimeSource
from dray.controllers.runner import ControllerOptions, ControllerRunner
from dray.gates import GateSet
from dray.node.agent import NodeAgent, NodeAgentOptions
from dray.node.status.node_registration import NodeDescription
from dray.scheduler.options import SchedulerOptions
from dray.scheduler.scheduling_loop import Scheduler
from dray.server import app as server_app
from dray.server.app import ApiServer, ApiServerOptions
from dray.server.http.requests import AUTHENTICATED, MASTERS
from dray.server.objects.identifiers import generate_uids
from dray.server.registry import watch_server
from dray.store import Put
from dray.telemetry.logs import build_silent_logger
from tests.simulated.clock import SimulatedClock
from tests.simulated.event_loop import SimulatedLoop, SimulatedProcess
from tests.simulated.machine import SimulatedMachine
from tests.simulated.network import SimulatedHost, SimulatedNetwork
from tests.simulated.store import SimulatedStore, complete

SCHEDULER_USER: Final = "dray:scheduler"
CONTROLLER_USER: Final = "dray:controller"
NODES_GROUP: Final = "system:nodes"
DRIVERS: Final = ("gpu.example.com", "nic.example.com")
NODE_CAPACITY: Final = {"cpu": "32", "memory": "256Gi", "ephemeral-storage": "1Ti", "pods": "110"}


@dataclass
class SimulatedService:
    """A process that can be started again."""

    name: str
    build: ServiceBuilder
    clock: SimulatedClock
    process: SimulatedProcess | None = None
    starts: int = 0
    task: asyncio.Task[Any] | None = None

    @property
    def is_alive(self) -> bool:
        """Whether the process runs."""
        return self.process is not None and self.process.alive


ServiceBuilder = Callable[[SimulatedService], Coroutine[Any, Any, None]]
"""Builds the work of a service that starts."""


class SimulatedCluster:
    """The processes of a cluster on one event loop."""

    def __init__(self, seed: int, directory: Path | None = None) -> None:
        self.random = Random(seed)
        self.loop = SimulatedLoop(Random(self.random.getrandbits(64)))
        self.network = SimulatedNetwork(self.loop)
        self.store = SimulatedStore(self.loop)
        self.services: dict[str, SimulatedService] = {}
        self.machines: dict[str, SimulatedMachine] = {}
        self.directory = directory or Path(tempfile.mkdtemp(prefix="dray-simulated-", dir=_find_memory()))
        self._gates = GateSet.from_defaults()
        self._log = build_silent_logger()
        self._has_initial_objects = False
        self.bookmark_seconds = watch_server.BOOKMARK_SECONDS
        """How often servers send bookmarks; they are a large part of what happens in an idle cluster."""

    # --- processes ---

    def add(
        self, name: str, build: Callable[[SimulatedService], Coroutine[Any, Any, None]]
    ) -> SimulatedService:
        """Add a service; it runs when it is started."""
        service = SimulatedService(name, build, SimulatedClock(self.loop))
        self.services[name] = service
        return service

    def start(self, service: SimulatedService) -> None:
        """Start a service in a new process."""
        service.starts += 1
        service.process = process = self.loop.start_process(service.name, service.starts)
        service.task = process.context.run(self.loop.create_task, service.build(service))

    def start_if_down(self, service: SimulatedService) -> None:
        """Start a service whose process has ended."""
        if not service.is_alive:
            self.start(service)

    def crash(self, service: SimulatedService) -> None:
        """End the process of a service at once."""
        if service.process is not None:
            self.loop.crash(service.process)

    def start_all(self) -> None:
        """Start every service."""
        for service in self.services.values():
            self.start(service)

    def run(self, seconds: float) -> None:
        """Let virtual time pass."""
        bookmarks = mock.patch.object(watch_server, "BOOKMARK_SECONDS", self.bookmark_seconds)
        with bookmarks, _skip_bootstrap() if self._has_initial_objects else nullcontext():
            self.loop.run(self.loop.time() + seconds)

    def close(self) -> None:
        """Drop everything; the directory is deleted."""
        for service in self.services.values():
            service.task = service.process = None
        self.services.clear()
        self.machines.clear()
        self.network.hosts.clear()
        self.store.drop()
        self.loop.close()
        self.delete_directory()

    def delete_directory(self) -> None:
        """Delete the files of machines and servers."""
        shutil.rmtree(self.directory, ignore_errors=True)

    # --- clients ---

    def build_client(
        self, client: str, user: str, *groups: str, clock: SimulatedClock | None = None
    ) -> Client:
        """Build a client in the process of a name."""
        first = int(self.random.random() * 16)
        transport = self.network.build_transport(client, user, *groups, AUTHENTICATED, first=first)
        timing = TimeSource(clock or SimulatedClock(self.loop), asyncio.sleep, self.random.random)
        return Client(transport, ClientOptions(field_manager=user.replace(":", "-"), time_source=timing))

    def build_admin(self) -> Client:
        """Build a client that may do everything, outside of all processes."""
        return self.build_client("outside", "admin", MASTERS)

    # --- components ---

    def add_server(self, name: str, **options: Any) -> SimulatedService:
        """Add an API server."""
        host = SimulatedHost(name)
        self.network.hosts.append(host)

        async def work(service: SimulatedService) -> None:
            assert service.process is not None
            connection = self.store.connect()
            service.process.on_crash.append(lambda: self._close_host(host, connection))
            audit = self.directory / f"audit-{name}-{service.starts}"
            chosen = ApiServerOptions(
                FeatureGateFilter(options.get("gates") or self._gates),
                _create_keys(),
                audit,
                self._log,
                clock=service.clock,
                random_bytes=self.random.randbytes,
                random_int=self.random.randrange,
                ledger=options.get("ledger", True),
            )
            async with ApiServer(connection, chosen).run() as app:
                host.process, host.app = service.process, app
                await asyncio.Event().wait()

        return self.add(name, work)

    def _close_host(self, host: SimulatedHost, connection: Any) -> None:
        self.store.disconnect(connection)
        host.process = host.app = None
        host.break_connections()

    def add_scheduler(self, name: str, **options: Any) -> SimulatedService:
        """Add a scheduler."""
        uids = generate_uids(self.random.randbytes)

        async def work(service: SimulatedService) -> None:
            client = self.build_client(name, SCHEDULER_USER, clock=service.clock)
            identity = f"{name}-{service.starts}"
            chosen = SchedulerOptions(
                AllocatorGateFilter(self._gates), uids.__next__, identity=identity, **options
            )
            await Scheduler(client, chosen).run()

        return self.add(name, work)

    def add_controllers(self, name: str, **options: Any) -> SimulatedService:
        """Add the controllers."""

        async def work(service: SimulatedService) -> None:
            client = self.build_client(name, CONTROLLER_USER, clock=service.clock)
            identity = f"{name}-{service.starts}"
            await ControllerRunner(client, ControllerOptions(identity=identity, upkeep=True, **options)).run()

        return self.add(name, work)

    def add_node(self, name: str, drivers: Sequence[str] = DRIVERS) -> SimulatedService:
        """Add a machine with drivers, and the agent on it."""
        timing = TimeSource(SimulatedClock(self.loop), asyncio.sleep, self.random.random)
        machine = self.machines[name] = SimulatedMachine(name, self.directory, timing, drivers)

        async def work(service: SimulatedService) -> None:
            client = self.build_client(
                f"agent-{name}", f"system:node:{name}", NODES_GROUP, clock=service.clock
            )
            description = NodeDescription(name, runtime="fake", capacity=NODE_CAPACITY)
            options = NodeAgentOptions(
                description,
                machine.prepare_root(),
                machine.runtime,
                drivers=machine.build_registry(),
                cdi_directories=(),
                boot_id=machine.boot_id,
            )
            await NodeAgent(client, options).run()

        return self.add(f"agent-{name}", work)

    # --- the beginning ---

    def load_initial_objects(self, more: Sequence[tuple[bytes, bytes]] = ()) -> None:
        """Put the objects into the store that every cluster has, and `more`; servers then create none."""
        self._has_initial_objects = True
        self.store.commit([], [Put(key, value) for key, value in (*_build_initial_contents(), *more)])


def _skip_bootstrap() -> AbstractContextManager[Any]:
    """Let servers take their initial objects as created, because building them takes longer than the rest."""

    async def create_nothing(resources: Any, documents: Any) -> None:
        pass

    return mock.patch.multiple(
        server_app, create_initial_objects=create_nothing, build_bootstrap_documents=list
    )


def _find_memory() -> str | None:
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


@lru_cache(maxsize=1)
def _create_keys() -> Path:
    return Path(tempfile.mkdtemp(prefix="dray-simulated-keys-", dir=_find_memory()))


@lru_cache(maxsize=1)
def _build_initial_contents() -> tuple[tuple[bytes, bytes], ...]:
    """Let a server create its objects in an empty store, and return them."""
    cluster = SimulatedCluster(0)
    try:
        cluster.add_server("server")
        cluster.start_all()
        cluster.run(1.0)
        failures = cluster.loop.failures
        assert cluster.network.hosts[0].app is not None, failures
        page = complete(cluster.store.contents.range(b""))
        return tuple((entry.key, entry.value) for entry in page.entries)
    finally:
        cluster.close()
