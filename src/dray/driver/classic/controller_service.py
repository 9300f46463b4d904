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
from dray.client.leases import USUAL, Election, LeadershipLost, Timing
from dray.driver.classic.async_controller import MEASURES
from dray.driver.classic.controller import ClassicController
from dray.driver.classic.inventory import Inventory
from dray.driver.classic.reconciler import Desk, Pace
from dray.errors import InputError
from dray.telemetry.logs import Log, silent
from dray.telemetry.metrics import Metrics
from dray.values.names import driver_name


@dataclass(frozen=True)
class ControllerChoices:
    """How a classic controller runs; with `elect`, several may run and one works."""

    elect: bool = False
    namespace: str = "kube-system"
    """Where the lease is, and the inventory."""
    inventory: bool = False
    """Whether node parts tell in config maps what is on their nodes."""
    identity: str = "controller"
    timing: Timing = USUAL
    pace: Pace = field(default_factory=Pace)
    log: Log = field(default_factory=silent)


class Negotiation:
    """Keeps the claims of one classic driver."""

    def __init__(
        self, client: Client, controller: ClassicController, choices: ControllerChoices | None = None
    ) -> None:
        if not isinstance(client, Client):
            raise TypeError(f"`{controller.name}` needs a client of the API server, got {client!r}")
        if not controller.name or driver_name(controller.name):
            raise InputError(
                f"`{controller.name}` is not the name of a driver; expected one like `acme.example.com`"
            )
        self.driver = controller.name
        self.ready = asyncio.Event()
        """Set while everything has been seen once and is being settled; a candidate that waits is not."""
        self.metrics = Metrics(MEASURES)
        self._controller, self._choices = controller, choices or ControllerChoices()
        self._election: Election | None = None
        self._way = client
        self._client = client.fenced(self._leads) if self._choices.elect else client

    async def run(self) -> None:
        """Settle claims until cancelled; with election, whenever it is this one's turn."""
        choices, lease = self._choices, f"classic-{self.driver}"
        if not choices.elect:
            await self._lead()
            return
        while True:
            self._election = Election(self._way, lease, choices.namespace, choices.identity, choices.timing)
            try:
                await self._election.run(self._lead)
            except LeadershipLost as lost:
                choices.log.warning("another controller leads now", driver=self.driver, why=str(lost))

    def _leads(self) -> bool:
        return self._election is not None and self._election.is_leader

    async def _lead(self) -> None:
        choices = self._choices
        recorder = EventRecorder(self._client, self.driver, choices.identity)
        desk = Desk(self._client, self._controller, recorder, self.metrics, choices.pace, choices.log)
        informers = list(desk.informers)
        if choices.inventory:
            self._controller.inventory = Inventory(self._client, self.driver, choices.namespace)
            self._controller.inventory.listen(desk.stir)
            informers.append(self._controller.inventory.informer)
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(recorder.run())
                for informer in informers:
                    tasks.create_task(informer.run())
                for informer in informers:
                    await informer.synced()
                await desk.begin()
                self.ready.set()
                await desk.work()
        finally:
            self.ready.clear()
