"""Publishing the devices of a driver, and keeping them published.

    publisher = Publisher(client, "gpu.example.com", "node-a", Ways(in_use=...))
    await publisher.publish(driver.devices())    # makes it so; a second time it writes nothing
    await publisher.run()                        # keeps it so, until cancelled
    await publisher.withdraw()                   # only when asked: a rolling update keeps its slices

Theory of operation: `publish` reads the slices as they stand, has the least to be written worked out (see
`pools`), asks the server whether it would keep every field, and writes, many slices at once. `run` watches
the slices; when one is not as it was left, `publish` is done again with what was last told. What the watch
shows is only a reason to look: what is written is decided on a fresh list.

A publisher touches the pools it is told of, and slices with its own label. Two publishers of one driver (a
part on each node and one for what is attached by network) leave each other alone; two that tell of the same
pool are a mistake, and `PoolConflictError`. Two processes of one publisher, as there are in a rolling update,
do not fight: the older one leaves slices alone that the newer one wrote, until it is told of devices again.

Rules for this file: trouble with the server is waited out. What waiting cannot cure is raised by `publish`,
and told in the log by `run`.
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
    GONE_TAINT,
    PUBLISHED_SINCE_ANNOTATION,
    PUBLISHER_LABEL,
    DesiredPool,
    PoolPlan,
    PublisherIdentity,
    build_emptied_pool,
    plan_pool,
    retain_used_devices,
    to_desired_pool,
)
from dray.driver.publishing.slice_writer import SliceWriter, WrittenSlices
from dray.errors import DrayError
from dray.telemetry.logs import StructuredLogger, build_silent_logger

DevicesInUse = Callable[[], Collection[tuple[str, str]]]
"""The devices, as (pool, device), that somebody uses now."""

_PERMANENT_ERRORS: Final = (BadRequestError, ForbiddenError, InvalidObjectError, KindNotServedError)
"""What is no better when one asks again."""
_TAINTS_GATE: Final = "DRADeviceTaints"


class PoolConflictError(DrayError):
    """Somebody else publishes a pool of this name."""


@dataclass(frozen=True)
class PublisherOptions:
    """How a publisher goes about it.

    `publisher` tells publishers of one driver apart; by default `node` for one that has a node and `cluster`
    for one that has none. `in_use` says which devices must stay when the driver no longer tells of them.
    """

    publisher: str = ""
    in_use: DevicesInUse = field(default=frozenset)
    max_concurrent_writes: int = 16
    recheck_seconds: float = 5.0
    """How often to look whether a device that is gone is still in use."""
    log: StructuredLogger = field(default_factory=build_silent_logger)


@dataclass(frozen=True, slots=True)
class PublishResult:
    """What publishing wrote, and the devices that are gone and stay because they are in use."""

    created: int = 0
    updated: int = 0
    deleted: int = 0
    retained: tuple[tuple[str, str], ...] = ()

    @property
    def writes(self) -> int:
        return self.created + self.updated + self.deleted


@dataclass(slots=True)
class PublishCounters:
    """What a publisher has done, for metrics."""

    created: int = 0
    updated: int = 0
    deleted: int = 0
    healed: int = 0
    """How many of these writes were to put right what somebody else had done."""
    failures: int = 0
    """Attempts that failed and were made again."""

    def add(self, result: PublishResult) -> None:
        self.created += result.created
        self.updated += result.updated
        self.deleted += result.deleted


class Publisher:
    """Keeps the slices of one driver, of one node or of none."""

    def __init__(
        self, client: Client, driver: str, node: str = "", options: PublisherOptions | None = None
    ) -> None:
        if not isinstance(client, Client):
            raise TypeError(
                f"publishing devices of `{driver}` needs a client of the API server, got {client!r}"
            )
        self._client, self._options = client, options or PublisherOptions()
        publisher = self._options.publisher or ("node" if node else "cluster")
        since = int(client.options.time_source.clock.now().timestamp() * 1_000_000)
        self._identity = PublisherIdentity(driver, node, publisher, started_at=f"{since:018}")
        fields = f"spec.driver={driver}" + (f",spec.nodeName={node}" if node else "")
        self._selection = ObjectSelector(fields=fields)
        self._writer = SliceWriter(client, self._selection, self._options.max_concurrent_writes)
        self._lock = asyncio.Lock()
        self._wake = asyncio.Event()
        self._desired: tuple[DesiredPool, ...] | None = None
        self._written: WrittenSlices = {}
        self._may_taint = True
        self._superseded = False
        """Whether a newer process of the same driver publishes now, as in a rolling update."""
        self._retained: tuple[tuple[str, str], ...] = ()
        self.counters = PublishCounters()

    # --- what a driver calls ---

    async def publish(self, devices: Iterable[Device | Pool], *, force: bool = False) -> PublishResult:
        """Make the devices told of what the server has. With `force` also those in use may go.

        Raises `FieldDroppedError` before anything is written, `PoolConflictError`, `InvalidDeviceError`, and
        what the server refuses for good; waits for a server that does not answer.
        """
        offers = self._build_desired_pools(devices)
        async with self._lock:
            outcome = await self._reconcile_with_retry(offers, force)
            self._desired, self._superseded = offers, False
        return outcome

    async def withdraw(self) -> None:
        """Take away everything that this publisher has published, and stop keeping it."""
        async with self._lock:
            self._desired = None
            backoff = Backoff(self._client.options.time_source, initial=0.2)
            while True:
                try:
                    mine = [each for each in await self._writer.list_slices() if self._is_mine(each)]
                    await self._writer.delete(mine)
                    self.counters.add(PublishResult(deleted=len(mine)))
                    self._written.clear()
                    return
                except _PERMANENT_ERRORS:
                    raise
                except CALL_ERRORS as failed:
                    await self._back_off(failed, backoff)

    async def run(self) -> None:
        """Keep what was published as it was published, until cancelled."""
        informer = Informer(self._client, ResourceSlice, field_selector=self._selection.fields)
        informer.listen(
            self._handle_changed_slice,
            lambda _old, new: self._handle_changed_slice(new),
            self._handle_deleted_slice,
        )
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(informer.run())
            await informer.wait_for_sync()
            self._wake.set()  # what was deleted before the watch began is told by nobody
            backoff = Backoff(self._client.options.time_source, initial=0.1)
            while True:
                limit = self._options.recheck_seconds if self._retained else None
                with suppress(TimeoutError):
                    async with asyncio.timeout(limit):
                        await self._wake.wait()
                await self._heal(informer, backoff)

    # --- keeping ---

    def _handle_changed_slice(self, seen: ResourceSlice) -> None:
        if (
            self._is_mine(seen)
            and seen.metadata.annotations.get(PUBLISHED_SINCE_ANNOTATION, "") > self._identity.started_at
        ):
            self._superseded = True
        if self._is_drifted(seen):
            self._wake.set()

    def _handle_deleted_slice(self, seen: ResourceSlice) -> None:
        left = self._written.get(seen.spec.pool.name, {}).get(seen.metadata.name)
        if left is not None and left.metadata.uid == seen.metadata.uid:
            self._wake.set()

    def _is_drifted(self, seen: ResourceSlice) -> bool:
        """Whether a slice concerns us and is not as it was left."""
        ours = self._written.get(seen.spec.pool.name)
        if ours is None:
            return self._desired is not None and self._is_mine(seen)
        left = ours.get(seen.metadata.name)
        if left is None:
            return True
        older = int(seen.metadata.resource_version) < int(left.metadata.resource_version)
        same = left.spec == seen.spec and left.metadata.labels == seen.metadata.labels
        return not older and not same

    async def _heal(self, informer: Informer[ResourceSlice], backoff: Backoff) -> None:
        async with self._lock:
            self._wake.clear()
            if self._desired is None or self._superseded:
                return
            seen = informer.list_all()
            uids = {each.metadata.uid for each in seen}
            missing = any(
                left.metadata.uid not in uids for ours in self._written.values() for left in ours.values()
            )
            if not (missing or self._retained or any(map(self._is_drifted, seen))):
                return
            try:
                outcome = await self._reconcile(self._desired, force=False)
            except (*CALL_ERRORS, DrayError) as failed:
                self.counters.failures += 1
                self._options.log.warning("devices could not be published again", why=str(failed))
                self._wake.set()
            else:
                if not outcome.writes:
                    return
                self.counters.healed += outcome.writes
                self._options.log.warning("slices were changed by somebody else and published again")
        # Somebody who undoes our writes again and again must not keep us or the server busy.
        await backoff.wait()

    # --- making it so ---

    def _build_desired_pools(self, devices: Iterable[Device | Pool]) -> tuple[DesiredPool, ...]:
        node = self._identity.node
        offers = tuple(to_desired_pool(pool, node) for pool in group_into_pools(devices, node))
        for offer in offers:
            where = offer.node_selection
            if node and where.node_name != node:
                raise InvalidDeviceError(
                    f"pool `{offer.name}`: this driver publishes for node `{node}` only; what other nodes "
                    "reach is published by a part of the driver that has no node"
                )
            if not (
                where.node_name or where.node_selector or where.all_nodes or where.per_device_node_selection
            ):
                raise InvalidDeviceError(
                    f"pool `{offer.name}`: say which nodes reach it, for example `{Reach.ALL_NODES}`"
                )
        return offers

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
        standing = await self._writer.list_slices()
        home = replace(self._identity, owner=await self._writer.get_owner(self._identity.node))
        plans = self._plan_pools(desired, home, standing, force)
        if self._may_taint and await self._is_gone_taint_dropped(plans):
            self._may_taint = False
            plans = self._plan_pools(desired, home, standing, force)
        await self._writer.verify_fields_kept(plans)
        self._written = await self._writer.write(plans)
        outcome = PublishResult(
            sum(len(each.creates) for each in plans),
            sum(len(each.updates) for each in plans),
            sum(len(each.deletes) for each in plans),
            self._retained,
        )
        self.counters.add(outcome)
        return outcome

    async def _is_gone_taint_dropped(self, plans: Sequence[PoolPlan]) -> bool:
        """Whether the server drops taints, and the only ones are those of devices that are gone."""
        lost = await self._writer.dry_run(plans, {_TAINTS_GATE}) if self._retained else ()
        own = {name for _pool, name in self._retained}
        return bool(lost) and all(each.gate == _TAINTS_GATE and each.device in own for each in lost)

    def _is_mine(self, each: ResourceSlice) -> bool:
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
        wanted = {offer.name: offer for offer in desired}
        for name, slices in by_pool.items():
            if name not in wanted and any(map(self._is_mine, slices)):
                mine = by_pool[name] = [each for each in slices if self._is_mine(each)]
                wanted[name] = build_emptied_pool(mine)
        for name, left in self._written.items():
            if left and name not in wanted and name not in by_pool:  # somebody took all of it away
                wanted[name] = build_emptied_pool(tuple(left.values()))
        used = frozenset() if force else frozenset(self._options.in_use())
        plans, gone = [], []
        for name, offer in wanted.items():
            slices = by_pool.get(name, [])
            self._check_pool_conflict(name, slices)
            before = self._written.get(name)
            # What somebody took away is looked at as it was left, for devices that must stay.
            known = {**(before or {}), **{each.metadata.name: each for each in slices}}
            in_use = {device for pool, device in used if pool == name}
            kept = retain_used_devices(offer, tuple(known.values()), in_use, self._may_taint)
            told = {device.name for device in offer.devices}
            gone += [(name, device.name) for device in kept.devices if device.name not in told]
            plans.append(
                plan_pool(kept, identity, slices, None if before is None else tuple(before.values()))
            )
        self._retained = tuple(gone)
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
