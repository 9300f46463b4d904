"""After a restore: whom devices wait for, told to the guard and to whoever asks, and the end of it.

Theory of operation: the mark that a restore leaves in the store is looked up with every grant; where there is
none, or it is settled, that is all. While it is open, nodes are looked at as the cache shows them. Those that
have said what they have stay known, so that each look costs as much as there are nodes still awaited. A
server that starts with an open mark gives nodes which its copy does not know a time to come; when that is
over and nobody is awaited, it settles the mark.

`GET /dray/restored` says from which restore the server goes on, to whoever may ask anything at all: agents
compare it with what they noted. `GET /dray/restored/nodes` says who is awaited, `POST /dray/restored/settle`
ends the waiting by an administrator's word.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from typing import Any, Final

from msgspec.structs import replace

from dray.api.kinds import known_kind
from dray.api.preparation import ACCOUNTED, RESTORED_PAGE
from dray.claims.ledger import restore_marker
from dray.claims.ledger.denials import Denial
from dray.claims.ledger.published_devices import Published
from dray.claims.ledger.restore_marker import Restored
from dray.claims.ledger.rows import DeviceId
from dray.clock import Clock, timestamp
from dray.server.http.endpoints import Page
from dray.server.http.requests import Answer, Request, json_answer
from dray.server.watch.cache import Cache
from dray.store import Committed, Put, Store, Unchanged
from dray.store.errors import StoreError
from dray.telemetry.logs import Log

NODES: Final = f"{RESTORED_PAGE}/nodes"
SETTLE: Final = f"{RESTORED_PAGE}/settle"
_LOOK_SECONDS: Final = 0.5

_NODE = known_kind("", "Node")
_PREPARATION = known_kind("dray.dev", "Preparation")
_NOTED = f'"{ACCOUNTED}":"'.encode()


class Aftermath:
    """What is open after a restore. `patience` seconds are given to nodes that the copy does not know."""

    def __init__(self, cache: Cache, clock: Clock, patience: float) -> None:
        self._cache = cache
        self._clock = clock
        self._patience = patience
        self._since = clock.monotonic()
        self._read: tuple[int, Restored] | None = None
        self._done: set[str] = set()
        """Nodes that have said what they have since the restore of `_read`."""

    @property
    def mark(self) -> Restored | None:
        """The mark of the last restore."""
        entry = self._cache.row(restore_marker.KEY)
        if entry is None:
            return None
        if self._read is None or self._read[0] != entry.mod_revision:
            self._read = entry.mod_revision, restore_marker.read_mark(entry.value)
            self._done.clear()
        return self._read[1]

    @property
    def is_open(self) -> bool:
        """Whether somebody may have devices of which the store does not know."""
        mark = self.mark
        return mark is not None and not mark.settled

    @property
    def left(self) -> float:
        """Seconds in which nodes may come that the copy does not know."""
        return max(0.0, self._since + self._patience - self._clock.monotonic())

    def awaited(self) -> frozenset[str]:
        """Nodes that have not said since the last restore what they have."""
        mark = self.mark
        if mark is None:
            return frozenset()
        waiting = restore_marker.awaited(self._noted(mark), self._preparing(), mark)
        return waiting - self._done

    def has_accounted(self, node: str) -> bool:
        """Whether a node has nothing more to say: it has spoken since the last restore, or there was none."""
        mark = self.mark
        held = self._cache.get(_NODE, "", node)
        if mark is None:
            return True
        return held is not None and held.metadata.annotations.get(ACCOUNTED) == mark.id

    def no_grant(self, device: DeviceId, pool: Published, position: int = 0) -> Denial | None:
        """Why a device cannot change hands now."""
        facts = pool.devices.get(device.device)
        of_node = "" if facts is None else facts.node
        early = self.left > 0
        return restore_marker.no_grant(device, of_node, self.awaited(), early=early, position=position)

    def _noted(self, mark: Restored) -> Iterator[tuple[str, str]]:
        for held in self._cache.all(_NODE):
            if held.name not in self._done and _NOTED in held.value:
                noted = held.metadata.annotations.get(ACCOUNTED, "")
                if noted == mark.id:
                    self._done.add(held.name)
                yield held.name, noted

    def _preparing(self) -> Iterator[str]:
        for held in self._cache.all(_PREPARATION):
            yield held.view.spec.node_name

    # --- the end of it ---

    async def settle(self, store: Store, *, log: Log) -> None:
        """Settle an open mark when nobody is awaited any more; the owner runs this as a task."""
        told: frozenset[str] | None = None
        while self.is_open:
            waiting = self.awaited()
            if not waiting and not self.left:
                try:
                    await self._settled(store)
                    log.info("every node has said what it has since the restore; devices are given as usual")
                except StoreError:
                    pass  # a store in trouble is told by everything else that needs it
            elif waiting != told:
                log.info("nodes have yet to say what they have since the restore", nodes=sorted(waiting))
                told = waiting
            await asyncio.sleep(_LOOK_SECONDS)

    async def _settled(self, store: Store) -> None:
        await self._cache.caught_up()
        entry, mark = self._cache.row(restore_marker.KEY), self.mark
        if entry is None or mark is None or mark.settled:
            return
        settled = restore_marker.mark_bytes(replace(mark, settled=timestamp(self._clock.now())))
        outcome = await store.txn([Unchanged(entry.key, entry.mod_revision)], [Put(entry.key, settled)])
        if isinstance(outcome, Committed):
            await self._cache.reached(outcome.revision)

    # --- pages ---

    def pages(self, store: Store) -> Mapping[tuple[str, str], Page]:
        """Every page by method and path."""

        async def told(request: Request) -> Answer:
            await self._cache.caught_up()
            return json_answer(self._told())

        async def nodes(request: Request) -> Answer:
            await self._cache.caught_up()
            return json_answer(self._told_all())

        async def settle(request: Request) -> Answer:
            await self._settled(store)
            return json_answer(self._told_all())

        return {("get", RESTORED_PAGE): told, ("get", NODES): nodes, ("post", SETTLE): settle}

    def _told(self) -> dict[str, Any]:
        mark = self.mark
        if mark is None:
            return {"kind": "Restored", "id": ""}
        return {"kind": "Restored", "id": mark.id, "at": mark.at, "settled": mark.settled}

    def _told_all(self) -> dict[str, Any]:
        seconds = round(self.left, 1) if self.is_open else 0
        return self._told() | {"awaited": sorted(self.awaited()), "seconds": seconds}
