"""Every claim once: as it was last seen or written, with what has been promised to it and is not written yet.

Theory of operation: what a claim holds is known from three sides: the watch, the answers to our own writes,
and promises of placements whose writes are on the way. They come in any order. Of the first two the higher
version counts, so an older one never comes back; a claim whose deletion was seen is not brought back by a
late answer, only by the watch, when the server itself has it again from an earlier copy. A promise counts
only while the claim has no devices, and ends in the same step in which they appear: an allocation is always
in exactly one of {promised, stored}. Several pods may build on one promise; it lasts until the last of them
lets go.

Rules for this file: nothing here waits. Every change that matters to usage is told to `changed`, once, with
what counted before and what counts now.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

import msgspec

from dray.api.resource import AllocationResult, ResourceClaim

MANY_GONE: Final = 20_000
"""Deleted claims that are remembered, so that a late answer does not bring one back."""

Key = tuple[str, str]
"""Namespace and name."""

Changed = Callable[[ResourceClaim | None, ResourceClaim | None], None]
"""Told what counted for a claim before, and what counts now."""


@dataclass(slots=True)
class _Promise:
    """Devices that a claim will have when a write succeeds."""

    allocation: AllocationResult
    users: set[str] = field(default_factory=set)


class ClaimBook:
    """The claims of a cluster, as a scheduler must count them."""

    def __init__(self, changed: Changed) -> None:
        self._changed = changed
        self._stored: dict[Key, ResourceClaim] = {}
        self._counted: dict[Key, ResourceClaim] = {}
        self._promised: dict[str, _Promise] = {}
        self._gone: OrderedDict[str, None] = OrderedDict()

    def get(self, namespace: str, name: str) -> ResourceClaim | None:
        """A claim with what it has or is promised."""
        return self._counted.get((namespace, name))

    def stored(self, claim: ResourceClaim) -> ResourceClaim | None:
        """A claim as the server has it, if it is still the same one."""
        found = self._stored.get(_key(claim))
        return found if found is not None and found.metadata.uid == claim.metadata.uid else None

    def is_promised(self, claim: ResourceClaim) -> bool:
        """Whether the devices of a claim are promised and not yet written."""
        return claim.metadata.uid in self._promised

    def in_flight(self) -> int:
        """How many claims are promised devices."""
        return len(self._promised)

    def __iter__(self) -> Iterator[ResourceClaim]:
        return iter(self._counted.values())

    def came(self, claim: ResourceClaim) -> None:
        """A claim that the watch did not show before."""
        self._gone.pop(claim.metadata.uid, None)
        self.saw(claim)

    def saw(self, claim: ResourceClaim) -> None:
        """A claim as the watch or an answer tells it."""
        if claim.metadata.uid in self._gone:
            return
        key = _key(claim)
        known = self._stored.get(key)
        if known is not None and version(claim) < version(known):
            return
        if known is not None and known.metadata.uid != claim.metadata.uid:
            self.lost(known)
        self._stored[key] = claim
        self._recount(key)

    def lost(self, claim: ResourceClaim) -> None:
        """A claim is deleted."""
        key, uid = _key(claim), claim.metadata.uid
        self._gone[uid] = None
        if len(self._gone) > MANY_GONE:
            self._gone.popitem(last=False)
        self._promised.pop(uid, None)
        known = self._stored.get(key)
        if known is not None and known.metadata.uid == uid:
            del self._stored[key]
            self._recount(key)

    def promise(self, claim: ResourceClaim, allocation: AllocationResult, user: str) -> None:
        """A placement gives a claim devices; `user` builds on it."""
        held = self._promised.setdefault(claim.metadata.uid, _Promise(allocation))
        held.users.add(user)
        self._recount(_key(claim))

    def build_on(self, claim: ResourceClaim, user: str) -> None:
        """Another user of what is promised to a claim."""
        held = self._promised.get(claim.metadata.uid)
        if held is not None:
            held.users.add(user)

    def let_go(self, claim: ResourceClaim, user: str) -> None:
        """A user does not build on a promise any more; the last one ends it."""
        held = self._promised.get(claim.metadata.uid)
        if held is None or user not in held.users:
            return
        held.users.discard(user)
        if not held.users:
            del self._promised[claim.metadata.uid]
            self._recount(_key(claim))

    def _recount(self, key: Key) -> None:
        """Settle what counts for a claim, and tell when that is something else than before."""
        stored, before = self._stored.get(key), self._counted.get(key)
        now = stored
        if stored is not None:
            held = self._promised.get(stored.metadata.uid)
            if held is not None and stored.status.allocation is not None:
                del self._promised[stored.metadata.uid]
            elif held is not None:
                status = msgspec.structs.replace(stored.status, allocation=held.allocation)
                now = msgspec.structs.replace(stored, status=status)
        if now is None:
            self._counted.pop(key, None)
        else:
            self._counted[key] = now
        self._changed(before, now)


def version(claim: ResourceClaim) -> int:
    """The version of a claim as a number."""
    text = claim.metadata.resource_version
    return int(text) if text.isascii() and text.isdigit() else 0


def _key(claim: ResourceClaim) -> Key:
    return claim.metadata.namespace, claim.metadata.name
