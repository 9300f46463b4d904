"""A driver at work: everything that stands between an author's class, the agent and the API.

Theory of operation: the book of prepared claims is brought in order first, then the sockets are served, so
that claims can be given back even while the API does not answer. Beside that run the publication of devices,
health, reports into claims, and one look at the start whether claims went away while nobody was here.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from dray.client.client import Client
from dray.client.rest_client import TROUBLE
from dray.client.timing import Backoff
from dray.driver import metrics as m
from dray.driver.async_driver import Author
from dray.driver.base import ClassicDriver, Driver
from dray.driver.devices import pools_of
from dray.driver.preparing.cdi_files import CdiFiles
from dray.driver.preparing.device_status import Statuses
from dray.driver.preparing.prepared_claims import Book, Passing, unwatched
from dray.driver.preparing.preparer import Tools, Work
from dray.driver.publishing.publisher import Publisher, Tally, Ways
from dray.driver.service.grpc_servers import STOPPING_SECONDS, Registration, handlers, serving, sockets_of
from dray.driver.service.health import Healthiness
from dray.durable import boot_id
from dray.errors import DrayError, InputError
from dray.telemetry.logs import Complaints, Level, Log, silent
from dray.telemetry.metrics import Metrics
from dray.values.names import driver_name
from dray.wire.unix_sockets import claim_directory

PLUGINS: Final = Path("/var/lib/kubelet/plugins")
REGISTRY: Final = Path("/var/lib/kubelet/plugins_registry")
CDI: Final = Path("/var/run/cdi")
SLOW_SECONDS: Final = 30.0
"""After how long it is told that an author is still telling his devices."""


@dataclass(frozen=True)
class KitChoices:
    """Where a driver runs. Without a node it only publishes: devices that are attached by network."""

    node: str = ""
    plugins: Path = PLUGINS
    registry: Path = REGISTRY
    cdi: Path = CDI
    state: Path | None = None
    """Where the book is kept; inside the driver's directory in `plugins` when not given."""
    instance: str = ""
    """Tells processes of one driver on one node apart, for rolling updates: a pod's uid, for example."""
    log: Log = field(default_factory=silent)
    boot_id: str = field(default_factory=boot_id)
    passing: Passing = unwatched


class Kit:
    """Runs one driver; a service like others, so that several can share a process."""

    def __init__(self, driver: Driver, client: Client, choices: KitChoices) -> None:
        if not isinstance(client, Client):
            raise InputError(
                f"driver `{driver.name}` needs a client of the API server and got `{client!r}`; "
                "claims are read from there and devices are published there"
            )
        _judge_name(driver)
        self.driver, self._client, self._choices = driver, client, choices
        self.ready = asyncio.Event()
        self.metrics = Metrics(m.MEASURES)
        self._log, self._clock = choices.log, client.habits.tempo.clock
        self._complaints = Complaints(choices.log)
        self._author = Author(driver)
        self._changed = asyncio.Event()
        self._health: Healthiness | None = None
        self.registered = asyncio.Event()
        """Set when an agent has accepted the driver."""
        driver.node = choices.node
        self._classic = isinstance(driver, ClassicDriver)

    async def run(self) -> None:
        """Serve, publish and keep order until cancelled."""
        loop = asyncio.get_running_loop()

        def listener() -> None:
            loop.call_soon_threadsafe(self._hear)

        self.driver.listen(listener)
        try:
            if self._choices.node:
                await self._on_node()
            else:
                await self._publishing(Publisher(self._client, self.driver.name, ways=Ways(log=self._log)))
        finally:
            self.driver.listen(None)
            self._author.close()

    def _hear(self) -> None:
        """The author says that something changed."""
        self._changed.set()
        if self._health is not None:
            self._health.changed()

    # --- on a node ---

    async def _on_node(self) -> None:
        name, choices = self.driver.name, self._choices
        sockets = sockets_of(name, choices.plugins, choices.registry, choices.instance)
        claim_directory(sockets.endpoint.parent)
        files = CdiFiles(choices.cdi, name)
        directory = choices.state or sockets.endpoint.parent / "state"
        book = self._opened(Book(directory, files, choices.boot_id, choices.passing))
        statuses = Statuses(self._client, name, choices.node, self._log)
        work = Work(self._tools(book, statuses))
        if self._author.tells_health and not self._classic:
            self._health = Healthiness(self._author, self._clock, self._log, self.metrics)
        served = handlers(work, self._health, classic=self._classic)
        registration = Registration(name, sockets, [service for service, _ in served], self._log)
        self._ask_metrics(book, registration)
        for entry in book.entries().values():
            if book.is_whole(entry):
                statuses.tell(entry)  # it may be that we fell over before it was written
        try:
            async with serving(sockets, registration, [answering for _, answering in served]):
                self._log.info("serving", driver=name, socket=sockets.endpoint)
                await self._beside(book, work, statuses, registration)
        finally:
            await work.settle(STOPPING_SECONDS)

    def _opened(self, book: Book) -> Book:
        """The book in order, after whatever happened before."""
        try:
            found = book.awaken(self._clock.now().timestamp())
        except OSError as refused:
            raise InputError(
                f"cannot keep the book of prepared claims: `{refused.filename}`: {refused.strerror}"
            ) from None
        for trouble in found:
            self._log.warning(
                "set in order at the start", driver=self.driver.name, path=trouble.path, what=trouble.what
            )
        return book

    def _tools(self, book: Book, statuses: Statuses) -> Tools:
        choices = self._choices
        return Tools(
            author=self._author,
            client=self._client,
            book=book,
            statuses=statuses,
            node=choices.node,
            boot_id=choices.boot_id,
            log=self._log,
            metrics=self.metrics,
            clock=self._clock,
        )

    async def _beside(self, book: Book, work: Work, statuses: Statuses, registration: Registration) -> None:
        def in_use() -> Iterable[tuple[str, str]]:
            return {(each.pool, each.device) for entry in book.entries().values() for each in entry.devices}

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._follow(registration))
            tasks.create_task(self._reconcile(work))
            tasks.create_task(statuses.run())
            if self._health is not None:
                tasks.create_task(self._health.run())
            if self._classic:
                self.ready.set()
                return
            ways = Ways(in_use=lambda: frozenset(in_use()), log=self._log)
            await self._publishing(Publisher(self._client, self.driver.name, self._choices.node, ways))

    async def _follow(self, registration: Registration) -> None:
        await registration.accepted.wait()
        self.registered.set()

    async def _reconcile(self, work: Work) -> None:
        backoff = Backoff(self._client.habits.tempo, first=0.5, longest=30.0)
        while True:
            try:
                await work.reconcile()
                return
            except TROUBLE as failed:
                what = "cannot tell yet whether claims are gone"
                self._complaints.say("claims", Level.WARNING, what, driver=self.driver.name, error=failed)
            await backoff.wait()

    # --- publishing ---

    async def _publishing(self, publisher: Publisher) -> None:
        self._ask_written(publisher.tally)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(publisher.run())
            backoff = Backoff(self._client.habits.tempo, first=0.5, longest=60.0)
            well = False
            while True:
                self._changed.clear()
                before, well = well, await self._publish(publisher)
                if well:
                    if not before:
                        self._log.info("devices are published", driver=self.driver.name)
                    self._complaints.over("devices")
                    self.ready.set()
                    backoff.reset()
                wait = self.driver.refresh_seconds if well else backoff.next()
                with suppress(TimeoutError):
                    async with asyncio.timeout(wait):
                        await self._changed.wait()

    async def _publish(self, publisher: Publisher) -> bool:
        name = self.driver.name
        try:
            pools = pools_of(await self._devices(), self._choices.node)
            await publisher.publish(pools)
        except Exception as broken:  # the author's code may raise anything
            self._complain(broken)
            self.metrics.count(m.PUBLISHED, name, "error")
            return False
        self.metrics.count(m.PUBLISHED, name, "ok")
        self.metrics.set(m.DEVICES, sum(len(pool.devices) for pool in pools), name)
        return True

    def _complain(self, broken: Exception) -> None:
        """Say why devices are not published; what only a person can change, only when it is news."""
        what, name = "devices are not published", self.driver.name
        if isinstance(broken, DrayError):
            why = f"{what}: {broken}; it is tried again from time to time, without another word"
            self._complaints.say("devices", Level.ERROR, why, driver=name)
        else:
            self._log.error(what, driver=name, error=broken)

    async def _devices(self) -> list[Any]:
        """What the author tells; nobody else would say that it takes for ever."""
        asking = asyncio.create_task(self._author.devices())
        try:
            done, _ = await asyncio.wait([asking], timeout=SLOW_SECONDS)
            if not done:
                self._log.warning("`devices` does not end", driver=self.driver.name, seconds=SLOW_SECONDS)
            return await asking
        finally:
            asking.cancel()

    def _ask_metrics(self, book: Book, registration: Registration) -> None:
        name = self.driver.name

        def held() -> Iterable[tuple[tuple[str, ...], float]]:
            stages = Counter(entry.stage for entry in book.entries().values())
            return [((name, stage.value), float(count)) for stage, count in stages.items()]

        def registered() -> Iterable[tuple[tuple[str, ...], float]]:
            return [((name,), float(registration.accepted.is_set()))]

        self.metrics.ask(m.HELD, held)
        self.metrics.ask(m.REGISTERED, registered)

    def _ask_written(self, tally: Tally) -> None:
        name = self.driver.name

        def writes() -> Iterable[tuple[tuple[str, ...], float]]:
            counts = {"create": tally.created, "update": tally.updated, "delete": tally.deleted}
            return [((name, operation), float(count)) for operation, count in counts.items()]

        self.metrics.ask(m.WRITES, writes)
        self.metrics.ask(m.HEALED, lambda: [((name,), float(tally.healed))])
        self.metrics.ask(m.FAILURES, lambda: [((name,), float(tally.failures))])


def _judge_name(driver: Driver) -> None:
    where = f"{type(driver).__name__}.name"
    if not driver.name:
        raise InputError(f"{where}: a driver needs a name, for example `gpu.example.com`")
    faults = driver_name(driver.name)
    if faults:
        raise InputError(f"{where}: `{driver.name}`: {'; '.join(fault.text for fault in faults)}")
