"""All controllers together, as one thing to run: informers, queues, events, and who of several leads.

Theory of operation: whoever leads (everybody, without election) builds everything anew, lets the informers
see everything once, and only then acts; so a new leader begins with all that its predecessor wrote. When
leadership is lost everything is thrown away, and the candidate waits for its next turn.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import msgspec

from dray.api.classic import ClassicResourceClaim
from dray.api.resource import DeviceTaintRule
from dray.client.client import Client
from dray.client.events import EventRecorder
from dray.client.informers.informer import Informer
from dray.client.leases import DEFAULT_LEASE_TIMING, LeaderElector, LeadershipLostError, LeaseTiming
from dray.client.rest_client import CALL_ERRORS
from dray.client.timing import Backoff
from dray.controllers import metrics as measures
from dray.controllers.device_taint_eviction import DeviceTaintEvictionController
from dray.controllers.device_taint_rules import STATUS_DELAY_SECONDS, DeviceTaintRuleController
from dray.controllers.device_taints import DeviceTaintIndex
from dray.controllers.informers import SharedInformers
from dray.controllers.node_lifecycle import NodeLifecycleController
from dray.controllers.node_taint_eviction import NodeTaintEvictionController
from dray.controllers.pod_garbage_collector import GRACE_SECONDS, PodGarbageCollector
from dray.controllers.resource_claims import ResourceClaimController
from dray.controllers.service_accounts import ServiceAccountController
from dray.placement.node_health import MONITOR_GRACE_PERIOD
from dray.telemetry.logs import StructuredLogger, build_silent_logger
from dray.telemetry.metrics import MetricsRegistry

LEASE_NAME: Final = "dray-controller"
LEASE_NAMESPACE: Final = "kube-system"
COMPONENT_NAME: Final = "dray-controller"
"""Whom events name as their source."""


@dataclass(frozen=True)
class ControllerOptions:
    """What somebody who starts the controllers chooses."""

    identity: str = COMPONENT_NAME
    leader_elect: bool = False
    lease_name: str = LEASE_NAME
    lease_timing: LeaseTiming = DEFAULT_LEASE_TIMING
    device_taints: bool = True
    """Whether taints of devices evict pods."""
    taint_rules: bool = True
    """Whether rules put taints on devices; never without taints of devices."""
    rule_status_delay: float = STATUS_DELAY_SECONDS
    """Seconds after a change before the status of a rule is counted again."""
    upkeep: bool = False
    """Whether to do what `kube-controller-manager` does elsewhere: default accounts, lost nodes
    and their pods."""
    missing_node_grace: float = GRACE_SECONDS
    """Seconds a node may be absent before its pods are taken for lost."""
    node_silence: float = MONITOR_GRACE_PERIOD
    """Seconds a node may give no sign of life before it is taken for lost."""
    workers: int = 32
    log: StructuredLogger = field(default_factory=build_silent_logger)


class ClusterController(Protocol):
    """One controller."""

    @property
    def informers(self) -> Sequence[Informer[Any]]:
        """What it looks at besides what all look at."""
        ...

    @property
    def queue(self) -> measures.ObservedQueue: ...

    async def run(self) -> None:
        """Do its work until cancelled; all informers have seen everything once."""
        ...


class ControllerRunner:
    """The controllers of one cluster."""

    def __init__(self, client: Client, options: ControllerOptions | None = None) -> None:
        self._options = options or ControllerOptions()
        self._elector: LeaderElector | None = None
        self._unguarded_client = client
        self._client = client.guard_writes(self._is_leader) if self._options.leader_elect else client
        self._queues: list[measures.ObservedQueue] = []
        self._shared_informers: SharedInformers | None = None
        self._claim_counts: measures.ClaimCounts | None = None
        self.ready = asyncio.Event()
        """Set while everything has been seen once and is being kept; a candidate that waits is not."""
        self.metrics = MetricsRegistry(measures.METRIC_DEFINITIONS)
        measures.register_queue_metrics(self.metrics, lambda: self._queues)
        measures.register_claim_metrics(self.metrics, lambda: self._claim_counts)

    async def run(self) -> None:
        """Keep the cluster, until cancelled; with election, whenever it is this one's turn."""
        choices = self._options
        if not choices.leader_elect:
            await self._lead()
            return
        while True:
            election = LeaderElector(
                self._unguarded_client,
                choices.lease_name,
                LEASE_NAMESPACE,
                choices.identity,
                choices.lease_timing,
            )
            self._elector = election
            try:
                await election.run(self._lead)
            except LeadershipLostError as lost:
                choices.log.warning("another controller leads now", why=str(lost))

    def _is_leader(self) -> bool:
        return self._elector is not None and self._elector.is_leader

    async def _lead(self) -> None:
        client, choices = self._client, self._options
        recorder = EventRecorder(client, COMPONENT_NAME, choices.identity)
        sights = self._shared_informers = SharedInformers(
            client, choices.log, classic=await self._is_served(ClassicResourceClaim)
        )
        self._claim_counts = measures.ClaimCounts(sights.claims)
        rules = choices.taint_rules and await self._is_served(DeviceTaintRule)
        members = self._build_controllers(
            sights, recorder, DeviceTaintIndex(client, choices.log, rules=rules)
        )
        informers = [*sights.list_informers(), *(each for member in members for each in member.informers)]
        self._queues = [member.queue for member in members]
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(recorder.run())
                for informer in informers:
                    tasks.create_task(informer.run())
                for informer in informers:
                    await informer.wait_for_sync()
                for member in members:
                    tasks.create_task(member.run())
                self.ready.set()
                choices.log.info("the controllers have seen everything and begin")
        finally:
            self.ready.clear()
            self._queues, self._shared_informers, self._claim_counts = [], None, None

    def _build_controllers(
        self, shared_informers: SharedInformers, recorder: EventRecorder, taints: DeviceTaintIndex
    ) -> list[ClusterController]:
        client, choices, metrics = self._client, self._options, self.metrics
        members: list[ClusterController] = [
            ResourceClaimController(
                client, shared_informers, recorder, metrics, choices.log, workers=choices.workers
            )
        ]
        if choices.device_taints:
            ending = DeviceTaintEvictionController(
                client, shared_informers, taints, recorder, metrics, choices.log
            )
            seen, pause = (taints, ending.history), choices.rule_status_delay
            counting = DeviceTaintRuleController(
                client, shared_informers, seen, metrics, choices.log, status_delay=pause
            )
            members += (ending, counting)
        if choices.upkeep:
            members.append(ServiceAccountController(client, metrics, choices.log))
            members += self._build_node_controllers(shared_informers, recorder)
        return members

    def _build_node_controllers(
        self, shared_informers: SharedInformers, recorder: EventRecorder
    ) -> list[ClusterController]:
        client, choices, metrics, log = self._client, self._options, self.metrics, self._options.log
        orphans = PodGarbageCollector(
            client, shared_informers, recorder, metrics, log, grace=choices.missing_node_grace
        )
        health = NodeLifecycleController(
            client, orphans.nodes, recorder, metrics, log, grace_period=choices.node_silence
        )
        leaving = NodeTaintEvictionController(client, shared_informers, orphans.nodes, recorder, metrics, log)
        leaving.is_on_hold = lambda: health.is_disrupted
        return [orphans, health, leaving]

    async def _is_served(self, kind: type[msgspec.Struct]) -> bool:
        """Whether the server knows a kind that not all have; it may not answer yet."""
        backoff = Backoff(self._client.options.time_source)
        while True:
            try:
                return await self._client.serves(kind)
            except CALL_ERRORS as failed:
                self._options.log.warning("the server does not say what it serves", why=str(failed))
                await backoff.wait()
