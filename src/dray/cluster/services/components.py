"""Builds the scheduler and the controllers from options: gates become filters and switches, files become
profiles.

Both are built here for `dray up` and for processes of their own, so that they are the same in both. Each is
imported where it is built: a process loads only what it runs.
"""

from __future__ import annotations

import asyncio
import socket
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import yaml

from dray.client.client import Client
from dray.cluster.services.supervisor import RunnableService
from dray.errors import InputError
from dray.gates import GateSet
from dray.placement.node_health import MONITOR_GRACE_PERIOD
from dray.placement.profile import PlacementOptions, parse_placement_options
from dray.telemetry.logs import StructuredLogger, build_silent_logger
from dray.telemetry.metrics import MetricsRegistry

INFORMERS_USER: Final = "dray:informers"
"""As whom the components of one process read the kinds that they share (`shared_kinds`)."""

_DRA_GATE: Final = "DynamicResourceAllocation"


def generate_identity() -> str:
    """Generate the identity of one process as the holder of a lease."""
    return f"{socket.gethostname()}_{uuid.uuid4().hex[:8]}"


@dataclass(frozen=True)
class ComponentOptions:
    """Options of the scheduler and the controllers."""

    gates: GateSet = field(default_factory=GateSet.from_defaults)
    leader_elect: bool = True
    identity: str = field(default_factory=generate_identity)
    log: StructuredLogger = field(default_factory=build_silent_logger)
    profile: PlacementOptions = field(default_factory=PlacementOptions)
    """How the scheduler filters and ranks nodes, and whose pods it takes."""
    lease_name: str = ""
    """The lease of the leader election; the default one of the service when empty."""
    search_seconds: float | None = None
    """Work for the search on one group of nodes before the scheduler gives up; the default when None."""
    upkeep: bool = False
    """Whether the controllers do what `kube-controller-manager` does elsewhere."""
    node_silence: float = MONITOR_GRACE_PERIOD
    """Seconds without a heartbeat after which a node is unreachable."""
    stand_back: bool = False
    """Whether the controllers leave claims to kube-controller-manager while it works."""


class DisabledService:
    """A service that its feature gate switches off."""

    def __init__(self, name: str, log: StructuredLogger) -> None:
        self.ready = asyncio.Event()
        self.metrics = MetricsRegistry({})
        self._name = name
        self._log = log

    async def run(self) -> None:
        """Do nothing until cancelled."""
        self._log.warning("switched off by its feature gates", service=self._name)
        self.ready.set()
        await asyncio.Event().wait()


def build_controllers(client: Client, options: ComponentOptions) -> RunnableService:
    """Build the controllers for the server of a client."""
    if not options.gates.is_enabled(_DRA_GATE):
        return DisabledService("controller", options.log)
    from dray.controllers import runner

    return runner.ControllerRunner(
        client,
        runner.ControllerOptions(
            identity=options.identity,
            leader_elect=options.leader_elect,
            lease_name=options.lease_name or runner.LEASE_NAME,
            device_taints=options.gates.is_enabled("DRADeviceTaints"),
            taint_rules=options.gates.is_enabled("DRADeviceTaintRules"),
            upkeep=options.upkeep,
            node_silence=options.node_silence,
            stand_back=options.stand_back,
            log=options.log,
        ),
    )


def build_scheduler(client: Client, options: ComponentOptions) -> RunnableService:
    """Build the scheduler for the server of a client."""
    from dray.allocator.feature_gates import AllocatorGateFilter
    from dray.allocator.search.resumable import SEARCH_SECONDS
    from dray.scheduler import scheduling_loop
    from dray.scheduler.options import LEASE_NAME, SchedulerOptions
    from dray.share_ids import generate_share_id

    return scheduling_loop.Scheduler(
        client,
        SchedulerOptions(
            AllocatorGateFilter(options.gates),
            generate_share_id,
            identity=options.identity,
            placement=options.profile,
            handle_claims=options.gates.is_enabled(_DRA_GATE),
            leader_elect=options.leader_elect,
            lease_name=options.lease_name or LEASE_NAME,
            search_seconds=options.search_seconds or SEARCH_SECONDS,
            log=options.log,
        ),
    )


COMPONENTS: Final[Mapping[str, Callable[[Client, ComponentOptions], RunnableService]]] = {
    "scheduler": build_scheduler,
    "controllers": build_controllers,
}
"""Builds the components of a local cluster, by the names that users see."""


def load_profile(file: Path | None, scheduler_name: str = "") -> PlacementOptions:
    """Load the profile from a file, under the chosen name; the default one without a file."""
    chosen = PlacementOptions() if file is None else parse_placement_options(_read_yaml(file))
    return replace(chosen, scheduler_name=scheduler_name) if scheduler_name else chosen


def _read_yaml(file: Path) -> object:
    try:
        document: object = yaml.safe_load(file.read_bytes())
    except OSError as refused:
        raise InputError(f"cannot read `{file}`: {(refused.strerror or str(refused)).lower()}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as broken:
        raise InputError(f"{file}: not YAML: {' '.join(str(broken).split())}") from None
    return document
