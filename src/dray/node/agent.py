"""The agent of a node as a whole: what runs beside what, and in which order it starts.

Theory of operation: first the node is announced, then everything is seen once: the pods bound to it, the
drivers that are there, the containers that go on from before. Only then are claims taken up and pods lived,
so that nothing is taken for gone that was not looked for. From there on every part goes on by itself, and a
server that goes away is waited for: containers run on and start again from what is known.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol

from dray.api.codec import view_of
from dray.client.client import Client
from dray.client.events import EventRecorder
from dray.client.informers.informer import Informer, Ways
from dray.client.rest_client import TROUBLE
from dray.durable import boot_id
from dray.errors import InputError
from dray.node import agent_metrics
from dray.node.agent_metrics import Metrics
from dray.node.claims.preparer import Claims, OfficeChoices
from dray.node.containers.cdi import DIRECTORIES, CdiFiles
from dray.node.containers.environment import Surroundings
from dray.node.containers.launch import Launching, LogFiles
from dray.node.containers.runtime.base import Runtime
from dray.node.plugins.device_health import Health
from dray.node.plugins.driver_client import Habits
from dray.node.plugins.driver_interface import DriverLine
from dray.node.plugins.published_slices import PublishedSlices
from dray.node.plugins.registry import Doorway, Registry
from dray.node.pods.pod_worker import POD
from dray.node.pods.restart_policy import Pace
from dray.node.pods.static_pods import StaticPods
from dray.node.pods.supervisor import Pods
from dray.node.pods.worker_context import Shop
from dray.node.server.log_endpoint import Endpoint
from dray.node.status.node_readiness import Fitness, no_room
from dray.node.status.node_registration import Board, Facts, machine_capacity
from dray.telemetry.logs import Log, silent
from dray.wire.unix_sockets import claim_directory

FIRST_LOOK_SECONDS: Final = 5.0
"""How long the agent waits at its start for drivers that are slow to answer."""

Document = dict[str, Any]
Listener = Callable[[str], None]


class Drivers(Protocol):
    """The drivers of a node; `Registry` is one."""

    @property
    def ready(self) -> asyncio.Event: ...

    def drivers(self) -> Mapping[str, DriverLine]: ...

    def line(self, name: str, *, classic: bool | None = None) -> DriverLine | None: ...

    def listen(self, came: Listener | None = None, went: Listener | None = None) -> None: ...

    async def run(self) -> None: ...


class Given:
    """Drivers that are there from the start and stay; for simulated nodes and tests."""

    def __init__(self, *lines: DriverLine) -> None:
        self._lines = {line.name: line for line in lines}
        self.ready = asyncio.Event()
        self.ready.set()

    def drivers(self) -> Mapping[str, DriverLine]:
        return self._lines

    def line(self, name: str, *, classic: bool | None = None) -> DriverLine | None:
        found = self._lines.get(name)
        return found if found is None or classic in (None, found.classic) else None

    def listen(self, came: Listener | None = None, went: Listener | None = None) -> None:
        """Nobody comes or goes."""

    async def run(self) -> None:
        await asyncio.Event().wait()


@dataclass(frozen=True)
class NodeChoices:
    """What somebody who starts an agent chooses."""

    facts: Facts
    root: Path
    """Where everything is kept that must survive the agent."""
    runtime: Runtime
    doorway: Doorway | None = None
    """Where drivers register; nowhere without it."""
    drivers: Drivers | None = None
    """In place of those who register."""
    cdi: tuple[Path, ...] = DIRECTORIES
    port: int | None = None
    """Where to answer for logs; 0 takes any port that is free, None answers nobody."""
    listen: str = ""
    """The address to listen on; the node's own when empty."""
    authority: bytes = field(default=b"", repr=False)
    """The certificate (PEM) by which callers are known."""
    claims: bool = True
    """Whether pods get what their claims promise; they start without it otherwise."""
    static_pods: Path | None = None
    """Where files describe pods that the node runs by itself."""
    stop_pods: bool = False
    """Whether containers are stopped when the agent ends, to be started again by the next one."""
    pace: Pace = field(default_factory=Pace)
    boot_id: str = field(default_factory=boot_id)
    log: Log = field(default_factory=silent)


class Agent:
    """The agent of one node."""

    def __init__(self, client: Client, choices: NodeChoices) -> None:
        self._client = client
        self._choices = choices
        self._log = choices.log
        self.ready = asyncio.Event()
        """Set when everything was seen and pods are lived."""
        self.metrics = Metrics()
        self.address = ""
        """Where it answers for logs, once it does."""

    @property
    def name(self) -> str:
        """The name of the node."""
        return self._choices.facts.name

    async def run(self) -> None:
        """Work until cancelled; containers go on, unless they were chosen to stop."""
        choices = self._choices
        with _alone_in(choices.root):
            logs = LogFiles(choices.root / "logs")
            endpoint = Endpoint(self._client, self.name, logs, self._log)
            async with self._answering(endpoint) as facts:
                board = Board(self._client, facts, self._log)
                recorder = EventRecorder(self._client, "dray-node", self.name)
                drivers = self._drivers()
                # Drivers that are given stay: there is less to look after, on hundreds of simulated nodes.
                poll = 5.0 if isinstance(drivers, Given) else 0.5
                health = Health(drivers, self._client.habits.tempo, poll=poll)
                async with asyncio.TaskGroup() as tasks:
                    for work in (board.run(), recorder.run(), drivers.run(), health.run()):
                        tasks.create_task(work)
                    await board.registered.wait()
                    fitness = Fitness(board, self._client.habits.tempo, self._log)
                    tasks.create_task(fitness.run())
                    pods = self._pods(board, recorder, drivers, health, logs)
                    endpoint.pods = pods
                    try:
                        board.listen(pods.claims.nudge, pods.claims.accounting.nudge)
                        await self._work(pods, drivers, health, fitness)
                    except asyncio.CancelledError:
                        if choices.stop_pods:
                            await pods.pause()
                        raise

    @asynccontextmanager
    async def _answering(self, endpoint: Endpoint) -> AsyncIterator[Facts]:
        choices = self._choices
        try:
            if choices.port is None:
                yield choices.facts
                return
            host = choices.listen or choices.facts.address
            certificate = choices.root / "serving.pem"
            async with endpoint.listening(host, choices.port, certificate, choices.authority) as (port, mark):
                self.address = f"{host}:{port}"
                yield replace(choices.facts, port=port, fingerprint=mark)
        finally:
            await choices.runtime.close()

    def _drivers(self) -> Drivers:
        choices, client = self._choices, self._client
        if choices.drivers is not None:
            return choices.drivers
        if choices.doorway is None:
            return Given()
        habits = Habits(tempo=client.habits.tempo, metrics=self.metrics)
        slices = PublishedSlices(client, self.name)
        return Registry(choices.doorway, habits, log=self._log, withdraw=slices.withdraw)

    def _pods(
        self, board: Board, recorder: EventRecorder, drivers: Drivers, health: Health, logs: LogFiles
    ) -> Pods:
        choices, client = self._choices, self._client
        office = OfficeChoices(
            lambda: board.node,
            choices.root / "checkpoint",
            drivers,
            choices.boot_id,
            client.habits.tempo,
            self.metrics,
            choices.claims,
            self._log.warning,
        )
        claims = Claims(client, recorder, office)
        cdi = CdiFiles(choices.cdi, lambda what: self._log.warning("a CDI file is passed over", file=what))
        around = Surroundings(machine_capacity() | dict(choices.facts.capacity))
        shop = Shop(
            client,
            choices.runtime,
            claims,
            Launching(client, cdi, logs, around),
            health,
            recorder,
            self.metrics,
            self._log,
            choices.facts.address,
            choices.pace,
        )
        return Pods(shop, choices.root)

    async def _work(self, pods: Pods, drivers: Drivers, health: Health, fitness: Fitness) -> None:
        own = f"spec.nodeName={self.name}"
        ways = Ways(keep=_plain, trouble=self._troubled, longest_wait=10.0)
        informer: Informer[Document] = Informer(self._client, POD, field_selector=own, ways=ways)
        claims, runtime = pods.claims, self._choices.runtime
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(informer.run())
            await informer.synced()
            with suppress(TimeoutError):
                async with asyncio.timeout(FIRST_LOOK_SECONDS):
                    await drivers.ready.wait()
            await self._expect(drivers)
            found = await runtime.running()
            running = frozenset(each.id.pod_uid for each in found if each.exit is None)
            await claims.awaken(tuple(view_of(POD, pod) for pod in informer.all()), running)
            tasks.create_task(claims.accounting.run())
            drivers.listen(came=lambda _name: claims.nudge())
            health.listen(lambda _name: pods.look_again())
            self._measure(pods)

            def follow() -> None:
                informer.listen(added=pods.see, updated=pods.changed, deleted=pods.vanish)

            living = tasks.create_task(pods.run(informer.all, follow))
            if (folder := self._choices.static_pods) is not None:
                tasks.create_task(StaticPods(self._client, self.name, folder, self._log).run())
            await pods.begun.wait()
            await fitness.begin(partial(no_room, self._choices.root), claims.trouble, runtime.trouble)
            if not self._choices.claims:
                self._log.warning("claims are left alone: pods start without devices", node=self.name)
            self._log.info("the agent takes pods", node=self.name, pods=len(informer), logs_at=self.address)
            self.ready.set()
            await living

    async def _expect(self, drivers: Drivers) -> None:
        """Drivers that published devices and are not here have gone, unless they come soon."""
        if isinstance(drivers, Registry):
            with suppress(*TROUBLE):
                drivers.expect(await PublishedSlices(self._client, self.name).drivers())

    def _measure(self, pods: Pods) -> None:
        self.metrics.ask(agent_metrics.PODS, lambda: [((), pods.running_pods())])
        states = pods.states
        self.metrics.ask(agent_metrics.CONTAINERS, lambda: [((name,), n) for name, n in states().items()])

    def _troubled(self, trouble: Exception) -> None:
        self._log.warning("the pods of this node cannot be read now", node=self.name, error=trouble)


def _plain(pod: Document) -> Document:
    """A pod without the record of who set which field."""
    metadata = {name: value for name, value in pod["metadata"].items() if name != "managedFields"}
    return {**pod, "metadata": metadata}


class _alone_in:  # noqa: N801 - reads as a word
    """Nobody else works in this directory meanwhile."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._lock = -1

    def __enter__(self) -> None:
        try:
            claim_directory(self._root)
            flags = os.O_CREAT | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
            self._lock = os.open(self._root / "lock", flags, 0o600)
        except OSError as refused:
            why = (refused.strerror or str(refused)).lower()
            raise InputError(f"cannot use `{self._root}`: {why}; choose another with --root") from None
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._lock)
            raise InputError(f"another agent works in `{self._root}`; choose another with --root") from None

    def __exit__(self, *_: object) -> None:
        os.close(self._lock)
