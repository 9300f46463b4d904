"""The agent of a node as a whole: what runs beside what, and in which order it starts.

Theory of operation: first the node is announced, then everything is seen once: the pods bound to it, the
drivers that are there, the containers that go on from before. Only then are claims taken up and pods lived,
so that nothing is taken for gone that was not looked for. From there on every part goes on by itself, and a
server that goes away is waited for: containers run on and start again from what is known.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol

from dray.api.codec import decode_projection
from dray.client.client import Client
from dray.client.events import EventRecorder
from dray.client.informers.informer import Informer, InformerOptions
from dray.client.rest_client import CALL_ERRORS
from dray.durable import FileLock, read_boot_id
from dray.errors import InputError
from dray.node import agent_metrics
from dray.node.agent_metrics import NodeAgentMetrics
from dray.node.claims.preparer import PodClaimPreparer
from dray.node.claims.preparer_options import ClaimPreparerOptions
from dray.node.containers.cdi import DEFAULT_DIRECTORIES, CdiSpecCache
from dray.node.containers.environment import NodeEnvironment
from dray.node.containers.launch import PodLaunchBuilder
from dray.node.containers.log_files import ContainerLogFiles
from dray.node.containers.runtime.base import ContainerRuntime
from dray.node.plugins.device_health import DeviceHealthTracker
from dray.node.plugins.driver_client import DriverCallOptions
from dray.node.plugins.driver_interface import DriverClient
from dray.node.plugins.published_slices import PublishedSlices
from dray.node.plugins.registry import PluginRegistry, PluginRegistryOptions
from dray.node.pods.pod_worker import POD
from dray.node.pods.restart_policy import RestartBackoff
from dray.node.pods.static_pods import StaticPods
from dray.node.pods.supervisor import PodSupervisor
from dray.node.pods.worker_context import PodWorkerContext
from dray.node.server.log_endpoint import LogEndpoint
from dray.node.status.node_readiness import NodeReadinessMonitor, find_disk_problem
from dray.node.status.node_registration import NodeDescription, NodeRegistration, read_machine_capacity
from dray.telemetry.logs import StructuredLogger, build_silent_logger
from dray.wire.unix_sockets import secure_socket_directory

DRIVER_WAIT_SECONDS: Final = 5.0
"""How long the agent waits at its start for drivers that are slow to answer."""

Document = dict[str, Any]
Listener = Callable[[str], None]


class NodeDrivers(Protocol):
    """The drivers of a node; `PluginRegistry` is one."""

    @property
    def ready(self) -> asyncio.Event: ...

    def list_drivers(self) -> Mapping[str, DriverClient]: ...

    def find_driver(self, name: str, *, classic: bool | None = None) -> DriverClient | None: ...

    def add_listener(
        self, on_registered: Listener | None = None, on_removed: Listener | None = None
    ) -> None: ...

    async def run(self) -> None: ...


class FixedDrivers:
    """Drivers that are there from the start and stay; for simulated nodes and tests."""

    def __init__(self, *drivers: DriverClient) -> None:
        self._drivers = {line.name: line for line in drivers}
        self.ready = asyncio.Event()
        self.ready.set()

    def list_drivers(self) -> Mapping[str, DriverClient]:
        return self._drivers

    def find_driver(self, name: str, *, classic: bool | None = None) -> DriverClient | None:
        found = self._drivers.get(name)
        return found if found is None or classic in (None, found.classic) else None

    def add_listener(self, on_registered: Listener | None = None, on_removed: Listener | None = None) -> None:
        """Nobody comes or goes."""

    async def run(self) -> None:
        await asyncio.Event().wait()


@dataclass(frozen=True)
class NodeAgentOptions:
    """What somebody who starts an agent chooses."""

    description: NodeDescription
    root: Path
    """Where everything is kept that must survive the agent."""
    runtime: ContainerRuntime
    registration: PluginRegistryOptions | None = None
    """Where drivers register; nowhere without it."""
    drivers: NodeDrivers | None = None
    """In place of those who register."""
    cdi_directories: tuple[Path, ...] = DEFAULT_DIRECTORIES
    port: int | None = None
    """Where to answer for logs; 0 takes any port that is free, None answers nobody."""
    listen_address: str = ""
    """The address to listen on; the node's own when empty."""
    client_ca: bytes = field(default=b"", repr=False)
    """The certificate (PEM) by which callers are known."""
    prepare_claims: bool = True
    """Whether pods get what their claims promise; they start without it otherwise."""
    static_pods: Path | None = None
    """Where files describe pods that the node runs by itself."""
    stop_pods: bool = False
    """Whether containers are stopped when the agent ends, to be started again by the next one."""
    restart_backoff: RestartBackoff = field(default_factory=RestartBackoff)
    boot_id: str = field(default_factory=read_boot_id)
    log: StructuredLogger = field(default_factory=build_silent_logger)


class NodeAgent:
    """The agent of one node."""

    def __init__(self, client: Client, options: NodeAgentOptions) -> None:
        self._client = client
        self._options = options
        self._log = options.log
        self.ready = asyncio.Event()
        """Set when everything was seen and pods are lived."""
        self.metrics = NodeAgentMetrics()
        self.address = ""
        """Where it answers for logs, once it does."""

    @property
    def name(self) -> str:
        """The name of the node."""
        return self._options.description.name

    async def run(self) -> None:
        """Work until cancelled; containers go on, unless they were chosen to stop."""
        choices = self._options
        with _lock_root(choices.root):
            logs = ContainerLogFiles(choices.root / "logs")
            endpoint = LogEndpoint(self._client, self.name, logs, self._log)
            async with self._serve_logs(endpoint) as facts:
                board = NodeRegistration(self._client, facts, self._log)
                recorder = EventRecorder(self._client, "dray-node", self.name)
                drivers = self._build_drivers()
                # Drivers that are given stay: there is less to look after, on hundreds of simulated nodes.
                poll = 5.0 if isinstance(drivers, FixedDrivers) else 0.5
                health = DeviceHealthTracker(drivers, self._client.options.time_source, poll_seconds=poll)
                async with asyncio.TaskGroup() as tasks:
                    for work in (board.run(), recorder.run(), drivers.run(), health.run()):
                        tasks.create_task(work)
                    await board.registered.wait()
                    fitness = NodeReadinessMonitor(board, self._client.options.time_source, self._log)
                    tasks.create_task(fitness.run())
                    pods = self._build_pods(board, recorder, drivers, health, logs)
                    endpoint.pods = pods
                    try:
                        board.add_listener(pods.claims.retry_now, pods.claims.restore_accounting.trigger)
                        await self._run_pods(pods, drivers, health, fitness)
                    except asyncio.CancelledError:
                        if choices.stop_pods:
                            await pods.stop_for_restart()
                        raise

    @asynccontextmanager
    async def _serve_logs(self, endpoint: LogEndpoint) -> AsyncIterator[NodeDescription]:
        choices = self._options
        try:
            if choices.port is None:
                yield choices.description
                return
            host = choices.listen_address or choices.description.address
            certificate = choices.root / "serving.pem"
            async with endpoint.serve(host, choices.port, certificate, choices.client_ca) as (port, mark):
                self.address = f"{host}:{port}"
                yield replace(choices.description, port=port, fingerprint=mark)
        finally:
            await choices.runtime.close()

    def _build_drivers(self) -> NodeDrivers:
        choices, client = self._options, self._client
        if choices.drivers is not None:
            return choices.drivers
        if choices.registration is None:
            return FixedDrivers()
        habits = DriverCallOptions(time_source=client.options.time_source, metrics=self.metrics)
        slices = PublishedSlices(client, self.name)
        return PluginRegistry(choices.registration, habits, log=self._log, withdraw=slices.withdraw)

    def _build_pods(
        self,
        registration: NodeRegistration,
        recorder: EventRecorder,
        drivers: NodeDrivers,
        health: DeviceHealthTracker,
        logs: ContainerLogFiles,
    ) -> PodSupervisor:
        choices, client = self._options, self._client
        office = ClaimPreparerOptions(
            lambda: registration.node,
            choices.root / "checkpoint",
            drivers,
            choices.boot_id,
            client.options.time_source,
            self.metrics,
            choices.prepare_claims,
            self._log.warning,
        )
        claims = PodClaimPreparer(client, recorder, office)
        cdi = CdiSpecCache(
            choices.cdi_directories, lambda what: self._log.warning("a CDI file is passed over", file=what)
        )
        around = NodeEnvironment(read_machine_capacity() | dict(choices.description.capacity))
        shop = PodWorkerContext(
            client,
            choices.runtime,
            claims,
            PodLaunchBuilder(client, cdi, logs, around),
            health,
            recorder,
            self.metrics,
            self._log,
            choices.description.address,
            choices.restart_backoff,
        )
        return PodSupervisor(shop, choices.root)

    async def _run_pods(
        self,
        pods: PodSupervisor,
        drivers: NodeDrivers,
        health: DeviceHealthTracker,
        readiness: NodeReadinessMonitor,
    ) -> None:
        own = f"spec.nodeName={self.name}"
        ways = InformerOptions(
            transform=_strip_managed_fields, on_failure=self._log_watch_failure, max_backoff=10.0
        )
        informer: Informer[Document] = Informer(self._client, POD, field_selector=own, options=ways)
        claims, runtime = pods.claims, self._options.runtime
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(informer.run())
            await informer.wait_for_sync()
            with suppress(TimeoutError):
                async with asyncio.timeout(DRIVER_WAIT_SECONDS):
                    await drivers.ready.wait()
            await self._expect_published_drivers(drivers)
            found = await runtime.list_containers()
            running = frozenset(each.id.pod_uid for each in found if each.exit is None)
            await claims.recover(tuple(decode_projection(POD, pod) for pod in informer.list_all()), running)
            tasks.create_task(claims.restore_accounting.run())
            drivers.add_listener(on_registered=lambda _name: claims.retry_now())
            health.add_listener(lambda _name: pods.refresh_statuses())
            self._register_metrics(pods)

            def follow() -> None:
                informer.listen(added=pods.handle_add, updated=pods.handle_update, deleted=pods.handle_delete)

            living = tasks.create_task(pods.run(informer.list_all, follow))
            if (folder := self._options.static_pods) is not None:
                tasks.create_task(StaticPods(self._client, self.name, folder, self._log).run())
            await pods.started.wait()
            await readiness.start(
                partial(find_disk_problem, self._options.root), claims.find_problem, runtime.find_problem
            )
            if not self._options.prepare_claims:
                self._log.warning("claims are left alone: pods start without devices", node=self.name)
            self._log.info("the agent takes pods", node=self.name, pods=len(informer), logs_at=self.address)
            self.ready.set()
            await living

    async def _expect_published_drivers(self, drivers: NodeDrivers) -> None:
        """Drivers that published devices and are not here have gone, unless they come soon."""
        if isinstance(drivers, PluginRegistry):
            with suppress(*CALL_ERRORS):
                drivers.expect_drivers(await PublishedSlices(self._client, self.name).list_drivers())

    def _register_metrics(self, pods: PodSupervisor) -> None:
        self.metrics.add_callback(agent_metrics.PODS, lambda: [((), pods.count_running_pods())])
        states = pods.count_container_states
        self.metrics.add_callback(
            agent_metrics.CONTAINERS, lambda: [((name,), n) for name, n in states().items()]
        )

    def _log_watch_failure(self, error: Exception) -> None:
        self._log.warning("the pods of this node cannot be read now", node=self.name, error=error)


def _strip_managed_fields(pod: Document) -> Document:
    """A pod without the record of who set which field."""
    metadata = {name: value for name, value in pod["metadata"].items() if name != "managedFields"}
    return {**pod, "metadata": metadata}


def _lock_root(root: Path) -> FileLock:
    """Lock the root directory against other agents."""
    try:
        secure_socket_directory(root)
        lock = FileLock.try_acquire(root / "lock")
    except OSError as refused:
        why = (refused.strerror or str(refused)).lower()
        raise InputError(f"cannot use `{root}`: {why}; choose another with --root") from None
    if lock is None:
        raise InputError(f"another agent works in `{root}`; choose another with --root")
    return lock
