"""Background release of claims without users: unprepares them and deletes their Preparations.

Theory of operation: a claim without users is released in two steps. First all its drivers unprepare it; the
last pod that used it waits for that. Then its Preparation is deleted from the API, so that the devices can be
allocated again; no pod waits for that, and an unreachable server does not keep pods from terminating. The
claim stays in the record until its Preparation is deleted, so that a later agent deletes it if this one
cannot.

The worker of a pod that ends can ask to defer the second step, because it deletes the Preparations together
with its other last writes. Whatever comes of that, the releaser deletes those that are left.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from functools import partial

from dray.client.timing import Backoff
from dray.client.transactions.object_transaction import ObjectTransaction
from dray.durable import Durability
from dray.node.claims import plan
from dray.node.claims.claim_events import PodClaimEvents
from dray.node.claims.driver_calls import CheckpointedCalls
from dray.node.claims.preparations import NodePreparations
from dray.node.claims.preparer_options import ClaimPreparerOptions
from dray.node.claims.readiness import ABANDON_ANNOTATION
from dray.node.claims.record import NodeClaimStage, RecordedClaim
from dray.node.keyed_locks import Broadcast
from dray.tasks import wait_for_first


class UnusedClaimReleaser:
    """Releases the claims of one node that have no users."""

    def __init__(
        self,
        calls: CheckpointedCalls,
        preparations: NodePreparations,
        events: PodClaimEvents,
        options: ClaimPreparerOptions,
    ) -> None:
        self._calls = calls
        self._preparations = preparations
        self._events = events
        self._options = options
        self._triggered = asyncio.Event()
        self._deferred: dict[str, frozenset[str]] = {}
        """The uids of claims whose Preparations the worker of a pod is about to delete, by pod."""
        self.released = Broadcast()
        """Notified when drivers have unprepared a claim."""

    def trigger(self) -> None:
        """Process the claims without users soon."""
        self._triggered.set()

    def defer_withdrawal(self, pod_uid: str, claim_uids: frozenset[str]) -> None:
        """Leave the Preparations of these claims to `withdraw_with`, or until `resume_withdrawal`."""
        self._deferred[pod_uid] = self._deferred.get(pod_uid, frozenset()) | claim_uids

    def resume_withdrawal(self, pod_uid: str) -> None:
        """Delete what is left of the Preparations that were deferred for a pod."""
        if self._deferred.pop(pod_uid, None):
            self.trigger()

    async def withdraw_with(self, pod_uid: str, transaction: ObjectTransaction) -> bool:
        """Delete the deferred Preparations of a pod together with the other writes of a transaction.

        Return False when nothing was written, or when that is not known.
        """
        try:
            return await self._withdraw_together(self._deferred.get(pod_uid, frozenset()), transaction)
        finally:
            self._deferred.pop(pod_uid, None)
            self.trigger()

    async def _withdraw_together(self, uids: frozenset[str], transaction: ObjectTransaction) -> bool:
        calls = self._calls
        # A claim that is locked is being used again: its Preparation stays.
        free = uids - calls.claim_locks.locked
        async with calls.claim_locks.hold(lambda: free):
            found = (calls.record.find_claim(uid) for uid in sorted(free))
            claims = [each for each in found if each and each.state is NodeClaimStage.LETTING_GO]
            if not await self._preparations.withdraw_with(claims, transaction):
                return False
            self._options.crash_point("announcement withdrawn")
            for claim in claims:
                calls.record = plan.confirm_withdrawn(calls.record, claim.uid)
            if claims:
                await calls.save("let go", Durability.THIS_BOOT)
        return True

    async def release_claims(self, claims: Iterable[RecordedClaim], *, abandon: bool) -> None:
        """Ask all drivers of claims without users to unprepare them, once; failures are in the record."""
        claims, calls = tuple(claims), self._calls
        present = calls.filter_registered(plan.collect_drivers(claims))
        await calls.unprepare(plan.plan_unprepare_calls(claims, present))
        remaining = self._list_remaining(claims)
        if remaining and (abandon or self._is_abandoned_by_node()):
            for claim in remaining:
                self._events.record_abandoned(claim)
                self._options.log("devices were abandoned", claim=str(claim), uid=claim.uid)
            calls.record = plan.abandon_claims(calls.record, (claim.uid for claim in remaining))
            await calls.save("abandoned")
        if len(self._list_remaining(claims)) < len(claims):
            self._triggered.set()
            self.released.notify_all()

    def _list_remaining(self, claims: Iterable[RecordedClaim]) -> tuple[RecordedClaim, ...]:
        """List those claims that drivers have not unprepared."""
        current = (self._calls.record.find_claim(claim.uid) for claim in claims)
        return tuple(claim for claim in current if claim is not None and claim.parts)

    def _is_abandoned_by_node(self) -> bool:
        return self._options.get_node().metadata.annotations.get(ABANDON_ANNOTATION) == "true"

    async def run(self) -> None:
        """Release claims without users until cancelled, also those that a pod has waited for."""
        backoff = Backoff(self._options.time_source, initial=0.5, maximum=20.0)
        while True:
            self._triggered.clear()
            if await self.process_pending():
                backoff.reset()
                await self._triggered.wait()
            else:
                await wait_for_first(self._triggered.wait(), backoff.wait())

    async def process_pending(self) -> bool:
        """Try to release every claim without users once; return whether nothing failed."""
        deferred = frozenset().union(*self._deferred.values())
        unused = [
            claim.uid
            for claim in self._calls.record.claims
            if not claim.users and not (claim.uid in deferred and claim.state is NodeClaimStage.LETTING_GO)
        ]
        locked = self._calls.claim_locks.locked
        attempts = (
            self._calls.pod_queues.run_in_order(uid, partial(self._release_claim, uid))
            for uid in unused
            if uid not in locked
        )
        return all(await asyncio.gather(*attempts))

    async def _release_claim(self, uid: str) -> bool:
        calls = self._calls
        async with calls.claim_locks.hold(lambda: frozenset({uid})):
            claim = calls.record.find_claim(uid)
            if claim is None or claim.users:
                return True
            if claim.state is NodeClaimStage.UNPREPARING:
                await self.release_claims((claim,), abandon=False)
            claim = calls.record.find_claim(uid)
            if claim is None or claim.parts:
                return claim is None
            if any(uid in uids for uids in self._deferred.values()):
                return True
            problem = await self._preparations.withdraw(claim)
            if problem:
                self._options.log("cannot delete the Preparation of a released claim", cause=problem)
                return False
            self._options.crash_point("announcement withdrawn")
            calls.record = plan.confirm_withdrawn(calls.record, uid)
            # When this is lost, the deletion is repeated.
            return not await calls.save("let go", Durability.THIS_BOOT)
