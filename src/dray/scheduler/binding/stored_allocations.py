"""Stored allocations: what claims hold, as the watch shows it, in the order in which the server stored it.

Theory of operation: on a server without a ledger two schedulers may allocate the same device. Revisions order
all writes, so the allocation that was stored first is the right one, and every scheduler that follows the
watch comes to the same answer. An allocation is ordered by the revision in which it appeared. Where that is
not known (a list shows only the last state), it counts as stored before every other.

Whether allocations fit beside each other is decided by the rules of the ledger (`dray.claims.ledger`).

Rules for this file: no I/O and no clock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from dray.api.resource import ResourceClaim, ResourceSlice
from dray.claims.ledger import grants
from dray.claims.ledger.denials import Denial, DenialReason
from dray.claims.ledger.published_devices import PublishedPool, StoredSlice, build_published_pool
from dray.claims.ledger.rows import DeviceId, Holder, Holding
from dray.client.object_refs import parse_resource_version

PoolId = tuple[str, str]

UNKNOWN_REVISION: Final = -1
"""The revision of an allocation that was there when it was first seen."""

DUPLICATE_REASONS: Final = frozenset(
    {
        DenialReason.HELD,
        DenialReason.SHARED,
        DenialReason.CAPACITY,
        DenialReason.COUNTER,
        DenialReason.SHARE_ID,
    }
)
"""The rules that an allocation breaks only because of other allocations."""


@dataclass(frozen=True, slots=True)
class _StoredAllocation:
    """What one claim holds, and since which revision."""

    holder: Holder
    revision: int
    holdings: tuple[tuple[DeviceId, Holding], ...]


class StoredAllocations:
    """The allocations of all claims."""

    def __init__(self, list_slices: Callable[[PoolId], Iterable[ResourceSlice]]) -> None:
        self._list_slices = list_slices
        self._by_uid: dict[str, _StoredAllocation] = {}
        self._by_pool: dict[PoolId, dict[str, _StoredAllocation]] = {}
        self.seen_revision = 0
        """The highest revision of a claim that the watch has shown."""
        self.observed = 0
        """How many allocations the watch has shown."""

    def observe(self, claim: ResourceClaim, *, is_listed: bool) -> None:
        """Record a claim from the watch, or from a list, which leaves out the steps in between."""
        uid, allocation = claim.metadata.uid, claim.status.allocation
        revision = parse_resource_version(claim.metadata.resource_version)
        self.seen_revision = max(self.seen_revision, revision)
        known = self._by_uid.get(uid)
        if allocation is None:
            self._remove(uid)
            return
        holder = _build_holder(claim)
        holdings = tuple(grants.list_holdings(holder, allocation.devices.results))
        if known is not None and known.holdings == holdings:
            return
        self._remove(uid)
        stored = _StoredAllocation(holder, UNKNOWN_REVISION if is_listed else revision, holdings)
        self._by_uid[uid] = stored
        self.observed += not is_listed
        for device, _ in holdings:
            self._by_pool.setdefault((device.driver, device.pool), {})[uid] = stored

    def forget(self, claim: ResourceClaim) -> None:
        """Record that a claim is deleted."""
        revision = parse_resource_version(claim.metadata.resource_version)
        self.seen_revision = max(self.seen_revision, revision)
        self._remove(claim.metadata.uid)

    def find_duplicates(self, claim: ResourceClaim, *, earlier_only: bool) -> list[Denial]:
        """What of the allocation of a claim does not fit beside those of other claims.

        `claim` is the stored one; with `earlier_only` only allocations that were stored before its own count.
        """
        allocation = claim.status.allocation
        if allocation is None:
            return []
        uid = claim.metadata.uid
        limit = self._get_revision(claim) if earlier_only else None
        published: dict[PoolId, PublishedPool] = {}

        def get_pool(pool: PoolId) -> PublishedPool:
            if pool not in published:
                published[pool] = _build_pool(self._list_slices(pool))
            return published[pool]

        results = [result for result in allocation.devices.results if not result.admin_access]
        transaction = grants.LedgerTransaction(lambda _key: None)
        for stored in self._find_others({(each.driver, each.pool) for each in results}, uid, limit):
            grants.record_holdings(transaction, stored.holdings, get_pool)
        denied = grants.grant_allocation(transaction, _build_holder(claim), results, get_pool)
        return [denial for denial in denied if denial.reason in DUPLICATE_REASONS]

    def _get_revision(self, claim: ResourceClaim) -> int:
        """The revision that allocated a claim, as far as it is known."""
        known = self._by_uid.get(claim.metadata.uid)
        return (
            known.revision if known is not None else parse_resource_version(claim.metadata.resource_version)
        )

    def _find_others(self, pools: set[PoolId], uid: str, limit: int | None) -> Iterator[_StoredAllocation]:
        """The allocations of other claims in some pools, each once, before a revision."""
        found = {other: stored for pool in pools for other, stored in self._by_pool.get(pool, {}).items()}
        for other, stored in found.items():
            if other != uid and (limit is None or stored.revision < limit):
                yield stored

    def _remove(self, uid: str) -> None:
        stored = self._by_uid.pop(uid, None)
        for device, _ in () if stored is None else stored.holdings:
            pool = device.driver, device.pool
            of_pool = self._by_pool.get(pool, {})
            of_pool.pop(uid, None)
            if not of_pool:
                self._by_pool.pop(pool, None)


def _build_holder(claim: ResourceClaim) -> Holder:
    return Holder(namespace=claim.metadata.namespace, name=claim.metadata.name, uid=claim.metadata.uid)


def _build_pool(slices: Iterable[ResourceSlice]) -> PublishedPool:
    stored: list[Any] = [
        (
            (each.metadata.name.encode(), parse_resource_version(each.metadata.resource_version)),
            msgspec.convert(each, StoredSlice, from_attributes=True),
        )
        for each in slices
    ]
    return build_published_pool(stored)
