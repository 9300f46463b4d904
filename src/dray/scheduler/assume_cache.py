"""The assume cache of claims: every claim as last seen or written, with allocations whose write is pending.

Theory of operation: three sources say what a claim holds: the watch, the responses to our own writes, and
placements whose writes are pending. They arrive in any order. Of the first two the higher resource version
counts, so an older one never replaces a newer one. After a deletion was seen, a late response does not
restore the claim; only the watch does, when the server has it again after a restore. A pending allocation
counts only while the claim has no devices and ends in the step in which they appear: an allocation is always
either pending or stored, never both. Several pods may use one pending allocation; it lasts until the last of
them removes itself.

Rules for this file: no method awaits. Every change that matters to usage is passed to `on_changed` once, with
the claim as it counted before and as it counts now.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

import msgspec

from dray.api.resource import AllocationResult, ResourceClaim
from dray.client.object_refs import parse_resource_version

MAX_DELETED_REMEMBERED: Final = 20_000
"""Deleted claims that are remembered, so that a late response does not restore one."""

ClaimKey = tuple[str, str]
"""Namespace and name."""

ClaimChangeCallback = Callable[[ResourceClaim | None, ResourceClaim | None], None]
"""Receives the claim as it counted before and as it counts now."""


@dataclass(slots=True)
class _PendingAllocation:
    """Devices that a claim has once a pending write succeeds."""

    allocation: AllocationResult
    users: set[str] = field(default_factory=set)


class ClaimAssumeCache:
    """The claims of a cluster, with pending allocations."""

    def __init__(self, on_changed: ClaimChangeCallback) -> None:
        self._on_changed = on_changed
        self._stored: dict[ClaimKey, ResourceClaim] = {}
        self._assumed: dict[ClaimKey, ResourceClaim] = {}
        self._pending: dict[str, _PendingAllocation] = {}
        self._deleted: OrderedDict[str, None] = OrderedDict()

    def get(self, namespace: str, name: str) -> ResourceClaim | None:
        """Return a claim with its stored or pending allocation."""
        return self._assumed.get((namespace, name))

    def get_stored(self, claim: ResourceClaim) -> ResourceClaim | None:
        """Return a claim as the server has it, if it is still the same object."""
        found = self._stored.get(_get_claim_key(claim))
        return found if found is not None and found.metadata.uid == claim.metadata.uid else None

    def has_pending_allocation(self, claim: ResourceClaim) -> bool:
        """Whether the allocation of a claim is pending."""
        return claim.metadata.uid in self._pending

    def count_pending_allocations(self) -> int:
        """Count the claims with a pending allocation."""
        return len(self._pending)

    def __iter__(self) -> Iterator[ResourceClaim]:
        return iter(self._assumed.values())

    def add(self, claim: ResourceClaim) -> None:
        """Add a claim that the watch shows for the first time."""
        self._deleted.pop(claim.metadata.uid, None)
        self.update(claim)

    def update(self, claim: ResourceClaim) -> None:
        """Take over a claim from the watch or a response, unless a newer version is known."""
        if claim.metadata.uid in self._deleted:
            return
        key = _get_claim_key(claim)
        known = self._stored.get(key)
        if known is not None and parse_claim_version(claim) < parse_claim_version(known):
            return
        if known is not None and known.metadata.uid != claim.metadata.uid:
            self.remove(known)
        self._stored[key] = claim
        self._refresh_assumed(key)

    def remove(self, claim: ResourceClaim) -> None:
        """Remove a deleted claim."""
        key, uid = _get_claim_key(claim), claim.metadata.uid
        self._deleted[uid] = None
        if len(self._deleted) > MAX_DELETED_REMEMBERED:
            self._deleted.popitem(last=False)
        self._pending.pop(uid, None)
        known = self._stored.get(key)
        if known is not None and known.metadata.uid == uid:
            del self._stored[key]
            self._refresh_assumed(key)

    def add_pending_allocation(self, claim: ResourceClaim, allocation: AllocationResult, user: str) -> None:
        """Assume the allocation that a placement gives a claim, used by `user`."""
        pending = self._pending.setdefault(claim.metadata.uid, _PendingAllocation(allocation))
        pending.users.add(user)
        self._refresh_assumed(_get_claim_key(claim))

    def add_pending_user(self, claim: ResourceClaim, user: str) -> None:
        """Add another user of a pending allocation."""
        pending = self._pending.get(claim.metadata.uid)
        if pending is not None:
            pending.users.add(user)

    def remove_pending_user(self, claim: ResourceClaim, user: str) -> None:
        """Remove a user of a pending allocation; it ends with the last one."""
        pending = self._pending.get(claim.metadata.uid)
        if pending is None or user not in pending.users:
            return
        pending.users.discard(user)
        if not pending.users:
            del self._pending[claim.metadata.uid]
            self._refresh_assumed(_get_claim_key(claim))

    def _refresh_assumed(self, key: ClaimKey) -> None:
        """Recompute what counts for a claim, and report a difference."""
        stored, before = self._stored.get(key), self._assumed.get(key)
        now = stored
        if stored is not None:
            pending = self._pending.get(stored.metadata.uid)
            if pending is not None and stored.status.allocation is not None:
                del self._pending[stored.metadata.uid]
            elif pending is not None:
                status = msgspec.structs.replace(stored.status, allocation=pending.allocation)
                now = msgspec.structs.replace(stored, status=status)
        if now is None:
            self._assumed.pop(key, None)
        else:
            self._assumed[key] = now
        self._on_changed(before, now)


def _get_claim_key(claim: ResourceClaim) -> ClaimKey:
    return claim.metadata.namespace, claim.metadata.name


def parse_claim_version(claim: ResourceClaim) -> int:
    """Return the resource version of a claim as a number; -1 when it is none."""
    return parse_resource_version(claim.metadata.resource_version)
