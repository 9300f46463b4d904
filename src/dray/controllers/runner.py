"""The controller runner: builds and runs all controllers of a cluster, with leader election.

Theory of operation: a leader (every runner, without election) builds informers and controllers anew, waits
until the informers are synced, and only then starts the controllers; so a new leader starts with everything
that its predecessor wrote. When leadership is lost everything is discarded, and the runner waits for its next
turn.
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
from dray.client.version_negotiation import find_out_if_served
from dray.controllers import metrics as controller_metrics
from dray.controllers.claim_actions import ClaimActionExecutor
from dray.controllers.device_taint_eviction import DeviceTaintEvictionController
from dray.controllers.device_taint_rules import STATUS_DELAY_SECONDS, DeviceTaintRuleController
from dray.controllers.device_taints import DeviceTaintIndex
from dray.controllers.informers import SharedInformers
from dray.controllers.kube_controllers import KubeControllerMonitor
from dray.controllers.resource_claims import ResourceClaimController
from dray.controllers.upkeep.node_lifecycle import NodeLifecycleController
from dray.controllers.upkeep.node_taint_eviction import NodeTaintEvictionController
from dray.controllers.upkeep.pod_garbage_collector import GRACE_SECONDS, PodGarbageCollector
from dray.controllers.upkeep.service_accounts import ServiceAccountController
from dray.placement.node_health import MONITOR_GRACE_PERIOD
from dray.telemetry.logs import StructuredLogger, build_silent_logger
from dray.telemetry.metrics import MetricsRegistry

LEASE_NAME: Final = "dray-controller"
LEASE_NAMESPACE: Final = "kube-system"
COMPONENT_NAME: Final = "dray-controller"
"""The source that events name."""


@dataclass(frozen=True)
class ControllerOptions:
    """Options of the controllers."""

    identity: str = COMPONENT_NAME
    leader_elect: bool = False
    lease_name: str = LEASE_NAME
    lease_timing: LeaseTiming = DEFAULT_LEASE_TIMING
    device_taints: bool = True
    """Whether taints of devices evict pods."""
    taint_rules: bool = True
    """Whether rules put taints on devices; never without taints of devices."""
    rule_status_delay: float = STATUS_DELAY_SECONDS
    """Seconds after a change before the status of a rule is computed again."""
    upkeep: bool = False
    """Whether to do what `kube-controller-manager` does elsewhere: default accounts, lost nodes and their
    pods.
    """
    missing_node_grace: float = GRACE_SECONDS
    """Seconds a node may be absent before its pods are deleted."""
    node_silence: float = MONITOR_GRACE_PERIOD
    """Seconds without a heartbeat after which a node is unreachable."""
    stand_back: bool = False
    """Whether to leave the claims to kube-controller-manager while it works; classic ones never."""
    workers: int = 32
    log: StructuredLogger = field(default_factory=build_silent_logger)


class ClusterController(Protocol):
    """One controller."""

    @property
    def informers(self) -> Sequence[Informer[Any]]:
        """The informers it needs besides the shared ones."""
        ...

    @property
    def queue(self) -> controller_metrics.ObservedQueue: ...

    async def run(self) -> None:
        """Work until cancelled; all informers are synced."""
        ...


class ControllerRunner:
    """The controllers of one cluster."""

    def __init__(self, client: Client, options: ControllerOptions | None = None) -> None:
        self._options = options or ControllerOptions()
        self._elector: LeaderElector | None = None
        self._unguarded_client = client
        self._client = client.guard_writes(self._is_leader) if self._options.leader_elect else client
        self._queues: list[controller_metrics.ObservedQueue] = []
        self._shared_informers: SharedInformers | None = None
        self._claim_counts: controller_metrics.ClaimCounts | None = None
        self._kube_monitor = KubeControllerMonitor(client, self._options.log)
        self.ready = asyncio.Event()
        """Set while this runner leads and its informers are synced."""
        self.metrics = MetricsRegistry(controller_metrics.METRIC_DEFINITIONS)
        controller_metrics.register_queue_metrics(self.metrics, lambda: self._queues)
        controller_metrics.register_claim_metrics(self.metrics, lambda: self._claim_counts)
        self.metrics.add_callback(
            controller_metrics.STANDS_BACK, lambda: [((), float(self._kube_monitor.is_active))]
        )

    async def run(self) -> None:
        """Run the controllers until cancelled; with leader election, only while this runner leads."""
        options = self._options
        if not options.leader_elect:
            await self._lead()
            return
        while True:
            elector = LeaderElector(
                self._unguarded_client,
                options.lease_name,
                LEASE_NAMESPACE,
                options.identity,
                options.lease_timing,
            )
            self._elector = elector
            try:
                await elector.run(self._lead)
            except LeadershipLostError as lost:
                options.log.warning("another controller leads now", why=str(lost))

    def _is_leader(self) -> bool:
        return self._elector is not None and self._elector.is_leader

    async def _lead(self) -> None:
        client, options = self._client, self._options
        recorder = EventRecorder(client, COMPONENT_NAME, options.identity)
        monitor = self._kube_monitor = KubeControllerMonitor(client, options.log)
        informers = self._shared_informers = SharedInformers(
            client,
            options.log,
            classic=await self._is_served(ClassicResourceClaim),
            strip_claim=monitor.claim_observer,
        )
        self._claim_counts = controller_metrics.ClaimCounts(informers.claims)
        rules = options.taint_rules and await self._is_served(DeviceTaintRule)
        controllers = self._build_controllers(
            informers, recorder, DeviceTaintIndex(client, options.log, rules=rules)
        )
        started = [
            *informers.list_informers(),
            *(each for controller in controllers for each in controller.informers),
        ]
        self._queues = [controller.queue for controller in controllers]
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(recorder.run())
                for informer in started:
                    tasks.create_task(informer.run())
                for informer in started:
                    await informer.wait_for_sync()
                if options.stand_back:
                    await monitor.check()
                    tasks.create_task(monitor.run())
                for controller in controllers:
                    tasks.create_task(controller.run())
                self.ready.set()
                options.log.info("the informers are synced, the controllers start")
        finally:
            self.ready.clear()
            self._queues, self._shared_informers, self._claim_counts = [], None, None

    def _build_controllers(
        self, shared_informers: SharedInformers, recorder: EventRecorder, taints: DeviceTaintIndex
    ) -> list[ClusterController]:
        client, options, metrics = self._client, self._options, self.metrics
        monitor = self._kube_monitor
        claims = ResourceClaimController(
            shared_informers,
            ClaimActionExecutor(client, shared_informers, recorder, metrics),
            options.log,
            workers=options.workers,
            stands_back=lambda: monitor.is_active,
        )
        monitor.on_changed = claims.enqueue_all
        controllers: list[ClusterController] = [claims]
        if options.device_taints:
            eviction = DeviceTaintEvictionController(
                client, shared_informers, taints, recorder, metrics, options.log
            )
            delay = options.rule_status_delay
            rule_status = DeviceTaintRuleController(
                client, shared_informers, eviction, metrics, options.log, status_delay=delay
            )
            controllers += (eviction, rule_status)
        if options.upkeep:
            controllers.append(ServiceAccountController(client, metrics, options.log))
            controllers += self._build_node_controllers(shared_informers, recorder)
        return controllers

    def _build_node_controllers(
        self, shared_informers: SharedInformers, recorder: EventRecorder
    ) -> list[ClusterController]:
        client, options, metrics, log = self._client, self._options, self.metrics, self._options.log
        garbage = PodGarbageCollector(
            client, shared_informers, recorder, metrics, log, grace=options.missing_node_grace
        )
        lifecycle = NodeLifecycleController(
            client, garbage.nodes, recorder, metrics, log, grace_period=options.node_silence
        )
        node_eviction = NodeTaintEvictionController(
            client, shared_informers, garbage.nodes, recorder, metrics, log
        )
        node_eviction.is_on_hold = lambda: lifecycle.is_disrupted
        return [garbage, lifecycle, node_eviction]

    async def _is_served(self, kind: type[msgspec.Struct]) -> bool:
        """Whether the server serves an optional kind; waits while it does not answer."""
        log = self._options.log
        return await find_out_if_served(
            self._client,
            kind,
            lambda failed: log.warning("cannot read which kinds the server serves", why=str(failed)),
        )
