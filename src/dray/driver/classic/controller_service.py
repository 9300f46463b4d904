"""The service that runs a classic controller: leader election, informers and the reconciler.

    await ClassicControllerService(client, Units(), ClassicControllerOptions(elect=True)).run()

The leader (without election, every process) builds a new reconciler and waits until its informers have
synced, so a new leader starts with everything that its predecessor wrote. `reconciler` works on claims.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from dray.client.client import Client
from dray.client.events import EventRecorder
from dray.client.leases import DEFAULT_LEASE_TIMING, LeaderElector, LeadershipLostError, LeaseTiming
from dray.driver.classic.async_controller import MEASURES
from dray.driver.classic.controller import ClassicController
from dray.driver.classic.inventory import ClassicInventory
from dray.driver.classic.reconciler import ClassicClaimReconciler
from dray.driver.classic.retries import ClassicRetryDelay
from dray.errors import InputError
from dray.telemetry.logs import StructuredLogger, build_silent_logger
from dray.telemetry.metrics import MetricsRegistry
from dray.values.names import check_driver_name


@dataclass(frozen=True)
class ClassicControllerOptions:
    """How a classic controller runs; with `elect`, several may run and one of them reconciles."""

    elect: bool = False
    namespace: str = "kube-system"
    """The namespace of the lease and of the inventory."""
    inventory: bool = False
    """Whether drivers publish the inventory of their nodes in config maps."""
    identity: str = "controller"
    timing: LeaseTiming = DEFAULT_LEASE_TIMING
    retry_delay: ClassicRetryDelay = field(default_factory=ClassicRetryDelay)
    log: StructuredLogger = field(default_factory=build_silent_logger)


class ClassicControllerService:
    """Runs the controller of one classic driver."""

    def __init__(
        self, client: Client, controller: ClassicController, options: ClassicControllerOptions | None = None
    ) -> None:
        if not isinstance(client, Client):
            raise TypeError(f"`{controller.name}` needs a client of the API server, got {client!r}")
        if not controller.name or check_driver_name(controller.name):
            raise InputError(
                f"`{controller.name}` is not the name of a driver; expected one like `acme.example.com`"
            )
        self.driver = controller.name
        self.ready = asyncio.Event()
        """Set while the informers have synced and the reconciler runs; not in a candidate that waits."""
        self.metrics = MetricsRegistry(MEASURES)
        self._controller, self._options = controller, options or ClassicControllerOptions()
        self._election: LeaderElector | None = None
        self._unfenced_client = client
        self._client = client.guard_writes(self._is_leader) if self._options.elect else client

    async def run(self) -> None:
        """Reconcile claims until cancelled; with election, while this process is the leader."""
        options, lease = self._options, f"classic-{self.driver}"
        if not options.elect:
            await self._run_as_leader()
            return
        while True:
            self._election = LeaderElector(
                self._unfenced_client, lease, options.namespace, options.identity, options.timing
            )
            try:
                await self._election.run(self._run_as_leader)
            except LeadershipLostError as lost:
                options.log.warning("another controller leads now", driver=self.driver, why=str(lost))

    def _is_leader(self) -> bool:
        return self._election is not None and self._election.is_leader

    async def _run_as_leader(self) -> None:
        options = self._options
        recorder = EventRecorder(self._client, self.driver, options.identity)
        reconciler = ClassicClaimReconciler(
            self._client, self._controller, recorder, self.metrics, options.retry_delay, options.log
        )
        informers = list(reconciler.informers)
        if options.inventory:
            self._controller.inventory = ClassicInventory(self._client, self.driver, options.namespace)
            self._controller.inventory.add_listener(reconciler.requeue_waiting_claims)
            informers.append(self._controller.inventory.informer)
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(recorder.run())
                for informer in informers:
                    tasks.create_task(informer.run())
                for informer in informers:
                    await informer.wait_for_sync()
                await reconciler.begin()
                self.ready.set()
                await reconciler.run()
        finally:
            self.ready.clear()
