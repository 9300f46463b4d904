"""The publisher: writes the devices of a driver as ResourceSlices, and keeps the slices as it wrote them.

    publisher = Publisher(client, "gpu.example.com", "node-a", PublisherOptions(in_use=...))
    await publisher.publish(driver.devices())    # a second call writes nothing
    await publisher.run()                        # restores changed slices, until cancelled
    await publisher.withdraw()                   # only on request: a rolling update keeps its slices

Theory of operation: `publish` lists the existing slices, plans the smallest set of writes (see `pool_plan`),
checks by dry run that the server keeps every field, and writes many slices concurrently. Only priorities may
be lost: on a server that does not store them, devices are published without, and that is logged once. `run`
watches the slices; when one is not as it was written, it reconciles again with the devices that were
published last. A watch event is only a reason to look: the writes are planned on a fresh list.

A publisher writes the pools that it is given, and slices with its own label. Two publishers of one driver
(one on each node and one for devices that are attached by network) do not touch each other's slices; two that
publish the same pool are a mistake, and `PoolConflictError`. Two processes of one publisher, as in a rolling
update, do not fight: the older one leaves slices that the newer one wrote alone, until it publishes again.

Rules for this file: `publish` and `run` retry transient errors of the server. `publish` raises permanent
ones, and `run` logs them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Final

from dray.api.resource import Device, ResourceSlice
from dray.client.client import Client
from dray.client.errors import (
    ApiError,
    BadRequestError,
    ConflictError,
    ForbiddenError,
    InvalidObjectError,
    KindNotServedError,
)
from dray.client.informers.informer import Informer
from dray.client.object_refs import ObjectSelector
from dray.client.rest_client import CALL_ERRORS
from dray.client.timing import Backoff
from dray.driver.devices import InvalidDeviceError, Pool, Reach, group_into_pools
from dray.driver.publishing.dropped_fields import FieldDroppedError
from dray.driver.publishing.pool_plan import (
    NO_NODE_SELECTION,
    PUBLISHED_SINCE_ANNOTATION,
    PUBLISHER_LABEL,
    DesiredPool,
    PoolPlan,
    PublisherIdentity,
    plan_pool,
    strip_priorities,
    to_desired_pool,
)
from dray.driver.publishing.retained_devices import GONE_TAINT, build_emptied_pool, retain_used_devices
from dray.driver.publishing.slice_writer import SliceWriter, WrittenSlices
from dray.errors import DrayError
from dray.telemetry.logs import StructuredLogger, build_silent_logger

DevicesInUse = Callable[[], Collection[tuple[str, str]]]
"""Returns the devices that claims use now, as (pool, device)."""

_PERMANENT_ERRORS: Final = (BadRequestError, ForbiddenError, InvalidObjectError, KindNotServedError)
"""Errors that a retry does not cure."""
_TAINTS_GATE: Final = "DRADeviceTaints"
_PRIORITIES_GATE: Final = "DRAResourceSlicePriority"


class PoolConflictError(DrayError):
    """Another publisher publishes a pool of this name."""


@dataclass(frozen=True)
class PublisherOptions:
    """Options of a publisher.

    `publisher` distinguishes publishers of one driver; by default it is `node` for one that has a node and
    `cluster` for one that has none. `in_use` returns the devices that stay although the driver no longer
    reports them.
    """

    publisher: str = ""
    in_use: DevicesInUse = field(default=frozenset)
    max_concurrent_writes: int = 16
    recheck_seconds: float = 5.0
    """How often to check whether a retained device is still in use."""
    may_restore: Callable[[], bool] = lambda: True
    """Whether slices may be restored now that others have deleted or changed."""
    log: StructuredLogger = field(default_factory=build_silent_logger)


@dataclass(frozen=True, slots=True)
class PublishResult:
    """What publishing wrote, and the devices that stay only because they are in use."""

    created: int = 0
    updated: int = 0
    deleted: int = 0
    retained: tuple[tuple[str, str], ...] = ()

    @property
    def writes(self) -> int:
        return self.created + self.updated + self.deleted


@dataclass(slots=True)
class PublishCounters:
    """The writes and failures of a publisher, for metrics."""

    created: int = 0
    updated: int = 0
    deleted: int = 0
    healed: int = 0
    """How many of these writes restored slices that somebody else had changed."""
    failures: int = 0
    """Attempts that failed and were retried."""

    def add(self, result: PublishResult) -> None:
        self.created += result.created
        self.updated += result.updated
        self.deleted += result.deleted


class Publisher:
    """Publishes the slices of one driver, for one node or for none."""

    def __init__(
        self, client: Client, driver: str, node: str = "", options: PublisherOptions | None = None
    ) -> None:
        if not isinstance(client, Client):
            raise TypeError(
                f"publishing devices of `{driver}` needs a client of the API server, got {client!r}"
            )
        self._client, self._options = client, options or PublisherOptions()
        publisher = self._options.publisher or ("node" if node else "cluster")
        microseconds = int(client.options.time_source.clock.now().timestamp() * 1_000_000)
        self._identity = PublisherIdentity(driver, node, publisher, started_at=f"{microseconds:018}")
        fields = f"spec.driver={driver}" + (f",spec.nodeName={node}" if node else "")
        self._selection = ObjectSelector(fields=fields)
        self._writer = SliceWriter(client, self._selection, self._options.max_concurrent_writes)
        self._lock = asyncio.Lock()
        self._wake = asyncio.Event()
        self._desired: tuple[DesiredPool, ...] | None = None
        self._written: WrittenSlices = {}
        self._may_taint = True
        self._may_prioritize = True
        self._superseded = False
        """Whether a newer process of the same driver publishes now, as in a rolling update."""
        self._retained: tuple[tuple[str, str], ...] = ()
        self.counters = PublishCounters()

    # --- public methods ---

    async def publish(self, devices: Iterable[Device | Pool], *, force: bool = False) -> PublishResult:
        """Publish exactly these devices. With `force` also devices in use are removed.

        Raises `FieldDroppedError` before anything is written, `PoolConflictError`, `InvalidDeviceError`, and
        permanent errors of the server; waits for a server that does not answer.
        """
        desired = self._build_desired_pools(devices)
        async with self._lock:
            result = await self._reconcile_with_retry(desired, force)
            self._desired, self._superseded = desired, False
        return result

    async def withdraw(self) -> None:
        """Delete all slices of this publisher, and stop restoring them."""
        async with self._lock:
            self._desired = None
            backoff = Backoff(self._client.options.time_source, initial=0.2)
            while True:
                try:
                    own = [each for each in await self._writer.list_slices() if self._is_own(each)]
                    await self._writer.delete(own)
                    self.counters.add(PublishResult(deleted=len(own)))
                    self._written.clear()
                    return
                except _PERMANENT_ERRORS:
                    raise
                except CALL_ERRORS as failed:
                    await self._back_off(failed, backoff)

    async def run(self) -> None:
        """Restore slices that others change or delete, until cancelled."""
        informer = Informer(self._client, ResourceSlice, field_selector=self._selection.fields)
        informer.listen(
            self._handle_changed_slice,
            lambda _old, new: self._handle_changed_slice(new),
            self._handle_deleted_slice,
        )
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(informer.run())
            await informer.wait_for_sync()
            self._wake.set()  # no event reports slices that were deleted before the watch began
            backoff = Backoff(self._client.options.time_source, initial=0.1)
            while True:
                limit = self._options.recheck_seconds if self._retained else None
                with suppress(TimeoutError):
                    async with asyncio.timeout(limit):
                        await self._wake.wait()
                await self._heal(informer, backoff)

    # --- restoring ---

    def _handle_changed_slice(self, changed: ResourceSlice) -> None:
        started_at = changed.metadata.annotations.get(PUBLISHED_SINCE_ANNOTATION, "")
        if self._is_own(changed) and started_at > self._identity.started_at:
            self._superseded = True
        if self._is_drifted(changed):
            self._wake.set()

    def _handle_deleted_slice(self, deleted: ResourceSlice) -> None:
        written = self._written.get(deleted.spec.pool.name, {}).get(deleted.metadata.name)
        if written is not None and written.metadata.uid == deleted.metadata.uid:
            self._wake.set()

    def _is_drifted(self, found: ResourceSlice) -> bool:
        """Whether a slice belongs to this publisher and is not as it was written."""
        pool = self._written.get(found.spec.pool.name)
        if pool is None:
            return self._desired is not None and self._is_own(found)
        written = pool.get(found.metadata.name)
        if written is None:
            return True
        older = int(found.metadata.resource_version) < int(written.metadata.resource_version)
        same = written.spec == found.spec and written.metadata.labels == found.metadata.labels
        return not older and not same

    async def _heal(self, informer: Informer[ResourceSlice], backoff: Backoff) -> None:
        async with self._lock:
            self._wake.clear()
            if self._desired is None or self._superseded or not self._options.may_restore():
                return
            existing = informer.list_all()
            uids = {each.metadata.uid for each in existing}
            written = [each for pool in self._written.values() for each in pool.values()]
            missing = any(each.metadata.uid not in uids for each in written)
            if not (missing or self._retained or any(map(self._is_drifted, existing))):
                return
            try:
                result = await self._reconcile(self._desired, force=False)
            except (*CALL_ERRORS, DrayError) as failed:
                self.counters.failures += 1
                self._options.log.warning("devices could not be published again", why=str(failed))
                self._wake.set()
            else:
                if not result.writes:
                    return
                self.counters.healed += result.writes
                self._options.log.warning("slices were changed by somebody else and published again")
        # Another writer that undoes these writes again and again must not keep the server busy.
        await backoff.wait()

    # --- reconciling ---

    def _build_desired_pools(self, devices: Iterable[Device | Pool]) -> tuple[DesiredPool, ...]:
        node = self._identity.node
        desired = tuple(to_desired_pool(pool, node) for pool in group_into_pools(devices, node))
        for pool in desired:
            selection = pool.node_selection
            if node and selection.node_name != node:
                raise InvalidDeviceError(
                    f"pool `{pool.name}`: this driver publishes for node `{node}` only; what other nodes "
                    "reach is published by a part of the driver that has no node"
                )
            if selection == NO_NODE_SELECTION:
                raise InvalidDeviceError(
                    f"pool `{pool.name}`: say which nodes reach it, for example `{Reach.ALL_NODES}`"
                )
        return desired

    async def _reconcile_with_retry(self, desired: tuple[DesiredPool, ...], force: bool) -> PublishResult:
        backoff = Backoff(self._client.options.time_source, initial=0.2)
        while True:
            try:
                return await self._reconcile(desired, force)
            except _PERMANENT_ERRORS:
                raise
            except CALL_ERRORS as failed:
                await self._back_off(failed, backoff)

    async def _back_off(self, failed: Exception, backoff: Backoff) -> None:
        self.counters.failures += 1
        if not isinstance(failed, ConflictError):
            self._options.log.warning("publishing has to wait", driver=self._identity.driver, why=str(failed))
        await backoff.wait((failed.retry_after or 0.0) if isinstance(failed, ApiError) else 0.0)

    async def _reconcile(self, desired: tuple[DesiredPool, ...], force: bool) -> PublishResult:
        existing = await self._writer.list_slices()
        identity = replace(self._identity, owner=await self._writer.get_owner(self._identity.node))
        plans = self._plan_pools(desired, identity, existing, force)
        if self._may_taint and await self._is_gone_taint_dropped(plans):
            self._may_taint = False
            plans = self._plan_pools(desired, identity, existing, force)
        if self._may_prioritize and await self._are_priorities_dropped(plans):
            self._may_prioritize = False
            plans = self._plan_pools(desired, identity, existing, force)
        await self._writer.verify_fields_kept(plans)
        self._written = await self._writer.write(plans)
        result = PublishResult(
            sum(len(each.creates) for each in plans),
            sum(len(each.updates) for each in plans),
            sum(len(each.deletes) for each in plans),
            self._retained,
        )
        self.counters.add(result)
        return result

    async def _is_gone_taint_dropped(self, plans: Sequence[PoolPlan]) -> bool:
        """Whether the server drops taints, and only retained devices have some."""
        lost = await self._writer.dry_run(plans, {_TAINTS_GATE}) if self._retained else ()
        retained = {name for _pool, name in self._retained}
        return bool(lost) and all(each.gate == _TAINTS_GATE and each.device in retained for each in lost)

    async def _are_priorities_dropped(self, plans: Sequence[PoolPlan]) -> bool:
        """Whether the server drops priorities; devices are usable without them, so that is only logged."""
        lost = await self._writer.dry_run(plans, {_PRIORITIES_GATE})
        dropped = any(each.gate == _PRIORITIES_GATE for each in lost)
        if dropped:
            self._options.log.warning(
                "the server does not store priorities of slices and pools (KEP-5773): devices are published "
                "without them, and are allocated in the order of names until the driver starts again",
                driver=self._identity.driver,
            )
        return dropped

    def _is_own(self, each: ResourceSlice) -> bool:
        return each.metadata.labels.get(PUBLISHER_LABEL) == self._identity.publisher

    def _plan_pools(
        self,
        desired: Sequence[DesiredPool],
        identity: PublisherIdentity,
        existing: Sequence[ResourceSlice],
        force: bool,
    ) -> list[PoolPlan]:
        by_pool: dict[str, list[ResourceSlice]] = {}
        for each in existing:
            by_pool.setdefault(each.spec.pool.name, []).append(each)
        usable = desired if self._may_prioritize else map(strip_priorities, desired)
        wanted = {pool.name: pool for pool in usable}
        for name, slices in by_pool.items():
            if name not in wanted and any(map(self._is_own, slices)):
                own = by_pool[name] = [each for each in slices if self._is_own(each)]
                wanted[name] = build_emptied_pool(own)
        for name, written in self._written.items():
            if written and name not in wanted and name not in by_pool:  # somebody deleted all of it
                wanted[name] = build_emptied_pool(tuple(written.values()))
        used = frozenset() if force else frozenset(self._options.in_use())
        plans, retained = [], []
        for name, pool in wanted.items():
            slices = by_pool.get(name, [])
            self._check_pool_conflict(name, slices)
            previous = self._written.get(name)
            # A slice that somebody deleted counts as it was written, for devices that must stay.
            known = {**(previous or {}), **{each.metadata.name: each for each in slices}}
            in_use = {device for used_pool, device in used if used_pool == name}
            complete = retain_used_devices(pool, tuple(known.values()), in_use, self._may_taint)
            reported = {device.name for device in pool.devices}
            retained += [(name, device.name) for device in complete.devices if device.name not in reported]
            plans.append(
                plan_pool(complete, identity, slices, None if previous is None else tuple(previous.values()))
            )
        self._retained = tuple(retained)
        return plans

    def _check_pool_conflict(self, pool: str, slices: Sequence[ResourceSlice]) -> None:
        others = {each.metadata.labels.get(PUBLISHER_LABEL, self._identity.publisher) for each in slices}
        others.discard(self._identity.publisher)
        if others:
            raise PoolConflictError(
                f"pool `{pool}` of driver `{self._identity.driver}` is published by `{min(others)}`, and "
                f"`{self._identity.publisher}` wants to publish it too; give one of the pools another name"
            )


__all__ = [
    "GONE_TAINT",
    "FieldDroppedError",
    "PoolConflictError",
    "PublishCounters",
    "PublishResult",
    "Publisher",
    "PublisherOptions",
]
