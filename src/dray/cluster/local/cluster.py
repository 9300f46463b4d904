"""A whole cluster: store, server and nodes with drivers here, scheduler and controllers here or apart.

Theory of operation: scheduler, controllers, agents and drivers are the same as in processes of their own.
They reach the server through the local transport, each as a user with the permissions of its role, so nothing
here may do what would be refused over the network. With more than one process, the scheduler and the
controllers run in component processes (`dray.cluster.services.component_process`) with the same rights. On
shutdown they stop first, while the server still responds, so that their last writes and their leases are
settled; containers stop with their agents, pods stay, and both run again after the next start.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from dray.api.core import Node
from dray.client.client import Client
from dray.client.informers.shared_reflectors import SharedReflectors
from dray.client.patches import MergePatch
from dray.cluster.local import example_nodes
from dray.cluster.local.activity_log import ActivityLog
from dray.cluster.local.nodes import LocalNodeContext, build_node_services, build_simulated_node
from dray.cluster.local.simulated_kubelet import SimulatedKubelet
from dray.cluster.local.transport import build_local_client
from dray.cluster.services.api_server import RunningServer, ServerProcessOptions, open_server
from dray.cluster.services.component_process import ComponentProcess, ProcessComponent
from dray.cluster.services.components import COMPONENTS, INFORMERS_USER, ComponentOptions
from dray.cluster.services.process_setup import freeze_garbage_collector, install_stop_signals
from dray.cluster.services.supervisor import PerNodeMetrics, RunnableService, SupervisedService
from dray.gates import GateSet
from dray.server.http.application import ApiApplication
from dray.server.http.requests import MASTERS
from dray.store.address import parse_sqlite_path
from dray.tasks import wait_for_first

SCHEDULER_USER: Final = "dray:scheduler"
CONTROLLER_USER: Final = "dray:controller"
SETUP_USER: Final = "dray:up"
"""The user that creates classes and simulated nodes, and reads pods for the activity log."""
START_TIMEOUT_SECONDS: Final = 30.0
"""Seconds after which the start is reported even if a service is not ready."""


def choose_processes(processors: int) -> int:
    """Choose how many processes a cluster has on a machine."""
    return 1 if processors < 2 else 2


@dataclass(frozen=True)
class LocalClusterOptions:
    """Options of a local cluster."""

    server: ServerProcessOptions
    scheduler: ComponentOptions
    controller: ComponentOptions
    nodes: int = 3
    """Nodes with an agent and example drivers."""
    simulated: int = 0
    """Nodes with simulated containers and devices."""
    runtime: str = "process"
    """The container runtime of nodes."""
    rootfs: Path | None = None
    """The root file system of containers of the `oci` runtime."""
    container_user: str = "pod"
    """The user of containers of the `process` runtime: `pod`, one of each pod's own, or `agent`."""
    gates: GateSet = field(default_factory=GateSet.from_defaults)
    """The gates of nodes; the other services have their own."""
    processes: int = 1
    """How many processes server, scheduler and controllers have together."""


@dataclass(frozen=True)
class LocalCluster:
    """The server and services of a running cluster."""

    server: RunningServer
    options: LocalClusterOptions
    services: tuple[SupervisedService, ...]
    reflectors: SharedReflectors | None = None
    """What the informers of this process share, if it runs scheduler and controllers."""

    async def wait_until_ready(self) -> None:
        """Wait until every service is ready."""
        for service in self.services:
            await service.ready.wait()

    @property
    def pending_services(self) -> tuple[str, ...]:
        """Services that are not ready yet."""
        return tuple(service.name for service in self.services if not service.ready.is_set())


@asynccontextmanager
async def open_cluster(
    options: LocalClusterOptions, stop: asyncio.Event | None = None
) -> AsyncIterator[LocalCluster]:
    """Run a cluster while the block lasts; `stop` shortens a long start."""
    async with open_server(options.server) as started:
        setup_client = build_local_client(started.app, SETUP_USER, MASTERS)
        await _prepare_objects(setup_client, options, stop)
        reflectors = _build_reflectors(started.app) if options.processes == 1 else None
        services = _build_services(started, setup_client, options, reflectors)
        for service in services:
            if not service.node:
                started.metrics.registry.register(service)
                started.metrics.add_refresh(service.refresh)
        started.metrics.registry.register(PerNodeMetrics([service for service in services if service.node]))
        async with asyncio.TaskGroup() as tasks:
            work = [tasks.create_task(service.run(), name=service.name) for service in services]
            try:
                yield LocalCluster(started, options, services, reflectors)
            finally:
                for task in work:
                    task.cancel()


def _list_secret_files(options: LocalClusterOptions) -> tuple[Path, ...]:
    """List the files outside of the data directory that containers must not see."""
    chosen = [options.server.keys, options.server.tokens]
    store = parse_sqlite_path(options.server.store) if options.server.store else None
    if store is not None:
        chosen += [store.with_name(f"{store.name}{suffix}") for suffix in ("", "-wal", "-shm", ".lock")]
    return tuple(path for path in chosen if path is not None)


def _build_reflectors(app: ApiApplication) -> SharedReflectors:
    # Where components have processes of their own, this one does not load their modules.
    from dray.cluster.services.shared_kinds import build_shared_reflectors

    return build_shared_reflectors(build_local_client(app, INFORMERS_USER))


def _build_services(
    server: RunningServer,
    setup_client: Client,
    options: LocalClusterOptions,
    reflectors: SharedReflectors | None,
) -> tuple[SupervisedService, ...]:
    app, log = server.app, options.server.log
    node_options = (options.runtime, options.rootfs, options.gates, options.container_user)
    context = LocalNodeContext(
        app, options.server.directory, server.authority, log, *node_options, _list_secret_files(options)
    )
    services = [
        *_build_components(app, options, reflectors),
        SupervisedService("simulated kubelet", lambda: SimulatedKubelet(setup_client), log),
    ]
    for number in range(options.nodes):
        services += build_node_services(context, number)
    services += (build_simulated_node(context, number) for number in range(options.simulated))
    return tuple(services)


def _build_components(
    app: ApiApplication, options: LocalClusterOptions, reflectors: SharedReflectors | None
) -> Iterator[SupervisedService]:
    """Build scheduler and controllers: here, in one process of their own, or in one for each."""
    log = options.server.log
    components = (
        ProcessComponent("scheduler", SCHEDULER_USER, options.scheduler),
        ProcessComponent("controllers", CONTROLLER_USER, options.controller),
    )
    if options.processes == 1:
        for each in components:
            build = partial(_build_local_component, app, each, reflectors)
            yield SupervisedService(each.name, build, log)
        return
    groups = [components] if options.processes == 2 else [(each,) for each in components]
    for group in groups:
        name = " and ".join(each.name for each in group)
        yield SupervisedService(name, partial(ComponentProcess, app, group, log), log)


def _build_local_component(
    app: ApiApplication, component: ProcessComponent, reflectors: SharedReflectors | None
) -> RunnableService:
    client = build_local_client(app, component.user, reflectors=reflectors)
    return COMPONENTS[component.name](client, component.options)


async def _prepare_objects(client: Client, options: LocalClusterOptions, stop: asyncio.Event | None) -> None:
    """Create the objects that nodes need, and take over nodes that had no agent before."""
    log = options.server.log
    if options.nodes:
        await example_nodes.create_device_classes(client, log)
    await example_nodes.create_nodes(client, options.simulated, log, stop, example_nodes.SIMULATED_PREFIX)
    names = {example_nodes.format_node_name(number) for number in range(options.nodes)}
    for node in (await client.list(Node)).items:
        if node.metadata.name in names and example_nodes.SIMULATED_LABEL in node.metadata.labels:
            patch = MergePatch({"metadata": {"labels": {example_nodes.SIMULATED_LABEL: None}}})
            await client.patch(Node, node.metadata.name, patch)


async def run_until_interrupted(
    options: LocalClusterOptions,
    on_started: Callable[[LocalCluster], None],
    write_line: Callable[[str], None] | None = None,
) -> None:
    """Run a cluster until interrupted; `write_line` receives what happens to pods."""
    stop = install_stop_signals()
    async with open_cluster(options, stop) as cluster:
        if await _wait_for_start(cluster, stop):
            freeze_garbage_collector()
            on_started(cluster)
        if write_line is None:
            await stop.wait()
        else:
            await _log_activity(cluster, write_line, stop)


async def _log_activity(
    cluster: LocalCluster, write_line: Callable[[str], None], stop: asyncio.Event
) -> None:
    """Write what happens to pods until `stop` is set."""
    client = build_local_client(cluster.server.app, SETUP_USER, MASTERS, reflectors=cluster.reflectors)
    activity = SupervisedService(
        "activity log", lambda: ActivityLog(client, write_line), cluster.options.server.log
    )
    async with asyncio.TaskGroup() as tasks:
        activity_task = tasks.create_task(activity.run())
        await stop.wait()
        activity_task.cancel()


async def _wait_for_start(cluster: LocalCluster, stop: asyncio.Event) -> bool:
    """Wait until every service is ready, the start times out or `stop` is set."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(START_TIMEOUT_SECONDS):
            await wait_for_first(cluster.wait_until_ready(), stop.wait())
    return not stop.is_set()
