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
from dray.node.claims.preparer_context import Desk
from dray.node.claims.readiness import ABANDON
from dray.node.claims.record import Held, Stage
from dray.node.keyed_locks import first_of


class Returning:
    """Gives back the claims of one node."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._errands = asyncio.Event()

    def nudge(self) -> None:
        """There may be something to do."""
        self._errands.set()

    async def give_back(self, claims: Iterable[Held], *, abandon: bool) -> None:
        """Ask all drivers of claims without users to let go, once; what is left is in the record."""
        desk, claims = self._desk, tuple(claims)
        present = desk.calling.present(plan.drivers_of(claims))
        await desk.calling.unprepare(plan.giving_back(claims, present))
        left = self._left(claims)
        if left and (abandon or self._node_abandons()):
            for held in left:
                desk.telling.abandoned(held)
                desk.choices.log("devices were abandoned", claim=str(held), uid=held.uid)
            desk.calling.record = plan.abandoned(desk.calling.record, (held.uid for held in left))
            await desk.calling.keep("abandoned")
        if len(self._left(claims)) < len(claims):
            self._errands.set()
            desk.returned.ring()

    def _left(self, claims: Iterable[Held]) -> tuple[Held, ...]:
        """Those claims that drivers still have."""
        now = (self._desk.calling.record.claim(held.uid) for held in claims)
        return tuple(held for held in now if held is not None and held.parts)

    def _node_abandons(self) -> bool:
        return self._desk.choices.node().metadata.annotations.get(ABANDON) == "true"

    async def run(self) -> None:
        """Give back whatever has no users, until cancelled; also what a pod once waited for."""
        backoff = Backoff(self._desk.choices.tempo, first=0.5, longest=20.0)
        while True:
            self._errands.clear()
            if await self._do_errands():
                backoff.reset()
                await self._errands.wait()
            else:
                await first_of(self._errands.wait(), backoff.wait())

    async def _do_errands(self) -> bool:
        """Everything there is to do now; whether nothing of it failed."""
        record, busy = self._desk.calling.record, self._desk.busy.claims
        work = [held.uid for held in record.claims if not held.users]
        errands = (self._desk.turns.after(uid, partial(self._let_go, uid)) for uid in work if uid not in busy)
        return all(await asyncio.gather(*errands))

    async def _let_go(self, uid: str) -> bool:
        desk = self._desk
        async with desk.busy.taking(lambda: frozenset({uid})):
            held = desk.calling.record.claim(uid)
            if held is None or held.users:
                return True
            if held.state is Stage.UNPREPARING:
                await self.give_back((held,), abandon=False)
            held = desk.calling.record.claim(uid)
            if held is None or held.parts:
                return held is None
            problem = await desk.preparations.withdraw(held)
            if problem:
                desk.choices.log("cannot tell the server that a claim was given back", cause=problem)
                return False
            desk.choices.crash("announcement withdrawn")
            desk.calling.record = plan.confirmed(desk.calling.record, uid)
            return not await desk.calling.keep("let go")
