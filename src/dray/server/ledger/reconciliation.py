"""Ledger and claims compared on a running store, and the ledger written anew where it differs.

Theory of operation: the cache gives one consistent moment; reading and comparing it takes a thread, so that
a server goes on answering. A repair writes one row at a time, each only if the row and the claims it follows
from are still as they were seen; what changed meanwhile is looked at again in the next round. Sums of
counters follow from rows of devices, so they are repaired a round later.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Final

from dray.api.kinds import known_kind
from dray.claims.ledger.audit import Finding, Flaw, Snapshot, Standing, examine
from dray.claims.ledger.published_devices import NOWHERE, Published, pool_of, published, read_slice
from dray.claims.ledger.rows import DEVICES, LEDGER, Covered, DeviceRow, Holder, Holding, device_at, read_row
from dray.claims.ledger.stored_claims import may_be_allocated, read_claim
from dray.errors import DecodeError
from dray.server.ledger.admission import CLAIMS, PREPARATIONS
from dray.server.objects.stored_object import Held
from dray.server.watch.cache import Cache
from dray.store import Committed, Compare, Delete, Entry, Put, Store, Unchanged

ROUNDS: Final = 5

Progress = Callable[[str, int, int], None]
"""Called with what is being done, how much of it is done, and how much there is."""


@dataclass(frozen=True, slots=True)
class Report:
    """What was compared and what differs."""

    revision: int
    claims: int
    preparations: int
    rows: int
    findings: tuple[Finding, ...] = ()
    repaired: tuple[Finding, ...] = ()

    @property
    def agrees(self) -> bool:
        return not self.findings

    def document(self) -> dict[str, Any]:
        """The report as plain values, for machines."""
        return {
            "kind": "LedgerReport",
            "revision": self.revision,
            "claims": self.claims,
            "preparations": self.preparations,
            "rows": self.rows,
            "agrees": self.agrees,
            "findings": [_told(finding) for finding in self.findings],
            "repaired": [_told(finding) for finding in self.repaired],
        }


def _told(finding: Finding) -> dict[str, Any]:
    return {
        "flaw": finding.flaw.value,
        "place": finding.place,
        "message": finding.message,
        "repairable": finding.repairable,
    }


def _silent(what: str, done: int, total: int) -> None:
    """Nobody watches."""


@dataclass
class _Moment:
    """The cache at one moment: references to what is never changed."""

    revision: int
    claims: list[Held]
    preparations: list[Held]
    slices: list[Held]
    rows: list[Entry]
    _pools: dict[tuple[str, str], list[Held]] | None = field(default=None)

    @classmethod
    def of(cls, cache: Cache) -> _Moment:
        slices = known_kind("resource.k8s.io", "ResourceSlice")
        return cls(
            cache.revision,
            cache.all(CLAIMS),
            cache.all(PREPARATIONS),
            cache.all(slices),
            cache.rows(LEDGER),
        )

    def catalogue(self, pool: tuple[str, str]) -> Published:
        """What is published of a pool; slices are only read when somebody asks."""
        if self._pools is None:
            self._pools = {}
            for held in self.slices:
                self._pools.setdefault(pool_of(held.value), []).append(held)
        found = self._pools.get(pool)
        if not found:
            return NOWHERE
        return published(((held.key, held.revision), read_slice(held.value)) for held in found)

    def examined(self, progress: Progress) -> Report:
        claims = []
        for done, held in enumerate(self.claims):
            if done % 1000 == 0:
                progress("reading claims", done, len(self.claims))
            if may_be_allocated(held.value):
                claims.append(((held.key, held.revision), read_claim(held.value)))
        standing = [_standing(held) for held in self.preparations]
        progress("comparing rows", 0, len(self.rows))
        snapshot = Snapshot(claims, standing, {entry.key: entry.value for entry in self.rows})
        findings = examine(snapshot, self.catalogue)
        progress("comparing rows", len(self.rows), len(self.rows))
        return Report(self.revision, len(self.claims), len(standing), len(self.rows), tuple(findings))


def _standing(held: Held) -> Standing:
    spec = held.view.spec
    holder = Holder(namespace=spec.claim.namespace, name=spec.claim.name, uid=spec.claim.uid)
    found = tuple(
        Covered(driver=each.driver, pool=each.pool, device=each.device, share=each.share_id)
        for each in spec.devices
    )
    return Standing(held.name, spec.node_name, holder, (held.key, held.revision), found)


async def audit(cache: Cache, progress: Progress = _silent) -> Report:
    """Compare the ledger with the claims as they are now."""
    return (await _audited(cache, progress))[1]


async def _audited(cache: Cache, progress: Progress) -> tuple[_Moment, Report]:
    await cache.caught_up()
    moment = _Moment.of(cache)
    return moment, await asyncio.to_thread(moment.examined, progress)


async def repair(store: Store, cache: Cache, progress: Progress = _silent) -> Report:
    """Write the rows that differ anew; what still differs afterwards is in the report."""
    repaired: list[Finding] = []
    for _ in range(ROUNDS):
        moment, report = await _audited(cache, progress)
        wrong = [finding for finding in report.findings if finding.repairable]
        # A sum is right once the rows of the devices are.
        if any(finding.key.startswith(DEVICES) for finding in wrong):
            wrong = [finding for finding in wrong if finding.flaw is not Flaw.COUNTERS]
        if not wrong:
            break
        revisions = {entry.key: entry.mod_revision for entry in moment.rows}
        for done, finding in enumerate(wrong):
            progress("repairing rows", done, len(wrong))
            if await _rewritten(store, finding, revisions.get(finding.key, 0)):
                repaired.append(finding)
    return replace(await audit(cache, progress), repaired=tuple(repaired))


async def _rewritten(store: Store, finding: Finding, seen: int) -> bool:
    """Write one row as it should be, unless it or something it follows from has changed since it was seen."""
    compares: list[Compare] = [Unchanged(finding.key, seen)]
    compares += [Unchanged(*source) for source in finding.involved]
    write = Delete(finding.key) if finding.wanted is None else Put(finding.key, finding.wanted)
    return isinstance(await store.txn(compares, [write]), Committed)


def entries(cache: Cache, node: str = "") -> list[dict[str, Any]]:
    """Who holds which device, for people: of all devices, or of those that are in the hands of one node."""
    found: list[dict[str, Any]] = []
    for entry in cache.rows(DEVICES):
        device = str(device_at(entry.key))
        try:
            row: DeviceRow = read_row(entry.key, entry.value)
        except DecodeError as broken:
            if not node:
                found.append({"device": device, "holders": [], "unreadable": str(broken)})
            continue
        if not node or any(node in holding.prepared.values() for holding in row.holdings):
            found.append({"device": device, "holders": [_shown(holding) for holding in row.holdings]})
    return found


def _shown(holding: Holding) -> dict[str, Any]:
    return {
        "claim": str(holding.holder),
        "uid": holding.holder.uid,
        "share": holding.share,
        "amounts": {name: str(amount) for name, amount in (holding.amounts or {}).items()},
        "nodes": sorted(set(holding.prepared.values())),
        "quarantined": holding.gone,
    }
