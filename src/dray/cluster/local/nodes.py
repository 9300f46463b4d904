"""The nodes of a local cluster: agents with example drivers, and simulated ones by the hundred.

Theory of operation: a node is an agent and the example drivers beside it, as they would run in processes of
their own: drivers register by sockets, claims are prepared over gRPC, containers are processes of this
computer. Each calls the server as itself, with the permissions of a node or a driver. A simulated node has
the same agent, but a fake runtime, and its drivers respond at once, in memory; their slices were written when
the node was created.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from dray.cluster.local import example_nodes
from dray.cluster.local.transport import build_local_client
from dray.cluster.services.node_agents import NodeOptions, build_agent, is_dra_enabled
from dray.cluster.services.supervisor import SupervisedService
from dray.driver.base import Driver
from dray.driver.service.driver_service import DriverService, DriverServiceOptions
from dray.gates import GateSet
from dray.node.agent import FixedDrivers, NodeAgent, NodeAgentOptions
from dray.node.containers.runtime.fake import FakeRuntime
from dray.node.plugins.driver_interface import ClaimRef, DeviceHealth, PreparedDevice
from dray.node.status.node_registration import NodeDescription
from dray.server.http.application import ApiApplication
from dray.telemetry.logs import StructuredLogger
from dray.wire.unix_sockets import MAX_SOCKET_PATH_BYTES, secure_socket_directory

_NODES_GROUP: Final = "system:nodes"
_DRIVERS_GROUP: Final = "dray:drivers"
_LONGEST_SOCKET_PATH: Final = "plugins_registry/nic.example.com-reg.sock"


@dataclass(frozen=True)
class LocalNodeContext:
    """What the nodes of one process share."""

    app: ApiApplication
    directory: Path
    authority: bytes
    """The certificate authority of the server."""
    log: StructuredLogger
    runtime: str = "process"
    rootfs: Path | None = None
    """The root file system of containers of the `oci` runtime."""
    gates: GateSet = field(default_factory=GateSet.from_defaults)
    """The gates of the agents."""
    container_user: str = "pod"
    """The user of containers of the `process` runtime."""
    private: tuple[Path, ...] = ()
    """Files outside of the directory that containers must not see."""


def build_node_services(context: LocalNodeContext, number: int) -> Iterator[SupervisedService]:
    """Build the agent and the drivers of a node."""
    name = example_nodes.format_node_name(number)
    root = (context.directory / "nodes" / name).resolve()
    sockets = _choose_socket_directory(root)
    options = NodeOptions(
        name,
        root,
        registry=sockets / "plugins_registry",
        plugins=sockets / "plugins",
        cdi=(root / "cdi",),
        runtime=context.runtime,
        rootfs=context.rootfs,
        container_user=context.container_user,
        private=(context.directory, sockets, *context.private),
        labels=example_nodes.build_labels(number),
        capacity=example_nodes.NODE_CAPACITY,
        port=0,
        authority=context.authority,
        stop_pods=True,
        gates=context.gates,
        log=context.log,
    )
    client = build_local_client(context.app, f"system:node:{name}", _NODES_GROUP)
    agent = SupervisedService(name, lambda: build_agent(client, options), context.log, node=name)
    yield agent
    for driver in build_example_drivers(name):
        build_driver = _build_driver_factory(context, driver, options)
        yield SupervisedService(f"{driver.name} on {name}", build_driver, context.log, node=name, after=agent)


def build_example_drivers(node: str) -> Sequence[Driver]:
    """Build the example drivers of a node."""
    from dray_examples.gpu.driver import Gpu
    from dray_examples.nic.driver import Nic

    return (Gpu(node), Nic(node))


def _build_driver_factory(
    context: LocalNodeContext, driver: Driver, options: NodeOptions
) -> Callable[[], DriverService]:
    assert options.registry is not None
    assert options.plugins is not None
    client = build_local_client(
        context.app,
        f"{driver.name}:{options.name}",
        _DRIVERS_GROUP,
        f"dray:driver:{driver.name}",
        f"dray:on-node:{options.name}",
    )
    service_options = DriverServiceOptions(
        options.name,
        options.plugins,
        options.registry,
        options.cdi[0],
        options.root / "drivers" / driver.name,
        log=context.log,
    )
    return lambda: DriverService(driver, client, service_options)


def _choose_socket_directory(root: Path) -> Path:
    """Choose the directory of a node's sockets: in its root, or a short one when paths there are too long."""
    if len(os.fsencode(root / _LONGEST_SOCKET_PATH)) <= MAX_SOCKET_PATH_BYTES:
        return root
    digest = hashlib.sha256(os.fsencode(root)).hexdigest()[:12]
    short = Path(tempfile.gettempdir()) / f"dray-{digest}"
    # Its name is predictable: another user must not have created it first.
    secure_socket_directory(short)
    return short


class InstantDriver:
    """A driver of a simulated node: every call succeeds at once."""

    classic: Final = False

    def __init__(self, name: str) -> None:
        self.name = name

    async def prepare(self, claims: Sequence[ClaimRef]) -> Mapping[str, tuple[PreparedDevice, ...]]:
        return {claim.uid: () for claim in claims}

    async def unprepare(self, claims: Sequence[ClaimRef]) -> Mapping[str, None]:
        return {claim.uid: None for claim in claims}

    def watch_health(self) -> AsyncIterator[Sequence[DeviceHealth]] | None:
        return None


def build_simulated_node(context: LocalNodeContext, number: int) -> SupervisedService:
    """Build the agent of a simulated node."""
    name = example_nodes.format_node_name(number, example_nodes.SIMULATED_PREFIX)
    drivers = [InstantDriver(driver) for driver in (example_nodes.GPU_DRIVER, example_nodes.NIC_DRIVER)]
    description = NodeDescription(
        name,
        runtime="fake",
        labels=example_nodes.build_labels(number, example_nodes.SIMULATED_PREFIX),
        capacity=example_nodes.NODE_CAPACITY,
    )
    root = context.directory / "nodes" / name
    client = build_local_client(context.app, f"system:node:{name}", _NODES_GROUP)
    claims = is_dra_enabled(context.gates)
    service_options = NodeAgentOptions(
        description,
        root,
        FakeRuntime(),
        drivers=FixedDrivers(*drivers),
        prepare_claims=claims,
        log=context.log,
    )

    def build_service() -> NodeAgent:
        return NodeAgent(client, service_options)

    return SupervisedService(name, build_service, context.log, node=name)
