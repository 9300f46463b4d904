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

from dray.api.classic import ClassicClaim
from dray.api.resource import DeviceTaintRule
from dray.client.client import Client
from dray.client.events import EventRecorder
from dray.client.informers.informer import Informer
from dray.client.leases import USUAL, Election, LeadershipLost, Timing
from dray.client.rest_client import TROUBLE
from dray.client.timing import Backoff
from dray.controllers import metrics as measures
from dray.controllers.device_taint_eviction import TaintController
from dray.controllers.device_taint_rules import PAUSE, RuleController
from dray.controllers.device_taints import DeviceTaints
from dray.controllers.informers import Sights
from dray.controllers.node_lifecycle import NodeHealthController
from dray.controllers.node_taint_eviction import NodeEvictionController
from dray.controllers.pod_garbage_collector import GRACE, OrphanController
from dray.controllers.resource_claims import ClaimController
from dray.controllers.service_accounts import AccountController
from dray.placement.node_health import SILENCE
from dray.telemetry.logs import Log, silent
from dray.telemetry.metrics import Metrics

LEASE: Final = "dray-controller"
LEASE_NAMESPACE: Final = "kube-system"
NAME: Final = "dray-controller"
"""Whom events name as their source."""


@dataclass(frozen=True)
class Choices:
    """What somebody who starts the controllers chooses."""

    identity: str = NAME
    elect: bool = False
    lease: str = LEASE
    timing: Timing = USUAL
    device_taints: bool = True
    """Whether taints of devices evict pods."""
    taint_rules: bool = True
    """Whether rules put taints on devices; never without taints of devices."""
    rule_pause: float = PAUSE
    """Seconds after a change before the status of a rule is counted again."""
    upkeep: bool = False
    """Whether to do what `kube-controller-manager` does elsewhere: default accounts, lost nodes
    and their pods."""
    node_grace: float = GRACE
    """Seconds a node may be absent before its pods are taken for lost."""
    node_silence: float = SILENCE
    """Seconds a node may give no sign of life before it is taken for lost."""
    workers: int = 32
    log: Log = field(default_factory=silent)


class Member(Protocol):
    """One controller."""

    @property
    def informers(self) -> Sequence[Informer[Any]]:
        """What it looks at besides what all look at."""
        ...

    @property
    def queue(self) -> measures.Queue: ...

    async def run(self) -> None:
        """Do its work until cancelled; all informers have seen everything once."""
        ...


class Controllers:
    """The controllers of one cluster."""

    def __init__(self, client: Client, choices: Choices | None = None) -> None:
        self._choices = choices or Choices()
        self._candidacy: Election | None = None
        self._way = client
        self._client = client.fenced(self._is_in_office) if self._choices.elect else client
        self._queues: list[measures.Queue] = []
        self._sights: Sights | None = None
        self._counts: measures.ClaimCounts | None = None
        self.ready = asyncio.Event()
        """Set while everything has been seen once and is being kept; a candidate that waits is not."""
        self.metrics = Metrics(measures.MEASURES)
        measures.tell_queues(self.metrics, lambda: self._queues)
        measures.tell_claims(self.metrics, lambda: self._counts)

    async def run(self) -> None:
        """Keep the cluster, until cancelled; with election, whenever it is this one's turn."""
        choices = self._choices
        if not choices.elect:
            await self._lead()
            return
        while True:
            election = Election(self._way, choices.lease, LEASE_NAMESPACE, choices.identity, choices.timing)
            self._candidacy = election
            try:
                await election.run(self._lead)
            except LeadershipLost as lost:
                choices.log.warning("another controller leads now", why=str(lost))

    def _is_in_office(self) -> bool:
        return self._candidacy is not None and self._candidacy.is_leader

    async def _lead(self) -> None:
        client, choices = self._client, self._choices
        recorder = EventRecorder(client, NAME, choices.identity)
        sights = self._sights = Sights(client, choices.log, classic=await self._serves(ClassicClaim))
        self._counts = measures.ClaimCounts(sights.claims)
        rules = choices.taint_rules and await self._serves(DeviceTaintRule)
        members = self._members(sights, recorder, DeviceTaints(client, choices.log, rules=rules))
        informers = [*sights.informers(), *(each for member in members for each in member.informers)]
        self._queues = [member.queue for member in members]
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(recorder.run())
                for informer in informers:
                    tasks.create_task(informer.run())
                for informer in informers:
                    await informer.synced()
                for member in members:
                    tasks.create_task(member.run())
                self.ready.set()
                choices.log.info("the controllers have seen everything and begin")
        finally:
            self.ready.clear()
            self._queues, self._sights, self._counts = [], None, None

    def _members(self, sights: Sights, recorder: EventRecorder, taints: DeviceTaints) -> list[Member]:
        client, choices, metrics = self._client, self._choices, self.metrics
        members: list[Member] = [
            ClaimController(client, sights, recorder, metrics, choices.log, workers=choices.workers)
        ]
        if choices.device_taints:
            ending = TaintController(client, sights, taints, recorder, metrics, choices.log)
            seen, pause = (taints, ending.evicted), choices.rule_pause
            counting = RuleController(client, sights, seen, metrics, choices.log, pause=pause)
            members += (ending, counting)
        if choices.upkeep:
            members.append(AccountController(client, metrics, choices.log))
            members += self._keepers_of_nodes(sights, recorder)
        return members

    def _keepers_of_nodes(self, sights: Sights, recorder: EventRecorder) -> list[Member]:
        client, choices, metrics, log = self._client, self._choices, self.metrics, self._choices.log
        orphans = OrphanController(client, sights, recorder, metrics, log, grace=choices.node_grace)
        health = NodeHealthController(
            client, orphans.nodes, recorder, metrics, log, silence=choices.node_silence
        )
        leaving = NodeEvictionController(client, sights, orphans.nodes, recorder, metrics, log)
        leaving.on_hold = lambda: health.holding
        return [orphans, health, leaving]

    async def _serves(self, kind: type[msgspec.Struct]) -> bool:
        """Whether the server knows a kind that not all have; it may not answer yet."""
        backoff = Backoff(self._client.habits.tempo)
        while True:
            try:
                return await self._client.serves(kind)
            except TROUBLE as failed:
                self._choices.log.warning("the server does not say what it serves", why=str(failed))
                await backoff.wait()
