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
pool are a mistake, and `PoolTaken`. Two processes of one publisher, as there are in a rolling update, do not
fight: the older one leaves slices alone that the newer one wrote, until it is told of devices again.

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
from dray.client.errors import ApiError, BadRequest, Conflict, Forbidden, Invalid, NotServed
from dray.client.informers.informer import Informer
from dray.client.object_refs import Selection
from dray.client.rest_client import TROUBLE
from dray.client.timing import Backoff
from dray.driver.devices import BadDevice, Pool, Reach, pools_of
from dray.driver.publishing.dropped_fields import FieldDropped
from dray.driver.publishing.pool_plan import (
    GONE,
    PUBLISHER,
    SINCE,
    Home,
    Offer,
    Plan,
    left_over,
    offer_of,
    planned,
    with_gone,
)
from dray.driver.publishing.slice_writer import Left, Slices
from dray.errors import DrayError
from dray.telemetry.logs import Log, silent

InUse = Callable[[], Collection[tuple[str, str]]]
"""The devices, as (pool, device), that somebody uses now."""

_LASTING: Final = (BadRequest, Forbidden, Invalid, NotServed)
"""What is no better when one asks again."""
_TAINTS: Final = "DRADeviceTaints"


class PoolTaken(DrayError):  # noqa: N818 - what is the case
    """Somebody else publishes a pool of this name."""


@dataclass(frozen=True)
class Ways:
    """How a publisher goes about it.

    `publisher` tells publishers of one driver apart; by default `node` for one that has a node and `cluster`
    for one that has none. `in_use` says which devices must stay when the driver no longer tells of them.
    """

    publisher: str = ""
    in_use: InUse = field(default=frozenset)
    writes_at_once: int = 16
    recheck_seconds: float = 5.0
    """How often to look whether a device that is gone is still in use."""
    log: Log = field(default_factory=silent)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What publishing wrote, and the devices that are gone and stay because they are in use."""

    created: int = 0
    updated: int = 0
    deleted: int = 0
    gone: tuple[tuple[str, str], ...] = ()

    @property
    def writes(self) -> int:
        return self.created + self.updated + self.deleted


@dataclass(slots=True)
class Tally:
    """What a publisher has done, for metrics."""

    created: int = 0
    updated: int = 0
    deleted: int = 0
    healed: int = 0
    """How many of these writes were to put right what somebody else had done."""
    failures: int = 0
    """Attempts that failed and were made again."""

    def add(self, outcome: Outcome) -> None:
        self.created += outcome.created
        self.updated += outcome.updated
        self.deleted += outcome.deleted


class Publisher:
    """Keeps the slices of one driver, of one node or of none."""

    def __init__(self, client: Client, driver: str, node: str = "", ways: Ways | None = None) -> None:
        if not isinstance(client, Client):
            raise TypeError(
                f"publishing devices of `{driver}` needs a client of the API server, got {client!r}"
            )
        self._client, self._ways = client, ways or Ways()
        publisher = self._ways.publisher or ("node" if node else "cluster")
        since = int(client.habits.tempo.clock.now().timestamp() * 1_000_000)
        self._home = Home(driver, node, publisher, since=f"{since:018}")
        fields = f"spec.driver={driver}" + (f",spec.nodeName={node}" if node else "")
        self._select = Selection(fields=fields)
        self._slices = Slices(client, self._select, self._ways.writes_at_once)
        self._lock = asyncio.Lock()
        self._wake = asyncio.Event()
        self._told: tuple[Offer, ...] | None = None
        self._left: Left = {}
        self._may_taint = True
        self._superseded = False
        """Whether a newer process of the same driver publishes now, as in a rolling update."""
        self._gone: tuple[tuple[str, str], ...] = ()
        self.tally = Tally()

    # --- what a driver calls ---

    async def publish(self, told: Iterable[Device | Pool], *, force: bool = False) -> Outcome:
        """Make the devices told of what the server has. With `force` also those in use may go.

        Raises `FieldDropped` before anything is written, `PoolTaken`, `BadDevice`, and what the server
        refuses for good; waits for a server that does not answer.
        """
        offers = self._offers(told)
        async with self._lock:
            outcome = await self._until_settled(offers, force)
            self._told, self._superseded = offers, False
        return outcome

    async def withdraw(self) -> None:
        """Take away everything that this publisher has published, and stop keeping it."""
        async with self._lock:
            self._told = None
            backoff = Backoff(self._client.habits.tempo, first=0.2)
            while True:
                try:
                    mine = [each for each in await self._slices.standing() if self._is_mine(each)]
                    await self._slices.delete(mine)
                    self.tally.add(Outcome(deleted=len(mine)))
                    self._left.clear()
                    return
                except _LASTING:
                    raise
                except TROUBLE as failed:
                    await self._wait_out(failed, backoff)

    async def run(self) -> None:
        """Keep what was published as it was published, until cancelled."""
        informer = Informer(self._client, ResourceSlice, field_selector=self._select.fields)
        informer.listen(self._noticed, lambda _old, new: self._noticed(new), self._missed)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(informer.run())
            await informer.synced()
            self._wake.set()  # what was deleted before the watch began is told by nobody
            backoff = Backoff(self._client.habits.tempo, first=0.1)
            while True:
                limit = self._ways.recheck_seconds if self._gone else None
                with suppress(TimeoutError):
                    async with asyncio.timeout(limit):
                        await self._wake.wait()
                await self._heal(informer, backoff)

    # --- keeping ---

    def _noticed(self, seen: ResourceSlice) -> None:
        if self._is_mine(seen) and seen.metadata.annotations.get(SINCE, "") > self._home.since:
            self._superseded = True
        if self._is_strange(seen):
            self._wake.set()

    def _missed(self, seen: ResourceSlice) -> None:
        left = self._left.get(seen.spec.pool.name, {}).get(seen.metadata.name)
        if left is not None and left.metadata.uid == seen.metadata.uid:
            self._wake.set()

    def _is_strange(self, seen: ResourceSlice) -> bool:
        """Whether a slice concerns us and is not as it was left."""
        ours = self._left.get(seen.spec.pool.name)
        if ours is None:
            return self._told is not None and self._is_mine(seen)
        left = ours.get(seen.metadata.name)
        if left is None:
            return True
        older = int(seen.metadata.resource_version) < int(left.metadata.resource_version)
        same = left.spec == seen.spec and left.metadata.labels == seen.metadata.labels
        return not older and not same

    async def _heal(self, informer: Informer[ResourceSlice], backoff: Backoff) -> None:
        async with self._lock:
            self._wake.clear()
            if self._told is None or self._superseded:
                return
            seen = informer.all()
            uids = {each.metadata.uid for each in seen}
            missing = any(
                left.metadata.uid not in uids for ours in self._left.values() for left in ours.values()
            )
            if not (missing or self._gone or any(map(self._is_strange, seen))):
                return
            try:
                outcome = await self._settle(self._told, force=False)
            except (*TROUBLE, DrayError) as failed:
                self.tally.failures += 1
                self._ways.log.warning("devices could not be published again", why=str(failed))
                self._wake.set()
            else:
                if not outcome.writes:
                    return
                self.tally.healed += outcome.writes
                self._ways.log.warning("slices were changed by somebody else and published again")
        # Somebody who undoes our writes again and again must not keep us or the server busy.
        await backoff.wait()

    # --- making it so ---

    def _offers(self, told: Iterable[Device | Pool]) -> tuple[Offer, ...]:
        node = self._home.node
        offers = tuple(offer_of(pool, node) for pool in pools_of(told, node))
        for offer in offers:
            where = offer.where
            if node and where.node_name != node:
                raise BadDevice(
                    f"pool `{offer.name}`: this driver publishes for node `{node}` only; what other nodes "
                    "reach is published by a part of the driver that has no node"
                )
            if not (
                where.node_name or where.node_selector or where.all_nodes or where.per_device_node_selection
            ):
                raise BadDevice(
                    f"pool `{offer.name}`: say which nodes reach it, for example `{Reach.ALL_NODES}`"
                )
        return offers

    async def _until_settled(self, offers: tuple[Offer, ...], force: bool) -> Outcome:
        backoff = Backoff(self._client.habits.tempo, first=0.2)
        while True:
            try:
                return await self._settle(offers, force)
            except _LASTING:
                raise
            except TROUBLE as failed:
                await self._wait_out(failed, backoff)

    async def _wait_out(self, failed: Exception, backoff: Backoff) -> None:
        self.tally.failures += 1
        if not isinstance(failed, Conflict):
            self._ways.log.warning("publishing has to wait", driver=self._home.driver, why=str(failed))
        await backoff.wait((failed.retry_after or 0.0) if isinstance(failed, ApiError) else 0.0)

    async def _settle(self, offers: tuple[Offer, ...], force: bool) -> Outcome:
        standing = await self._slices.standing()
        home = replace(self._home, owner=await self._slices.owner(self._home.node))
        plans = self._plans(offers, home, standing, force)
        if self._may_taint and await self._refuses_our_taint(plans):
            self._may_taint = False
            plans = self._plans(offers, home, standing, force)
        await self._slices.prove(plans)
        self._left = await self._slices.write(plans)
        outcome = Outcome(
            sum(len(each.creates) for each in plans),
            sum(len(each.updates) for each in plans),
            sum(len(each.deletes) for each in plans),
            self._gone,
        )
        self.tally.add(outcome)
        return outcome

    async def _refuses_our_taint(self, plans: Sequence[Plan]) -> bool:
        """Whether the server drops taints, and the only ones are those of devices that are gone."""
        lost = await self._slices.rehearse(plans, {_TAINTS}) if self._gone else ()
        own = {name for _pool, name in self._gone}
        return bool(lost) and all(each.gate == _TAINTS and each.device in own for each in lost)

    def _is_mine(self, each: ResourceSlice) -> bool:
        return each.metadata.labels.get(PUBLISHER) == self._home.publisher

    def _plans(
        self, offers: Sequence[Offer], home: Home, standing: Sequence[ResourceSlice], force: bool
    ) -> list[Plan]:
        by_pool: dict[str, list[ResourceSlice]] = {}
        for each in standing:
            by_pool.setdefault(each.spec.pool.name, []).append(each)
        wanted = {offer.name: offer for offer in offers}
        for name, slices in by_pool.items():
            if name not in wanted and any(map(self._is_mine, slices)):
                mine = by_pool[name] = [each for each in slices if self._is_mine(each)]
                wanted[name] = left_over(mine)
        for name, left in self._left.items():
            if left and name not in wanted and name not in by_pool:  # somebody took all of it away
                wanted[name] = left_over(tuple(left.values()))
        used = frozenset() if force else frozenset(self._ways.in_use())
        plans, gone = [], []
        for name, offer in wanted.items():
            slices = by_pool.get(name, [])
            self._refuse_taken(name, slices)
            before = self._left.get(name)
            # What somebody took away is looked at as it was left, for devices that must stay.
            known = {**(before or {}), **{each.metadata.name: each for each in slices}}
            in_use = {device for pool, device in used if pool == name}
            kept = with_gone(offer, tuple(known.values()), in_use, self._may_taint)
            told = {device.name for device in offer.devices}
            gone += [(name, device.name) for device in kept.devices if device.name not in told]
            plans.append(planned(kept, home, slices, None if before is None else tuple(before.values())))
        self._gone = tuple(gone)
        return plans

    def _refuse_taken(self, pool: str, slices: Sequence[ResourceSlice]) -> None:
        others = {each.metadata.labels.get(PUBLISHER, self._home.publisher) for each in slices}
        others.discard(self._home.publisher)
        if others:
            raise PoolTaken(
                f"pool `{pool}` of driver `{self._home.driver}` is published by `{min(others)}`, and "
                f"`{self._home.publisher}` wants to publish it too; give one of the pools another name"
            )


__all__ = ["GONE", "FieldDropped", "Outcome", "PoolTaken", "Publisher", "Tally", "Ways"]
