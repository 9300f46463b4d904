"""The ledger of the guard: the rows of all claims that are stored, and of writes that were admitted.

Theory of operation: a claim holds what its stored allocation holds and what was admitted for it and has not
been seen yet (`admitted`). From that, and from the published slices, the rows of the ledger follow, and
`dray.claims.ledger.grants` decides by them as it does inside dray's own server. A write is decided as if its
own claim had nothing but what the replaced revision has: what the same claim was admitted before cannot be
stored beside it.

What a device draws from counters follows the slices as they are published now, so that every leader computes
the same. A device whose slice is withdrawn keeps what it drew last.

A claim that is deleted while it is allocated and reserved for pods (somebody removed its finalizer) keeps its
devices until `release` is called, because the pods may still use them.

Rules for this file: no I/O and no clock. Whoever calls it is the only one that does.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from dray.claims.ledger import denials as ledger_denials
from dray.claims.ledger import grants
from dray.claims.ledger.denials import Denial, DenialReason
from dray.claims.ledger.grants import LedgerTransaction
from dray.claims.ledger.published_devices import StoredSlice
from dray.claims.ledger.published_pools import PoolId, PublishedPoolIndex
from dray.claims.ledger.rows import AnyRow, CounterSetId, DeviceId, DeviceRow, Holder, read_row
from dray.guard.admitted import AdmittedAllocation, AdmittedAllocations, HeldDevices
from dray.guard.conflicts import ConflictTracker, find_counter_conflict, find_device_conflict
from dray.guard.reviews import AllocationReview
from dray.guard.seen_objects import SeenClaim, SeenSlice
from dray.values.cache_bounds import CacheBound

COUNTER_POOLS: Final = CacheBound("pools that have published counters", 8_192, "the guard")


@dataclass(frozen=True, slots=True)
class AllocationVerdict:
    """What the ledger says to a write."""

    denials: tuple[Denial, ...] = ()
    stored_holders: tuple[Holder, ...] = ()
    """Claims whose stored allocation is in the way, as far as the watch has shown."""

    @property
    def is_granted(self) -> bool:
        return not self.denials


class AllocationLedger:
    """Who holds which device, by stored and admitted allocations."""

    def __init__(self) -> None:
        self.claims: dict[str, SeenClaim] = {}
        """The claims by uid."""
        self.orphans: dict[str, SeenClaim] = {}
        """Deleted claims whose pods may still use their devices."""
        self.admitted = AdmittedAllocations()
        self.conflicts = ConflictTracker()
        """What stored claims have twice."""
        self._rows: dict[bytes, bytes] = {}
        self._pools: PublishedPoolIndex[StoredSlice] = PublishedPoolIndex(lambda stored: stored)
        self._held_by_pool: dict[PoolId, dict[DeviceId, None]] = {}
        self._stale_pools: dict[PoolId, None] = {}
        self._counter_pools: dict[PoolId, None] = {}

    # --- what the watch shows ---

    def observe_claim(self, claim: SeenClaim) -> None:
        """Record a claim as it is stored."""
        uid = claim.holder.uid
        before = self._list_holdings(uid)
        self.claims[uid] = claim
        self.admitted.end(uid, claim.revision)
        self._replace_holdings(uid, before)

    def observe_deletion(self, claim: SeenClaim) -> None:
        """Record that a claim is deleted; `claim` is its last state."""
        uid = claim.holder.uid
        if not claim.holdings or not claim.pods:
            self.release(uid)
            return
        before = self._list_holdings(uid)
        self.claims[uid] = self.orphans[uid] = claim
        self.admitted.end(uid)
        self._replace_holdings(uid, before)

    def release(self, uid: str) -> None:
        """Free everything of a claim that does not exist any more."""
        before = self._list_holdings(uid)
        self.claims.pop(uid, None)
        self.orphans.pop(uid, None)
        self.admitted.end(uid)
        self._replace_holdings(uid, before)

    def expire(self, uid: str, deadline: float) -> None:
        """Free what was admitted for a claim before `deadline`, and can no longer be stored."""
        before = self._list_holdings(uid)
        self.admitted.expire(uid, deadline)
        self._replace_holdings(uid, before)

    def observe_slice(self, old: SeenSlice | None, new: SeenSlice | None) -> None:
        """Record that a slice is published, changed or withdrawn."""
        if old is not None:
            self._pools.remove(old.pool, old.source)
            self._stale_pools[old.pool] = None
        if new is not None:
            self._pools.put(new.pool, new.source, new.published)
            self._stale_pools[new.pool] = None
            if any(device.consumes_counters for device in new.published.spec.devices):
                self._counter_pools.pop(new.pool, None)
                COUNTER_POOLS.put(self._counter_pools, new.pool, None)

    # --- decisions ---

    def review(self, review: AllocationReview) -> AllocationVerdict:
        """Decide whether a write may be stored; nothing is recorded."""
        self._charge_stale_pools()
        holder, uid = review.holder, review.holder.uid
        results = review.allocated or ()
        transaction = LedgerTransaction(self._rows.get)
        grants.release_claim(transaction, uid, (device for device, _ in self._list_holdings(uid)))
        before = grants.list_holdings(holder, review.before)
        grants.record_holdings(transaction, before, self._pools)
        denied = grants.grant_allocation(transaction, holder, results, self._pools, review.node)
        known = {device for device, _ in before}
        for position, result in enumerate(results):
            device = grants.get_device_id(result)
            if not result.admin_access and device not in known and self._is_withdrawn(device):
                denied.append(ledger_denials.deny_withdrawn(device, position))
        if not denied:
            return AllocationVerdict()
        return AllocationVerdict(tuple(denied), tuple(self._find_stored_holders(denied, uid)))

    def is_outdated(self, review: AllocationReview) -> bool:
        """Whether the write replaces a revision that is already replaced, so that it cannot be stored."""
        seen = self.claims.get(review.holder.uid)
        return seen is not None and seen.revision > review.revision

    def list_unpublished(self, review: AllocationReview) -> list[DeviceId]:
        """The devices of a write that no slice publishes, as far as the watch has shown."""
        known = {grants.get_device_id(result) for result in review.before}
        asked = {
            grants.get_device_id(result): None for result in review.allocated or () if not result.admin_access
        }
        return [device for device in asked if device not in known and not self.is_published(device)]

    def is_published(self, device: DeviceId) -> bool:
        """Whether a slice publishes a device, as far as the watch has shown."""
        return device.device in self._pools((device.driver, device.pool)).devices

    def admit(self, review: AllocationReview, now: float) -> None:
        """Record that a write was admitted; the caller has reviewed it just before."""
        uid = review.holder.uid
        holdings = tuple(grants.list_holdings(review.holder, review.allocated or ()))
        kept = grants.list_holdings(review.holder, review.before)
        if all(held in kept for held in holdings):
            return
        before = self._list_holdings(uid)
        self.admitted.add(AdmittedAllocation(review.holder, review.revision, holdings, now))
        self._replace_holdings(uid, before)

    def explain(self, verdict: AllocationVerdict, now: float) -> tuple[Denial, ...]:
        """The denials with what is known of the holders, and with what would help."""
        return tuple(
            replace(denial, message=denial.message + self._describe_holders(denial, now))
            for denial in verdict.denials
        )

    # --- rows ---

    def list_rows(self) -> dict[bytes, AnyRow]:
        """All rows, with holders in an order that does not depend on history."""
        rows = {key: read_row(key, value) for key, value in self._rows.items()}
        return {key: row.normalized if isinstance(row, DeviceRow) else row for key, row in rows.items()}

    def refresh_conflicts(self) -> None:
        """Apply slices that changed to the devices that are held, and look for conflicts there."""
        self._charge_stale_pools()

    def _list_holdings(self, uid: str) -> HeldDevices:
        """What a claim holds: stored and admitted, each holding once."""
        seen, admitted = self.claims.get(uid), self.admitted.get(uid)
        stored = () if seen is None else seen.holdings
        if not admitted:
            return stored
        found = list(stored)
        for each in admitted:
            found += [held for held in each.holdings if held not in found]
        return tuple(found)

    def _replace_holdings(self, uid: str, before: HeldDevices) -> None:
        after = self._list_holdings(uid)
        changed = dict.fromkeys(device for device, _ in (*before, *after))
        if before != after:
            transaction = LedgerTransaction(self._rows.get)
            grants.release_claim(transaction, uid, (device for device, _ in before))
            grants.record_holdings(transaction, after, self._pools)
            self._commit(transaction, changed)
        self._check_conflicts(changed)

    def _commit(self, transaction: LedgerTransaction, devices: Iterable[DeviceId]) -> None:
        for key, value in transaction.build_decision().changes.items():
            if value is None:
                self._rows.pop(key, None)
            else:
                self._rows[key] = value
        for device in devices:
            pool = device.driver, device.pool
            if transaction.read_device(device).holdings:
                self._held_by_pool.setdefault(pool, {})[device] = None
            elif pool in self._held_by_pool:
                self._held_by_pool[pool].pop(device, None)
                if not self._held_by_pool[pool]:
                    del self._held_by_pool[pool]

    def _charge_stale_pools(self) -> None:
        """Charge the held devices of pools that were published anew with what they draw now."""
        while self._stale_pools:
            pool, _ = self._stale_pools.popitem()
            held = list(self._held_by_pool.get(pool, ()))
            published = self._pools(pool).devices if held else {}
            transaction = LedgerTransaction(self._rows.get)
            for device in held:
                if device.device in published:
                    grants.charge_anew(transaction, device, published[device.device].draws)
            self._commit(transaction, held)
            self._check_conflicts(held)

    def _check_conflicts(self, devices: Iterable[DeviceId]) -> None:
        transaction = LedgerTransaction(self._rows.get)
        counter_sets: dict[CounterSetId, None] = {}
        for device in devices:
            row = transaction.read_device(device)
            stored = [held for held in row.holdings if self._is_stored(held.holder.uid, device)]
            pool = self._pools((device.driver, device.pool))
            self.conflicts.record(f"device {device}", find_device_conflict(device, stored, pool))
            facts = pool.devices.get(device.device)
            drawn = row.charged or ({} if facts is None else facts.draws)
            counter_sets |= dict.fromkeys(CounterSetId(device.driver, device.pool, name) for name in drawn)
        for counter_set in counter_sets:
            self._check_counters(counter_set, transaction)

    def _check_counters(self, counter_set: CounterSetId, transaction: LedgerTransaction) -> None:
        pool = counter_set.driver, counter_set.pool
        totals, _ = self._pools(pool).counters.get(counter_set.counter_set, ({}, None))
        charged, found = transaction.read_counters(counter_set).charged, None
        if any(amount.nanos > totals.get(name, amount).nanos for name, amount in charged.items()):
            drawn = []
            for device in self._held_by_pool.get(pool, ()):
                row = transaction.read_device(device)
                holders = [held.holder for held in row.holdings if self._is_stored(held.holder.uid, device)]
                if holders:
                    drawn.append((holders, row.charged.get(counter_set.counter_set, {})))
            found = find_counter_conflict(counter_set, drawn, totals)
        self.conflicts.record(f"counter set {counter_set}", found)

    def _is_stored(self, uid: str, device: DeviceId) -> bool:
        seen = self.claims.get(uid)
        return seen is not None and any(device == held for held, _ in seen.holdings)

    def _is_withdrawn(self, device: DeviceId) -> bool:
        """Whether a device is not published, in a pool whose devices draw from counters."""
        pool = device.driver, device.pool
        return pool in self._counter_pools and not self.is_published(device)

    # --- who is in the way ---

    def _find_holders(self, denial: Denial, transaction: LedgerTransaction) -> list[Holder]:
        """The claims that a denial is about."""
        device = denial.device
        if device is None:
            return []
        found = [held.holder for held in transaction.read_device(device).holdings]
        if denial.reason is DenialReason.COUNTER:
            for other in self._held_by_pool.get((device.driver, device.pool), ()):
                row = transaction.read_device(other)
                if row.charged:
                    found += [held.holder for held in row.holdings]
        return list({holder.uid: holder for holder in found}.values())

    def _find_stored_holders(self, denied: Sequence[Denial], own_uid: str) -> list[Holder]:
        transaction = LedgerTransaction(self._rows.get)
        found = {
            holder.uid: holder for denial in denied for holder in self._find_holders(denial, transaction)
        }
        return [
            holder
            for holder in found.values()
            if holder.uid != own_uid and holder.uid in self.claims and not self.admitted.get(holder.uid)
        ]

    def _describe_holders(self, denial: Denial, now: float) -> str:
        transaction = LedgerTransaction(self._rows.get)
        shown = [self._describe_holder(holder, now) for holder in self._find_holders(denial, transaction)[:3]]
        help_text = _HELP.get(denial.reason, "")
        return (f" ({'; '.join(shown)})" if shown else "") + (f"; {help_text}" if help_text else "")

    def _describe_holder(self, holder: Holder, now: float) -> str:
        admitted = self.admitted.get(holder.uid)
        if admitted:
            milliseconds = max(0.0, now - admitted[-1].admitted_at) * 1000
            return f"{holder} was admitted {milliseconds:.0f} ms ago and is not stored yet"
        seen = self.claims.get(holder.uid)
        return f"{holder} is stored at revision {seen.revision}" if seen is not None else str(holder)


_HELP: Final = {
    DenialReason.HELD: "allocate another device, or wait until that claim is deallocated",
    DenialReason.SHARED: "allocate another device, or wait until those claims are deallocated",
    DenialReason.CAPACITY: "allocate less or another device, or wait until a share is deallocated",
    DenialReason.COUNTER: "allocate another device, or wait until one of those is deallocated",
    DenialReason.DEDICATED: "allocate the device as a whole, without a share",
    DenialReason.TWICE: "name each device once",
}
"""The smallest change that lets an allocation through."""
