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
from dray.client.rest_client import CALL_ERRORS
from dray.client.timing import Backoff
from dray.driver import metrics as m
from dray.driver.async_driver import AsyncDriver
from dray.driver.base import ClassicDriver, Driver
from dray.driver.devices import group_into_pools
from dray.driver.preparing.cdi_files import ClaimCdiFiles
from dray.driver.preparing.device_status import DeviceStatusWriter
from dray.driver.preparing.prepared_claims import FailPoint, PreparedClaimStore, ignore_fail_point
from dray.driver.preparing.preparer import ClaimPreparer, PreparerDependencies
from dray.driver.publishing.publisher import PublishCounters, Publisher, PublisherOptions
from dray.driver.service.grpc_servers import (
    SHUTDOWN_GRACE_SECONDS,
    RegistrationServer,
    build_rpc_handlers,
    build_socket_paths,
    serve_sockets,
)
from dray.driver.service.health import HealthMonitor
from dray.durable import read_boot_id
from dray.errors import DrayError, InputError
from dray.telemetry.logs import ChangeLogger, LogLevel, StructuredLogger, build_silent_logger
from dray.telemetry.metrics import MetricsRegistry
from dray.values.names import check_driver_name
from dray.wire.unix_sockets import secure_socket_directory

PLUGINS_DIR: Final = Path("/var/lib/kubelet/plugins")
PLUGINS_REGISTRY_DIR: Final = Path("/var/lib/kubelet/plugins_registry")
CDI_DIR: Final = Path("/var/run/cdi")
SLOW_DEVICES_SECONDS: Final = 30.0
"""After how long it is told that an author is still telling his devices."""


@dataclass(frozen=True)
class DriverServiceOptions:
    """Where a driver runs. Without a node it only publishes: devices that are attached by network."""

    node: str = ""
    plugins: Path = PLUGINS_DIR
    registry: Path = PLUGINS_REGISTRY_DIR
    cdi: Path = CDI_DIR
    state: Path | None = None
    """Where the book is kept; inside the driver's directory in `plugins` when not given."""
    instance: str = ""
    """Tells processes of one driver on one node apart, for rolling updates: a pod's uid, for example."""
    log: StructuredLogger = field(default_factory=build_silent_logger)
    boot_id: str = field(default_factory=read_boot_id)
    fail_point: FailPoint = ignore_fail_point


class DriverService:
    """Runs one driver; a service like others, so that several can share a process."""

    def __init__(self, driver: Driver, client: Client, options: DriverServiceOptions) -> None:
        if not isinstance(client, Client):
            raise InputError(
                f"driver `{driver.name}` needs a client of the API server and got `{client!r}`; "
                "claims are read from there and devices are published there"
            )
        _check_name(driver)
        self.driver, self._client, self._options = driver, client, options
        self.ready = asyncio.Event()
        self.metrics = MetricsRegistry(m.MEASURES)
        self._log, self._clock = options.log, client.options.time_source.clock
        self._complaints = ChangeLogger(options.log)
        self._async_driver = AsyncDriver(driver)
        self._changed = asyncio.Event()
        self._health: HealthMonitor | None = None
        self.registered = asyncio.Event()
        """Set when an agent has accepted the driver."""
        driver.node = options.node
        self._classic = isinstance(driver, ClassicDriver)

    async def run(self) -> None:
        """Serve, publish and keep order until cancelled."""
        loop = asyncio.get_running_loop()

        def listener() -> None:
            loop.call_soon_threadsafe(self._handle_change)

        self.driver.set_change_listener(listener)
        try:
            if self._options.node:
                await self._run_on_node()
            else:
                await self._publish_continuously(
                    Publisher(self._client, self.driver.name, options=PublisherOptions(log=self._log))
                )
        finally:
            self.driver.set_change_listener(None)
            self._async_driver.close()

    def _handle_change(self) -> None:
        """The author says that something changed."""
        self._changed.set()
        if self._health is not None:
            self._health.refresh()

    # --- on a node ---

    async def _run_on_node(self) -> None:
        name, choices = self.driver.name, self._options
        sockets = build_socket_paths(name, choices.plugins, choices.registry, choices.instance)
        secure_socket_directory(sockets.endpoint.parent)
        files = ClaimCdiFiles(choices.cdi, name)
        directory = choices.state or sockets.endpoint.parent / "state"
        book = self._recover_store(PreparedClaimStore(directory, files, choices.boot_id, choices.fail_point))
        statuses = DeviceStatusWriter(self._client, name, choices.node, self._log)
        work = ClaimPreparer(self._build_dependencies(book, statuses))
        if self._async_driver.has_health and not self._classic:
            self._health = HealthMonitor(self._async_driver, self._clock, self._log, self.metrics)
        served = build_rpc_handlers(work, self._health, classic=self._classic)
        registration = RegistrationServer(name, sockets, [service for service, _ in served], self._log)
        self._register_metrics(book, registration)
        for entry in book.list_records().values():
            if book.is_prepared(entry):
                statuses.enqueue(entry)  # it may be that we fell over before it was written
        try:
            async with serve_sockets(sockets, registration, [answering for _, answering in served]):
                self._log.info("serving", driver=name, socket=sockets.endpoint)
                await self._run_background(book, work, statuses, registration)
        finally:
            await work.drain(SHUTDOWN_GRACE_SECONDS)

    def _recover_store(self, store: PreparedClaimStore) -> PreparedClaimStore:
        """The book in order, after whatever happened before."""
        try:
            found = store.recover(self._clock.now().timestamp())
        except OSError as refused:
            raise InputError(
                f"cannot keep the book of prepared claims: `{refused.filename}`: {refused.strerror}"
            ) from None
        for trouble in found:
            self._log.warning(
                "set in order at the start", driver=self.driver.name, path=trouble.path, what=trouble.what
            )
        return store

    def _build_dependencies(
        self, store: PreparedClaimStore, status_writer: DeviceStatusWriter
    ) -> PreparerDependencies:
        choices = self._options
        return PreparerDependencies(
            async_driver=self._async_driver,
            client=self._client,
            store=store,
            status_writer=status_writer,
            node=choices.node,
            boot_id=choices.boot_id,
            log=self._log,
            metrics=self.metrics,
            clock=self._clock,
        )

    async def _run_background(
        self,
        store: PreparedClaimStore,
        preparer: ClaimPreparer,
        status_writer: DeviceStatusWriter,
        registration: RegistrationServer,
    ) -> None:
        def in_use() -> Iterable[tuple[str, str]]:
            return {
                (each.pool, each.device) for entry in store.list_records().values() for each in entry.devices
            }

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._await_registration(registration))
            tasks.create_task(self._reconcile(preparer))
            tasks.create_task(status_writer.run())
            if self._health is not None:
                tasks.create_task(self._health.run())
            if self._classic:
                self.ready.set()
                return
            ways = PublisherOptions(in_use=lambda: frozenset(in_use()), log=self._log)
            await self._publish_continuously(
                Publisher(self._client, self.driver.name, self._options.node, ways)
            )

    async def _await_registration(self, registration: RegistrationServer) -> None:
        await registration.accepted.wait()
        self.registered.set()

    async def _reconcile(self, preparer: ClaimPreparer) -> None:
        backoff = Backoff(self._client.options.time_source, initial=0.5, maximum=30.0)
        while True:
            try:
                await preparer.reconcile()
                return
            except CALL_ERRORS as failed:
                what = "cannot tell yet whether claims are gone"
                self._complaints.report(
                    "claims", LogLevel.WARNING, what, driver=self.driver.name, error=failed
                )
            await backoff.wait()

    # --- publishing ---

    async def _publish_continuously(self, publisher: Publisher) -> None:
        self._register_write_metrics(publisher.counters)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(publisher.run())
            backoff = Backoff(self._client.options.time_source, initial=0.5, maximum=60.0)
            well = False
            while True:
                self._changed.clear()
                before, well = well, await self._publish_once(publisher)
                if well:
                    if not before:
                        self._log.info("devices are published", driver=self.driver.name)
                    self._complaints.clear("devices")
                    self.ready.set()
                    backoff.reset()
                wait = self.driver.refresh_seconds if well else backoff.compute_delay()
                with suppress(TimeoutError):
                    async with asyncio.timeout(wait):
                        await self._changed.wait()

    async def _publish_once(self, publisher: Publisher) -> bool:
        name = self.driver.name
        try:
            pools = group_into_pools(await self._list_devices(), self._options.node)
            await publisher.publish(pools)
        except Exception as broken:  # the author's code may raise anything
            self._report_failure(broken)
            self.metrics.count(m.PUBLICATIONS, name, "error")
            return False
        self.metrics.count(m.PUBLICATIONS, name, "ok")
        self.metrics.set(m.DEVICES, sum(len(pool.devices) for pool in pools), name)
        return True

    def _report_failure(self, error: Exception) -> None:
        """Say why devices are not published; what only a person can change, only when it is news."""
        what, name = "devices are not published", self.driver.name
        if isinstance(error, DrayError):
            why = f"{what}: {error}; it is tried again from time to time, without another word"
            self._complaints.report("devices", LogLevel.ERROR, why, driver=name)
        else:
            self._log.error(what, driver=name, error=error)

    async def _list_devices(self) -> list[Any]:
        """What the author tells; nobody else would say that it takes for ever."""
        asking = asyncio.create_task(self._async_driver.list_devices())
        try:
            done, _ = await asyncio.wait([asking], timeout=SLOW_DEVICES_SECONDS)
            if not done:
                self._log.warning(
                    "`devices` does not end", driver=self.driver.name, seconds=SLOW_DEVICES_SECONDS
                )
            return await asking
        finally:
            asking.cancel()

    def _register_metrics(self, store: PreparedClaimStore, registration: RegistrationServer) -> None:
        name = self.driver.name

        def held() -> Iterable[tuple[tuple[str, ...], float]]:
            stages = Counter(entry.stage for entry in store.list_records().values())
            return [((name, stage.value), float(count)) for stage, count in stages.items()]

        def registered() -> Iterable[tuple[tuple[str, ...], float]]:
            return [((name,), float(registration.accepted.is_set()))]

        self.metrics.add_callback(m.HELD_CLAIMS, held)
        self.metrics.add_callback(m.REGISTERED, registered)

    def _register_write_metrics(self, counters: PublishCounters) -> None:
        name = self.driver.name

        def writes() -> Iterable[tuple[tuple[str, ...], float]]:
            counts = {"create": counters.created, "update": counters.updated, "delete": counters.deleted}
            return [((name, operation), float(count)) for operation, count in counts.items()]

        self.metrics.add_callback(m.WRITES, writes)
        self.metrics.add_callback(m.HEALED, lambda: [((name,), float(counters.healed))])
        self.metrics.add_callback(m.FAILURES, lambda: [((name,), float(counters.failures))])


def _check_name(driver: Driver) -> None:
    where = f"{type(driver).__name__}.name"
    if not driver.name:
        raise InputError(f"{where}: a driver needs a name, for example `gpu.example.com`")
    faults = check_driver_name(driver.name)
    if faults:
        raise InputError(f"{where}: `{driver.name}`: {'; '.join(fault.text for fault in faults)}")
