"""Reconciliation: compares the ledger with the claims on a running store, and repairs the rows that differ.

Theory of operation: a snapshot of the cache is consistent; it is compared in a thread, so that the server
goes on answering. A repair writes one row at a time, and only if the row and the claims it follows from are
unchanged; what changed meanwhile is compared again in the next round. The sums of counters follow from the
rows of devices, so they are repaired one round later.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Final

from dray.claims.ledger.audit import (
    ActivePreparation,
    LedgerFinding,
    LedgerFlaw,
    LedgerSnapshot,
    audit_ledger,
)
from dray.claims.ledger.published_devices import EMPTY_POOL, PublishedPool, read_pool_id
from dray.claims.ledger.rows import (
    DEVICE_PREFIX,
    LEDGER_PREFIX,
    CoveredDevice,
    DeviceRow,
    Holder,
    Holding,
    parse_device_key,
    read_row,
)
from dray.claims.ledger.stored_claims import may_be_allocated, read_claim
from dray.errors import DecodeError
from dray.server.ledger.admission import CLAIMS, PREPARATIONS, SLICES
from dray.server.ledger.published_pools import build_pool
from dray.server.objects.stored_object import StoredObject
from dray.server.watch.cache import WatchCache
from dray.store import Committed, Compare, Delete, KeyUnchanged, Put, Store, StoreEntry

MAX_REPAIR_ROUNDS: Final = 5

ProgressCallback = Callable[[str, int, int], None]
"""Called with the name of the step, how much of it is done, and how much there is."""


@dataclass(frozen=True, slots=True)
class LedgerReport:
    """What was compared, and what differs."""

    revision: int
    claims: int
    preparations: int
    rows: int
    findings: tuple[LedgerFinding, ...] = ()
    repaired: tuple[LedgerFinding, ...] = ()

    @property
    def is_consistent(self) -> bool:
        return not self.findings

    def to_document(self) -> dict[str, Any]:
        """The report as plain values."""
        return {
            "kind": "LedgerReport",
            "revision": self.revision,
            "claims": self.claims,
            "preparations": self.preparations,
            "rows": self.rows,
            "agrees": self.is_consistent,
            "findings": [_finding_to_document(finding) for finding in self.findings],
            "repaired": [_finding_to_document(finding) for finding in self.repaired],
        }


def _finding_to_document(finding: LedgerFinding) -> dict[str, Any]:
    return {
        "flaw": finding.flaw.value,
        "place": finding.row_name,
        "message": finding.message,
        "repairable": finding.repairable,
    }


def _ignore_progress(what: str, done: int, total: int) -> None:
    """Do nothing: the default when nobody shows progress."""


@dataclass
class _CacheSnapshot:
    """The contents of the cache at one revision; they are immutable, so references suffice."""

    revision: int
    claims: list[StoredObject]
    preparations: list[StoredObject]
    slices: list[StoredObject]
    rows: list[StoreEntry]
    _pools: dict[tuple[str, str], list[StoredObject]] | None = field(default=None)

    @classmethod
    def from_cache(cls, cache: WatchCache) -> _CacheSnapshot:
        return cls(
            cache.revision,
            cache.list_objects(CLAIMS),
            cache.list_objects(PREPARATIONS),
            cache.list_objects(SLICES),
            cache.list_rows(LEDGER_PREFIX),
        )

    def find_pool(self, pool: tuple[str, str]) -> PublishedPool:
        """The published pool; slices are only decoded for pools that are read."""
        if self._pools is None:
            self._pools = {}
            for stored in self.slices:
                self._pools.setdefault(read_pool_id(stored.value), []).append(stored)
        slices = self._pools.get(pool)
        return build_pool(slices) if slices else EMPTY_POOL

    def build_report(self, progress: ProgressCallback) -> LedgerReport:
        claims = []
        for done, stored in enumerate(self.claims):
            if done % 1000 == 0:
                progress("reading claims", done, len(self.claims))
            if may_be_allocated(stored.value):
                claims.append(((stored.key, stored.revision), read_claim(stored.value)))
        active = [_read_preparation(stored) for stored in self.preparations]
        progress("comparing rows", 0, len(self.rows))
        snapshot = LedgerSnapshot(claims, active, {entry.key: entry.value for entry in self.rows})
        findings = audit_ledger(snapshot, self.find_pool)
        progress("comparing rows", len(self.rows), len(self.rows))
        return LedgerReport(self.revision, len(self.claims), len(active), len(self.rows), tuple(findings))


def _read_preparation(stored: StoredObject) -> ActivePreparation:
    spec = stored.view.spec
    holder = Holder(namespace=spec.claim.namespace, name=spec.claim.name, uid=spec.claim.uid)
    devices = tuple(
        CoveredDevice(driver=each.driver, pool=each.pool, device=each.device, share=each.share_id)
        for each in spec.devices
    )
    return ActivePreparation(stored.name, spec.node_name, holder, (stored.key, stored.revision), devices)


async def audit_cached_ledger(
    cache: WatchCache, progress: ProgressCallback = _ignore_progress
) -> LedgerReport:
    """Compare the ledger with the current claims."""
    return (await _audit_snapshot(cache, progress))[1]


async def _audit_snapshot(
    cache: WatchCache, progress: ProgressCallback
) -> tuple[_CacheSnapshot, LedgerReport]:
    await cache.wait_until_fresh()
    snapshot = _CacheSnapshot.from_cache(cache)
    return snapshot, await asyncio.to_thread(snapshot.build_report, progress)


async def repair_ledger(
    store: Store, cache: WatchCache, progress: ProgressCallback = _ignore_progress
) -> LedgerReport:
    """Rewrite the rows that differ; the report has what still differs afterwards."""
    repaired: list[LedgerFinding] = []
    for _ in range(MAX_REPAIR_ROUNDS):
        snapshot, report = await _audit_snapshot(cache, progress)
        repairable = [finding for finding in report.findings if finding.repairable]
        # Sums of counters are only correct once the rows of the devices are.
        if any(finding.key.startswith(DEVICE_PREFIX) for finding in repairable):
            repairable = [finding for finding in repairable if finding.flaw is not LedgerFlaw.COUNTERS]
        if not repairable:
            break
        revisions = {entry.key: entry.mod_revision for entry in snapshot.rows}
        for done, finding in enumerate(repairable):
            progress("repairing rows", done, len(repairable))
            if await _rewrite_row(store, finding, revisions.get(finding.key, 0)):
                repaired.append(finding)
    return replace(await audit_cached_ledger(cache, progress), repaired=tuple(repaired))


async def _rewrite_row(store: Store, finding: LedgerFinding, seen_revision: int) -> bool:
    """Rewrite one row, unless it or something it follows from has changed since the snapshot."""
    compares: list[Compare] = [KeyUnchanged(finding.key, seen_revision)]
    compares += [KeyUnchanged(*source) for source in finding.involved]
    write = Delete(finding.key) if finding.expected is None else Put(finding.key, finding.expected)
    return isinstance(await store.txn(compares, [write]), Committed)


def list_held_devices(cache: WatchCache, node: str = "") -> list[dict[str, Any]]:
    """The holders of each device: of all devices, or of those that one node has prepared."""
    found: list[dict[str, Any]] = []
    for entry in cache.list_rows(DEVICE_PREFIX):
        device = str(parse_device_key(entry.key))
        try:
            row: DeviceRow = read_row(entry.key, entry.value)
        except DecodeError as error:
            if not node:
                found.append({"device": device, "holders": [], "unreadable": str(error)})
            continue
        if not node or any(node in holding.prepared.values() for holding in row.holdings):
            found.append(
                {"device": device, "holders": [_holding_to_document(holding) for holding in row.holdings]}
            )
    return found


def _holding_to_document(holding: Holding) -> dict[str, Any]:
    return {
        "claim": str(holding.holder),
        "uid": holding.holder.uid,
        "share": holding.share,
        "amounts": {name: str(amount) for name, amount in (holding.amounts or {}).items()},
        "nodes": sorted(set(holding.prepared.values())),
        "quarantined": holding.gone,
    }
