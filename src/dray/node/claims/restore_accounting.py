"""What this node has in its hands, told to a server that goes on from an earlier copy of what it knew.

Theory of operation: after a restore the server may know nothing of claims whose devices drivers here have. It
gives such devices to nobody until every node has said what it has. So whenever the node's own object shows
itself anew, which it does after each restore, the server is asked from which restore it goes on. If that is
not the one noted on the Node, every claim that was announced and that drivers may have is told, device by
device, whatever has become of its object; a preparation that the server has from before and this node has no
claim for is deleted. When all of that was taken, the restore is noted on the Node.

Claims come and go meanwhile. What is given back while it is told is taken back again. What a pod wants to
begin is refused by the server until this is done, so that nothing comes into hands behind our back.

Rules for this file: tells what the record says; nothing is prepared or given back here.
"""

from __future__ import annotations

import asyncio

from dray.api.core import Node
from dray.api.preparation import ACCOUNTED, NO_RESTORE, DeviceInHand, Preparation
from dray.client.client import Client
from dray.client.patches import MergePatch
from dray.client.rest_client import TROUBLE
from dray.client.timing import Backoff
from dray.node.claims.preparer_context import Desk
from dray.node.claims.record import Held, Stage
from dray.node.keyed_locks import first_of


def devices_of(held: Held) -> tuple[DeviceInHand, ...]:
    """The devices of a claim that drivers may have; admin access has none."""
    found = (
        DeviceInHand(driver=part.driver, pool=key.pool, device=key.device, share_id=key.share_id)
        for part in held.parts
        if part.state is not Stage.WANTED
        for key in part.wanted
        if not key.admin
    )
    return tuple(dict.fromkeys(found))


class Accounting:
    """Tells what one node has, after each restore."""

    def __init__(self, client: Client, desk: Desk) -> None:
        self._client = client
        self._desk = desk
        self._bell = asyncio.Event()

    def nudge(self) -> None:
        """The server may have been restored."""
        self._bell.set()

    async def run(self) -> None:
        """Tell what there is to tell, until cancelled."""
        backoff = Backoff(self._desk.choices.tempo, first=0.5, longest=10.0)
        while True:
            self._bell.clear()
            try:
                await self.account()
            except TROUBLE as trouble:
                self._desk.choices.log("cannot tell the server what this node has", cause=str(trouble))
                await first_of(self._bell.wait(), backoff.wait())
            else:
                backoff.reset()
                await self._bell.wait()

    async def account(self) -> None:
        """Tell what this node has, if the server has not heard it since it was restored."""
        preparations = self._desk.preparations
        if not await preparations.served():
            return
        restore = await preparations.restored()
        noted = self._desk.choices.node().metadata.annotations.get(ACCOUNTED)
        if noted == (restore or noted or NO_RESTORE):
            return
        node = await self._client.get(Node, self._name)
        noted = node.metadata.annotations.get(ACCOUNTED)
        if noted == (restore or noted or NO_RESTORE):
            return
        if restore:
            await self._tell()
        note = {"metadata": {"annotations": {ACCOUNTED: restore or NO_RESTORE}}}
        await self._client.patch(Node, self._name, MergePatch(note))
        if restore:
            self._desk.choices.log(
                "the server was restored; it knows now what this node has", restore=restore
            )
            # Pods that were refused meanwhile need not wait for long.
            self._desk.news.ring()

    @property
    def _name(self) -> str:
        return self._desk.choices.node().metadata.name

    async def _tell(self) -> None:
        preparations = self._desk.preparations
        standing = {each.spec.claim.uid: each for each in await preparations.standing() or ()}
        for held in self._desk.calling.record.claims:
            if held.uid in preparations.said and not held.classic:
                await self._tell_of(held, standing.get(held.uid))
        for uid, each in standing.items():
            if self._desk.calling.record.claim(uid) is None:
                await preparations.deny(each)

    async def _tell_of(self, held: Held, standing: Preparation | None) -> None:
        devices = devices_of(held)
        if not devices or (standing is not None and standing.spec.devices == devices):
            return
        preparations = self._desk.preparations
        await preparations.tell(held, devices, standing)
        now = self._desk.calling.record.claim(held.uid)
        if now is None or not now.parts:
            # It was given back meanwhile, and perhaps the server had heard that before.
            problem = await preparations.withdraw(held)
            if problem:
                self._desk.choices.log("cannot tell the server that a claim was given back", cause=problem)
