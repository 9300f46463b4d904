"""Giving claims back: for the pods that wait for it, and beside, whether a pod waits or not.

Theory of operation: a claim without users goes through two doors. First all its drivers let go; the last pod
that used it waits for that. Then the API is told, so that the devices can go to others; nobody waits for
that, and a server that is away does not keep pods from ending. Until the API was told, the claim stays in the
record, so that it is told even by the next agent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from functools import partial

from dray.client.timing import Backoff
from dray.node.claims import plan
from dray.node.claims.preparer_context import ClaimPreparerContext
from dray.node.claims.readiness import ABANDON_ANNOTATION
from dray.node.claims.record import NodeClaimStage, RecordedClaim
from dray.tasks import wait_for_first


class UnusedClaimReleaser:
    """Gives back the claims of one node."""

    def __init__(self, context: ClaimPreparerContext) -> None:
        self._context = context
        self._triggered = asyncio.Event()

    def trigger(self) -> None:
        """There may be something to do."""
        self._triggered.set()

    async def release_claims(self, claims: Iterable[RecordedClaim], *, abandon: bool) -> None:
        """Ask all drivers of claims without users to let go, once; what is left is in the record."""
        desk, claims = self._context, tuple(claims)
        present = desk.calls.filter_registered(plan.collect_drivers(claims))
        await desk.calls.unprepare(plan.plan_unprepare_calls(claims, present))
        left = self._list_remaining(claims)
        if left and (abandon or self._is_abandoned_by_node()):
            for held in left:
                desk.events.record_abandoned(held)
                desk.options.log("devices were abandoned", claim=str(held), uid=held.uid)
            desk.calls.record = plan.abandon_claims(desk.calls.record, (held.uid for held in left))
            await desk.calls.save("abandoned")
        if len(self._list_remaining(claims)) < len(claims):
            self._triggered.set()
            desk.released.notify_all()

    def _list_remaining(self, claims: Iterable[RecordedClaim]) -> tuple[RecordedClaim, ...]:
        """Those claims that drivers still have."""
        now = (self._context.calls.record.find_claim(held.uid) for held in claims)
        return tuple(held for held in now if held is not None and held.parts)

    def _is_abandoned_by_node(self) -> bool:
        return self._context.options.get_node().metadata.annotations.get(ABANDON_ANNOTATION) == "true"

    async def run(self) -> None:
        """Give back whatever has no users, until cancelled; also what a pod once waited for."""
        backoff = Backoff(self._context.options.time_source, initial=0.5, maximum=20.0)
        while True:
            self._triggered.clear()
            if await self._process_pending():
                backoff.reset()
                await self._triggered.wait()
            else:
                await wait_for_first(self._triggered.wait(), backoff.wait())

    async def _process_pending(self) -> bool:
        """Everything there is to do now; whether nothing of it failed."""
        record, busy = self._context.calls.record, self._context.claim_locks.locked
        work = [held.uid for held in record.claims if not held.users]
        errands = (
            self._context.pod_queues.run_in_order(uid, partial(self._release_claim, uid))
            for uid in work
            if uid not in busy
        )
        return all(await asyncio.gather(*errands))

    async def _release_claim(self, uid: str) -> bool:
        desk = self._context
        async with desk.claim_locks.hold(lambda: frozenset({uid})):
            held = desk.calls.record.find_claim(uid)
            if held is None or held.users:
                return True
            if held.state is NodeClaimStage.UNPREPARING:
                await self.release_claims((held,), abandon=False)
            held = desk.calls.record.find_claim(uid)
            if held is None or held.parts:
                return held is None
            problem = await desk.preparations.withdraw(held)
            if problem:
                desk.options.log("cannot tell the server that a claim was given back", cause=problem)
                return False
            desk.options.crash_point("announcement withdrawn")
            desk.calls.record = plan.confirm_withdrawn(desk.calls.record, uid)
            return not await desk.calls.save("let go")
