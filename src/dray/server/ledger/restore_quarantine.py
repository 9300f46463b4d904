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

from dray.api.kinds import get_kind
from dray.api.preparation import ACCOUNTED_ANNOTATION, RESTORED_PATH
from dray.claims.ledger import restore_marker
from dray.claims.ledger.denials import Denial
from dray.claims.ledger.published_devices import PublishedPool
from dray.claims.ledger.restore_marker import RestoreMarker
from dray.claims.ledger.rows import DeviceId
from dray.clock import Clock, format_timestamp
from dray.server.http.endpoints import Endpoint
from dray.server.http.requests import ApiRequest, ApiResponse, build_json_response
from dray.server.watch.cache import WatchCache
from dray.store import Committed, KeyUnchanged, Put, Store
from dray.store.errors import StoreError
from dray.telemetry.logs import StructuredLogger

NODES_PATH: Final = f"{RESTORED_PATH}/nodes"
SETTLE_PATH: Final = f"{RESTORED_PATH}/settle"
_POLL_SECONDS: Final = 0.5

_NODE = get_kind("", "Node")
_PREPARATION = get_kind("dray.dev", "Preparation")
_ACCOUNTED_BYTES = f'"{ACCOUNTED_ANNOTATION}":"'.encode()


class RestoreQuarantine:
    """What is open after a restore. Nodes that the backup lacks get `grace_seconds` to report."""

    def __init__(self, cache: WatchCache, clock: Clock, grace_seconds: float) -> None:
        self._cache = cache
        self._clock = clock
        self._grace_seconds = grace_seconds
        self._started = clock.monotonic()
        self._cached_mark: tuple[int, RestoreMarker] | None = None
        self._accounted_nodes: set[str] = set()
        """Nodes that have said what they have since the restore of `_cached_mark`."""

    @property
    def mark(self) -> RestoreMarker | None:
        """The mark of the last restore."""
        entry = self._cache.get_row(restore_marker.MARKER_KEY)
        if entry is None:
            return None
        if self._cached_mark is None or self._cached_mark[0] != entry.mod_revision:
            self._cached_mark = entry.mod_revision, restore_marker.decode_marker(entry.value)
            self._accounted_nodes.clear()
        return self._cached_mark[1]

    @property
    def is_open(self) -> bool:
        """Whether somebody may have devices of which the store does not know."""
        mark = self.mark
        return mark is not None and not mark.settled

    @property
    def remaining_seconds(self) -> float:
        """Seconds in which nodes may come that the copy does not know."""
        return max(0.0, self._started + self._grace_seconds - self._clock.monotonic())

    def list_awaited_nodes(self) -> frozenset[str]:
        """Nodes that have not said since the last restore what they have."""
        mark = self.mark
        if mark is None:
            return frozenset()
        waiting = restore_marker.find_awaited_nodes(
            self._list_accounted_nodes(mark), self._list_preparing_nodes(), mark
        )
        return waiting - self._accounted_nodes

    def has_accounted(self, node: str) -> bool:
        """Whether a node has nothing more to say: it has spoken since the last restore, or there was none."""
        mark = self.mark
        held = self._cache.get(_NODE, "", node)
        if mark is None:
            return True
        return held is not None and held.metadata.annotations.get(ACCOUNTED_ANNOTATION) == mark.id

    def deny_grant(self, device: DeviceId, pool: PublishedPool, position: int = 0) -> Denial | None:
        """Why a device cannot change hands now."""
        facts = pool.devices.get(device.device)
        of_node = "" if facts is None else facts.node
        early = self.remaining_seconds > 0
        return restore_marker.deny_until_reported(
            device, of_node, self.list_awaited_nodes(), early=early, position=position
        )

    def _list_accounted_nodes(self, mark: RestoreMarker) -> Iterator[tuple[str, str]]:
        for held in self._cache.list_objects(_NODE):
            if held.name not in self._accounted_nodes and _ACCOUNTED_BYTES in held.value:
                noted = held.metadata.annotations.get(ACCOUNTED_ANNOTATION, "")
                if noted == mark.id:
                    self._accounted_nodes.add(held.name)
                yield held.name, noted

    def _list_preparing_nodes(self) -> Iterator[str]:
        for held in self._cache.list_objects(_PREPARATION):
            yield held.view.spec.node_name

    # --- the end of it ---

    async def run_until_settled(self, store: Store, *, log: StructuredLogger) -> None:
        """Settle an open mark when nobody is awaited any more; the owner runs this as a task."""
        told: frozenset[str] | None = None
        while self.is_open:
            waiting = self.list_awaited_nodes()
            if not waiting and not self.remaining_seconds:
                try:
                    await self._settle_mark(store)
                    log.info("every node has said what it has since the restore; devices are given as usual")
                except StoreError:
                    pass  # a store in trouble is told by everything else that needs it
            elif waiting != told:
                log.info("nodes have yet to say what they have since the restore", nodes=sorted(waiting))
                told = waiting
            await asyncio.sleep(_POLL_SECONDS)

    async def _settle_mark(self, store: Store) -> None:
        await self._cache.wait_until_fresh()
        entry, mark = self._cache.get_row(restore_marker.MARKER_KEY), self.mark
        if entry is None or mark is None or mark.settled:
            return
        settled = restore_marker.encode_marker(replace(mark, settled=format_timestamp(self._clock.now())))
        outcome = await store.txn([KeyUnchanged(entry.key, entry.mod_revision)], [Put(entry.key, settled)])
        if isinstance(outcome, Committed):
            await self._cache.wait_for_revision(outcome.revision)

    # --- pages ---

    def build_endpoints(self, store: Store) -> Mapping[tuple[str, str], Endpoint]:
        """Every page by method and path."""

        async def told(request: ApiRequest) -> ApiResponse:
            await self._cache.wait_until_fresh()
            return build_json_response(self._build_summary())

        async def nodes(request: ApiRequest) -> ApiResponse:
            await self._cache.wait_until_fresh()
            return build_json_response(self._build_node_summary())

        async def settle(request: ApiRequest) -> ApiResponse:
            await self._settle_mark(store)
            return build_json_response(self._build_node_summary())

        return {("get", RESTORED_PATH): told, ("get", NODES_PATH): nodes, ("post", SETTLE_PATH): settle}

    def _build_summary(self) -> dict[str, Any]:
        mark = self.mark
        if mark is None:
            return {"kind": "Restored", "id": ""}
        return {"kind": "Restored", "id": mark.id, "at": mark.at, "settled": mark.settled}

    def _build_node_summary(self) -> dict[str, Any]:
        seconds = round(self.remaining_seconds, 1) if self.is_open else 0
        return self._build_summary() | {"awaited": sorted(self.list_awaited_nodes()), "seconds": seconds}
