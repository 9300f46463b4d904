"""The service around a classic controller: who of several works, and what it looks at.

    await Negotiation(client, Units(), ControllerChoices(elect=True)).run()

Whoever leads (everybody, without election) builds everything anew and lets the informers see everything once;
so a new leader begins with all that its predecessor wrote. What is done with a claim is in `settling`.
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
from dray.driver.classic.reconciler import ClassicClaimReconciler, ClassicRetryDelay
from dray.errors import InputError
from dray.telemetry.logs import StructuredLogger, build_silent_logger
from dray.telemetry.metrics import MetricsRegistry
from dray.values.names import check_driver_name


@dataclass(frozen=True)
class ClassicControllerOptions:
    """How a classic controller runs; with `elect`, several may run and one works."""

    elect: bool = False
    namespace: str = "kube-system"
    """Where the lease is, and the inventory."""
    inventory: bool = False
    """Whether node parts tell in config maps what is on their nodes."""
    identity: str = "controller"
    timing: LeaseTiming = DEFAULT_LEASE_TIMING
    retry_delay: ClassicRetryDelay = field(default_factory=ClassicRetryDelay)
    log: StructuredLogger = field(default_factory=build_silent_logger)


class ClassicControllerService:
    """Keeps the claims of one classic driver."""

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
        """Set while everything has been seen once and is being settled; a candidate that waits is not."""
        self.metrics = MetricsRegistry(MEASURES)
        self._controller, self._options = controller, options or ClassicControllerOptions()
        self._election: LeaderElector | None = None
        self._unfenced_client = client
        self._client = client.guard_writes(self._is_leader) if self._options.elect else client

    async def run(self) -> None:
        """Settle claims until cancelled; with election, whenever it is this one's turn."""
        choices, lease = self._options, f"classic-{self.driver}"
        if not choices.elect:
            await self._run_as_leader()
            return
        while True:
            self._election = LeaderElector(
                self._unfenced_client, lease, choices.namespace, choices.identity, choices.timing
            )
            try:
                await self._election.run(self._run_as_leader)
            except LeadershipLostError as lost:
                choices.log.warning("another controller leads now", driver=self.driver, why=str(lost))

    def _is_leader(self) -> bool:
        return self._election is not None and self._election.is_leader

    async def _run_as_leader(self) -> None:
        choices = self._options
        recorder = EventRecorder(self._client, self.driver, choices.identity)
        desk = ClassicClaimReconciler(
            self._client, self._controller, recorder, self.metrics, choices.retry_delay, choices.log
        )
        informers = list(desk.informers)
        if choices.inventory:
            self._controller.inventory = ClassicInventory(self._client, self.driver, choices.namespace)
            self._controller.inventory.add_listener(desk.requeue_waiting_claims)
            informers.append(self._controller.inventory.informer)
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(recorder.run())
                for informer in informers:
                    tasks.create_task(informer.run())
                for informer in informers:
                    await informer.wait_for_sync()
                await desk.begin()
                self.ready.set()
                await desk.run()
        finally:
            self.ready.clear()
