"""Scheduler and controllers from what people choose: gates become doors and switches, files become profiles.

Both are made here for `dray up` and for processes of their own, so that they are the same in both. Each is
imported where it is made: a process loads only what it runs.
"""

from __future__ import annotations

import asyncio
import socket
import uuid
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import yaml

from dray.client.client import Client
from dray.cluster.services.supervisor import Service
from dray.errors import InputError
from dray.gates import GateSet
from dray.placement.node_health import SILENCE
from dray.placement.profile import Choices, read_choices
from dray.telemetry.logs import Log, silent
from dray.telemetry.metrics import Metrics

_DRA: Final = "DynamicResourceAllocation"


def new_identity() -> str:
    """A name for one process, by which it signs the lease it leads with."""
    return f"{socket.gethostname()}_{uuid.uuid4().hex[:8]}"


@dataclass(frozen=True)
class Component:
    """What somebody who starts a service chooses."""

    gates: GateSet = field(default_factory=GateSet.default)
    elect: bool = True
    identity: str = field(default_factory=new_identity)
    log: Log = field(default_factory=silent)
    profile: Choices = field(default_factory=Choices)
    """How the scheduler judges nodes, and whose pods it takes."""
    lease: str = ""
    """The lease by which one of several leads; the usual one of the service when empty."""
    search_seconds: float | None = None
    """Work for the search on one kind of node before the scheduler gives it up; as usual when None."""
    upkeep: bool = False
    """Whether the controllers do what `kube-controller-manager` does elsewhere."""
    node_silence: float = SILENCE
    """Seconds a node may give no sign of life before it is taken for lost."""


class Idle:
    """A service that is switched off."""

    def __init__(self, name: str, log: Log) -> None:
        self.ready = asyncio.Event()
        self.metrics = Metrics({})
        self._name = name
        self._log = log

    async def run(self) -> None:
        """Do nothing until cancelled."""
        self._log.warning("switched off by its feature gates", service=self._name)
        self.ready.set()
        await asyncio.Event().wait()


def controllers(client: Client, component: Component) -> Service:
    """The controllers for the server of a client."""
    if not component.gates.enabled(_DRA):
        return Idle("controller", component.log)
    from dray.controllers import runner as claim_keeping

    return claim_keeping.Controllers(
        client,
        claim_keeping.Choices(
            identity=component.identity,
            elect=component.elect,
            lease=component.lease or claim_keeping.LEASE,
            device_taints=component.gates.enabled("DRADeviceTaints"),
            taint_rules=component.gates.enabled("DRADeviceTaintRules"),
            upkeep=component.upkeep,
            node_silence=component.node_silence,
            log=component.log,
        ),
    )


def scheduler(client: Client, component: Component) -> Service:
    """The scheduler for the server of a client."""
    from dray.allocator.feature_gates import Admission
    from dray.allocator.search.resumable import SEARCH_SECONDS
    from dray.scheduler import options, scheduling_loop
    from dray.simulation.share_ids import new_share_id

    return scheduling_loop.Scheduler(
        client,
        options.Choices(
            Admission(component.gates),
            new_share_id,
            identity=component.identity,
            placement=component.profile,
            claims=component.gates.enabled(_DRA),
            elect=component.elect,
            lease=component.lease or options.LEASE,
            search_seconds=component.search_seconds or SEARCH_SECONDS,
            log=component.log,
        ),
    )


def profile_in(file: Path | None, scheduler_name: str = "") -> Choices:
    """The profile that a file describes, under a name that was chosen; the usual one without a file."""
    chosen = Choices() if file is None else read_choices(_document(file))
    return replace(chosen, scheduler_name=scheduler_name) if scheduler_name else chosen


def _document(file: Path) -> object:
    try:
        document: object = yaml.safe_load(file.read_bytes())
    except OSError as refused:
        raise InputError(f"cannot read `{file}`: {(refused.strerror or str(refused)).lower()}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as broken:
        raise InputError(f"{file}: not YAML: {' '.join(str(broken).split())}") from None
    return document
