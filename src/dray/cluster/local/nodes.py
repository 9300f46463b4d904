"""The nodes of a cluster in one process: agents with example drivers, and simulated ones by the hundred.

Theory of operation: a machine is an agent and the example drivers beside it, exactly as they would run in
processes of their own: drivers register by sockets, claims are prepared over gRPC, containers are processes
of this computer. Each speaks to the server as itself, with the rights that a node or a driver has. A
simulated node has the same agent, but its containers are only pretended and its drivers answer at once, in
memory; what they publish was written when the node was made.
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
from dray.cluster.local.transport import client_inside
from dray.cluster.services.node_agents import NodeOptions, agent, minds_claims
from dray.cluster.services.supervisor import Kept
from dray.driver.base import Driver
from dray.driver.service.driver_service import Kit, KitChoices
from dray.gates import GateSet
from dray.node.agent import Agent, Given, NodeChoices
from dray.node.containers.runtime.fake import FakeRuntime
from dray.node.plugins.driver_interface import ClaimRef, DeviceHealth, PreparedDevice
from dray.node.status.node_registration import Facts
from dray.server.http.application import App
from dray.telemetry.logs import Log
from dray.wire.unix_sockets import LONGEST, claim_directory

_NODES: Final = "system:nodes"
_DRIVERS: Final = "dray:drivers"
_LONGEST_NAME: Final = "plugins_registry/nic.example.com-reg.sock"


@dataclass(frozen=True)
class Ground:
    """What machines of one process stand on."""

    app: App
    directory: Path
    authority: bytes
    """The certificate by which the server shows itself to agents."""
    log: Log
    runtime: str = "process"
    rootfs: Path | None = None
    """What containers of the `oci` runtime see as their files."""
    gates: GateSet = field(default_factory=GateSet.default)
    """Those of the agents."""


def machine(ground: Ground, number: int) -> Iterator[Kept]:
    """The agent and the drivers of a node."""
    name = example_nodes.name(number)
    root = (ground.directory / "nodes" / name).resolve()
    sockets = _room_for_sockets(root)
    options = NodeOptions(
        name,
        root,
        registry=sockets / "plugins_registry",
        plugins=sockets / "plugins",
        cdi=(root / "cdi",),
        runtime=ground.runtime,
        rootfs=ground.rootfs,
        labels=example_nodes.labels(number),
        capacity=example_nodes.ROOM,
        port=0,
        authority=ground.authority,
        stop_pods=True,
        gates=ground.gates,
        log=ground.log,
    )
    client = client_inside(ground.app, f"system:node:{name}", _NODES)
    first = Kept(name, lambda: agent(client, options), ground.log, node=name)
    yield first
    for driver in drivers(name):
        kit = _kit(ground, driver, options)
        yield Kept(f"{driver.name} on {name}", kit, ground.log, node=name, after=first)


def drivers(node: str) -> Sequence[Driver]:
    """The example drivers of a node."""
    from dray_examples.gpu.driver import Gpu
    from dray_examples.nic.driver import Nic

    return (Gpu(node), Nic(node))


def _kit(ground: Ground, driver: Driver, options: NodeOptions) -> Callable[[], Kit]:
    assert options.registry is not None
    assert options.plugins is not None
    speaker = client_inside(
        ground.app,
        f"{driver.name}:{options.name}",
        _DRIVERS,
        f"dray:driver:{driver.name}",
        f"dray:on-node:{options.name}",
    )
    choices = KitChoices(
        options.name,
        options.plugins,
        options.registry,
        options.cdi[0],
        options.root / "drivers" / driver.name,
        log=ground.log,
    )
    return lambda: Kit(driver, speaker, choices)


def _room_for_sockets(root: Path) -> Path:
    """Where sockets of a node are: in its root, or in a short place when paths there are too long."""
    if len(os.fsencode(root / _LONGEST_NAME)) <= LONGEST:
        return root
    digest = hashlib.sha256(os.fsencode(root)).hexdigest()[:12]
    short = Path(tempfile.gettempdir()) / f"dray-{digest}"
    # Others can work out its name, too: whoever was first must have been us.
    claim_directory(short)
    return short


class AtOnce:
    """A driver of a simulated node: whatever it is asked for is done."""

    classic: Final = False

    def __init__(self, name: str) -> None:
        self.name = name

    async def prepare(self, claims: Sequence[ClaimRef]) -> Mapping[str, tuple[PreparedDevice, ...]]:
        return {claim.uid: () for claim in claims}

    async def unprepare(self, claims: Sequence[ClaimRef]) -> Mapping[str, None]:
        return {claim.uid: None for claim in claims}

    def health(self) -> AsyncIterator[Sequence[DeviceHealth]] | None:
        return None


def simulated(ground: Ground, number: int) -> Kept:
    """The agent of a simulated node."""
    name = example_nodes.name(number, example_nodes.SIMULATED_NAME)
    lines = [AtOnce(driver) for driver in (example_nodes.GPU, example_nodes.NIC)]
    facts = Facts(
        name,
        runtime="fake",
        labels=example_nodes.labels(number, example_nodes.SIMULATED_NAME),
        capacity=example_nodes.ROOM,
    )
    root = ground.directory / "nodes" / name
    client = client_inside(ground.app, f"system:node:{name}", _NODES)
    claims = minds_claims(ground.gates)
    choices = NodeChoices(facts, root, FakeRuntime(), drivers=Given(*lines), claims=claims, log=ground.log)

    def make() -> Agent:
        return Agent(client, choices)

    return Kept(name, make, ground.log, node=name)
