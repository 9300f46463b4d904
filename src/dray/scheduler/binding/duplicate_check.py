"""The check for duplicates: after an allocation is stored, whether another claim holds the same devices.

Theory of operation: where nobody keeps a ledger, the scheduler does not bind a pod on an allocation that it
has not checked. After the write it waits until its watch has shown the revision of that write: everything
that was stored before is known then. Of two claims with the same device the one that was stored later
yields; both schedulers see the same order. A claim that was stored after ours is given a moment to yield;
whoever wrote it may not know this rule (kube-scheduler does not), so when it stays, ours yields after all,
because our pod is not bound yet and nobody knows about the other.

What another scheduler stores after the check is not seen in time. Only a ledger prevents that.
"""

from __future__ import annotations

from typing import Final

from dray.api.resource import ResourceClaim
from dray.claims.ledger.denials import Denial
from dray.client.object_refs import parse_resource_version
from dray.client.timing import TimeSource
from dray.scheduler.binding.claim_locks import ClaimLocks
from dray.scheduler.binding.errors import StalePlacementError
from dray.scheduler.binding.stored_allocations import StoredAllocations

MAX_WATCH_LAG_SECONDS: Final = 10.0
"""How long the watch may take to show our own write."""
SETTLE_SECONDS: Final = 0.2
"""How long to wait for writes of schedulers that had decided before they saw ours."""
CONTESTED_SETTLE_SECONDS: Final = 1.0
"""The same while others allocate, too: kube-scheduler queues its writes when it has many."""
CONTESTED_SECONDS: Final = 30.0
"""How long others count after an allocation of theirs."""
YIELD_SECONDS: Final = 3.0
"""How long a claim that was stored after ours may take to yield."""
_POLL_SECONDS: Final = 0.05


class DuplicateCheck:
    """Finds out whether an allocation that was just stored can be used."""

    def __init__(self, time_source: TimeSource, allocations: StoredAllocations, locks: ClaimLocks) -> None:
        self._time_source, self._allocations, self._locks = time_source, allocations, locks
        self._checked = self._foreign = 0
        self._contested_until = 0.0

    async def find_duplicate(self, claim: ResourceClaim) -> str:
        """Return what is allocated twice and who holds it, when this claim has to yield; empty otherwise.

        `claim` is the one that we wrote or read last.
        """
        self._checked += 1
        await self._wait_for_watch(claim)
        await self._settle()
        clock = self._time_source.clock
        end = clock.monotonic() + YIELD_SECONDS
        while True:
            earlier = self._allocations.find_duplicates(claim, earlier_only=True)
            if earlier:
                return _explain(earlier)
            others = self._allocations.find_duplicates(claim, earlier_only=False)
            if not others:
                return ""
            if clock.monotonic() >= end:
                return _explain(others)
            await self._time_source.sleep(_POLL_SECONDS)

    async def _settle(self) -> None:
        """Wait for writes of others that were under way when ours was stored."""
        clock = self._time_source.clock
        began = clock.monotonic()
        await self._time_source.sleep(SETTLE_SECONDS)
        foreign = self._allocations.observed - self._checked
        if foreign > self._foreign:
            self._foreign, self._contested_until = foreign, clock.monotonic() + CONTESTED_SECONDS
        if clock.monotonic() < self._contested_until:
            await self._time_source.sleep(max(0.0, began + CONTESTED_SETTLE_SECONDS - clock.monotonic()))

    async def _wait_for_watch(self, claim: ResourceClaim) -> None:
        """Wait until the watch has shown the revision of our write."""
        clock, revision = self._time_source.clock, parse_resource_version(claim.metadata.resource_version)
        end = clock.monotonic() + MAX_WATCH_LAG_SECONDS
        async with self._locks.use(claim) as claim_lock:
            while self._allocations.seen_revision < revision:
                left = end - clock.monotonic()
                if left <= 0:
                    raise StalePlacementError(
                        f"the watch of claims is more than {MAX_WATCH_LAG_SECONDS:g} seconds behind, and the "
                        "server keeps no ledger"
                    )
                await self._locks.wait_for_change(claim_lock.changed, left)


def _explain(denied: list[Denial]) -> str:
    return "; ".join(dict.fromkeys(denial.message for denial in denied))
