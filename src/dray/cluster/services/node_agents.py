"""Builds node agents from options: for a process of their own, and many for `dray up`.

Gates end here: an agent gets the option whether it prepares claims, and knows no gate.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from dray.client.client import Client
from dray.errors import InputError
from dray.gates import GateSet
from dray.node.agent import NodeAgent, NodeAgentOptions
from dray.node.containers.cdi import DEFAULT_DIRECTORIES
from dray.node.containers.runtime.base import ContainerRuntime
from dray.node.plugins.registry import PluginRegistryOptions
from dray.node.status.node_registration import NodeDescription
from dray.telemetry.logs import StructuredLogger, build_silent_logger

DEFAULT_PORT: Final = 10250
_DRA_GATE: Final = "DynamicResourceAllocation"


@dataclass(frozen=True)
class NodeOptions:
    """Options of a node agent."""

    name: str
    root: Path
    registry: Path | None = None
    """Where drivers register; inside the root otherwise."""
    plugins: Path | None = None
    """The directory that sockets of drivers must be in; any directory otherwise."""
    cdi: tuple[Path, ...] = DEFAULT_DIRECTORIES
    runtime: str = "process"
    rootfs: Path | None = None
    """The root file system of containers of the `oci` runtime."""
    container_user: str = "pod"
    """The user of containers of the `process` runtime: `pod`, one of each pod's own, or `agent`."""
    private: tuple[Path, ...] = ()
    """More files and directories that containers must not see."""
    program: str = ""
    """The program behind the `oci` runtime; the first one found otherwise."""
    labels: Mapping[str, str] = field(default_factory=dict)
    capacity: Mapping[str, str] = field(default_factory=dict)
    max_pods: int = 110
    address: str = "127.0.0.1"
    listen: str = ""
    port: int | None = DEFAULT_PORT
    authority: bytes = field(default=b"", repr=False)
    static_pods: Path | None = None
    stop_pods: bool = False
    gates: GateSet = field(default_factory=GateSet.from_defaults)
    log: StructuredLogger = field(default_factory=build_silent_logger)


def build_agent(client: Client, options: NodeOptions) -> NodeAgent:
    """Build the agent of a node."""
    root = options.root.resolve()
    registry = options.registry or root / "plugins_registry"
    endpoints = () if options.plugins is None else (options.plugins.resolve(), registry.resolve())
    return NodeAgent(
        client,
        NodeAgentOptions(
            NodeDescription(
                options.name,
                address=options.address,
                runtime=options.runtime,
                labels=options.labels,
                capacity=options.capacity,
                max_pods=options.max_pods,
            ),
            root,
            build_runtime(options),
            PluginRegistryOptions(registry.resolve(), endpoints),
            cdi_directories=tuple(path.resolve() for path in options.cdi),
            port=options.port,
            listen_address=options.listen,
            client_ca=options.authority,
            prepare_claims=is_dra_enabled(options.gates),
            static_pods=options.static_pods,
            stop_pods=options.stop_pods,
            log=options.log,
        ),
    )


def is_dra_enabled(gates: GateSet) -> bool:
    """Whether an agent with these gates prepares claims."""
    return gates.is_enabled(_DRA_GATE)


def build_runtime(options: NodeOptions) -> ContainerRuntime:
    """Build the container runtime."""
    build = _RUNTIMES.get(options.runtime)
    if build is None:
        raise InputError(f"there is no runtime `{options.runtime}`; those are {', '.join(_RUNTIMES)}")
    return build(options)


def _build_process_runtime(options: NodeOptions) -> ContainerRuntime:
    from dray.node.containers.runtime.container_users import PodUsers
    from dray.node.containers.runtime.process import ProcessRuntime

    root = options.root.resolve()
    others = (options.registry, options.plugins, *options.private)
    hidden = (root, *(path.resolve() for path in others if path is not None))
    users = None if options.container_user == "agent" else PodUsers(hidden)
    return ProcessRuntime(root / "containers", users=users)


def _build_fake_runtime(options: NodeOptions) -> ContainerRuntime:
    from dray.node.containers.runtime.fake import FakeRuntime

    return FakeRuntime()


def _build_oci_runtime(options: NodeOptions) -> ContainerRuntime:
    from dray.node.containers.runtime.oci import OciRuntime, find_runtime

    if options.rootfs is None:
        raise InputError("the `oci` runtime needs the files that containers see: give them with --rootfs")
    return OciRuntime(options.root.resolve() / "containers", options.rootfs, find_runtime(options.program))


_RUNTIMES: Mapping[str, Callable[[NodeOptions], ContainerRuntime]] = {
    "process": _build_process_runtime,
    "oci": _build_oci_runtime,
    "fake": _build_fake_runtime,
}
