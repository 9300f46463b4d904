"""The node agent, the counterpart of the kubelet: builds its parts and starts them in order.

Theory of operation: the agent registers the node first, then observes everything once: the pods bound to it,
the registered drivers, the containers of an earlier agent. Only then it recovers claims and starts pod
workers, so that nothing counts as deleted that was not looked up. From then on every part runs as its own
task, and while the server is unreachable, containers keep running and restart from local state.
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
from dray.node.server.certificate import AgentTls
from dray.node.server.log_endpoint import LogEndpoint
from dray.node.status.node_readiness import NodeReadinessMonitor, find_disk_problem
from dray.node.status.node_registration import NodeDescription, NodeRegistration, read_machine_capacity
from dray.telemetry.logs import StructuredLogger, build_silent_logger
from dray.wire.unix_sockets import secure_socket_directory

DRIVER_WAIT_SECONDS: Final = 5.0
"""How long the agent waits at its start for slow drivers to register."""

SERVING_FILE: Final = "serving.pem"
"""The key and the certificate of the log endpoint, in the root."""

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
    """A fixed set of drivers, for simulated nodes and tests."""

    def __init__(self, *drivers: DriverClient) -> None:
        self._drivers = {client.name: client for client in drivers}
        self.ready = asyncio.Event()
        self.ready.set()

    def list_drivers(self) -> Mapping[str, DriverClient]:
        return self._drivers

    def find_driver(self, name: str, *, classic: bool | None = None) -> DriverClient | None:
        found = self._drivers.get(name)
        return found if found is None or classic in (None, found.classic) else None

    def add_listener(self, on_registered: Listener | None = None, on_removed: Listener | None = None) -> None:
        """Do nothing: the drivers do not change."""

    async def run(self) -> None:
        await asyncio.Event().wait()


@dataclass(frozen=True)
class NodeAgentOptions:
    """Options of a node agent."""

    description: NodeDescription
    root: Path
    """The directory of all state that must survive the agent."""
    runtime: ContainerRuntime
    registration: PluginRegistryOptions | None = None
    """Where drivers register; without it no driver can."""
    drivers: NodeDrivers | None = None
    """In place of drivers that register."""
    cdi_directories: tuple[Path, ...] = DEFAULT_DIRECTORIES
    port: int | None = None
    """The port of the log endpoint; 0 takes any free port, None disables the endpoint."""
    listen_address: str = ""
    """The address to listen on; the node's own when empty."""
    client_ca: bytes = field(default=b"", repr=False)
    """The CA certificate (PEM) of clients."""
    prepare_claims: bool = True
    """Whether claims are prepared; otherwise pods start without their devices."""
    static_pods: Path | None = None
    """The directory of static pod manifests."""
    stop_pods: bool = False
    """Whether containers are stopped when the agent ends, to be restarted by the next one."""
    restart_backoff: RestartBackoff = field(default_factory=RestartBackoff)
    boot_id: str = field(default_factory=read_boot_id)
    log: StructuredLogger = field(default_factory=build_silent_logger)


class NodeAgent:
    """Runs one node."""

    def __init__(self, client: Client, options: NodeAgentOptions) -> None:
        self._client = client
        self._options = options
        self._log = options.log
        self.ready = asyncio.Event()
        """Set when everything is recovered and pods run."""
        self.metrics = NodeAgentMetrics()
        self.address = ""
        """The address of the log endpoint, once it listens."""

    @property
    def name(self) -> str:
        """The name of the node."""
        return self._options.description.name

    async def run(self) -> None:
        """Run until cancelled; containers continue unless `stop_pods` is set."""
        options = self._options
        with _lock_root(options.root):
            logs = ContainerLogFiles(options.root / "logs")
            endpoint = LogEndpoint(self._client, self.name, logs, self._log)
            async with self._serve_logs(endpoint) as (description, tls):
                registration = NodeRegistration(self._client, description, self._log)
                recorder = EventRecorder(self._client, "dray-node", self.name)
                drivers = self._build_drivers()
                # Fixed drivers do not change; polling less often matters on hundreds of simulated nodes.
                poll = 5.0 if isinstance(drivers, FixedDrivers) else 0.5
                health = DeviceHealthTracker(drivers, self._client.options.time_source, poll_seconds=poll)
                async with asyncio.TaskGroup() as tasks:
                    for work in (registration.run(), recorder.run(), drivers.run(), health.run()):
                        tasks.create_task(work)
                    await registration.registered.wait()
                    if tls is not None:
                        tasks.create_task(tls.run(registration.publish_fingerprints))
                    time_source = self._client.options.time_source
                    readiness = NodeReadinessMonitor(registration, time_source, self._log)
                    tasks.create_task(readiness.run())
                    pods = self._build_pods(registration, recorder, drivers, health, logs)
                    endpoint.pods = pods
                    try:
                        claims = pods.claims
                        registration.add_listener(claims.retry_now, claims.restore_accounting.trigger)
                        await self._run_pods(pods, drivers, health, readiness)
                    except asyncio.CancelledError:
                        if options.stop_pods:
                            await pods.stop_for_restart()
                        raise

    @asynccontextmanager
    async def _serve_logs(
        self, endpoint: LogEndpoint
    ) -> AsyncIterator[tuple[NodeDescription, AgentTls | None]]:
        options = self._options
        try:
            if options.port is None:
                yield options.description, None
                return
            host = options.listen_address or options.description.address
            time_source = self._client.options.time_source
            tls = await asyncio.to_thread(
                AgentTls, self.name, options.root / SERVING_FILE, options.client_ca, time_source, self._log
            )
            self.metrics.add_callback(
                agent_metrics.CERTIFICATE_EXPIRY, lambda: [((), tls.expiry.timestamp())]
            )
            async with endpoint.serve(host, options.port, tls.context) as port:
                self.address = f"{host}:{port}"
                yield replace(options.description, port=port, fingerprints=(tls.fingerprint,)), tls
        finally:
            await options.runtime.close()

    def _build_drivers(self) -> NodeDrivers:
        options, client = self._options, self._client
        if options.drivers is not None:
            return options.drivers
        if options.registration is None:
            return FixedDrivers()
        call_options = DriverCallOptions(time_source=client.options.time_source, metrics=self.metrics)
        slices = PublishedSlices(client, self.name)
        return PluginRegistry(options.registration, call_options, log=self._log, withdraw=slices.withdraw)

    def _build_pods(
        self,
        registration: NodeRegistration,
        recorder: EventRecorder,
        drivers: NodeDrivers,
        health: DeviceHealthTracker,
        logs: ContainerLogFiles,
    ) -> PodSupervisor:
        options, client = self._options, self._client
        preparer_options = ClaimPreparerOptions(
            lambda: registration.node,
            options.root / "checkpoint",
            drivers,
            options.boot_id,
            client.options.time_source,
            self.metrics,
            options.prepare_claims,
            self._log.warning,
        )
        claims = PodClaimPreparer(client, recorder, preparer_options)
        cdi = CdiSpecCache(
            options.cdi_directories, lambda file: self._log.warning("a CDI file is skipped", file=file)
        )
        environment = NodeEnvironment(read_machine_capacity() | dict(options.description.capacity))
        context = PodWorkerContext(
            client,
            options.runtime,
            claims,
            PodLaunchBuilder(client, cdi, logs, environment),
            health,
            recorder,
            self.metrics,
            self._log,
            options.description.address,
            options.restart_backoff,
        )
        return PodSupervisor(context, options.root)

    async def _run_pods(
        self,
        pods: PodSupervisor,
        drivers: NodeDrivers,
        health: DeviceHealthTracker,
        readiness: NodeReadinessMonitor,
    ) -> None:
        own = f"spec.nodeName={self.name}"
        options = InformerOptions(
            transform=_strip_managed_fields, on_failure=self._log_watch_failure, max_backoff=10.0
        )
        informer: Informer[Document] = Informer(self._client, POD, field_selector=own, options=options)
        claims, runtime = pods.claims, self._options.runtime
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(informer.run())
            await informer.wait_for_sync()
            await self._wait_for_drivers(drivers)
            found = await runtime.list_containers()
            running = frozenset(each.id.pod_uid for each in found if each.exit is None)
            await claims.recover(tuple(decode_projection(POD, pod) for pod in informer.list_all()), running)
            tasks.create_task(claims.restore_accounting.run())
            drivers.add_listener(on_registered=lambda _name: claims.retry_now())
            health.add_listener(lambda _name: pods.refresh_statuses())
            self._register_metrics(pods)

            def start_watching() -> None:
                informer.listen(added=pods.handle_add, updated=pods.handle_update, deleted=pods.handle_delete)

            supervising = tasks.create_task(pods.run(informer.list_all, start_watching))
            if (directory := self._options.static_pods) is not None:
                tasks.create_task(StaticPods(self._client, self.name, directory, self._log).run())
            await pods.started.wait()
            await readiness.start(
                partial(find_disk_problem, self._options.root), claims.find_problem, runtime.find_problem
            )
            if not self._options.prepare_claims:
                self._log.warning("claims are not prepared: pods start without devices", node=self.name)
            self._log.info("the agent takes pods", node=self.name, pods=len(informer), logs_at=self.address)
            self.ready.set()
            await supervising

    async def _wait_for_drivers(self, drivers: NodeDrivers) -> None:
        """Wait for drivers to register; those with slices that stay away are removed."""
        with suppress(TimeoutError):
            async with asyncio.timeout(DRIVER_WAIT_SECONDS):
                await drivers.ready.wait()
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
    """Return a pod without its managed fields."""
    metadata = {name: value for name, value in pod["metadata"].items() if name != "managedFields"}
    return {**pod, "metadata": metadata}


def _lock_root(root: Path) -> FileLock:
    """Lock the root directory against other agents."""
    try:
        secure_socket_directory(root)
        lock = FileLock.try_acquire(root / "lock")
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        raise InputError(f"cannot use `{root}`: {why}; choose another with --root") from None
    if lock is None:
        raise InputError(f"another agent works in `{root}`; choose another with --root")
    return lock
