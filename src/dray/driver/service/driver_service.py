"""The driver service: runs a driver by tying together its store, gRPC servers, publisher and health monitor.

Theory of operation: the service first recovers the store of prepared claims and then serves the sockets, so
that claims can be unprepared even while the API does not answer. Beside that it publishes devices, monitors
their health, writes device status into claims, and once at the start unprepares claims that were deleted
while the driver did not run, if no agent can hold them.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping
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
from dray.driver.devices import Pool, group_into_pools
from dray.driver.preparing.call_waits import MAX_WAIT_SECONDS
from dray.driver.preparing.cdi_files import ClaimCdiFiles
from dray.driver.preparing.device_status import DeviceStatusWriter
from dray.driver.preparing.gone_claims import GoneClaims
from dray.driver.preparing.metadata_files import MetadataFiles
from dray.driver.preparing.metadata_writer import DeviceMetadataWriter, PublishedDevices
from dray.driver.preparing.prepared_claims import FailPoint, PreparedClaimStore, ignore_fail_point
from dray.driver.preparing.preparer import ClaimPreparer
from dray.driver.publishing.publisher import PublishCounters, Publisher, PublisherOptions
from dray.driver.service.agent_directories import CDI_DIR, KUBELET_DIR, PLUGINS_SUBDIR, REGISTRY_SUBDIR
from dray.driver.service.grpc_servers import (
    DriverSockets,
    RegistrationServer,
    build_rpc_handlers,
    build_socket_paths,
)
from dray.driver.service.health import HealthMonitor
from dray.driver.service.served_sockets import SHUTDOWN_GRACE_SECONDS, DriverSocketServer, own_socket_paths
from dray.durable import read_boot_id
from dray.errors import DrayError, InputError
from dray.telemetry.health import HealthCheck
from dray.telemetry.logs import ChangeLogger, LogLevel, StructuredLogger, build_silent_logger
from dray.telemetry.metrics import MetricsRegistry
from dray.values.names import check_driver_name

METADATA_SUBDIR: Final = "dra-device-metadata"
"""The directory of device metadata files, beside the socket."""
SLOW_DEVICES_SECONDS: Final = 30.0
"""After how long a warning is logged that the author's `devices` is still running."""
SOCKET_CHECK_SECONDS: Final = 1.0
"""How often to check that the sockets are still those of this process."""


@dataclass(frozen=True)
class DriverServiceOptions:
    """Where a driver runs. Without a node it only publishes devices that are attached by network."""

    node: str = ""
    plugins: Path = KUBELET_DIR / PLUGINS_SUBDIR
    registry: Path = KUBELET_DIR / REGISTRY_SUBDIR
    cdi: Path = CDI_DIR
    state: Path | None = None
    """Where prepared claims are recorded; inside the driver's directory in `plugins` when not given."""
    instance: str = ""
    """Distinguishes processes of one driver on one node in a rolling update: a pod's uid, for example."""
    log: StructuredLogger = field(default_factory=build_silent_logger)
    boot_id: str = field(default_factory=read_boot_id)
    fail_point: FailPoint = ignore_fail_point
    max_wait_seconds: float = MAX_WAIT_SECONDS
    """For how long a call to prepare a claim may wait for what will pass, such as a device that is held."""


class UnreachableDriverError(DrayError):
    """No agent can call this process, so its devices must not be offered."""


class DriverService:
    """Runs one driver; several services can share a process."""

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
        self._change_log = ChangeLogger(options.log)
        self._async_driver = AsyncDriver(driver)
        self._changed = asyncio.Event()
        self._health: HealthMonitor | None = None
        self._published: PublishedDevices | None = None
        self.registered = asyncio.Event()
        """Set while an agent has the driver registered."""
        self._registration: RegistrationServer | None = None
        self._socket_server: DriverSocketServer | None = None
        driver.node = options.node
        self._classic = isinstance(driver, ClassicDriver)

    async def run(self) -> None:
        """Serve and publish until cancelled."""
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
            self.driver.set_metadata_updater(None)
            self._async_driver.close()

    def _handle_change(self) -> None:
        """Handle a call of the author's `changed`."""
        self._changed.set()
        if self._health is not None:
            self._health.refresh()

    def build_health_checks(self) -> Mapping[str, HealthCheck]:
        """Build the checks of `/readyz`."""
        checks: dict[str, HealthCheck] = {
            "published": lambda: None if self.ready.is_set() else "devices are not published yet"
        }
        if self._options.node:
            checks["sockets"] = lambda: self._socket_server.fault or None if self._socket_server else None
            checks["registered"] = self._check_registration
        return checks

    def _check_registration(self) -> str | None:
        if self.registered.is_set():
            return None
        if self._registration is not None and self._registration.refusal:
            return f"the agent refused the driver: {self._registration.refusal}"
        return f"no agent has registered the driver; it must look for sockets in `{self._options.registry}`"

    # --- on a node ---

    async def _run_on_node(self) -> None:
        name, options = self.driver.name, self._options
        sockets = build_socket_paths(name, options.plugins, options.registry, options.instance)
        async with own_socket_paths(name, sockets, self._log):
            await self._run_at_sockets(sockets)

    async def _run_at_sockets(self, sockets: DriverSockets) -> None:
        name, options = self.driver.name, self._options
        metadata_files = MetadataFiles(sockets.endpoint.parent / METADATA_SUBDIR)
        files = ClaimCdiFiles(options.cdi, name, metadata_files)
        directory = options.state or sockets.endpoint.parent / "state"
        store = self._recover_store(PreparedClaimStore(directory, files, options.boot_id, options.fail_point))
        status_writer = DeviceStatusWriter(self._client, name, options.node, self._log)
        preparer = ClaimPreparer(
            self._async_driver, self._client, store, status_writer, self._log, self.metrics
        )
        if self.driver.device_metadata and not self._classic:
            preparer.metadata_writer = DeviceMetadataWriter(name, metadata_files, self._list_published)
            self.driver.set_metadata_updater(preparer.metadata_writer.update)
        preparer.waits.max_seconds = options.max_wait_seconds
        if self._async_driver.has_health and not self._classic:
            self._health = HealthMonitor(self._async_driver, self._clock, self._log, self.metrics)
        handlers = build_rpc_handlers(preparer, self._health, classic=self._classic)
        services = [service for service, _ in handlers]
        registration = RegistrationServer(name, sockets, services, self.registered, self._log)
        rpc_handlers = [handler for _, handler in handlers]
        socket_server = DriverSocketServer(name, sockets, registration, rpc_handlers, self._log)
        self._registration, self._socket_server = registration, socket_server
        gone_claims = GoneClaims(name, store, preparer, self._log)
        self._register_metrics(store, gone_claims)
        self.metrics.add_callback(m.WAITING_CLAIMS, lambda: [((name,), float(preparer.waits.count))])
        for record in store.list_records().values():
            if store.is_prepared(record):
                status_writer.enqueue(record)  # the process may have ended before it was written
        try:
            async with socket_server.serve():
                self._log.info("serving", driver=name, socket=sockets.endpoint)
                try:
                    await self._run_background(store, gone_claims, status_writer, socket_server)
                finally:
                    preparer.waits.stop()  # calls that work may take their grace period, not those that wait
        finally:
            await preparer.drain(SHUTDOWN_GRACE_SECONDS)

    def _recover_store(self, store: PreparedClaimStore) -> PreparedClaimStore:
        """Recover the store after a crash, and log what was repaired."""
        try:
            repairs = store.recover(self._clock.now().timestamp())
        except OSError as refused:
            raise InputError(
                f"cannot write the checkpoint of prepared claims: `{refused.filename}`: {refused.strerror}"
            ) from None
        for repair in repairs:
            self._log.warning(
                "repaired the checkpoint of prepared claims",
                driver=self.driver.name,
                path=repair.path,
                what=repair.what,
            )
        return store

    async def _run_background(
        self,
        store: PreparedClaimStore,
        gone_claims: GoneClaims,
        status_writer: DeviceStatusWriter,
        socket_server: DriverSocketServer,
    ) -> None:
        def list_devices_in_use() -> frozenset[tuple[str, str]]:
            records = store.list_records().values()
            return frozenset((each.pool, each.device) for record in records for each in record.devices)

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._watch_sockets(socket_server))
            tasks.create_task(self._reconcile(gone_claims))
            tasks.create_task(status_writer.run())
            if self._health is not None:
                tasks.create_task(self._health.run())
            if self._classic:
                self.ready.set()
                return
            options = PublisherOptions(
                in_use=list_devices_in_use, may_restore=lambda: not socket_server.fault, log=self._log
            )
            await self._publish_continuously(
                Publisher(self._client, self.driver.name, self._options.node, options)
            )

    async def _watch_sockets(self, socket_server: DriverSocketServer) -> None:
        while True:
            await asyncio.sleep(SOCKET_CHECK_SECONDS)
            was_unreachable = bool(socket_server.fault)
            await socket_server.check()
            if was_unreachable and not socket_server.fault:
                self._changed.set()  # slices that were deleted meanwhile are published again

    async def _reconcile(self, gone_claims: GoneClaims) -> None:
        backoff = Backoff(self._client.options.time_source, initial=0.5, maximum=30.0)
        while True:
            try:
                await gone_claims.reconcile()
                return
            except CALL_ERRORS as failed:
                message = "cannot tell yet whether claims are gone"
                self._change_log.report(
                    "claims", LogLevel.WARNING, message, driver=self.driver.name, error=failed
                )
            await backoff.wait()

    # --- publishing ---

    async def _publish_continuously(self, publisher: Publisher) -> None:
        self._register_write_metrics(publisher.counters)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(publisher.run())
            backoff = Backoff(self._client.options.time_source, initial=0.5, maximum=60.0)
            published = False
            while True:
                self._changed.clear()
                before, published = published, await self._publish_once(publisher)
                if published:
                    if not before:
                        self._log.info("devices are published", driver=self.driver.name)
                    self._change_log.clear("devices")
                    self.ready.set()
                    backoff.reset()
                wait = self.driver.refresh_seconds if published else backoff.compute_delay()
                with suppress(TimeoutError):
                    async with asyncio.timeout(wait):
                        await self._changed.wait()

    async def _publish_once(self, publisher: Publisher) -> bool:
        name = self.driver.name
        try:
            if self._socket_server is not None and self._socket_server.fault:
                raise UnreachableDriverError(self._socket_server.fault)
            pools = await self._list_pools()
            await publisher.publish(pools)
        except Exception as broken:  # the author's code may raise anything
            self._report_failure(broken)
            self.metrics.count(m.PUBLICATIONS, name, "error")
            return False
        self.metrics.count(m.PUBLICATIONS, name, "ok")
        self.metrics.set(m.DEVICES, sum(len(pool.devices) for pool in pools), name)
        return True

    def _report_failure(self, error: Exception) -> None:
        """Log why devices are not published; an error that only a person can fix is logged once."""
        message, name = "devices are not published", self.driver.name
        if isinstance(error, DrayError):
            why = f"{message}: {error}; the driver retries, and logs this error only once"
            self._change_log.report("devices", LogLevel.ERROR, why, driver=name)
        else:
            self._log.error(message, driver=name, error=error)

    async def _list_pools(self) -> tuple[Pool, ...]:
        pools = group_into_pools(await self._list_devices(), self._options.node)
        self._published = {(pool.name, each.name): each for pool in pools for each in pool.devices}
        return pools

    async def _list_published(self) -> PublishedDevices:
        """Return the devices as they were listed last; a claim may be prepared before that happened."""
        if self._published is None:
            await self._list_pools()
        return self._published or {}

    async def _list_devices(self) -> list[Any]:
        """Call the author's `devices`, and log a warning when it takes long."""
        listing = asyncio.create_task(self._async_driver.list_devices())
        try:
            done, _ = await asyncio.wait([listing], timeout=SLOW_DEVICES_SECONDS)
            if not done:
                self._log.warning(
                    "`devices` does not end", driver=self.driver.name, seconds=SLOW_DEVICES_SECONDS
                )
            return await listing
        finally:
            listing.cancel()

    def _register_metrics(self, store: PreparedClaimStore, gone_claims: GoneClaims) -> None:
        name = self.driver.name

        def count_held() -> Iterable[tuple[tuple[str, ...], float]]:
            stages = Counter(record.stage for record in store.list_records().values())
            return [((name, stage.value), float(count)) for stage, count in stages.items()]

        self.metrics.add_callback(m.HELD_CLAIMS, count_held)
        self.metrics.add_callback(
            m.GONE_CLAIMS, lambda: [((name,), float(gone_claims.count_left_to_agent()))]
        )
        self.metrics.add_callback(m.REGISTERED, lambda: [((name,), float(self.registered.is_set()))])

    def _register_write_metrics(self, counters: PublishCounters) -> None:
        name = self.driver.name

        def count_writes() -> Iterable[tuple[tuple[str, ...], float]]:
            counts = {"create": counters.created, "update": counters.updated, "delete": counters.deleted}
            return [((name, operation), float(count)) for operation, count in counts.items()]

        self.metrics.add_callback(m.WRITES, count_writes)
        self.metrics.add_callback(m.HEALED, lambda: [((name,), float(counters.healed))])
        self.metrics.add_callback(m.FAILURES, lambda: [((name,), float(counters.failures))])


def _check_name(driver: Driver) -> None:
    where = f"{type(driver).__name__}.name"
    if not driver.name:
        raise InputError(f"{where}: a driver needs a name, for example `gpu.example.com`")
    faults = check_driver_name(driver.name)
    if faults:
        raise InputError(f"{where}: `{driver.name}`: {'; '.join(fault.text for fault in faults)}")
