"""The quarantine after a restore: which nodes have not reported their devices yet, and when it ends.

Theory of operation: a restore leaves a marker in the store, which ledger admission reads with every grant.
The quarantine is open while there is a marker that is not settled. Nodes that have reported since the restore
are remembered, so that each check costs as much as there are nodes left. A server that starts with an open
marker waits for a grace period for nodes that the backup does not contain; when that is over and all nodes
have reported, it settles the marker.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, Final

from msgspec.structs import replace

from dray.api.kinds import get_kind
from dray.api.preparation import ACCOUNTED_ANNOTATION
from dray.claims.ledger import restore_marker
from dray.claims.ledger.denials import Denial
from dray.claims.ledger.published_devices import PublishedPool
from dray.claims.ledger.restore_marker import RestoreMarker
from dray.claims.ledger.rows import DeviceId
from dray.clock import Clock, format_timestamp
from dray.server.watch.cache import WatchCache
from dray.store import Committed, KeyUnchanged, Put, Store
from dray.store.errors import StoreError
from dray.telemetry.logs import StructuredLogger

_POLL_SECONDS: Final = 0.5

_NODE = get_kind("", "Node")
_PREPARATION = get_kind("dray.dev", "Preparation")
_ACCOUNTED_BYTES = f'"{ACCOUNTED_ANNOTATION}":"'.encode()


class RestoreQuarantine:
    """The state after a restore. Nodes that the backup lacks have `grace_seconds` to report."""

    def __init__(self, cache: WatchCache, clock: Clock, grace_seconds: float) -> None:
        self._cache = cache
        self._clock = clock
        self._grace_seconds = grace_seconds
        self._started = clock.monotonic()
        self._cached_mark: tuple[int, RestoreMarker] | None = None
        self._accounted_nodes: set[str] = set()
        """Nodes that have reported since the restore of `_cached_mark`."""

    @property
    def mark(self) -> RestoreMarker | None:
        """The marker of the last restore; None when there was none."""
        entry = self._cache.get_row(restore_marker.MARKER_KEY)
        if entry is None:
            return None
        if self._cached_mark is None or self._cached_mark[0] != entry.mod_revision:
            self._cached_mark = entry.mod_revision, restore_marker.decode_marker(entry.value)
            self._accounted_nodes.clear()
        return self._cached_mark[1]

    @property
    def is_open(self) -> bool:
        """Whether nodes may have devices that the store does not know of."""
        mark = self.mark
        return mark is not None and not mark.settled

    @property
    def remaining_seconds(self) -> float:
        """The seconds left for nodes that the backup does not contain."""
        return max(0.0, self._started + self._grace_seconds - self._clock.monotonic())

    def list_awaited_nodes(self) -> frozenset[str]:
        """Nodes that have not reported since the last restore."""
        mark = self.mark
        if mark is None:
            return frozenset()
        waiting = restore_marker.find_awaited_nodes(
            self._list_accounted_nodes(mark), self._list_preparing_nodes(), mark
        )
        return waiting - self._accounted_nodes

    def has_accounted(self, node: str) -> bool:
        """Whether a node has reported since the last restore, or there was none."""
        mark = self.mark
        stored = self._cache.get(_NODE, "", node)
        if mark is None:
            return True
        return stored is not None and stored.metadata.annotations.get(ACCOUNTED_ANNOTATION) == mark.id

    def deny_grant(self, device: DeviceId, pool: PublishedPool, position: int = 0) -> Denial | None:
        """Why a device cannot be allocated now; None when it can."""
        facts = pool.devices.get(device.device)
        of_node = "" if facts is None else facts.node
        early = self.remaining_seconds > 0
        return restore_marker.deny_until_reported(
            device, of_node, self.list_awaited_nodes(), early=early, position=position
        )

    def _list_accounted_nodes(self, mark: RestoreMarker) -> Iterator[tuple[str, str]]:
        for stored in self._cache.list_objects(_NODE):
            if stored.name not in self._accounted_nodes and _ACCOUNTED_BYTES in stored.value:
                noted = stored.metadata.annotations.get(ACCOUNTED_ANNOTATION, "")
                if noted == mark.id and stored.revision > 0:  # a staged write may never be committed
                    self._accounted_nodes.add(stored.name)
                yield stored.name, noted

    def _list_preparing_nodes(self) -> Iterator[str]:
        for stored in self._cache.list_objects(_PREPARATION):
            yield stored.view.spec.node_name

    async def run_until_settled(self, store: Store, *, log: StructuredLogger) -> None:
        """Settle an open marker when all nodes have reported; the owner runs this as a task."""
        logged: frozenset[str] | None = None
        while self.is_open:
            waiting = self.list_awaited_nodes()
            if not waiting and not self.remaining_seconds:
                try:
                    await self.settle(store)
                    log.info("every node has reported its devices since the restore; the quarantine ends")
                except StoreError:
                    pass  # requests and the cache report a store that does not answer
            elif waiting != logged:
                log.info("nodes have not reported their devices since the restore", nodes=sorted(waiting))
                logged = waiting
            await asyncio.sleep(_POLL_SECONDS)

    async def settle(self, store: Store) -> None:
        """End the quarantine: write the marker as settled."""
        await self._cache.wait_until_fresh()
        entry, mark = self._cache.get_row(restore_marker.MARKER_KEY), self.mark
        if entry is None or mark is None or mark.settled:
            return
        settled = restore_marker.encode_marker(replace(mark, settled=format_timestamp(self._clock.now())))
        outcome = await store.txn([KeyUnchanged(entry.key, entry.mod_revision)], [Put(entry.key, settled)])
        if isinstance(outcome, Committed):
            await self._cache.wait_for_revision(outcome.revision)

    def build_summary(self) -> dict[str, Any]:
        """The last restore as a document."""
        mark = self.mark
        if mark is None:
            return {"kind": "Restored", "id": ""}
        return {"kind": "Restored", "id": mark.id, "at": mark.at, "settled": mark.settled}

    def build_node_summary(self) -> dict[str, Any]:
        """The last restore with the nodes that have not reported, as a document."""
        seconds = round(self.remaining_seconds, 1) if self.is_open else 0
        return self.build_summary() | {"awaited": sorted(self.list_awaited_nodes()), "seconds": seconds}
