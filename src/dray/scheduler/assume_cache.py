"""Every claim once: as it was last seen or written, with what has been promised to it and is not written yet.

Theory of operation: what a claim holds is known from three sides: the watch, the answers to our own writes,
and promises of placements whose writes are on the way. They come in any order. Of the first two the higher
version counts, so an older one never comes back; a claim whose deletion was seen is not brought back by a
late answer, only by the watch, when the server itself has it again from an earlier copy. A promise counts
only while the claim has no devices, and ends in the same step in which they appear: an allocation is always
in exactly one of {promised, stored}. Several pods may build on one promise; it lasts until the last of them
lets go.

Rules for this file: nothing here waits. Every change that matters to usage is told to `on_changed`, once,
with what counted before and what counts now.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

import msgspec

from dray.api.resource import AllocationResult, ResourceClaim

MAX_DELETED_REMEMBERED: Final = 20_000
"""Deleted claims that are remembered, so that a late answer does not bring one back."""

ClaimKey = tuple[str, str]
"""Namespace and name."""

ClaimChangeCallback = Callable[[ResourceClaim | None, ResourceClaim | None], None]
"""Told what counted for a claim before, and what counts now."""


@dataclass(slots=True)
class _PendingAllocation:
    """Devices that a claim will have when a write succeeds."""

    allocation: AllocationResult
    users: set[str] = field(default_factory=set)


class ClaimAssumeCache:
    """The claims of a cluster, as a scheduler must count them."""

    def __init__(self, on_changed: ClaimChangeCallback) -> None:
        self._on_changed = on_changed
        self._stored: dict[ClaimKey, ResourceClaim] = {}
        self._assumed: dict[ClaimKey, ResourceClaim] = {}
        self._pending: dict[str, _PendingAllocation] = {}
        self._deleted: OrderedDict[str, None] = OrderedDict()

    def get(self, namespace: str, name: str) -> ResourceClaim | None:
        """A claim with what it has or is promised."""
        return self._assumed.get((namespace, name))

    def get_stored(self, claim: ResourceClaim) -> ResourceClaim | None:
        """A claim as the server has it, if it is still the same one."""
        found = self._stored.get(_get_claim_key(claim))
        return found if found is not None and found.metadata.uid == claim.metadata.uid else None

    def has_pending_allocation(self, claim: ResourceClaim) -> bool:
        """Whether the devices of a claim are promised and not yet written."""
        return claim.metadata.uid in self._pending

    def count_pending_allocations(self) -> int:
        """How many claims are promised devices."""
        return len(self._pending)

    def __iter__(self) -> Iterator[ResourceClaim]:
        return iter(self._assumed.values())

    def add(self, claim: ResourceClaim) -> None:
        """A claim that the watch did not show before."""
        self._deleted.pop(claim.metadata.uid, None)
        self.update(claim)

    def update(self, claim: ResourceClaim) -> None:
        """A claim as the watch or an answer tells it."""
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
        """A claim is deleted."""
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
        """A placement gives a claim devices; `user` builds on it."""
        held = self._pending.setdefault(claim.metadata.uid, _PendingAllocation(allocation))
        held.users.add(user)
        self._refresh_assumed(_get_claim_key(claim))

    def add_pending_user(self, claim: ResourceClaim, user: str) -> None:
        """Another user of what is promised to a claim."""
        held = self._pending.get(claim.metadata.uid)
        if held is not None:
            held.users.add(user)

    def remove_pending_user(self, claim: ResourceClaim, user: str) -> None:
        """A user does not build on a promise any more; the last one ends it."""
        held = self._pending.get(claim.metadata.uid)
        if held is None or user not in held.users:
            return
        held.users.discard(user)
        if not held.users:
            del self._pending[claim.metadata.uid]
            self._refresh_assumed(_get_claim_key(claim))

    def _refresh_assumed(self, key: ClaimKey) -> None:
        """Settle what counts for a claim, and tell when that is something else than before."""
        stored, before = self._stored.get(key), self._assumed.get(key)
        now = stored
        if stored is not None:
            held = self._pending.get(stored.metadata.uid)
            if held is not None and stored.status.allocation is not None:
                del self._pending[stored.metadata.uid]
            elif held is not None:
                status = msgspec.structs.replace(stored.status, allocation=held.allocation)
                now = msgspec.structs.replace(stored, status=status)
        if now is None:
            self._assumed.pop(key, None)
        else:
            self._assumed[key] = now
        self._on_changed(before, now)


def parse_claim_version(claim: ResourceClaim) -> int:
    """The version of a claim as a number."""
    text = claim.metadata.resource_version
    return int(text) if text.isascii() and text.isdigit() else 0


def _get_claim_key(claim: ResourceClaim) -> ClaimKey:
    return claim.metadata.namespace, claim.metadata.name
